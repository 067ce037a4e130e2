"""One policy at each of the three levels, and a model of what a topic must hold then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from geminga.broker.resources.documents import Document
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, run_with_broker

NAME = TopicName.parse(TOPIC)
NAMESPACE = "public/default"
LEVELS = ("broker", "namespace", "topic")
#: Ledgers of a few entries, closed as soon as they are full.
SMALL_LEDGERS = ManagedLedgerConfig(max_entries_per_ledger=4, min_rollover_minutes=0)


def run_quietly(scenario: Callable[[BrokerWorld], Awaitable[None]], **options) -> None:
    """Run with a broker that neither pings its clients, which do not answer, nor deletes idle topics."""
    run_with_broker(scenario, **{"keep_alive_interval_s": 1_000_000, "delete_inactive_topics": False, **options})


async def seconds(count: float) -> None:
    """Let virtual time pass."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(count, future.set_result, None)
    await future


async def set_namespace(world: BrokerWorld, key: str, value: object) -> None:
    """Set a field of the namespace's policies."""
    await world.resources.namespaces.set_policy(NAMESPACE, key, value)
    await world.broker.policies_changed(NAMESPACE)


async def set_topic(world: BrokerWorld, key: str, value: object, name: TopicName = NAME) -> None:
    """Set a field of the topic's own policies."""

    def change(document: Document) -> Document:
        return {**document, key: value}

    await world.broker.policies.topics.update(name, change)


async def topic_of(world: BrokerWorld) -> PersistentTopic:
    """The topic, loaded."""
    topic = await world.broker.registry.get(NAME, create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


class Publisher:
    """Publishes at the broker's own time and remembers when each entry was published, and how large it is."""

    def __init__(self, world: BrokerWorld, client: Client) -> None:
        self._world = world
        self._client = client
        self._sequence_id = 0
        #: Wall milliseconds of each entry, in order.
        self.times: list[int] = []

    @classmethod
    async def open(cls, world: BrokerWorld) -> Publisher:
        client = await world.publisher()
        return cls(world, client)

    async def publish(self, payload: bytes = b"payload", *, claimed_ms: int | None = None) -> None:
        """``claimed_ms``: what the message says of its time; None: the truth."""
        now_ms = self._world.runtime.clock.wall_ms()
        publish_time = now_ms if claimed_ms is None else claimed_ms
        self._client.send_message(self._sequence_id, payload, metadata={"publish_time": publish_time})
        self._sequence_id += 1
        await self._client.receipt()
        self.times.append(now_ms)

    async def was_disconnected(self) -> bool:
        """Whether the broker closed the producer; waits for it."""
        await self._client.expect(pb.BaseCommand.CLOSE_PRODUCER)
        return True


async def refused(world: BrokerWorld) -> pb.ServerError | None:
    """The error a new producer gets now; None: it is let in (and leaves again)."""
    client = await world.client()
    request_id = client.request_producer()
    await client.wait_for_news()
    command, _ = client.received.popleft()
    if command.type == pb.BaseCommand.ERROR:
        assert command.error.request_id == request_id
        return command.error.error
    assert command.type == pb.BaseCommand.PRODUCER_SUCCESS
    await client.close_producer()
    return None
