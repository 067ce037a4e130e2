"""Positions in a managed ledger, and message ids.

A position is (ledger id, entry id), both int64. ``entry_id`` -1 means "before the first entry of
that ledger", as in Pulsar's ``PositionImpl``. Positions compare in log order, because ledger ids of
one managed ledger ascend.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Position(NamedTuple):
    """Where an entry lies: ledger id and entry id. A tuple, so that comparing and hashing are C speed."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


#: Before every entry (Pulsar's ``PositionFactory.EARLIEST`` is (-1, -1)).
EARLIEST: Final = Position(-1, -1)
#: Behind every entry (Pulsar's ``LATEST`` is (Long.MAX, Long.MAX)).
LATEST: Final = Position((1 << 63) - 1, (1 << 63) - 1)


class MessageId(NamedTuple):
    """The id of one message: its entry, its partition (-1: none) and its index in a batch (-1: no batch)."""

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1
