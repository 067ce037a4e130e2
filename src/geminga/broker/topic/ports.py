"""What publishing in transactions asks of a topic."""

from __future__ import annotations

from typing import Protocol

from geminga.model.txn_id import TxnId


class TakesTransactions(Protocol):
    """The part of a topic that takes messages of transactions."""

    @property
    def is_idle(self) -> bool:
        """There was none yet: :meth:`begin` comes first."""
        ...

    async def begin(self) -> object:
        """Be ready for them. Raises GemingaError."""
        ...

    def check_may_publish(self, txn_id: TxnId) -> None:
        """Raise GemingaError if the transaction takes nothing more here."""
        ...

    async def end(self, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        """How it ended, durable on return. Raises GemingaError."""
        ...
