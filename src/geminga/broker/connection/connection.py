"""One client connection: bytes in, commands to their handlers, bytes out, back-pressure both ways.

What one socket read brought is handled as one batch: consecutive SENDs of a producer reach its topic as one call,
and receipts that become ready in one turn of the loop leave as one write. No task and no future per entry: a SEND
costs a slice, a checksum, and two list appends here.

A connection is one object in layers, each of which decides one thing: what is written (:mod:`.output`), when nothing
is read (:mod:`.pauses`), how it begins and ends (:mod:`.life`), what a client has on it (:mod:`.members`), when frames
are handled (:mod:`.turns`), and here, what is done with each.

A client that breaks the protocol is disconnected with one line in the log, and so is one whose command raises what no
handler expects; nothing it sends raises further up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

from geminga.broker.connection.back_pressure import (
    COMMAND_BYTES_MAX,
    LONG_COMMAND_BYTES,
    TURN_COMMANDS_MAX,
    WRITE_BUFFER_HIGH_BYTES,
    WRITE_BUFFER_LOW_BYTES,
)
from geminga.broker.connection.life import UNREQUESTED
from geminga.broker.connection.services import ConnectionServices
from geminga.broker.connection.turns import ConnectionTurns
from geminga.broker.topic.publish import PublishBatch, TransactionId
from geminga.model.crc32c import crc32c
from geminga.model.errors import NotAllowedError, ProtocolError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import hot
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.frame import Frame
from geminga.wire.pulsar.metadata import MAGIC_CHECKSUM
from geminga.wire.pulsar.numbers import is_suspect, send_refusal

if TYPE_CHECKING:
    from geminga.broker.topic.producer import Producer

#: What is taken before it is known who is there.
_OF_HANDSHAKE: Final = (pb.BaseCommand.CONNECT, pb.BaseCommand.AUTH_RESPONSE)
#: Payloads up to this size are copied for the checksum: cheaper than a memoryview.
_CHECKSUM_COPY_BYTES_MAX: Final = 2048


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


class Connection(ConnectionTurns, asyncio.Protocol):
    """The server's side of one connection; all of it runs on the loop's thread."""

    __slots__ = ("commands", "listener")

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
        super().__init__(services, turn_commands_max)
        #: What is done with commands.
        self.commands = commands
        self.listener = listener

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

    def _handle_frames(self, frames: list[Frame], deadline: float) -> list[Frame]:
        """Handle frames in their order; those the turn had no room for, which ends at ``deadline`` (monotonic)."""
        monotonic = self._monotonic
        producer: Producer | None = None
        producer_id = -1
        txn: TransactionId | None = None
        entries: list[bytes] = []
        sequence_ids: list[tuple[int, int]] = []
        messages = 0
        chunks = markers = plain = 0
        for position, (command, payload) in enumerate(frames):
            if command[:3] == hot.SEND_PREFIX and self.is_connected:
                send = hot.decode_send(command)
                if send is not None:
                    if send[0] != producer_id or send[5] != txn:
                        if entries and producer is not None:
                            batch = PublishBatch(producer, entries, sequence_ids, messages, chunks, markers, txn)
                            entries, sequence_ids, messages, chunks, markers = [], [], 0, 0, 0
                            if self._publish(producer, batch) or monotonic() >= deadline:
                                return frames[position:]
                        producer_id, txn = send[0], send[5]
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
                        != crc32c(payload[6:] if size < _CHECKSUM_COPY_BYTES_MAX else memoryview(payload)[6:])
                        or ((payload[9] > plain or payload[8]) and is_suspect(payload))
                    ) and (refusal := send_refusal(payload)) is not None:
                        if entries:
                            batch = PublishBatch(producer, entries, sequence_ids, messages, chunks, markers, txn)
                            entries, sequence_ids, messages, chunks, markers = [], [], 0, 0, 0
                            if self._publish(producer, batch):
                                return frames[position:]
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
                batch = PublishBatch(producer, entries, sequence_ids, messages, chunks, markers, txn)
                entries, sequence_ids, messages, chunks, markers = [], [], 0, 0, 0
                if self._publish(producer, batch):
                    return frames[position:]
            producer_id = -1
            if self.is_closed or not self._handle_command(command, payload):
                return []
            if monotonic() >= deadline or self._is_command_under_way:
                return frames[position + 1 :]
        if entries and producer is not None:
            batch = PublishBatch(producer, entries, sequence_ids, messages, chunks, markers, txn)
            self._publish(producer, batch)
        return []

    def _publish(self, producer: Producer, batch: PublishBatch) -> bool:
        """Publish what was collected; True: what follows has to wait (the first transaction of a topic)."""
        if batch.transaction is None:
            producer.publish(batch)
            return False
        self.commands.publish_in_transaction(self, producer, batch)
        return self._is_command_under_way

    def _handle_command(self, command: bytes, payload: bytes) -> bool:
        """Handle one command that is no plain SEND; False if the connection is closed now."""
        try:
            if self.is_connected:
                if command[:3] == hot.FLOW_PREFIX:
                    flow = hot.decode_flow(command)
                    if flow is not None:
                        self.commands.flow(self, flow[0], flow[1])
                        return not self.is_closed
                elif command[:3] == hot.ACK_PREFIX:
                    self.commands.ack(self, command)
                    return not self.is_closed
                elif len(command) > LONG_COMMAND_BYTES and command[:2] == hot.REDELIVER_PREFIX:
                    self.commands.redeliver(self, command)
                    return not self.is_closed
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
        return not self.is_closed
