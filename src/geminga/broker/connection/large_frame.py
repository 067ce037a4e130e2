"""A large frame of a connection that has begun and is not whole: it needs room of all connections' as long as that."""

from __future__ import annotations

from collections.abc import Callable

from geminga.broker.connection.core.read_gate import PauseReason, ReadGate
from geminga.runtime.frame_room import FrameRoom, HalfFrame


class LargeFrame:
    """What the room knows of a connection, for as long as the frame takes."""

    __slots__ = ("_cut_off", "_gate", "_half", "_room")

    def __init__(self, room: FrameRoom, gate: ReadGate, cut_off: Callable[[str], None], size_bytes: int) -> None:
        """It will be of ``size_bytes``; where there is no room the connection is not read, or ``cut_off`` at once."""
        self._room = room
        self._gate = gate
        self._cut_off = cut_off
        self._half: HalfFrame | None = room.begin(self, size_bytes)

    def grew(self) -> None:
        """More of it came."""
        if self._half is not None:
            self._room.progress(self._half)

    def end(self) -> None:
        """It is whole, or will never be; the two know each other, and no cycle is left."""
        half, self._half = self._half, None
        if half is not None:
            self._room.end(half)

    # ---- for the room

    @property
    def is_heard(self) -> bool:
        """Whether its connection is read now."""
        return not self._gate.reasons

    def frame_waits(self) -> None:
        """There is no room for the rest of it now."""
        self._gate.hold(PauseReason.FRAME_BUFFER)

    def frame_has_room(self) -> None:
        """There is now."""
        self._gate.free(PauseReason.FRAME_BUFFER)

    def abort(self, reason: str = "") -> None:
        """Others wait, and the rest does not come."""
        self._cut_off(reason)
