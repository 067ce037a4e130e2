"""Memory of acknowledgment state: one limit for all cursors of a process.

Counted is the state of cursors that is written as segments (a smaller one takes a few KiB, and one that is not durable
has nowhere to go). Past the limit the cursor that takes most puts away its least recently used ledgers, on the loop's
next turn and never within an acknowledgment or a read.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

#: Room made at once: this part of the limit, so that the next ledger brought back does not need another turn.
ROOM_PERCENT: Final = 10
#: A ledger with one bitmap container, as most have.
LEDGER_BYTES: Final = 8_500
#: Cursors that put something away in one turn of the loop.
CURSORS_PER_TURN_MAX: Final = 16


class StateHolder(Protocol):
    """A cursor, as far as it concerns this."""

    name: str

    def put_away(self, wanted_bytes: int) -> int:
        """Make so much room in memory, as far as that goes; how much it is."""
        ...


class CursorMemory:
    """See the module."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: What the cursors take together.
        self.total_bytes = 0
        #: The most that was ever counted.
        self.peak_bytes = 0
        self._known: dict[StateHolder, int] = {}
        self._is_due = False

    @property
    def room_bytes(self) -> int:
        """What more may be taken."""
        return max(0, self.limit_bytes - self.total_bytes)

    def changed(self, cursor: StateHolder, memory_bytes: int) -> None:
        """A cursor takes so much now; 0 when it is closed or its state is small."""
        self.total_bytes += memory_bytes - self._known.get(cursor, 0)
        self.peak_bytes = max(self.peak_bytes, self.total_bytes)
        if memory_bytes:
            self._known[cursor] = memory_bytes
        else:
            self._known.pop(cursor, None)
        if self.total_bytes > self.limit_bytes and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._put_away)

    def has_room(self) -> bool:
        """Whether a ledger of common size can be brought back."""
        return self.total_bytes + LEDGER_BYTES <= self.limit_bytes

    def make_room(self) -> bool:
        """Put something away unless there is room for a ledger; whether there is then, without writing anything."""
        if not self.has_room():
            self._put_away_to(self.limit_bytes * (100 - ROOM_PERCENT) // 100)
        return self.has_room()

    def _put_away(self) -> None:
        self._is_due = False
        if self.total_bytes > self.limit_bytes:
            self._put_away_to(self.limit_bytes * (100 - ROOM_PERCENT) // 100)

    def _put_away_to(self, target_bytes: int) -> None:
        wanted = self.total_bytes - target_bytes
        largest = sorted(self._known, key=lambda cursor: (-self._known[cursor], cursor.name))
        for cursor in largest[:CURSORS_PER_TURN_MAX]:
            if wanted <= 0:
                break
            # What is being written can not go now; the end of the write calls again.
            wanted -= cursor.put_away(wanted)
