"""Requests of a connection that are under way, and when their number stops reading."""

from __future__ import annotations

from geminga.broker.connection.back_pressure import REQUESTS_PENDING_MAX
from geminga.broker.connection.core.read_gate import PauseReason, ReadGate
from geminga.broker.connection.request_room import RequestRoom


class RequestLoad:
    """Of one connection; it is not read while too many are under way, of its own or of all clients."""

    __slots__ = ("_gate", "_is_over", "_pending", "_room")

    def __init__(self, room: RequestRoom, gate: ReadGate) -> None:
        self._room = room
        self._gate = gate
        self._pending = 0
        self._is_over = False

    def begins(self) -> None:
        """A request is worked on, until :meth:`done`."""
        room = self._room
        room.count += 1
        self.goes_on()
        if room.is_short_for(self._pending) and not self._is_over:
            room.held[self] = None
            self._gate.hold(PauseReason.REQUEST_ROOM)

    def goes_on(self) -> None:
        """It does not rest any more."""
        self._pending += 1
        if self._pending > REQUESTS_PENDING_MAX:
            self._gate.hold(PauseReason.PENDING_REQUESTS)

    def rests(self) -> None:
        """It waits for something that may take long: it holds up nothing of its connection, until it goes on."""
        self._pending -= 1
        if self._gate.reasons and self._pending <= REQUESTS_PENDING_MAX // 2:
            self._gate.free(PauseReason.PENDING_REQUESTS)

    def done(self, _: object = None) -> None:
        """A request is answered; of a connection that is over too."""
        self.rests()
        self._room.end()

    def request_room_is_free(self) -> None:
        """Of all connections, half as many requests are under way as may be."""
        self._gate.free(PauseReason.REQUEST_ROOM)

    def closed(self) -> None:
        """Its connection is closed: what still begins waits for no room."""
        self._is_over = True

    def end(self) -> None:
        """The connection is over; its requests count until they are done."""
        self._is_over = True
        self._room.held.pop(self, None)
