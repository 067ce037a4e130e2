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

    async def read_mark(self, instance: str) -> int | None:
        """The mark that the bookie ``instance`` last left in the store; None: there is none. Raises MetadataError."""
        ...

    async def write_mark(self, instance: str, mark: int) -> None:
        """Leave a mark in the place of the one before. Raises MetadataError."""
        ...

    async def existing(self, ledger_ids: Sequence[int]) -> AbstractSet[int] | None:
        """Which of a few exist, at least as fresh as this call; None: that can not be told. Raises MetadataError."""
        ...
