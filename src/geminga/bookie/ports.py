"""What the bookie needs of the layers above: which ledgers still exist."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol


class LiveLedgers(Protocol):
    """The ledgers that exist by the metadata store."""

    async def live_ledger_ids(self) -> AbstractSet[int] | None:
        """Ids of all ledgers that exist, at least as fresh as this call; None: not known now, delete nothing."""
        ...

    async def next_ledger_id(self) -> int | None:
        """A number that no ledger id ever given out reaches; None: the store keeps none. Raises MetadataError."""
        ...

    async def existing(self, ledger_ids: Sequence[int]) -> AbstractSet[int] | None:
        """Which of a few exist, at least as fresh as this call; None: that can not be told. Raises MetadataError."""
        ...
