"""Bounds over all connections of a server, a broker, a bookie, one of HTTP: on halves of large frames, and on what
clients do not take.

A connection that has begun a large frame claims room for all of it, in turn with others; while it waits, nothing is
read from it. Who was given room can finish, so that one frame always does. Who then sends nothing more, or goes on for
ever, keeps others waiting: while there are such, it is closed. One that is not read is not silent.

Who waits holds what one read of its socket brought, so no more than some may: whoever comes then is sent away.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from geminga.model.byte_budget import ByteBudget, Claim

if TYPE_CHECKING:
    from collections.abc import Callable

#: Frames up to this size are not counted: a read brings as much.
LARGE_FRAME_BYTES: Final = 64 * 1024
#: Bytes of large frames that are not whole yet, of all connections; one goes on in any case.
HALF_FRAMES_BYTES_MAX: Final = 64 * 1024 * 1024
#: Connections that wait for room, each with one read of its socket (256 KiB, of asyncio as of uvloop); 128 MiB.
WAITING_MAX: Final = 512
#: Seconds without a byte, and in all, that a connection may hold room which others wait for.
STALL_S: Final = 5.0
FRAME_S_MAX: Final = 60.0


class FrameReader(Protocol):
    """Who reads a large frame."""

    @property
    def is_heard(self) -> bool:
        """Whether it is read now: where it is not, nothing can come of it."""

    def frame_waits(self) -> None:
        """There is no room for the rest of it now."""

    def frame_has_room(self) -> None:
        """There is now."""

    def abort(self, reason: str = "") -> None:
        """Others wait, and it does not come: the end."""


class HalfFrame:
    """A large frame that is not whole yet."""

    __slots__ = ("began_s", "claim", "connection", "progress_s")

    def __init__(self, connection: FrameReader, now_s: float) -> None:
        self.connection = connection
        self.claim: Claim | None = None
        #: When there was room for it, and when something of it came last; monotonic.
        self.began_s = now_s
        self.progress_s = now_s

    def release(self) -> None:
        """It is whole, or will never be."""
        if self.claim is not None:
            self.claim.release()


class FrameRoom:
    """See the module."""

    __slots__ = ("_budget", "_frames", "_monotonic", "_timer", "_waiting_max")

    def __init__(
        self,
        monotonic: Callable[[], float],
        limit_bytes: int = HALF_FRAMES_BYTES_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._budget = ByteBudget(limit_bytes)
        self._waiting_max = waiting_max
        self._monotonic = monotonic
        #: Those that have room.
        self._frames: dict[HalfFrame, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the frames that have room."""
        return self._budget.held_bytes

    def begin(self, connection: FrameReader, size_bytes: int) -> HalfFrame:
        """A frame of so many bytes has begun; the connection is told to pause, and to go on, if there is no room.

        It is aborted if too many wait already.
        """
        frame = HalfFrame(connection, self._monotonic())

        def granted(claim: Claim) -> None:
            frame.began_s = frame.progress_s = self._monotonic()
            self._frames[frame] = None
            if frame.claim is not None:
                connection.frame_has_room()

        frame.claim = self._budget.claim(size_bytes, granted)
        if not frame.claim.is_held:
            if self._budget.waiting_count > self._waiting_max:
                frame.release()
                connection.abort("a large frame, and too many others wait for room")
                return frame
            connection.frame_waits()
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(1.0, self._look)
        return frame

    def progress(self, frame: HalfFrame) -> None:
        """More of it came."""
        frame.progress_s = self._monotonic()

    def whole(self, frame: HalfFrame) -> None:
        """All of it is there, and is needed on: it keeps its room until :meth:`end`, however long that takes."""
        self._frames.pop(frame, None)

    def end(self, frame: HalfFrame) -> None:
        """It is not needed any more, or its connection is gone."""
        self._frames.pop(frame, None)
        frame.release()

    def _look(self) -> None:
        """Others wait: close who keeps them waiting."""
        self._timer = None
        if not self._budget.waiting_count:
            return
        now_s = self._monotonic()
        for frame in list(self._frames):
            if not frame.connection.is_heard:
                frame.progress_s = now_s
            if now_s - frame.progress_s > STALL_S or now_s - frame.began_s > FRAME_S_MAX:
                frame.connection.abort("half a frame, and others wait for its room")
                self.end(frame)
        if self._budget.waiting_count:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._look)

    def close(self) -> None:
        """The server stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# ---- what clients do not take


class WrittenTo(Protocol):
    """A connection."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """What it is written to; None: it is gone."""


class UnreadResponses:
    """Answers that clients do not take, of all connections: beyond the limit who is behind for longest is cut off."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        #: In the order in which they fell behind.
        self._behind: dict[WrittenTo, None] = {}

    def fell_behind(self, connection: WrittenTo) -> None:
        """Its transport is over its mark: all that is written at once is in there."""
        self._behind[connection] = None
        sizes = {behind: _unread_bytes(behind) for behind in self._behind}
        total = sum(sizes.values())
        for behind, size_bytes in sizes.items():
            # The newest may be as large as it is: one goes on in any case.
            if total <= self._limit_bytes or behind is connection:
                return
            total -= size_bytes
            if behind.transport is not None:
                behind.transport.abort()

    def keeps_up(self, connection: WrittenTo) -> None:
        """It took most, or is gone."""
        self._behind.pop(connection, None)


def _unread_bytes(connection: WrittenTo) -> int:
    return 0 if connection.transport is None else connection.transport.get_write_buffer_size()
