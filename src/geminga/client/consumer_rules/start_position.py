"""Which messages a consumer that starts at a message id must not hand out.

A broker starts at an *entry*; the messages before the wanted one in its batch, and the wanted one itself unless the
start is inclusive, are dropped by the client.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where to start: (ledger, entry, index in the batch, -1: not batched or the whole entry)."""

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    is_inclusive: bool = False

    def first_index(self, ledger_id: int, entry_id: int, *, is_batch: bool) -> int | None:
        """The first index to deliver of an entry; None: nothing of it.

        Without an index the start means the entry: inclusive, all of its messages; else none of them.
        """
        here = (ledger_id, entry_id)
        start = (self.ledger_id, self.entry_id)
        if here > start:
            return 0
        if here < start:
            return None
        if not is_batch or self.batch_index < 0:
            return 0 if self.is_inclusive else None
        return self.batch_index if self.is_inclusive else self.batch_index + 1
