"""When what a socket read brought is handled: frames are cut, and handled as long as a turn of the loop may last.

A read of many small commands takes several turns of the loop, so that others are served in between: a connection's
turn ends after :data:`TURN_COMMANDS_MAX` commands or :data:`TURN_S_MAX`. What is left keeps its order, and nothing
more is read before it is handled. A single command that is long is carried out in several turns
(:meth:`ConnectionTurns.run_in_turns`), and what follows it waits until then.
"""

from __future__ import annotations

import asyncio

from geminga.broker.connection.back_pressure import HANDSHAKE_BYTES_MAX, TURN_S_MAX
from geminga.broker.connection.frame_room import LARGE_FRAME_BYTES, HalfFrame
from geminga.broker.connection.members import ConnectionMembers
from geminga.broker.connection.pause_reason import PauseReason
from geminga.broker.connection.services import ConnectionServices
from geminga.runtime import Contained
from geminga.wire.pulsar.foreign import refusal, spoken_in
from geminga.wire.pulsar.frame import Frame, FrameDecoder, ImpossibleFrameError


class ConnectionTurns(ConnectionMembers):
    """The half of a connection that reads."""

    __slots__ = (
        "_commands_left",
        "_contained",
        "_decoder",
        "_half_frame",
        "_has_commands_left",
        "_turn",
        "_turn_commands_max",
    )

    def __init__(self, services: ConnectionServices, turn_commands_max: int) -> None:
        super().__init__(services)
        self._decoder = FrameDecoder(min(HANDSHAKE_BYTES_MAX, services.config.message_bytes_max))
        #: The large frame that has begun and is not whole.
        self._half_frame: HalfFrame | None = None
        self._turn_commands_max = turn_commands_max
        #: Frames of the last turn that it had no time for; the decoder may hold more behind them.
        self._commands_left: list[Frame] = []
        #: Whether one of the two has; the same as COMMANDS_LEFT in :attr:`paused`, whose arithmetic costs microseconds.
        self._has_commands_left = False
        #: The next turn, while commands are left over and nothing else stops them.
        self._turn: asyncio.Handle | None = None
        self._contained = Contained(self, "a command", is_last=True)

    def _handle_frames(self, frames: list[Frame], deadline: float) -> list[Frame]:
        """Handle frames in their order; those the turn had no room for, which ends at ``deadline`` (monotonic)."""
        return frames

    def data_received(self, data: bytes) -> None:
        """Handle every frame that ``data`` completes, as one batch unless they are too many for one turn."""
        with self._contained:
            self._awaiting_pong = False
            if self._liveness.is_under_way:
                self._liveness.answer(True)
            if self._has_commands_left:
                self._decoder.feed(data, 0)  # under way before reading stopped
            else:
                self._take_turn(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone: what came before is handled, then producers and consumers leave their topics."""
        if self._has_commands_left and not self.is_closed:
            self._is_lost = True
            self._transport = None
            self._schedule_turn()  # or the command under way does
        else:
            self._leave()

    def _leave(self) -> None:
        self._is_lost = False
        self._commands_left = []
        if self._half_frame is not None:
            self.services.frame_room.end(self._half_frame)
            self._half_frame = None
        self._forget_life()
        self._output_budget.forget(self)
        self._leave_rates()
        self._out.clear()
        self._writable_callbacks.clear()
        self._forget_members()
        self.services.publish_buffer.forget(self)
        self.services.connections.closed(self)

    def _take_turn(self, data: bytes = b"") -> None:
        """Handle what is left over, or else new frames, as long as a turn may last."""
        decoder = self._decoder
        deadline = self._monotonic() + TURN_S_MAX
        was_connected = self.is_connected
        # Before CONNECT one frame at a time: those behind it may be larger.
        commands_max = self._commands_in_turn() if self._is_rated else self._turn_commands_max
        frames = self._commands_left or decoder.feed(data, commands_max if was_connected else 1)
        if decoder.incomplete_bytes > LARGE_FRAME_BYTES or self._half_frame is not None:
            self._mind_half_frame(decoder.incomplete_bytes, has_ended=bool(frames))
        self._commands_left = self._handle_frames(frames, deadline)
        if not was_connected and self.is_connected and decoder.has_more:
            self._commands_left = self._handle_frames(decoder.feed(b"", self._turn_commands_max), deadline)
        if not self.is_closed:
            if self._commands_left or decoder.has_more or self._is_command_under_way:
                self._has_commands_left = True
                self._pause(PauseReason.COMMANDS_LEFT)
                if self._is_lost or self._paused == PauseReason.COMMANDS_LEFT:
                    self._schedule_turn()  # else _resume does
                return
            if decoder.error is not None:
                self._end_stream(decoder.error)
        if self._has_commands_left:
            self._has_commands_left = False
            self._resume(PauseReason.COMMANDS_LEFT)
        if self._is_lost:
            self._leave()

    def _commands_in_turn(self) -> int:
        """As many as the rates of its producers have room for, as far as entries are what they were."""
        throttles = {throttle for producer in self.producers.values() for throttle in producer.topic.publish_throttles}
        self._is_rated = bool(throttles)
        return min([self._turn_commands_max, *(throttle.entries_left() for throttle in throttles)])

    def _end_stream(self, error: ImpossibleFrameError) -> None:
        """Its bytes are no frames; who mixed up the ports is told so in the protocol that came."""
        spoken = None if self.is_connected else spoken_in(error.head)
        if spoken is None:
            self.close(str(error))
            return
        self.services.connections.warn_of_wrong_port(self, spoken)
        text = (
            "This is a port of Pulsar's binary protocol (pulsar://HOST:PORT); HTTP is on another one (webServicePort)"
        )
        self.write(refusal(spoken, text))
        self.close()

    def _mind_half_frame(self, size_bytes: int, *, has_ended: bool) -> None:
        """A large frame has begun, grown, or ended: it needs room as long as it is not whole."""
        room, frame = self.services.frame_room, self._half_frame
        if frame is not None and (has_ended or self.is_closed):
            room.end(frame)
            frame = self._half_frame = None
        if frame is not None:
            room.progress(frame)
        elif size_bytes > LARGE_FRAME_BYTES and not self.is_closed:
            self._half_frame = room.begin(self, size_bytes)

    def frame_waits(self) -> None:
        """There is no room for the rest of a large frame now."""
        self._pause(PauseReason.FRAME_BUFFER)

    def frame_has_room(self) -> None:
        """There is now."""
        self._resume(PauseReason.FRAME_BUFFER)

    def handshake_done(self) -> None:
        """CONNECT succeeded: other commands are taken, and large messages."""
        super().handshake_done()
        self._decoder.allow(self.services.config.message_bytes_max)

    def _schedule_turn(self) -> None:
        if self._turn is None and not self._is_command_under_way:
            self._turn = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        if self.is_closed:
            self._commands_left = []
            if self._is_lost:
                self._leave()
        elif self._is_lost or self._paused == PauseReason.COMMANDS_LEFT:
            with self._contained:
                self._take_turn()
            if self.is_closed and self._is_lost:
                self._leave()
