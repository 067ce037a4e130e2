"""The bound on answers that clients of a bookie do not take, over all connections.

Each connection is bounded by itself (``limits.OUTPUT_BYTES_MAX``, and an answer), and there are thousands. While all
together have more than ``UNREAD_BYTES_MAX``, nobody's reads are carried out, and who takes next to nothing is cut off,
the one that is behind for longest first: after a moment the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from geminga.bookie.serving import limits


class Answered(Protocol):
    """A connection with answers. Hashes by identity."""

    @property
    def unread_bytes(self) -> int:
        """What its client was sent and has not taken."""

    def abort(self, reason: str = "") -> None:
        """The end."""


class _Unread:
    __slots__ = ("_from_bytes", "_taken_bytes", "since_s", "size_bytes")

    def __init__(self, now_s: float) -> None:
        self.size_bytes = 0
        #: When it had taken its share last, as far as it was looked at; what it had then, and what it took since.
        self.since_s = now_s
        self._from_bytes = 0
        self._taken_bytes = 0

    def now_has(self, size_bytes: int, written_bytes: int, now_s: float) -> int:
        """So much, of which some is new; by how much it grew."""
        grown = size_bytes - self.size_bytes
        self._taken_bytes += written_bytes - grown
        self.size_bytes = size_bytes
        if self._taken_bytes >= min(self._from_bytes, limits.UNREAD_TAKEN_BYTES_MIN):
            self.since_s, self._from_bytes, self._taken_bytes = now_s, size_bytes, 0
        return grown


class UnreadAnswers:
    """See the module."""

    __slots__ = ("_by_connection", "_has_room", "_loop", "_timer", "is_full", "size_bytes")

    def __init__(self, has_room: Callable[[], None]) -> None:
        """``has_room``: reads are carried out again."""
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        #: Who had something in its buffer when it wrote last.
        self._by_connection: dict[Answered, _Unread] = {}
        self.size_bytes = 0
        #: No reads are carried out.
        self.is_full = False
        self._timer: asyncio.TimerHandle | None = None

    def wrote(self, connection: Answered, written_bytes: int, size_bytes: int) -> None:
        """So much a connection wrote, and so much is in its buffer then."""
        unread = self._by_connection.get(connection)
        if unread is None:
            if not size_bytes:
                return
            unread = self._by_connection[connection] = _Unread(self._loop.time())
        self.size_bytes += unread.now_has(size_bytes, written_bytes, self._loop.time())
        if self.size_bytes > limits.UNREAD_BYTES_MAX and not self.is_full:
            self._refresh()
            if self.size_bytes > limits.UNREAD_BYTES_MAX:
                self.is_full = True
                self._timer = self._loop.call_later(limits.UNREAD_LOOK_S, self._look)

    def forget(self, connection: Answered) -> None:
        """It is gone."""
        unread = self._by_connection.pop(connection, None)
        if unread is not None:
            self.size_bytes -= unread.size_bytes

    def close(self) -> None:
        """The server stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refresh(self) -> None:
        """What each has now."""
        now_s = self._loop.time()
        for connection, unread in list(self._by_connection.items()):
            size_bytes = connection.unread_bytes
            self.size_bytes += unread.now_has(size_bytes, 0, now_s)
            if not size_bytes:
                del self._by_connection[connection]

    def _look(self) -> None:
        self._timer = None
        self._refresh()
        latest_s = self._loop.time() - limits.UNREAD_STALL_S
        behind = sorted(self._by_connection.items(), key=lambda item: item[1].since_s)
        for connection, unread in behind:
            if self.size_bytes <= limits.UNREAD_BYTES_MAX // 2 or unread.since_s > latest_s:
                break
            connection.abort("takes next to nothing of its answers, and others wait for the room")
            self.forget(connection)
        if self.size_bytes > limits.UNREAD_BYTES_MAX // 2:
            self._timer = self._loop.call_later(limits.UNREAD_LOOK_S, self._look)
            return
        self.is_full = False
        self._has_room()
