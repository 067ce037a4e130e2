"""One client connection: bytes in, commands to their handlers.

What one socket read brought is handled as one batch: consecutive SENDs of a producer reach its topic as one call,
and receipts that become ready in one turn of the loop leave as one write. No task and no future per entry: a SEND
costs a slice, a checksum, and two list appends (:func:`.gather_sends`).

A read of many small commands takes several turns of the loop, so that others are served in between: a connection's
turn ends after :data:`TURN_COMMANDS_MAX` commands or :data:`TURN_S_MAX`. What is left keeps its order, and nothing
more is read before it is handled. A single command that is long is carried out in several turns
(:meth:`Connection.run_in_turns`), and what follows it waits until then.

How far it is, is one value (:mod:`.core.states`); this is the shell around it, which holds the transport and carries
out what the handshake says. What is written, why nothing is read, what a client has here, and whether it is there at
all, are parts with a state of their own.

A client that breaks the protocol is disconnected with one line in the log, and so is one whose command raises what no
handler expects; nothing it sends raises further up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final, cast

from geminga.broker.access.core.handshake import (
    Accept,
    HandshakeMachine,
    Refuse,
    SendChallenge,
    Step,
    Violate,
    Whose,
)
from geminga.broker.access.core.principal import ANONYMOUS
from geminga.broker.access.ports import Exchange
from geminga.broker.connection.back_pressure import (
    COMMAND_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    LONG_COMMAND_BYTES,
    TURN_COMMANDS_MAX,
    TURN_S_MAX,
)
from geminga.broker.connection.core.read_gate import PauseReason, ReadGate
from geminga.broker.connection.core.states import Event, State
from geminga.broker.connection.keep_alive import KeepAlive
from geminga.broker.connection.large_frame import LargeFrame
from geminga.broker.connection.liveness import LivenessCheck
from geminga.broker.connection.members import Members
from geminga.broker.connection.request_load import RequestLoad
from geminga.broker.connection.services import Commands, ConnectionServices
from geminga.broker.connection.traffic import Output, Publishes
from geminga.broker.failures import BrokenPart
from geminga.broker.topic.publish import gather_sends
from geminga.model.errors import (
    AuthenticationError,
    GemingaError,
    NotAllowedError,
    ProtocolError,
    TooManyRequestsError,
)
from geminga.runtime import Contained, get_logger, let_go, spawn
from geminga.runtime.frame_room import LARGE_FRAME_BYTES
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands as wire
from geminga.wire.pulsar import hot
from geminga.wire.pulsar.commands import UNREQUESTED, decode_command
from geminga.wire.pulsar.foreign import refusal, spoken_in
from geminga.wire.pulsar.frame import Frame, FrameDecoder, ImpossibleFrameError

_log = get_logger(__name__)

#: Seconds a closed connection has to write what is buffered.
CLOSE_GRACE_S: Final = 5.0
#: What is taken before it is known who is there.
_OF_HANDSHAKE: Final = (pb.BaseCommand.CONNECT, pb.BaseCommand.AUTH_RESPONSE)
_NO_PART: Final = Contained(None, "a command")


class Connection(asyncio.Protocol):
    """The server's side of one connection; all of it runs on the loop's thread."""

    __slots__ = (
        "_commands_left",
        "_commands_under_way",
        "_contained",
        "_decoder",
        "_first_look_s",
        "_grace_timer",
        "_handshake_timer",
        "_has_commands_left",
        "_keep_alive",
        "_large_frame",
        "_liveness",
        "_loop",
        "_monotonic",
        "_transport",
        "_turn",
        "_turn_commands_max",
        "client_version",
        "commands",
        "exchanges",
        "gate",
        "handshake",
        "listener",
        "load",
        "members",
        "output",
        "peer",
        "permits_are_messages",
        "principal",
        "protocol_version",
        "publishes",
        "services",
        "source",
        "state",
        "supports_broker_entry_metadata",
        "supports_partial_producer",
    )

    def __init__(
        self,
        services: ConnectionServices,
        commands: Commands[Connection],
        listener: str = "",
        *,
        turn_commands_max: int = TURN_COMMANDS_MAX,
    ) -> None:
        """``listener``: name of the advertised listener that accepted it, for lookups that name none.

        ``turn_commands_max``: another bound than usual; it changes when commands are handled, never their order.
        """
        self.services = services
        #: What is done with commands.
        self.commands = commands
        self.listener = listener
        self._loop = asyncio.get_running_loop()
        self._monotonic = services.monotonic
        self._transport: asyncio.Transport | None = None
        #: How far it is.
        self.state = State.NEW
        #: Why it is not read.
        self.gate = ReadGate(self._reading_changed)
        #: What is written to it.
        self.output = Output(services.output_budget, self.gate, self._loop)
        #: What is published on it and not answered.
        self.publishes = Publishes(services.config, services.publish_buffer, self.gate)
        #: Requests that are under way.
        self.load = RequestLoad(services.requests, self.gate)
        #: What the client has here.
        self.members = Members(self.load, self.publishes)
        #: One that has begun and is not whole.
        self._large_frame: LargeFrame | None = None
        # Who is there.
        #: ``/address:port``, as Pulsar prints it.
        self.peer = ""
        #: Where it came from, if a balancer said so, which is asked before :meth:`connection_made`; None: see the peer.
        self.source: tuple[str, int] | None = None
        #: Known once the handshake is done.
        self.principal = ANONYMOUS
        self.client_version = ""
        self.protocol_version = 0
        self.supports_broker_entry_metadata = False
        #: Its partitioned producers may publish to some of the partitions only.
        self.supports_partial_producer = False
        #: Its consumers are not sent batches beyond their permits, as far as the size of the last ones tells.
        self.permits_are_messages = False
        rules = services.access.handshake_rules(services.config.first_check_s)
        self.handshake = HandshakeMachine(rules, services.monotonic())
        #: What finds out who is there, as far as it was asked.
        self.exchanges: dict[Whose, Exchange] = {}
        #: When the handshake must be done, credentials expire, or an answer is overdue.
        self._handshake_timer: asyncio.TimerHandle | None = None
        # Whether it is there.
        self._first_look_s = self.handshake.deadline_s or 0.0
        self._keep_alive = KeepAlive(services.config, self.gate, self._loop)
        self._liveness = LivenessCheck(self._loop)
        self._grace_timer: asyncio.TimerHandle | None = None
        # When frames are handled.
        self._decoder = FrameDecoder(min(HANDSHAKE_BYTES_MAX, services.config.message_bytes_max))
        self._turn_commands_max = turn_commands_max
        #: Frames of the last turn that it had no time for; the decoder may hold more behind them.
        self._commands_left: list[Frame] = []
        #: Whether one of the two has; the same as COMMANDS_LEFT in the gate, whose arithmetic costs microseconds.
        self._has_commands_left = False
        #: Commands that are carried out in several turns: one, and what it gives rise to. Those behind it wait.
        self._commands_under_way = 0
        #: The next turn, while commands are left over and nothing else stops them.
        self._turn: asyncio.Handle | None = None
        self._contained = Contained(self, "a command", is_last=True)

    # ---- what comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted: wait for CONNECT."""
        # No isinstance: uvloop's transports are not asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        address = self.source or transport.get_extra_info("peername")
        self.peer = f"/{address[0]}:{address[1]}" if isinstance(address, tuple) else "/unknown"
        self._move(Event.ACCEPTED)
        self.output.attach(transport, self.abort)
        self.gate.attach(transport)
        refused = self.services.connections.opened(self)
        if refused:
            self.send_error(UNREQUESTED, NotAllowedError(refused))
            self.close(refused)
            return
        self._await_handshake()

    def data_received(self, data: bytes) -> None:
        """Handle every frame that ``data`` completes, as one batch unless they are too many for one turn."""
        with self._contained:
            self._keep_alive.is_awaited = False
            if self._liveness.is_under_way:
                self._liveness.answer(True)
            if self._has_commands_left:
                self._decoder.feed(data, 0)  # under way before reading stopped
            else:
                self._take_turn(data)

    def _take_turn(self, data: bytes = b"") -> None:
        """Handle what is left over, or else new frames, as long as a turn may last."""
        decoder = self._decoder
        deadline = self._monotonic() + TURN_S_MAX
        was_connected = self.state.is_connected
        # Before CONNECT one frame at a time: those behind it may be larger.
        commands_max = self._turn_commands_max
        if self.publishes.is_rated:
            # As many as the rates have room for, as far as entries are what they were.
            commands_max = self.publishes.entries_left(self.members.producers.values(), commands_max)
        frames = self._commands_left or decoder.feed(data, commands_max if was_connected else 1)
        if decoder.incomplete_bytes > LARGE_FRAME_BYTES or self._large_frame is not None:
            self._mind_large_frame(decoder.incomplete_bytes, has_ended=bool(frames))
        self._commands_left = self._handle_frames(frames, deadline)
        if not was_connected and self.state.is_connected and decoder.has_more:
            self._commands_left = self._handle_frames(decoder.feed(b"", self._turn_commands_max), deadline)
        if not self.state.is_closed:
            if self._commands_left or decoder.has_more or self._commands_under_way:
                self._has_commands_left = True
                self.gate.hold(PauseReason.COMMANDS_LEFT)
                if self.state.has_left or self.gate.reasons == PauseReason.COMMANDS_LEFT:
                    self._schedule_turn()  # else _reading_changed does
                return
            if decoder.error is not None:
                self._end_stream(decoder.error)
        if self._has_commands_left:
            self._has_commands_left = False
            self.gate.free(PauseReason.COMMANDS_LEFT)
        if self.state.has_left:
            self._leave()

    def _mind_large_frame(self, size_bytes: int, *, has_ended: bool) -> None:
        """A large frame has begun, grown, or ended: it needs room as long as it is not whole."""
        frame = self._large_frame
        if frame is not None and (has_ended or self.state.is_closed):
            frame.end()
            frame = self._large_frame = None
        if frame is not None:
            frame.grew()
        elif size_bytes > LARGE_FRAME_BYTES and not self.state.is_closed:
            self._large_frame = LargeFrame(self.services.frame_room, self.gate, self.abort, size_bytes)

    def _handle_frames(self, frames: list[Frame], deadline: float) -> list[Frame]:
        """Handle frames in their order; those the turn had no room for, which ends at ``deadline`` (monotonic)."""
        position, end = 0, len(frames)
        while position < end and not self.state.is_closed:
            command, payload = frames[position]
            taken = 0
            if command[:3] == hot.SEND_PREFIX and self.state.is_connected:
                taken = self._take_sends(frames[position:] if position else frames)
            if not taken:
                self._handle_command(command, payload)
            position += taken or 1
            if position < end and (self._commands_under_way or self._monotonic() >= deadline):
                return frames[position:]
        return []

    def _take_sends(self, frames: list[Frame]) -> int:
        """Publish the first SENDs, as many as belong together; how many frames that were: none if it is not plain."""
        try:
            gathered = gather_sends(frames, self.members)
        except ProtocolError as error:
            self.close(str(error))
            return 1
        if gathered is None:
            return 0
        producer, batch, refused = gathered
        if producer is None:
            return 1
        taken = 0
        if batch is not None:
            taken = len(batch.entries)
            if batch.transaction is None:
                producer.publish(batch)
            else:
                self.commands.publish_in_transaction(self, producer, batch)
                if self._commands_under_way:
                    return taken  # the first of a transaction on its topic: what follows has to wait
        if refused is not None:
            producer.reject(*refused)
            taken += 1
        return taken

    def _handle_command(self, command: bytes, payload: bytes) -> None:
        """Handle one command that is no plain SEND."""
        try:
            if self.state.is_connected:
                if command[:3] == hot.FLOW_PREFIX:
                    flow = hot.decode_flow(command)
                    if flow is not None:
                        self.commands.flow(self, flow[0], flow[1])
                        return
                elif command[:3] == hot.ACK_PREFIX:
                    self.commands.ack(self, command)
                    return
                elif len(command) > LONG_COMMAND_BYTES and command[:2] == hot.REDELIVER_PREFIX:
                    self.commands.redeliver(self, command)
                    return
            if len(command) > COMMAND_BYTES_MAX:
                raise ProtocolError(f"a command of {len(command)} bytes")
            decoded = decode_command(command)
            if not self.state.is_connected and decoded.type not in _OF_HANDSHAKE:
                self.carry_out(self.handshake.other_command(pb.BaseCommand.Type.Name(decoded.type)))
            elif decoded.type == pb.BaseCommand.SEND:
                self.commands.send(self, decoded.send, payload)
            elif not self.commands.run(self, decoded):
                raise ProtocolError(f"a client does not send {pb.BaseCommand.Type.Name(decoded.type)}")
        except ProtocolError as error:
            self.close(str(error))

    # ---- turns

    def _schedule_turn(self) -> None:
        if self._turn is None and not self._commands_under_way:
            self._turn = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        if self.state.is_closed:
            self._commands_left = []
            if self.state.has_left:
                self._leave()
        elif self.state.has_left or self.gate.reasons == PauseReason.COMMANDS_LEFT:
            with self._contained:
                self._take_turn()
            if self.state is State.CLOSING_LEFT:
                self._leave()

    def _reading_changed(self, reasons: PauseReason) -> None:
        """A reason not to read it has gone; ``reasons`` are those that are left."""
        if not reasons:
            # The client was not heard because it was not listened to.
            self._keep_alive.is_awaited = False
        elif reasons == PauseReason.COMMANDS_LEFT or self.state.has_left:
            self._schedule_turn()

    def run(self, work: Coroutine[None, None, None], name: str) -> None:
        """Work on a request in a task of its own; the client is not read while too many of these are under way."""
        self.load.begins()
        spawn(work, name=name, part=self).add_done_callback(self.load.done)

    def run_in_turns(self, work: Coroutine[None, None, None]) -> None:
        """Carry out the command at hand in several turns of the loop; commands behind it wait until that is done."""
        self._commands_under_way += 1
        self.gate.hold(PauseReason.COMMAND_UNDER_WAY)
        spawn(work, name=f"long command of {self.peer}", part=self).add_done_callback(self._long_command_done)

    def _long_command_done(self, _: object) -> None:
        self._commands_under_way -= 1
        if not self._commands_under_way:
            self.gate.free(PauseReason.COMMAND_UNDER_WAY)
            if self.state.has_left:
                self._schedule_turn()

    @property
    def too_many_requests(self) -> TooManyRequestsError | None:
        """Why no further request of anybody is worked on now; None: they are."""
        return self.services.requests.refusal()

    # ---- what is written

    def pause_writing(self) -> None:
        """The transport's buffer is over its high mark."""
        self.output.is_over_mark()

    def resume_writing(self) -> None:
        """The client took what was written."""
        self.output.was_taken()

    def send_command(self, command: pb.BaseCommand) -> None:
        """Encode and write a command."""
        self.output.write(wire.encode_command(command))

    def send_success(self, request_id: int) -> None:
        """Answer SUCCESS."""
        self.output.write(wire.success(request_id))

    def send_error(self, request_id: int, error: GemingaError) -> None:
        """Answer ERROR with the error's code and text."""
        self.output.write(wire.error(request_id, error.server_error, self.told(error)))

    def told(self, error: GemingaError) -> str:
        """What the client is told of an error; what it is not told goes to the log."""
        if error.public_text:
            self.services.connections.warn_of_hidden(self, error)
        return error.told

    # ---- the handshake

    @property
    def is_connected(self) -> bool:
        """The handshake is done, and commands of the client are taken."""
        return self.state.is_connected

    def carry_out(self, step: Step | None) -> None:
        """What the handshake says is to be done, but for verifying: whoever handles its commands does that."""
        if isinstance(step, Accept):
            self.principal = step.principal
            self._welcome()
        elif isinstance(step, SendChallenge):
            challenge = pb.CommandAuthChallenge(
                protocol_version=wire.PROTOCOL_VERSION,
                challenge=pb.AuthData(auth_method_name=step.method, auth_data=step.data),
            )
            self.send_command(pb.BaseCommand(type=pb.BaseCommand.AUTH_CHALLENGE, authChallenge=challenge))
        elif isinstance(step, Refuse):
            self.send_error(UNREQUESTED, AuthenticationError(step.reason))
            self.close(step.reason)
        elif isinstance(step, Violate):
            self.close(step.reason)
        self._await_handshake()

    def _welcome(self) -> None:
        """It is known who is there: other commands are taken, and large messages."""
        self._move(Event.WELCOMED)
        self._decoder.allow(self.services.config.message_bytes_max)
        self._keep_alive.start(self._first_look_s - self._monotonic(), self._ping, self.abort)

    def _await_handshake(self) -> None:
        """Look again when the handshake must be done, or credentials expire."""
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None
        deadline_s = self.handshake.deadline_s
        if deadline_s is not None and not self.state.is_closed:
            self._handshake_timer = self._loop.call_later(deadline_s - self._monotonic(), self._handshake_due)

    def _handshake_due(self) -> None:
        self._handshake_timer = None
        if not self.state.is_closed:
            self.carry_out(self.handshake.time_passed(self._monotonic()))

    # ---- whether it is there

    def check_liveness(self) -> asyncio.Future[bool]:
        """Whether the peer answers a PING within ``connectionLivenessCheckTimeoutMillis``; closes it if not.

        One that is not read because it sends so much is alive: its PONG would not be heard.
        """
        timeout_ms = self.services.config.liveness_check_timeout_ms
        reasons = self.gate.reasons
        if self.state.has_left or reasons & PauseReason.WRITE_BUFFER:
            # Commands that wait for a client to read tell nothing of it.
            reasons &= ~(PauseReason.WRITE_BUFFER | PauseReason.COMMANDS_LEFT)
        if self.state.is_closed or timeout_ms == 0 or reasons:
            return self._liveness.known(not self.state.is_closed)
        return self._liveness.ask(self._ping, self._liveness_timeout, timeout_ms / 1000)

    def _ping(self) -> None:
        self.output.write(wire.PING_FRAME)

    def _liveness_timeout(self) -> None:
        # Its end answers those who wait, so that its producers are gone when they go on.
        self.abort("no answer to a liveness check")

    # ---- its state, and the end

    def _move(self, event: Event) -> None:
        self.state = self.state.after(event)
        if not self.state.is_written:
            self.output.detach()
            self.gate.detach()

    @property
    def is_closed(self) -> bool:
        """Nothing is handled and nothing is written any more."""
        return self.state.is_closed

    def close(self, reason: str = "") -> None:
        """Close; a ``reason`` is the one line the log gets, an empty one is no news."""
        if self.state.is_closed:
            return
        if reason:
            self.services.connections.warn_of_closing(self, reason)
        self.output.finish()
        self._end()
        if self._transport is not None:
            self._transport.close()
            # What is still to be written is, but a peer that does not read must not keep its producers here.
            self._grace_timer = self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)

    def broke(self, what: str, error: BaseException) -> None:
        """Something unexpected came out of its commands: it is cut off, and its client may come again."""
        if not self.state.is_closed:
            self.services.failures.note(BrokenPart.CONNECTION, f"{self.peer} ({self.client_version})", what, error)
        self.abort()

    def abort(self, reason: str = "") -> None:
        """Cut it off at once: what was not sent yet is dropped, so nothing is acknowledged any more.

        For a peer that is dead, and for a broker that must not go on.
        """
        if reason and not self.state.is_closed:
            _log.warning("closing connection %s (%s): %s", self.peer, self.client_version, reason)
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        """Nothing more is taken from it."""
        self._move(Event.CLOSED)
        self.load.closed()
        self.members.closed()
        self._keep_alive.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone: what came before is handled, then producers and consumers leave their topics."""
        if self._has_commands_left and not self.state.is_closed:
            self._move(Event.LOST)
            self._transport = None
            self._schedule_turn()  # or the command under way does
        else:
            self._leave()

    def _leave(self) -> None:
        self._move(Event.DONE)
        self._commands_left = []
        if self._large_frame is not None:
            self._large_frame.end()
            self._large_frame = None
        if self._transport is not None:
            let_go(self._transport)
            self._transport = None
        # Now, and not when the last request that still knows the connection is done; and no cycle is left.
        self._decoder.drop()
        self._contained = _NO_PART
        self._keep_alive.stop()
        for timer in (self._handshake_timer, self._grace_timer):
            if timer is not None:
                timer.cancel()
        self._handshake_timer = self._grace_timer = None
        self.exchanges.clear()
        self._liveness.answer(False)
        self.gate.end()
        self.output.end()
        self.publishes.end()
        self.members.leave(self.peer, self)
        self.load.end()
        self.services.connections.closed(self)

    def _end_stream(self, error: ImpossibleFrameError) -> None:
        """Its bytes are no frames; who mixed up the ports is told so in the protocol that came."""
        spoken = None if self.state.is_connected else spoken_in(error.head)
        if spoken is None:
            self.close(str(error))
            return
        self.services.connections.warn_of_wrong_port(self, spoken)
        text = (
            "This is a port of Pulsar's binary protocol (pulsar://HOST:PORT); HTTP is on another one (webServicePort)"
        )
        self.output.write(refusal(spoken, text))
        self.close()
