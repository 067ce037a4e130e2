"""Connections and topics agree on who is there, whatever clients and administrators did at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import pytest

from geminga.broker.topic.base import Topic
from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.weekly_sample import sampled
from support.worlds.broker_world import BrokerWorld, Client, Type
from support.worlds.policy_levels import run_quietly, seconds

T = TypeVar("T")
TOPICS = [f"{domain}://public/default/{name}" for domain in ("persistent", "non-persistent") for name in "ab"]
ACTS = 80
#: Of a subscription whose last reader was sent away for a seek.
GRACE_S = 100


class Story:
    """What three clients and an administrator do."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.clients: list[Client] = []
        self.done: list[asyncio.Task[None]] = []

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.world.runtime.rng.below(len(choices))]

    async def act(self) -> None:
        while len(self.clients) < 3:
            self.clients.append(await self.world.client())
        client = self.one_of(self.clients)
        if client.is_closed:
            self.clients.remove(client)
            return
        acts: list[Callable[[Client, str, int], None]] = [self.subscribe, self.produce, self.leave, self.administer]
        self.one_of([*acts, self.subscribe, self.produce, self.leave])(
            client, self.one_of(TOPICS), self.one_of(range(3))
        )
        if self.one_of((True, False)):
            await seconds(self.one_of((0, 0.001, 0.02, 0.5)))

    def subscribe(self, client: Client, topic: str, number: int) -> None:
        request = pb.CommandSubscribe(
            topic=topic,
            subscription=self.one_of("st"),
            consumer_id=number,
            request_id=client.next_request_id(),
            subType=self.one_of(pb.CommandSubscribe.SubType.values()),
            durable=self.one_of((True, False)),
        )
        if self.one_of((True, False)):
            request.keySharedMeta.keySharedMode = pb.STICKY
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))

    def produce(self, client: Client, topic: str, number: int) -> None:
        mode = self.one_of(pb.ProducerAccessMode.values())
        client.request_producer(topic, number, producer_name=self.one_of("pq"), producer_access_mode=mode)

    def leave(self, client: Client, topic: str, number: int) -> None:
        del topic
        request_id = client.next_request_id()
        kind = self.one_of(("consumer", "producer", "unsubscribe", "seek", "connection"))
        if kind == "consumer":
            gone = pb.CommandCloseConsumer(consumer_id=number, request_id=request_id)
            client.send(pb.BaseCommand(type=Type.CLOSE_CONSUMER, close_consumer=gone))
        elif kind == "producer":
            left = pb.CommandCloseProducer(producer_id=number, request_id=request_id)
            client.send(pb.BaseCommand(type=Type.CLOSE_PRODUCER, close_producer=left))
        elif kind == "unsubscribe":
            ended = pb.CommandUnsubscribe(consumer_id=number, request_id=request_id, force=True)
            client.send(pb.BaseCommand(type=Type.UNSUBSCRIBE, unsubscribe=ended))
        elif kind == "seek":
            sought = pb.CommandSeek(consumer_id=number, request_id=request_id, message_publish_time=1)
            client.send(pb.BaseCommand(type=Type.SEEK, seek=sought))
        elif self.one_of((True, False)):
            client.lose()

    def administer(self, client: Client, topic: str, number: int) -> None:
        del client
        registry, name = self.world.broker.registry, TopicName.parse(topic)

        async def work() -> None:
            with suppress(GemingaError):
                await (registry.delete(name, force=True) if number == 1 else registry.unload(name))

        self.done.append(asyncio.ensure_future(work()))

    # ---- what must be so

    def check(self) -> None:
        members = [client.connection.members for client in self.clients if not client.is_closed]
        for topic in self.world.broker.topics.values():
            topic.check_invariants()
            there = [*(each for one in members for each in one.producers.values())]
            there += [each for one in members for each in one.waiting_producers.values()]
            assert set(topic.attendance.all()) == {each for each in there if each.topic is topic}
            consumers = {each for one in members for each in one.consumers.values()}
            for subscription in topic.subscriptions.values():
                assert set(subscription.consumers) == {each for each in consumers if each.subscription is subscription}
                assert subscription.is_durable or subscription.consumers
            self.check_stored(topic)
        assert not any(one.requests for one in members)

    @staticmethod
    def check_stored(topic: Topic) -> None:
        if isinstance(topic, PersistentTopic):
            durable = {name for name, each in topic.subscriptions.items() if each.is_durable}
            assert topic.ledger.cursors.keys() == durable
            assert len(topic.ledger.cursor_set.non_durable) == len(topic.subscriptions) - len(durable)


@pytest.mark.parametrize("seed", sampled("members agree", range(40), 6))
def test_who_is_on_a_connection_is_in_a_topic_and_the_other_way_round(seed: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = Story(world)
        world.metadata.faults.delay_ms_max = story.one_of((0, 5, 30))
        for _ in range(ACTS):
            await story.act()
        await asyncio.gather(*story.done)
        await seconds(GRACE_S)
        story.check()
        for client in story.clients:
            client.lose()
        await seconds(GRACE_S)
        story.check()
        assert not any(topic.is_in_use or topic.attendance.all() for topic in world.broker.topics.values())

    run_quietly(scenario, seed=seed)
