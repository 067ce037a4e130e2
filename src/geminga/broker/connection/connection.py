"""One client connection: bytes in, commands to their handlers, bytes out, back-pressure both ways.

What one socket read brought is handled as one batch: consecutive SENDs of a producer reach its topic as one call,
and receipts that become ready in one turn of the loop leave as one write. No task and no future per entry: a SEND
costs a slice, a checksum, and two list appends here.

A read of many small commands takes several turns of the loop, so that others are served in between: a connection's
turn ends after :data:`TURN_COMMANDS_MAX` commands or :data:`TURN_S_MAX`. What is left keeps its order, and nothing
more is read before it is handled. A single command that is long is carried out in several turns
(:meth:`Connection.run_in_turns`), and what follows it waits until then.

Back-pressure towards the client is in :mod:`.pauses`; commands that are left over wait, too, for any of its
reasons. Towards the dispatchers, and all that is written: :mod:`.output`.

A client that breaks the protocol is disconnected with one line in the log, and so is one whose command raises what no
handler expects; nothing it sends raises further up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

import crc32c

from geminga.broker.access.core.principal import ANONYMOUS
from geminga.broker.connection.back_pressure import (
    COMMAND_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    LONG_COMMAND_BYTES,
    TURN_COMMANDS_MAX,
    TURN_S_MAX,
    WRITE_BUFFER_HIGH_BYTES,
    WRITE_BUFFER_LOW_BYTES,
)
from geminga.broker.connection.frame_room import LARGE_FRAME_BYTES, HalfFrame
from geminga.broker.connection.liveness import LivenessCheck
from geminga.broker.connection.pause_reason import PauseReason
from geminga.broker.connection.pauses import ConnectionPauses
from geminga.broker.connection.services import ConnectionServices
from geminga.broker.failures import Kind
from geminga.broker.topic.publish import PublishBatch
from geminga.model.errors import GemingaError, NotAllowedError, ProtocolError
from geminga.runtime import Contained, get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands, hot
from geminga.wire.pulsar.foreign import refusal, spoken_in
from geminga.wire.pulsar.frame import Frame, FrameDecoder, ImpossibleFrameError
from geminga.wire.pulsar.metadata import MAGIC_CHECKSUM
from geminga.wire.pulsar.numbers import is_suspect, send_refusal

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer
    from geminga.broker.topic.producer import Producer

_log = get_logger(__name__)

#: Request id of an ERROR that answers no request (as Pulsar: -1 as uint64).
UNREQUESTED: Final = (1 << 64) - 1
#: Ids of producers closed by the broker, whose late SENDs are dropped instead of closing the connection.
CLOSED_PRODUCERS_REMEMBERED_MAX: Final = 1000
#: Seconds a closed connection has to write what is buffered.
CLOSE_GRACE_S: Final = 5.0
#: Payloads up to this size are copied for the checksum: cheaper than a memoryview.
_CHECKSUM_COPY_BYTES_MAX: Final = 2048

_crc32c = crc32c.crc32c


class Connection(ConnectionPauses, asyncio.Protocol):
    """The server's side of one connection; all of it runs on the loop's thread."""

    __slots__ = (
        "_closed_producers",
        "_commands_left",
        "_contained",
        "_decoder",
        "_half_frame",
        "_has_commands_left",
        "_keep_alive",
        "_liveness",
        "_monotonic",
        "_turn",
        "_turn_commands_max",
        "client_version",
        "consumers",
        "is_connected",
        "list_requests",
        "listener",
        "principal",
        "producers",
        "protocol_version",
        "requests",
        "supports_broker_entry_metadata",
        "supports_partial_producer",
        "waiting_producers",
        "watchers",
    )

    def __init__(
        self, services: ConnectionServices, listener: str = "", *, turn_commands_max: int = TURN_COMMANDS_MAX
    ) -> None:
        """``listener``: name of the advertised listener that accepted it, for lookups that name none.

        ``turn_commands_max``: another bound than usual; it changes when commands are handled, never their order.
        """
        super().__init__(services)
        self.listener = listener
        #: Who is at the other end, once the handshake is done.
        self.principal = ANONYMOUS
        self.client_version = ""
        self.protocol_version = 0
        self.supports_broker_entry_metadata = False
        #: Its partitioned producers may publish to some of the partitions only.
        self.supports_partial_producer = False
        #: By the client's ids. Producers that are still being created are not here but in ``requests``.
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer] = {}
        #: Producers that wait for exclusive access.
        self.waiting_producers: dict[int, Producer] = {}
        #: Ids under creation: (command type, producer or consumer id) -> request id.
        self.requests: dict[tuple[int, int], int] = {}
        #: Topic list watches by the client's ids; each value ends its watch.
        self.watchers: dict[int, Callable[[], None]] = {}
        #: Requests for lists of topics; the first is under way.
        self.list_requests: deque[pb.CommandGetTopicsOfNamespace] = deque()
        #: The handshake is done.
        self.is_connected = False
        self._monotonic = services.monotonic
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
        self._liveness = LivenessCheck(self._loop)
        self._closed_producers: dict[int, None] = {}
        self._keep_alive: asyncio.TimerHandle | None = None

    # ---- the transport's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted: wait for CONNECT."""
        # No isinstance: uvloop's transports are not asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = f"/{address[0]}:{address[1]}" if isinstance(address, tuple) else "/unknown"
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES, low=WRITE_BUFFER_LOW_BYTES)
        refusal = self.services.connections.opened(self)
        if refusal:
            self.send_error(UNREQUESTED, NotAllowedError(refusal))
            self.close(refusal)
            return
        self._arm_keep_alive()

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
        self.is_closed = True
        self._output_budget.forget(self)
        self._leave_rates()
        self.is_connected = False
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            self._keep_alive = None
        self._out.clear()
        self._writable_callbacks.clear()
        self._liveness.answer(False)
        for end_watch in list(self.watchers.values()):
            end_watch()
        self.watchers.clear()
        for producer in [*self.producers.values(), *self.waiting_producers.values()]:
            with Contained(producer.topic, "the end of a connection", is_last=True):
                producer.connection_lost()
        self.producers.clear()
        self.waiting_producers.clear()
        for consumer in list(self.consumers.values()):
            with Contained(consumer.subscription, "the end of a connection", is_last=True):
                consumer.close()
        self.consumers.clear()
        self.services.publish_buffer.forget(self)
        self.services.connections.closed(self)

    # ---- frames in

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
        self.is_connected = True
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

    def _handle_frames(self, frames: list[Frame], deadline: float) -> list[Frame]:
        """Handle frames in their order; those the turn had no room for, which ends at ``deadline`` (monotonic)."""
        monotonic = self._monotonic
        producer: Producer | None = None
        producer_id = -1
        entries: list[bytes] = []
        sequence_ids: list[tuple[int, int]] = []
        messages = 0
        chunks = markers = plain = 0
        for position, (command, payload) in enumerate(frames):
            if command[:3] == hot.SEND_PREFIX and self.is_connected:
                send = hot.decode_send(command)
                if send is not None:
                    if send[0] != producer_id:
                        if entries and producer is not None:
                            batch = PublishBatch(producer, entries, sequence_ids, messages, chunks, markers)
                            producer.publish(batch)
                            entries, sequence_ids, messages, chunks, markers = [], [], 0, 0, 0
                            if monotonic() >= deadline:
                                return frames[position:]
                        producer_id = send[0]
                        producer = self.sending_producer(producer_id)
                        plain = producer.plain_metadata_bytes if producer is not None else 0
                    if producer is None:
                        if self.is_closed:
                            return []
                        continue
                    sequence_id, highest = send[1], send[2]
                    if highest < sequence_id:
                        highest = sequence_id
                    size = len(payload)
                    if (
                        size < 10
                        or payload[:2] != MAGIC_CHECKSUM
                        or int.from_bytes(payload[2:6], "big")
                        != _crc32c(payload[6:] if size < _CHECKSUM_COPY_BYTES_MAX else memoryview(payload)[6:])
                        or ((payload[9] > plain or payload[8]) and is_suspect(payload))
                    ) and (refusal := send_refusal(payload)) is not None:
                        if entries:
                            batch = PublishBatch(producer, entries, sequence_ids, messages, chunks, markers)
                            producer.publish(batch)
                            entries, sequence_ids, messages, chunks, markers = [], [], 0, 0, 0
                        producer.reject(sequence_id, refusal)
                        if monotonic() >= deadline:
                            return frames[position + 1 :]
                        continue
                    entries.append(payload)
                    sequence_ids.append((sequence_id, highest))
                    messages += send[3]
                    if send[4]:
                        chunks += send[4] & hot.SEND_IS_CHUNK != 0
                        markers += send[4] & hot.SEND_IS_MARKER != 0
                    continue
            if entries and producer is not None:
                producer.publish(PublishBatch(producer, entries, sequence_ids, messages, chunks, markers))
                entries, sequence_ids, messages, chunks, markers = [], [], 0, 0, 0
            producer_id = -1
            if self.is_closed or not self._handle_command(command, payload):
                return []
            if monotonic() >= deadline or self._is_command_under_way:
                return frames[position + 1 :]
        if entries and producer is not None:
            producer.publish(PublishBatch(producer, entries, sequence_ids, messages, chunks, markers))
        return []

    def sending_producer(self, producer_id: int) -> Producer | None:
        """The producer of a SEND; None if the SEND is to be dropped, or was for nobody and the connection is closed."""
        producer = self.producers.get(producer_id)
        if producer is None and producer_id not in self._closed_producers:
            self.close(f"SEND of producer {producer_id}, which is not ready")
        return producer

    def _handle_command(self, command: bytes, payload: bytes) -> bool:
        """Handle one command that is no plain SEND; False if the connection is closed now."""
        try:
            if self.is_connected:
                if command[:3] == hot.FLOW_PREFIX:
                    flow = hot.decode_flow(command)
                    if flow is not None:
                        self.services.commands.flow(self, flow[0], flow[1])
                        return not self.is_closed
                elif command[:3] == hot.ACK_PREFIX:
                    self.services.commands.ack(self, command)
                    return not self.is_closed
                elif len(command) > LONG_COMMAND_BYTES and command[:2] == hot.REDELIVER_PREFIX:
                    self.services.commands.redeliver(self, command)
                    return not self.is_closed
            if len(command) > COMMAND_BYTES_MAX:
                raise ProtocolError(f"a command of {len(command)} bytes")
            decoded = commands.decode_command(command)
            if not self.is_connected and decoded.type != pb.BaseCommand.CONNECT:
                raise ProtocolError(f"{pb.BaseCommand.Type.Name(decoded.type)} before CONNECT")
            if decoded.type == pb.BaseCommand.SEND:
                self.services.commands.send(self, decoded.send, payload)
            else:
                if not self.services.commands.run(self, decoded):
                    raise ProtocolError(f"a client does not send {pb.BaseCommand.Type.Name(decoded.type)}")
        except ProtocolError as error:
            self.close(str(error))
        return not self.is_closed

    # ---- life

    def request_ended(self, key: tuple[int, int], request_id: int) -> bool:
        """Take a creation out of :attr:`requests`; whether the client still waits for it.

        It may have closed what was being made, and asked for it again: then the entry is that of the later request.
        """
        if self.requests.get(key) != request_id:
            return False
        del self.requests[key]
        return not self.is_closed

    def told(self, error: GemingaError) -> str:
        """What the client is told of an error; what it is not told goes to the log."""
        if error.public_text:
            self.services.connections.warn_of_hidden(self, error)
        return error.told

    def close(self, reason: str = "") -> None:
        """Close; a ``reason`` is the one line the log gets, an empty one is no news."""
        if self.is_closed:
            return
        if reason:
            self.services.connections.warn_of_closing(self, reason)
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
            self._out.clear()
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()
            if self._keep_alive is not None:
                self._keep_alive.cancel()
            # What is still to be written is, but a peer that does not read must not keep its producers here.
            self._keep_alive = self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)

    def broke(self, what: str, error: BaseException) -> None:
        """Something unexpected came out of its commands: it is cut off, and its client may come again."""
        if not self.is_closed:
            self.services.failures.note(Kind.CONNECTION, f"{self.peer} ({self.client_version})", what, error)
        self.abort()

    def abort(self, reason: str = "") -> None:
        """Cut it off at once: what was not sent yet is dropped, so nothing is acknowledged any more.

        For a peer that is dead, and for a broker that must not go on.
        """
        if reason and not self.is_closed:
            _log.warning("closing connection %s (%s): %s", self.peer, self.client_version, reason)
        self.is_closed = True
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()

    #: For the output budget.
    cut_off = abort

    def producer_closed_by_broker(self, producer_id: int) -> None:
        """Forget a producer that the client was told to close: SENDs already on their way are dropped."""
        self.producers.pop(producer_id, None)
        self._closed_producers[producer_id] = None
        if len(self._closed_producers) > CLOSED_PRODUCERS_REMEMBERED_MAX:
            del self._closed_producers[next(iter(self._closed_producers))]

    def producer_opened(self, producer_id: int) -> None:
        """A producer id is in use (again): its SENDs count."""
        self._closed_producers.pop(producer_id, None)
        producer = self.producers.get(producer_id)
        if producer is not None and producer.topic.publish_throttles:
            self._is_rated = True

    def check_liveness(self) -> asyncio.Future[bool]:
        """Whether the peer answers a PING within ``connectionLivenessCheckTimeoutMillis``; closes it if not.

        One that is not read because it sends so much is alive: its PONG would not be heard.
        """
        timeout_ms = self.services.config.liveness_check_timeout_ms
        reasons = self._paused
        if self._is_lost or reasons & PauseReason.WRITE_BUFFER:
            # Commands that wait for a client to read tell nothing of it.
            reasons &= ~(PauseReason.WRITE_BUFFER | PauseReason.COMMANDS_LEFT)
        if self.is_closed or timeout_ms == 0 or reasons:
            return self._liveness.known(not self.is_closed)
        return self._liveness.ask(self._ping, self._liveness_timeout, timeout_ms / 1000)

    def _ping(self) -> None:
        self.write(commands.PING_FRAME)

    def _liveness_timeout(self) -> None:
        # Its end answers those who wait, so that its producers are gone when they go on.
        self.abort("no answer to a liveness check")

    def _arm_keep_alive(self) -> None:
        config = self.services.config
        interval_s = config.keep_alive_interval_s if self.is_connected else config.first_check_s
        self._keep_alive = self._loop.call_later(interval_s, self._keep_alive_due)

    def _keep_alive_due(self) -> None:
        if self.is_closed:
            return
        if not self.is_connected:
            self.close("no handshake within gemingaHandshakeTimeoutSeconds")
            return
        if self._awaiting_pong and not self._paused:
            self.abort("no answer to a keep-alive PING")
            return
        self._awaiting_pong = True
        self._ping()
        self._arm_keep_alive()
