"""A client of the token ring: it speaks frames to whichever broker it is connected to, and waits for answers.

The broker runs on a node of its own and may die at any moment; what a dead one still says on its way to its next await
is not heard.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from geminga import sim
from geminga.broker.composition.service import Broker
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.runtime import is_halted
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch, encode_batch
from geminga.wire.pulsar.commands import decode_command, encode_command
from geminga.wire.pulsar.frame import FrameDecoder, encode_frame_head
from geminga.wire.pulsar.markers import transaction_of
from geminga.wire.pulsar.metadata import encode_entry, split_entry
from support.worlds.broker_world import MemoryTransport

Type = pb.BaseCommand
#: Virtual seconds after which a client takes an answer for lost.
PATIENCE_S = 0.7
WORD_BITS = 64


class Lost(Exception):
    """The connection is gone, or an answer did not come in time."""


class Refused(Exception):
    """The broker answered with an error."""

    def __init__(self, error: int, message: str) -> None:
        super().__init__(message)
        self.error = error


class Taken(NamedTuple):
    """A message that was delivered: where it is, and of which transaction it says to be."""

    position: Position
    #: Index in its batch of ``size``; -1: it is in none.
    index: int
    size: int
    payload: bytes
    txn_id: TxnId | None
    topic: int


class RingClient:
    """One connection."""

    def __init__(
        self,
        broker: Broker,
        node: sim.SimNode,
        port: int,
        *,
        delay_s: float,
        on_message: Callable[[Taken, RingClient], None],
    ) -> None:
        """``delay_s``: of the broker's answers."""
        self.broker = broker
        self.node = node
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._boot = node.boot
        self._delay_s = delay_s
        self._on_message = on_message
        #: Said by the broker and not heard yet.
        self._line: deque[bytes] = deque()
        self._decoder = FrameDecoder(1 << 30)
        self._request_id = 0
        self._answers: dict[tuple[str, int], asyncio.Future[pb.BaseCommand]] = {}
        #: Delivered and not taken yet; consumer id -> topic.
        self.messages: list[Taken] = []
        self.topics: dict[int, int] = {}
        self._news: asyncio.Future[None] | None = None
        self.transport = MemoryTransport(("127.0.0.1", port))
        self.transport.on_write = self._on_write
        self.connection = broker.new_connection()
        self.transport.protocol = self.connection
        node.call_soon(self.connection.connection_made, self.transport)

    # ---- the line

    def _on_write(self, data: bytes) -> None:
        if is_halted() or self.is_closed:
            return
        # Timers that are due at once keep no order.
        self._line.append(data)
        if self._delay_s:
            self._loop.call_later(self._delay_s, self._heard, context=self._context)
        else:
            self._loop.call_soon(self._heard, context=self._context)

    def _heard(self) -> None:
        data = self._line.popleft()
        if self.is_closed:
            return
        for raw, payload in self._decoder.feed(data):
            command = decode_command(raw)
            kind = command.type
            if kind == Type.MESSAGE:
                self._take(command.message, bytes(payload))
            elif kind == Type.SEND_RECEIPT:
                self._answered(("send", command.send_receipt.sequence_id), command)
            elif kind == Type.SEND_ERROR:
                self._answered(("send", command.send_error.sequence_id), command)
            elif kind == Type.CONNECTED:
                self._answered(("connect", 0), command)
            elif kind in (Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER):
                self.lose()
                return
            elif kind == Type.PING:
                self.tell(pb.BaseCommand(type=Type.PONG, pong=pb.CommandPong()))
            else:
                answer = getattr(command, command.ListFields()[-1][0].name)
                if hasattr(answer, "request_id"):
                    self._answered(("request", answer.request_id), command)
        if self.transport.is_closing():
            self.lose()

    def _answered(self, key: tuple[str, int], command: pb.BaseCommand) -> None:
        waiting = self._answers.pop(key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(command)

    def _take(self, message: pb.CommandMessage, entry: bytes) -> None:
        metadata, offset = split_entry(entry)
        assert metadata is not None
        position = Position(message.message_id.ledgerId, message.message_id.entryId)
        txn_id = transaction_of(metadata)
        topic = self.topics[message.consumer_id]
        if not metadata.HasField("num_messages_in_batch"):
            found = [Taken(position, -1, 0, entry[offset:], txn_id, topic)]
        else:
            size = metadata.num_messages_in_batch
            left = bits_of(message.ack_set) if message.ack_set else (1 << size) - 1
            found = [
                Taken(position, index, size, payload, txn_id, topic)
                for index, (_, payload) in enumerate(decode_batch(entry[offset:], size))
                if left >> index & 1
            ]
        waiting = {(one.position, one.index) for one in self.messages}
        for one in found:
            self._on_message(one, self)
            # An abort brings an entry again, with those of its messages that wait here still.
            if (one.position, one.index) not in waiting:
                self.messages.append(one)
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def lose(self) -> None:
        """The connection is gone, for whatever reason."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.node.boot is self._boot and self._boot is not None:
            self.node.call_soon(self.transport.close)
        waiting, self._answers = self._answers, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(Lost("connection closed"))
                answer.exception()
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _write(self, data: bytes) -> None:
        if self.is_closed or self.node.boot is not self._boot:
            raise Lost("connection closed")
        self.node.call_soon(self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.connection.data_received(data)

    def tell(self, command: pb.BaseCommand) -> None:
        self._write(encode_command(command))

    async def _ask(self, key: tuple[str, int], data: bytes) -> pb.BaseCommand:
        answer = self._answers[key] = self._loop.create_future()
        self._write(data)
        timer = self._loop.call_later(PATIENCE_S, _give_up, answer)
        try:
            return await answer
        finally:
            timer.cancel()
            self._answers.pop(key, None)

    async def _request(self, kind: int, field: str, request: object) -> object:
        self._request_id += 1
        request.request_id = self._request_id
        command = pb.BaseCommand(type=kind)
        getattr(command, field).CopyFrom(request)
        answer = await self._ask(("request", self._request_id), encode_command(command))
        body = getattr(answer, answer.ListFields()[-1][0].name)
        if answer.type == Type.ERROR or (
            answer.type != Type.SUCCESS and "error" in body.DESCRIPTOR.fields_by_name and body.HasField("error")
        ):
            raise Refused(body.error, body.message)
        return body

    # ---- commands

    async def connect(self) -> None:
        command = pb.BaseCommand(
            type=Type.CONNECT, connect=pb.CommandConnect(client_version="ring", protocol_version=21)
        )
        await self._ask(("connect", 0), encode_command(command))

    async def create_producer(self, topic: str, producer_id: int, name: str) -> int:
        """The last sequence id that the broker knows of."""
        request = pb.CommandProducer(topic=topic, producer_id=producer_id, producer_name=name, txn_enabled=True)
        answer = await self._request(Type.PRODUCER, "producer", request)
        return answer.last_sequence_id

    async def subscribe(self, topic: str, number: int, kind: int, permits: int) -> None:
        """Consumer ``number`` of topic ``number``."""
        self.topics[number] = number
        request = pb.CommandSubscribe(
            topic=topic,
            subscription="sub",
            subType=kind,
            consumer_id=number,
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        await self._request(Type.SUBSCRIBE, "subscribe", request)
        self.flow(number, permits)

    def flow(self, number: int, permits: int) -> None:
        if permits:
            flow = pb.CommandFlow(consumer_id=number, messagePermits=permits)
            self.tell(pb.BaseCommand(type=Type.FLOW, flow=flow))

    async def more_messages(self, seconds: float) -> None:
        """Until one came, or so much time went by."""
        if self.messages or self.is_closed:
            return
        self._news = self._loop.create_future()
        timer = self._loop.call_later(seconds, _wake, self._news)
        await self._news
        timer.cancel()
        self._news = None

    async def begin(self, coordinator: int, timeout_ms: int) -> TxnId:
        request = pb.CommandNewTxn(tc_id=coordinator, txn_ttl_millis=timeout_ms)
        answer = await self._request(Type.NEW_TXN, "newTxn", request)
        return TxnId(answer.txnid_most_bits, answer.txnid_least_bits)

    async def add_partition(self, txn_id: TxnId, topic: str) -> None:
        request = pb.CommandAddPartitionToTxn(partitions=[topic], **_bits(txn_id))
        await self._request(Type.ADD_PARTITION_TO_TXN, "addPartitionToTxn", request)

    async def add_subscription(self, txn_id: TxnId, topic: str) -> None:
        added = [pb.Subscription(topic=topic, subscription="sub")]
        request = pb.CommandAddSubscriptionToTxn(subscription=added, **_bits(txn_id))
        await self._request(Type.ADD_SUBSCRIPTION_TO_TXN, "addSubscriptionToTxn", request)

    async def end(self, txn_id: TxnId, *, commit: bool) -> None:
        request = pb.CommandEndTxn(txn_action=pb.COMMIT if commit else pb.ABORT, **_bits(txn_id))
        await self._request(Type.END_TXN, "endTxn", request)

    async def send(
        self,
        producer_id: int,
        name: str,
        sequence_id: int,
        payloads: Sequence[bytes],
        txn_id: TxnId | None,
        *,
        key: str,
        is_batch: bool,
    ) -> None:
        """One entry, of one message or of a batch."""
        metadata = pb.MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=1, partition_key=key)
        send = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id)
        if txn_id is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = txn_id
            send.txnid_most_bits, send.txnid_least_bits = txn_id
        payload = payloads[0]
        if is_batch:
            metadata.num_messages_in_batch = send.num_messages = len(payloads)
            payload = encode_batch(payloads, sequence_id)
        entry = encode_entry(metadata, payload)
        command = pb.BaseCommand(type=Type.SEND, send=send).SerializeToString()
        answer = await self._ask(("send", sequence_id), encode_frame_head(command, len(entry)) + entry)
        if answer.type == Type.SEND_ERROR:
            raise Refused(answer.send_error.error, answer.send_error.message)

    async def acknowledge(
        self, number: int, taken: Sequence[Taken], txn_id: TxnId | None, *, is_cumulative: bool = False
    ) -> None:
        """These messages, or everything up to the last of them."""
        ack = pb.CommandAck(
            consumer_id=number,
            ack_type=pb.CommandAck.Cumulative if is_cumulative else pb.CommandAck.Individual,
            message_id=[_id_up_to(taken[-1])] if is_cumulative else _ids(taken),
            **(_bits(txn_id) if txn_id is not None else {}),
        )
        await self._request(Type.ACK, "ack", ack)


def _id_up_to(last: Taken) -> pb.MessageIdData:
    found = pb.MessageIdData(ledgerId=last.position.ledger_id, entryId=last.position.entry_id)
    if 0 <= last.index < last.size - 1:
        found.ack_set.extend(words_of((1 << last.size) - (1 << last.index + 1)))
        found.batch_size = last.size
    return found


def _ids(taken: Sequence[Taken]) -> list[pb.MessageIdData]:
    left: dict[Position, int] = {}
    sizes: dict[Position, int] = {}
    for one in taken:
        sizes[one.position] = one.size
        if one.size:
            left[one.position] = left.get(one.position, (1 << one.size) - 1) & ~(1 << one.index)
    found = []
    for position, size in sizes.items():
        data = pb.MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id)
        if left.get(position):
            data.ack_set.extend(words_of(left[position]))
            data.batch_size = size
        found.append(data)
    return found


def words_of(bits: int) -> list[int]:
    """As int64 words."""
    data = bits.to_bytes(-(-bits.bit_length() // WORD_BITS) * 8, "little")
    return [int.from_bytes(data[at : at + 8], "little", signed=True) for at in range(0, len(data), 8)]


def bits_of(words: Sequence[int]) -> int:
    """What :func:`words_of` gives, back."""
    return int.from_bytes(b"".join(word.to_bytes(8, "little", signed=True) for word in words), "little")


def _bits(txn_id: TxnId) -> dict[str, int]:
    return {"txnid_most_bits": txn_id.coordinator, "txnid_least_bits": txn_id.number}


def _give_up(answer: asyncio.Future[pb.BaseCommand]) -> None:
    if not answer.done():
        answer.set_exception(Lost("no answer in time"))


def _wake(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)
