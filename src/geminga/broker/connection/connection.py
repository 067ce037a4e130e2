"""One client connection: bytes in, commands to their handlers.

What one socket read brought is handled as one batch: consecutive SENDs of a producer reach its topic as one call,
and receipts that become ready in one turn of the loop leave as one write. No task and no future per entry: a SEND
costs a slice, a checksum, and two list appends here.

A read of many small commands takes several turns of the loop, so that others are served in between: a connection's
turn ends after :data:`TURN_COMMANDS_MAX` commands or :data:`TURN_S_MAX`. What is left keeps its order, and nothing
more is read before it is handled. A single command that is long is carried out in several turns
(:meth:`ConnectionTraffic.run_in_turns`), and what follows it waits until then.

A connection is one object in layers, each of which decides one thing: what is written and when nothing is read
(:mod:`.traffic`), how it begins and ends (:mod:`.life`), what a client has on it (:mod:`.members`), and here, when
frames are handled and what is done with each.

A client that breaks the protocol is disconnected with one line in the log, and so is one whose command raises what no
handler expects; nothing it sends raises further up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, cast

from geminga.broker.connection.back_pressure import (
    COMMAND_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    LONG_COMMAND_BYTES,
    TURN_COMMANDS_MAX,
    TURN_S_MAX,
    WRITE_BUFFER_HIGH_BYTES,
    WRITE_BUFFER_LOW_BYTES,
)
from geminga.broker.connection.members import ConnectionMembers
from geminga.broker.connection.services import ConnectionServices
from geminga.broker.connection.traffic import PauseReason
from geminga.broker.topic.publish import PublishBatch
from geminga.model.crc32c import crc32c
from geminga.model.errors import NotAllowedError, ProtocolError, RemoteError
from geminga.runtime import Contained, let_go
from geminga.runtime.frame_room import LARGE_FRAME_BYTES, HalfFrame
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import hot
from geminga.wire.pulsar.commands import UNREQUESTED, decode_command
from geminga.wire.pulsar.foreign import refusal, spoken_in
from geminga.wire.pulsar.frame import Frame, FrameDecoder, ImpossibleFrameError
from geminga.wire.pulsar.metadata import MAGIC_CHECKSUM
from geminga.wire.pulsar.numbers import is_suspect, send_refusal

if TYPE_CHECKING:
    from geminga.broker.topic.producer import Producer

#: What is taken before it is known who is there.
_OF_HANDSHAKE: Final = (pb.BaseCommand.CONNECT, pb.BaseCommand.AUTH_RESPONSE)
#: Payloads up to this size are copied for the checksum: cheaper than a memoryview.
_CHECKSUM_COPY_BYTES_MAX: Final = 2048
#: How a payload begins that has a checksum: magic number, checksum, size of the metadata.
_PAYLOAD_HEAD: Final = Struct(">HII")
_MAGIC: Final = int.from_bytes(MAGIC_CHECKSUM, "big")
_NO_HEAD: Final = (0, 0, 0)
_NO_PART: Final = Contained(None, "a command")


class Commands(Protocol):
    """What is done with commands; the first five are those that have hand-written codecs, or a payload."""

    @property
    def flow(self) -> Callable[[Connection, int, int], None]:
        """FLOW: consumer id and permits."""
        ...

    @property
    def ack(self) -> Callable[[Connection, bytes], None]:
        """ACK as it came."""
        ...

    @property
    def redeliver(self) -> Callable[[Connection, bytes], None]:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES as it came, with very many message ids."""
        ...

    @property
    def send(self) -> Callable[[Connection, pb.CommandSend, bytes], None]:
        """A SEND that is not plain, and its payload."""
        ...

    @property
    def publish_in_transaction(self) -> Callable[[Connection, Producer, PublishBatch], None]:
        """SENDs of one producer in one transaction."""
        ...

    def run(self, connection: Connection, command: pb.BaseCommand) -> bool:
        """Any other command; False for one that no client sends."""
        ...


class Connection(ConnectionMembers, asyncio.Protocol):
    """The server's side of one connection; all of it runs on the loop's thread."""

    __slots__ = (
        "_commands_left",
        "_contained",
        "_decoder",
        "_half_frame",
        "_has_commands_left",
        "_turn",
        "_turn_commands_max",
        "commands",
        "listener",
    )

    def __init__(
        self,
        services: ConnectionServices,
        commands: Commands,
        listener: str = "",
        *,
        turn_commands_max: int = TURN_COMMANDS_MAX,
    ) -> None:
        """``listener``: name of the advertised listener that accepted it, for lookups that name none.

        ``turn_commands_max``: another bound than usual; it changes when commands are handled, never their order.
        """
        super().__init__(services)
        #: What is done with commands.
        self.commands = commands
        self.listener = listener
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
        throttles = {throttle for producer in self.producers.values() for throttle in producer.topic.throttles.publish}
        self._is_rated = bool(throttles)
        return min([self._turn_commands_max, *(throttle.entries_left() for throttle in throttles)])

    def _handle_frames(self, frames: list[Frame], deadline: float) -> list[Frame]:
        """Handle frames in their order; those the turn had no room for, which ends at ``deadline`` (monotonic)."""
        position, end = 0, len(frames)
        while position < end and not self.is_closed:
            command, payload = frames[position]
            taken = 0
            if command[:3] == hot.SEND_PREFIX and self.is_connected:
                taken = self._take_sends(frames[position:] if position else frames)
            if not taken:
                self._handle_command(command, payload)
            position += taken or 1
            if position < end and (self._is_command_under_way or self._monotonic() >= deadline):
                return frames[position:]
        return []

    def _take_sends(self, frames: list[Frame]) -> int:
        """Publish the first SENDs, which are of one producer and in one transaction or none; how many frames it took.

        It takes none if the first is no plain SEND. Nothing is made for a SEND but what is passed on: those that are
        like the one before but for the last bits of the sequence id are not even decoded.
        """
        producer: Producer | None = None
        producer_id, txn = -1, None
        entries: list[bytes] = []
        sequence_ids: list[tuple[int, int]] = []
        messages = chunks = markers = plain = before = 0
        flags = count = 0
        head, tail = b"", None
        refusal: RemoteError | None = None
        unpack_head = _PAYLOAD_HEAD.unpack_from
        for command, payload in frames:
            # The eighth byte has the last bits: see hot.send_likeness.
            if command[8:] == tail and command[:7] == head and (low := command[7]) > 127:
                sequence_id = highest = before + low
            else:
                send = hot.decode_send(command)
                if send is None:
                    break
                if producer is None:
                    producer_id, txn = send[0], send[5]
                    producer = self.producers.get(producer_id) or self.sending_producer(producer_id)
                    if producer is None:
                        return 1
                    plain = producer.plain_metadata_bytes
                elif send[0] != producer_id or send[5] != txn:
                    break
                _, sequence_id, highest, count, flags, _ = send
                tail = None
                if highest < sequence_id:
                    if entries and not highest and not flags:
                        tail, head, before = hot.send_likeness(command, sequence_id)
                    highest = sequence_id
            size = len(payload)
            magic, checksum, metadata_bytes = unpack_head(payload) if size >= 10 else _NO_HEAD
            if (
                magic != _MAGIC
                or checksum != crc32c(payload[6:] if size < _CHECKSUM_COPY_BYTES_MAX else memoryview(payload)[6:])
                or (metadata_bytes > plain and is_suspect(payload, txn is not None))
            ) and (refusal := send_refusal(payload, txn is not None)) is not None:
                break
            entries.append(payload)
            sequence_ids.append((sequence_id, highest))
            messages += count
            if flags:
                chunks += flags & hot.SEND_IS_CHUNK != 0
                markers += flags & hot.SEND_IS_MARKER != 0
        taken = len(entries)
        if entries and producer is not None:
            batch = PublishBatch(producer, entries, sequence_ids, messages, chunks, markers, txn)
            if self._publish(producer, batch):
                return taken
        if refusal is not None and producer is not None:
            producer.reject(sequence_id, refusal)
            taken += 1
        return taken

    def _publish(self, producer: Producer, batch: PublishBatch) -> bool:
        """Publish what was collected; True: what follows has to wait (the first transaction of a topic)."""
        if batch.transaction is None:
            producer.publish(batch)
            return False
        self.commands.publish_in_transaction(self, producer, batch)
        return self._is_command_under_way

    def _handle_command(self, command: bytes, payload: bytes) -> None:
        """Handle one command that is no plain SEND."""
        try:
            if self.is_connected:
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
            if not self.is_connected and decoded.type not in _OF_HANDSHAKE:
                self.carry_out(self.handshake.other_command(pb.BaseCommand.Type.Name(decoded.type)))
            elif decoded.type == pb.BaseCommand.SEND:
                self.commands.send(self, decoded.send, payload)
            elif not self.commands.run(self, decoded):
                raise ProtocolError(f"a client does not send {pb.BaseCommand.Type.Name(decoded.type)}")
        except ProtocolError as error:
            self.close(str(error))

    # ---- the next turn, the end, and what is rare

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
        if self._transport is not None:
            let_go(self._transport)
            self._transport = None
        # Now, and not when the last request that still knows the connection is done; and no cycle is left.
        self._decoder.drop()
        self._contained = _NO_PART
        self._forget_life()
        self._output_budget.forget(self)
        self._leave_rates()
        self._out.clear()
        self._writable_callbacks.clear()
        self._forget_members()
        self.services.publish_buffer.forget(self)
        self.services.requests.held.pop(self, None)
        self.services.connections.closed(self)

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

    @property
    def is_heard(self) -> bool:
        """Whether it is read now."""
        return not self._paused

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
