"""What publishing in transactions asks of a topic."""

from __future__ import annotations

from typing import Final, Protocol

from geminga.model.txn_id import TxnId

#: Of a managed ledger: it has messages of transactions, and without a snapshot all of it is read. Geminga's own.
TRANSACTIONS_PROPERTY: Final = "geminga.transactions"


class TakesTransactions(Protocol):
    """The part of a topic that takes messages of transactions."""

    def is_ready_for(self, txn_id: TxnId) -> bool:
        """Whether :meth:`check_may_publish` can tell; otherwise :meth:`get_ready_for` comes first."""
        ...

    async def get_ready_for(self, txn_id: TxnId) -> None:
        """Be ready for messages of a transaction. Raises GemingaError."""
        ...

    def check_may_publish(self, txn_id: TxnId) -> None:
        """Raise GemingaError if the transaction takes nothing more here, or never did."""
        ...

    async def end(self, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        """How it ended, durable on return. Raises GemingaError."""
        ...
