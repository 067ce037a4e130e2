"""What a connection writes, and when it is not read: back-pressure both ways.

Writing: one write a turn of the loop where that may be; who must wait until the client takes what it was sent is told
when it has.

Reading stops while more publishes than ``maxPendingPublishRequestsPerConnection`` are unanswered, while the broker
holds more unanswered bytes than its publish buffer, while too many other requests are under way, while the client does
not take what is written to it, while somebody publishes faster on it than a rate allows, or while commands are left
over: its client sends no more than the broker can take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import IntFlag
from typing import Protocol

from geminga.broker.connection.back_pressure import (
    REQUESTS_PENDING_MAX,
    WRITE_BUFFER_COUNTED_BYTES,
    WRITE_BUFFER_STOP_READING_BYTES,
)
from geminga.broker.connection.services import ConnectionServices
from geminga.model.errors import GemingaError, TooManyRequestsError
from geminga.runtime import Buffer, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands


class PauseReason(IntFlag):
    """Why nothing is read from a connection."""

    NONE = 0
    PENDING_PUBLISHES = 1
    PUBLISH_BUFFER = 2
    WRITE_BUFFER = 4
    PENDING_REQUESTS = 8
    COMMANDS_LEFT = 16
    #: A command is carried out in several turns.
    COMMAND_UNDER_WAY = 32
    #: The rest of a large frame waits for room.
    FRAME_BUFFER = 64
    #: Somebody publishes on it faster than a rate allows.
    PUBLISH_RATE = 128
    #: Too many requests of all connections are under way, and more than a few of its own.
    REQUEST_ROOM = 256


class UsedUpRate(Protocol):
    """A publish rate that holds connections. Hashes by identity."""

    def forget(self, connection: ConnectionTraffic, /) -> None:
        """It is gone."""
        ...


class ConnectionTraffic:
    """The two directions of a connection, as they hold each other back."""

    __slots__ = (
        "_awaiting_pong",
        "_flush_scheduled",
        "_has_turn",
        "_is_command_under_way",
        "_is_full",
        "_is_lost",
        "_is_rated",
        "_loop",
        "_out",
        "_output_budget",
        "_paused",
        "_pending_publishes",
        "_pending_requests",
        "_rates_used_up",
        "_transport",
        "_writable_callbacks",
        "is_closed",
        "is_writable",
        "peer",
        "services",
    )

    def __init__(self, services: ConnectionServices) -> None:
        self.services = services
        #: ``/address:port``, as Pulsar prints it.
        self.peer = ""
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # Writing.
        self._out: list[bytes] = []
        self._flush_scheduled = False
        self._output_budget = services.output_budget
        #: Whether dispatchers may write: the transport's buffer is below its high mark, and either there is no shortage
        #: of room for what clients do not take, or it is this connection's turn.
        self.is_writable = not services.output_budget.is_short
        self._is_full = False
        self._has_turn = False
        self._writable_callbacks: list[Callable[[], None]] = []
        # Reading.
        self._paused = PauseReason.NONE
        #: A command is carried out in several turns: those behind it wait.
        self._is_command_under_way = False
        #: The transport is gone and what it brought is still being handled; then the connection leaves.
        self._is_lost = False
        self._awaiting_pong = False
        self._pending_publishes = 0
        self._pending_requests = 0
        #: Whether a producer of it may publish under a rate.
        self._is_rated = False
        #: Publish rates that hold it; None: there never was one.
        self._rates_used_up: dict[UsedUpRate, None] | None = None

    def _schedule_turn(self) -> None:
        """Go on with commands that are left over. The connection does it."""

    def broke(self, what: str, error: BaseException) -> None:
        """Something unexpected came out of its requests. The connection ends then."""

    def cut_off(self, reason: str) -> None:
        """It is closed at once. The connection does it."""

    def told(self, error: GemingaError) -> str:
        """What the client is told of an error. The connection logs what it is not told."""
        return error.told

    # ---- writing

    def write(self, data: bytes) -> None:
        """Write now, behind everything that :meth:`write_soon` holds; nothing once the connection is closed."""
        if self.is_closed or self._transport is None:
            return
        if self._out:
            self._out.append(data)
            data = b"".join(self._out)
            self._out.clear()
        self._transport.write(data)
        self._check_write_buffer(self._transport)

    def write_many(self, parts: list[Buffer]) -> None:
        """Write the parts back to back with one transport call."""
        if self.is_closed or self._transport is None:
            return
        if self._out:
            parts = [*self._out, *parts]
            self._out.clear()
        self._transport.writelines(parts)
        if not self.is_writable:
            self._check_write_buffer(self._transport)
        elif self._has_turn:
            self._output_budget.wrote(self)

    def write_soon(self, data: bytes) -> None:
        """Write at the end of this turn of the loop, together with what else comes until then."""
        self._out.append(data)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._out and not self.is_closed and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            self._check_write_buffer(self._transport)

    def _check_write_buffer(self, transport: asyncio.Transport) -> None:
        size_bytes = transport.get_write_buffer_size()
        if self._is_full or size_bytes > WRITE_BUFFER_COUNTED_BYTES:
            self._output_budget.note(self, size_bytes)
        if size_bytes > WRITE_BUFFER_STOP_READING_BYTES:
            self._pause(PauseReason.WRITE_BUFFER)

    def pause_writing(self) -> None:
        """The transport's buffer is over its high mark."""
        self._is_full = True
        self.is_writable = False

    def resume_writing(self) -> None:
        """The client took what was written."""
        self._is_full = False
        self._resume(PauseReason.WRITE_BUFFER)
        self._output_budget.took(self)
        if not self._output_budget.is_short:
            self.may_write_again()
        elif self._writable_callbacks:
            self._output_budget.wait(self)

    @property
    def is_held(self) -> bool:
        """Whether there is a shortage of room for what clients do not take, and it is not this connection's turn."""
        return self._output_budget.is_short and not self._has_turn

    # ---- for the output budget

    @property
    def unsent_bytes(self) -> int:
        """What the client was sent and has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None and not self.is_closed else 0

    def must_wait(self) -> None:
        """There is a shortage: dispatchers write in turns."""
        self._has_turn = False
        self.is_writable = False

    def may_write_again(self, *, has_turn: bool = False) -> None:
        """The shortage is over, or it is this connection's turn."""
        if self._is_full or self.is_closed:
            return
        self._has_turn = has_turn
        self.is_writable = True
        callbacks, self._writable_callbacks = self._writable_callbacks, []
        for callback in callbacks:
            callback()

    def send_command(self, command: pb.BaseCommand) -> None:
        """Encode and write a command."""
        self.write(commands.encode_command(command))

    def send_success(self, request_id: int) -> None:
        """Answer SUCCESS."""
        self.write(commands.success(request_id))

    def send_error(self, request_id: int, error: GemingaError) -> None:
        """Answer ERROR with the error's code and text."""
        self.write(commands.error(request_id, error.server_error, self.told(error)))

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the connection is writable again (at once in the next turn if it is)."""
        if self.is_closed:
            return
        if self.is_writable:
            self._loop.call_soon(callback)
        else:
            self._writable_callbacks.append(callback)
            if not self._is_full:
                self._output_budget.wait(self)

    # ---- reading, and what stops it

    def publish_started(self, count: int, size_bytes: int) -> None:
        """``count`` publishes wait for their answers now."""
        self._pending_publishes += count
        if self._pending_publishes > self.services.config.pending_publishes_max:
            self._pause(PauseReason.PENDING_PUBLISHES)
        buffer = self.services.publish_buffer
        buffer.size_bytes += size_bytes
        if buffer.size_bytes > buffer.bytes_max:
            buffer.hold(self)
            self._pause(PauseReason.PUBLISH_BUFFER)

    def publish_finished(self, count: int, size_bytes: int) -> None:
        """``count`` publishes were answered."""
        self._pending_publishes -= count
        if self._paused and self._pending_publishes <= self.services.config.pending_publishes_max // 2:
            self._resume(PauseReason.PENDING_PUBLISHES)
        buffer = self.services.publish_buffer
        buffer.size_bytes -= size_bytes
        if buffer.held and buffer.size_bytes <= buffer.bytes_max // 2:
            buffer.free()

    def publish_buffer_has_room(self) -> None:
        """The broker's publish buffer is below its mark again."""
        self._resume(PauseReason.PUBLISH_BUFFER)

    def publish_is_rated(self) -> None:
        """A topic that is published to here has another rate from now on."""
        self._is_rated = True

    def hold_for_rate(self, throttle: UsedUpRate, /) -> None:
        """A publish rate is used up: do not read until :meth:`free_of_rate`."""
        if self._rates_used_up is None:
            self._rates_used_up = {}
        self._rates_used_up[throttle] = None
        self._pause(PauseReason.PUBLISH_RATE)

    def free_of_rate(self, throttle: UsedUpRate, /) -> None:
        """This rate has room again."""
        if self._rates_used_up is not None:
            self._rates_used_up.pop(throttle, None)
        if not self._rates_used_up:
            self._resume(PauseReason.PUBLISH_RATE)

    def _leave_rates(self) -> None:
        """It is gone: nobody waits for its turn."""
        for throttle in self._rates_used_up or ():
            throttle.forget(self)
        self._rates_used_up = None

    def run(self, work: Coroutine[None, None, None], name: str) -> None:
        """Work on a request in a task of its own; the client is not read while too many of these are under way."""
        self.request_begins()
        spawn(work, name=name, part=self).add_done_callback(self.request_done)

    @property
    def too_many_requests(self) -> TooManyRequestsError | None:
        """Why no further request of anybody is worked on now; None: they are."""
        return self.services.requests.refusal()

    def request_begins(self) -> None:
        """The same for one that is worked on without a task, until :meth:`request_done`."""
        room = self.services.requests
        room.count += 1
        self.request_goes_on()
        if room.is_short_for(self._pending_requests) and not self.is_closed:
            room.held[self] = None
            self._pause(PauseReason.REQUEST_ROOM)

    def request_goes_on(self) -> None:
        """It does not rest any more."""
        self._pending_requests += 1
        if self._pending_requests > REQUESTS_PENDING_MAX:
            self._pause(PauseReason.PENDING_REQUESTS)

    def request_rests(self) -> None:
        """It waits for something that may take long: it holds up nothing of its connection, until it goes on."""
        self._pending_requests -= 1
        if self._paused and self._pending_requests <= REQUESTS_PENDING_MAX // 2:
            self._resume(PauseReason.PENDING_REQUESTS)

    def request_room_is_free(self) -> None:
        """Of all connections, half as many requests are under way as may be."""
        self._resume(PauseReason.REQUEST_ROOM)

    def run_in_turns(self, work: Coroutine[None, None, None]) -> None:
        """Carry out the command at hand in several turns of the loop; commands behind it wait until that is done."""
        self._is_command_under_way = True
        self._pause(PauseReason.COMMAND_UNDER_WAY)
        spawn(work, name=f"long command of {self.peer}", part=self).add_done_callback(self._long_command_done)

    def _long_command_done(self, _: object) -> None:
        self._is_command_under_way = False
        self._resume(PauseReason.COMMAND_UNDER_WAY)
        if self._is_lost:
            self._schedule_turn()

    def request_done(self, _: object = None) -> None:
        """A request is answered."""
        self.request_rests()
        self.services.requests.end()

    @property
    def pending_publishes(self) -> int:
        """Publishes not answered yet."""
        return self._pending_publishes

    @property
    def paused(self) -> PauseReason:
        """Why nothing is read now."""
        return self._paused

    def _pause(self, reason: PauseReason) -> None:
        if not self._paused and self._transport is not None and not self.is_closed:
            self._transport.pause_reading()
        self._paused |= reason

    def _resume(self, reason: PauseReason) -> None:
        if not self._paused & reason:
            return
        self._paused &= ~reason
        if not self._paused and self._transport is not None and not self.is_closed:
            # The client was not heard because it was not listened to.
            self._awaiting_pong = False
            self._transport.resume_reading()
        elif self._paused == PauseReason.COMMANDS_LEFT:
            self._schedule_turn()
