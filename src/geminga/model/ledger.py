"""Values of the storage layer that both the bookie and the ledger client speak of."""

from __future__ import annotations

from typing import NamedTuple


class LacResult(NamedTuple):
    """A bookie's view of a ledger's end: its newest stored entry (whole, with header), or None if it has none."""

    last_entry_id: int
    last_entry: bytes | None
    #: Explicit LAC a writer announced, -1 if none.
    explicit_lac: int
