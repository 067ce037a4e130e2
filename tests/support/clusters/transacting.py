"""A client that speaks the commands of transactions, frame by frame."""

from __future__ import annotations

import asyncio

from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import split_entry
from support.worlds.broker_world import PATIENCE_S, TOPIC, BrokerWorld, Client, Type, send_frame

Id = pb.MessageIdData


def _bits(txn_id: TxnId) -> dict[str, int]:
    return {"txnid_most_bits": txn_id.coordinator, "txnid_least_bits": txn_id.number}


class Transacting:
    """On a connection of its own; answers are given back whole, with their errors."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._sequence_id = 0

    async def connect(self, coordinator: int = 0) -> pb.CommandTcClientConnectResponse:
        request = pb.CommandTcClientConnectRequest(request_id=self.client.next_request_id(), tc_id=coordinator)
        self.client.send(pb.BaseCommand(type=Type.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest=request))
        return (await self._next(Type.TC_CLIENT_CONNECT_RESPONSE)).tcClientConnectResponse

    async def begin(self, timeout_ms: int = 60_000, coordinator: int = 0) -> TxnId:
        request = pb.CommandNewTxn(
            request_id=self.client.next_request_id(), tc_id=coordinator, txn_ttl_millis=timeout_ms
        )
        self.client.send(pb.BaseCommand(type=Type.NEW_TXN, newTxn=request))
        answer = (await self._next(Type.NEW_TXN_RESPONSE)).newTxnResponse
        assert not answer.HasField("error"), answer
        return TxnId(answer.txnid_most_bits, answer.txnid_least_bits)

    async def add_partition(self, txn_id: TxnId, topic: str = TOPIC) -> pb.CommandAddPartitionToTxnResponse:
        request = pb.CommandAddPartitionToTxn(
            request_id=self.client.next_request_id(), partitions=[topic], **_bits(txn_id)
        )
        self.client.send(pb.BaseCommand(type=Type.ADD_PARTITION_TO_TXN, addPartitionToTxn=request))
        return (await self._next(Type.ADD_PARTITION_TO_TXN_RESPONSE)).addPartitionToTxnResponse

    async def add_subscription(
        self, txn_id: TxnId, topic: str = TOPIC, subscription: str = "sub"
    ) -> pb.CommandAddSubscriptionToTxnResponse:
        request = pb.CommandAddSubscriptionToTxn(
            request_id=self.client.next_request_id(),
            subscription=[pb.Subscription(topic=topic, subscription=subscription)],
            **_bits(txn_id),
        )
        self.client.send(pb.BaseCommand(type=Type.ADD_SUBSCRIPTION_TO_TXN, addSubscriptionToTxn=request))
        return (await self._next(Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE)).addSubscriptionToTxnResponse

    def ask_end(self, txn_id: TxnId, *, commit: bool) -> None:
        request = pb.CommandEndTxn(
            request_id=self.client.next_request_id(),
            txn_action=pb.COMMIT if commit else pb.ABORT,
            **_bits(txn_id),
        )
        self.client.send(pb.BaseCommand(type=Type.END_TXN, endTxn=request))

    async def end(self, txn_id: TxnId, *, commit: bool) -> pb.CommandEndTxnResponse:
        self.ask_end(txn_id, commit=commit)
        return (await self._next(Type.END_TXN_RESPONSE)).endTxnResponse

    async def finish(self, txn_id: TxnId, *, commit: bool) -> None:
        """As :meth:`end`, where it must succeed."""
        answer = await self.end(txn_id, commit=commit)
        assert not answer.HasField("error"), answer

    async def send(
        self, payload: bytes, txn_id: TxnId | None = None, producer_id: int = 1, *, number: int | None = None, **more
    ) -> pb.BaseCommand:
        """Publish, in a transaction or in none; SEND_RECEIPT or SEND_ERROR.

        ``number``: the sequence id, else the next one; ``more`` is the command's and the metadata's.
        """
        self._sequence_id += 1
        bits = _bits(txn_id) if txn_id is not None else {}
        sequence_id = self._sequence_id if number is None else number
        metadata = {**bits, **more.pop("metadata", {})}
        self.client.send_bytes(send_frame(sequence_id, payload, producer_id, metadata=metadata, **bits, **more))
        return await self._next(Type.SEND_RECEIPT, Type.SEND_ERROR)

    async def publish(self, payload: bytes, txn_id: TxnId | None = None, producer_id: int = 1) -> None:
        """As :meth:`send`, where it must succeed."""
        answer = await self.send(payload, txn_id, producer_id)
        assert answer.type == Type.SEND_RECEIPT, answer

    async def acknowledge(
        self, ids: list[Id], txn_id: TxnId | None = None, *, consumer_id: int = 1, is_cumulative: bool = False
    ) -> pb.CommandAckResponse:
        ack = pb.CommandAck(
            consumer_id=consumer_id,
            ack_type=pb.CommandAck.Cumulative if is_cumulative else pb.CommandAck.Individual,
            message_id=ids,
            request_id=self.client.next_request_id(),
            **(_bits(txn_id) if txn_id is not None else {}),
        )
        self.client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
        return (await self._next(Type.ACK_RESPONSE)).ackResponse

    async def _next(self, *kinds: int) -> pb.BaseCommand:
        """The next command of one of these kinds; messages stay for :meth:`messages`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for index, (command, _) in enumerate(self.client.received):
                    if command.type in kinds:
                        del self.client.received[index]
                        return command
                await wait_ms(1)

    def flow(self, consumer_id: int, permits: int) -> None:
        """Let so many more messages come."""
        command = pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
        self.client.send(pb.BaseCommand(type=Type.FLOW, flow=command))

    def messages(self) -> list[tuple[Id, bytes]]:
        """What consumers of this connection were sent until now."""
        found = []
        for command, payload in list(self.client.received):
            if command.type == Type.MESSAGE:
                _, offset = split_entry(payload)
                found.append((command.message.message_id, payload[offset:]))
        kept = [each for each in self.client.received if each[0].type != Type.MESSAGE]
        self.client.received.clear()
        self.client.received.extend(kept)
        return found

    def payloads(self) -> list[bytes]:
        """Of :meth:`messages`."""
        return [payload for _, payload in self.messages()]

    async def read(self) -> list[bytes]:
        """What came since it was looked at last, and comes in a moment."""
        await wait_ms(50)
        return self.payloads()


async def transacting(world: BrokerWorld) -> Transacting:
    """A client of the broker."""
    return Transacting(await world.client())


async def producing(world: BrokerWorld) -> Transacting:
    """A client with a producer of the topic."""
    client = await transacting(world)
    await client.client.create_producer()
    return client


async def both_ends(world: BrokerWorld) -> tuple[Transacting, Transacting]:
    """A client with a producer of the topic, and one with a consumer."""
    writer, reader = await transacting(world), await transacting(world)
    await reader.client.subscribe()
    await writer.client.create_producer()
    return writer, reader


async def begun(world: BrokerWorld, timeout_ms: int = 60_000) -> tuple[Transacting, TxnId]:
    """A client with a producer of the topic, and its transaction, which the topic is in."""
    writer = await producing(world)
    txn_id = await writer.begin(timeout_ms)
    await writer.add_partition(txn_id)
    return writer, txn_id


async def publishing(world: BrokerWorld, payload: bytes = b"message") -> tuple[Transacting, TxnId]:
    """A client, and its transaction with a message in the topic."""
    writer, txn_id = await begun(world)
    await writer.publish(payload, txn_id)
    return writer, txn_id
