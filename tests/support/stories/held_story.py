"""A topic whose reads are held by hand, told step by step: what is published, let through, received, acknowledged."""

from __future__ import annotations

from collections.abc import Mapping

from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger.rules.catch_up_share import WAIT_MAX_S
from geminga.model.position import LATEST, Position
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import split_entry
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type
from support.worlds.holding_part import HoldingPart, holder_of, with_parts
from support.worlds.policy_levels import topic_of
from support.worlds.subscriptions import settle

NAME = TopicName.parse(TOPIC)


class Story:
    """A topic whose reads are held by hand, a producer, and what consumers were sent."""

    def __init__(self, world: BrokerWorld, client: Client, topic: PersistentTopic) -> None:
        self.world = world
        self.client = client
        self.topic = topic
        self.sent = 0
        self.positions: list[Position] = []
        #: Of each consumer, by number: what it was sent, and where that lies.
        self.texts: dict[int, list[str]] = {}
        self.ids: dict[int, list[pb.MessageIdData]] = {}
        self.others: list[pb.BaseCommand] = []

    @classmethod
    async def begin(cls, world: BrokerWorld) -> Story:
        with_parts(world.broker, HoldingPart)
        client = await world.publisher()
        return cls(world, client, await topic_of(world))

    async def publish(self, count: int = 1, **fields: object) -> None:
        for _ in range(count):
            self.client.send_message(self.sent, f"m{self.sent}".encode(), **fields)
            found = (await self._expect(Type.SEND_RECEIPT)).send_receipt.message_id
            self.positions.append(Position(found.ledgerId, found.entryId))
            self.sent += 1

    async def hold_at(self, count: int | None) -> None:
        """Readers get the first so many messages; None: all."""
        limit = LATEST if count is None else self.positions[count - 1] if count else Position(0, -1)
        await holder_of(self.topic).hold_at(limit)
        await self.take()

    async def take(self) -> list[str]:
        """Let everything run, and who waits for a turn to catch up; all that the first consumer was sent so far."""
        await settle(WAIT_MAX_S)
        while self.client.received:
            self._note(*self.client.received.popleft())
        return self.texts.get(1, [])

    async def subscribe(self, subscriptions: Mapping[int, tuple[str, int]]) -> None:
        """A consumer of each (name, type), by number; nothing is sent before all are there."""
        for consumer_id, (name, sub_type) in subscriptions.items():
            await self.client.subscribe(subscription=name, subType=sub_type, consumer_id=consumer_id, permits=0)
        for consumer_id in subscriptions:
            flow = pb.CommandFlow(consumer_id=consumer_id, messagePermits=1000)
            self.client.send(pb.BaseCommand(type=Type.FLOW, flow=flow))

    async def _expect(self, kind: int) -> pb.BaseCommand:
        while True:
            while self.client.received:
                command, payload = self.client.received.popleft()
                if command.type == kind:
                    return command
                self._note(command, payload)
            await self.client.wait_for_news()

    def _note(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type != Type.MESSAGE:
            self.others.append(command)
            return
        metadata, start = split_entry(payload)
        assert metadata is not None
        consumer_id = command.message.consumer_id
        self.texts.setdefault(consumer_id, []).append(payload[start:].decode())
        self.ids.setdefault(consumer_id, []).append(command.message.message_id)

    def acknowledge(self, ids: list[pb.MessageIdData], consumer_id: int = 1, *, cumulative: bool = False) -> None:
        kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        self.client.send(
            pb.BaseCommand(
                type=Type.ACK, ack=pb.CommandAck(consumer_id=consumer_id, ack_type=kind, message_id=list(ids))
            )
        )

    async def reload(self) -> None:
        """The topic is unloaded, and loaded again."""
        await self.take()
        await self.world.broker.registry.unload(NAME)
        self.client.received.clear()
        self.client = await self.world.client()
        self.topic = await topic_of(self.world)


def texts(*numbers: int) -> list[str]:
    return [f"m{number}" for number in numbers]
