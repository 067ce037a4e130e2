"""The bound on what clients were sent and have not taken, over all connections of a broker.

A connection whose write buffer is over its mark, or has more than a few answers, is counted with what is in it.
Dispatchers never write to the former. While all of them together have more than the limit, the others take turns, a few
at a time: a turn ends with the first write of a dispatcher, or after a moment. Whoever came last is first: those who
read come again and again, and go on beside any number who do not. At twice the limit there are no turns. Where others
wait, or there is more than that, who has taken nothing for some seconds is cut off, the longest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

#: Bytes that all connections together were sent and have not taken, before they take turns.
UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
#: Connections that have their turn at the same time, each with one read of a dispatcher.
TURNS_MAX: Final = 8
#: What one is expected to write: ``dispatcherMaxReadSizeBytes`` and what lies around the entries.
TURN_BYTES: Final = 6 * 1024 * 1024
#: Seconds that a turn lasts at most: reading what is to be sent takes its time.
TURN_S: Final = 1.0
#: Seconds without taking a byte after which a connection may be cut off while others wait for a turn; and where there
#: is no room for a turn at all.
STALL_S: Final = 5.0
STALL_FULL_S: Final = 0.75
#: Seconds between two looks while there is a shortage.
LOOK_S: Final = 0.2


class Written(Protocol):
    """What dispatchers write to."""

    @property
    def unsent_bytes(self) -> int:
        """What the client was sent and has not taken."""
        ...

    def must_wait(self) -> None:
        """There is a shortage: dispatchers write in turns."""

    def may_write_again(self, *, has_turn: bool = False) -> None:
        """The shortage is over, or it is its turn."""


class Unsent:
    """What a connection has in its write buffer."""

    __slots__ = ("progress_s", "size_bytes")

    def __init__(self, size_bytes: int, now_s: float) -> None:
        self.size_bytes = size_bytes
        #: When it last took something, as far as it was looked at.
        self.progress_s = now_s


class OutputBudget:
    """See the module."""

    __slots__ = (
        "_connections",
        "_limit_bytes",
        "_look_timer",
        "_monotonic",
        "_turns",
        "_unsent",
        "_waiting",
        "is_short",
        "size_bytes",
    )

    def __init__(
        self,
        monotonic: Callable[[], float],
        limit_bytes: int = UNSENT_BYTES_MAX,
    ) -> None:
        self._monotonic = monotonic
        self._limit_bytes = limit_bytes
        #: All there are, and what ends each: it takes nothing, and others wait.
        self._connections: dict[Written, Callable[[str], None]] = {}
        #: Bytes counted now.
        self.size_bytes = 0
        #: Whether connections take turns.
        self.is_short = False
        self._unsent: dict[Written, Unsent] = {}
        #: Connections whose dispatchers want to write; who came last is last.
        self._waiting: dict[Written, None] = {}
        #: Whose turn it is, and when it ends.
        self._turns: dict[Written, asyncio.TimerHandle] = {}
        self._look_timer: asyncio.TimerHandle | None = None

    def join(self, connection: Written, cut_off: Callable[[str], None]) -> None:
        """It is there, until :meth:`forget`; ``cut_off`` ends it at once."""
        self._connections[connection] = cut_off

    def wait(self, connection: Written) -> None:
        """The connection wants a turn, and hears of it."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None
        if len(self._turns) < TURNS_MAX:
            asyncio.get_running_loop().call_soon(self._next_turns)

    def note(self, connection: Written, size_bytes: int) -> None:
        """So many bytes are in the write buffer of a connection that is over its mark."""
        unsent = self._unsent.get(connection)
        if unsent is None:
            unsent = self._unsent[connection] = Unsent(0, self._monotonic())
        self.size_bytes += size_bytes - unsent.size_bytes
        unsent.size_bytes = size_bytes
        if self.size_bytes > self._limit_bytes and not self.is_short:
            self._see_who_takes()  # who is not over its mark says nothing when it took what it was sent
        if self.size_bytes > self._limit_bytes and not self.is_short:
            self.is_short = True
            for other in self._connections:
                other.must_wait()
            self._look_later()
        self._end_turn(connection)

    def took(self, connection: Written) -> None:
        """A connection took what was written, or is gone."""
        unsent = self._unsent.pop(connection, None)
        if unsent is not None:
            self.size_bytes -= unsent.size_bytes
        if self.is_short and self.size_bytes <= self._limit_bytes // 2:
            self.is_short = False
            self._waiting = {}
            for holder in list(self._turns):
                self._end_turn(holder)
            asyncio.get_running_loop().call_soon(self._release)

    def wrote(self, connection: Written) -> None:
        """A dispatcher wrote to a connection in its turn."""
        self._end_turn(connection)

    def forget(self, connection: Written) -> None:
        """The connection is gone."""
        self._connections.pop(connection, None)
        self._waiting.pop(connection, None)
        self.took(connection)
        self._end_turn(connection)

    def close(self) -> None:
        """The broker stops."""
        for connection in list(self._turns):
            self._end_turn(connection)
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None

    def _release(self) -> None:
        """Nobody needs to wait."""
        for connection in list(self._connections):
            if self.is_short:
                break  # again
            connection.may_write_again()

    def _end_turn(self, connection: Written) -> None:
        timer = self._turns.pop(connection, None)
        if timer is None:
            return
        timer.cancel()
        connection.must_wait()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next_turns)

    @property
    def _has_room_for_turn(self) -> bool:
        return self.size_bytes + (len(self._turns) + 1) * TURN_BYTES <= 2 * self._limit_bytes

    def _next_turns(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self.is_short and len(self._turns) < TURNS_MAX:
            if not self._has_room_for_turn:
                return  # a look, or who takes something, makes room
            connection, _ = self._waiting.popitem()
            if connection not in self._turns:
                self._turns[connection] = loop.call_later(TURN_S, self._end_turn, connection)
                connection.may_write_again(has_turn=True)

    def _look_later(self) -> None:
        if self._look_timer is None:
            self._look_timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _see_who_takes(self) -> None:
        """Count anew what each has not taken."""
        now_s = self._monotonic()
        for connection, unsent in list(self._unsent.items()):
            size_bytes = connection.unsent_bytes
            if size_bytes != unsent.size_bytes:
                self.size_bytes += size_bytes - unsent.size_bytes
                unsent.size_bytes, unsent.progress_s = size_bytes, now_s
            if not size_bytes:
                self.took(connection)

    def _look(self) -> None:
        """See who takes something, and cut off who does not where there is no room for others."""
        self._look_timer = None
        now_s = self._monotonic()
        self._see_who_takes()
        stalled = [
            (unsent.progress_s, number, connection)
            for number, (connection, unsent) in enumerate(self._unsent.items())
            if now_s - unsent.progress_s >= STALL_FULL_S
        ]
        is_pressing = bool(self._waiting) or self.size_bytes > 2 * self._limit_bytes
        for since_s, _, connection in sorted(stalled) if is_pressing else ():
            if self._has_room_for_turn and (now_s - since_s < STALL_S or self.size_bytes < self._limit_bytes):
                break
            self._connections[connection]("it takes nothing of what it is sent, and others wait for the room")
            self.took(connection)
        if self.is_short:
            self._look_later()
            self._next_turns()
