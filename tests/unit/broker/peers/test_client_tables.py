"""Policies of topics whose namespace's events another broker owns, read there by our own client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from geminga import sim
from geminga.broker.composition.service import Broker
from geminga.model.errors import TopicNotServedError
from geminga.model.topic_name import TopicName
from support.clusters.two_brokers import BROKERS, PLAIN, Cluster

T = TypeVar("T")
NAME = TopicName.parse(PLAIN[0])
EVENTS = TopicName.parse("persistent://public/default/__change_events")
#: Virtual seconds in which a change is heard of.
SOON_S = 2.0


class Stage:
    """Broker a has the events, b the topic."""

    def __init__(self, world: sim.SimWorld, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster

    async def at(self, broker: str, what: Callable[[Broker], Awaitable[T]]) -> T:
        return await self.world.node(broker).run(lambda _: what(self.cluster.brokers[broker]))

    async def set_ttl(self, broker: str, seconds: int | None) -> None:
        await self.at(
            broker,
            lambda one: one.policies.topics.update(NAME, lambda found: {**found, "messageTTLInSeconds": seconds}),
        )

    async def set_maximum(self, broker: str, producers: int) -> None:
        await self.at(
            broker,
            lambda one: one.policies.topics.update(NAME, lambda found: {**found, "maxProducerPerTopic": producers}),
        )

    async def ttl_ms(self, broker: str = "b") -> int:
        """Of the loaded topic."""

        async def ttl(one: Broker) -> int:
            return (await one.registry.get(NAME, create=True)).rules.ttl_ms

        return await self.at(broker, ttl)


def run(story: Callable[[Stage], Awaitable[None]], *, reads_events: bool = True) -> None:
    async def main(world: sim.SimWorld) -> None:
        cluster = await Cluster(world, reads_events=reads_events).start()
        cluster.table.owners |= {str(EVENTS): "a", str(NAME): "b"}
        await story(Stage(world, cluster))

    sim.run(main)


def test_topic_has_the_policies_that_another_broker_keeps_and_follows_them() -> None:
    async def story(stage: Stage) -> None:
        await stage.set_ttl("a", 7)
        assert await stage.ttl_ms() == 7000
        for seconds, expected in ((9, 9000), (None, 0), (4, 4000)):
            await stage.set_ttl("a", seconds)
            await stage.world.sleep(SOON_S)
            assert await stage.ttl_ms() == expected
        assert str(EVENTS) not in stage.cluster.brokers["b"].topics

    run(story)


def test_policies_that_come_first_when_the_topic_is_there_already_are_heard_of() -> None:
    async def story(stage: Stage) -> None:
        assert await stage.ttl_ms() == 0
        await stage.set_ttl("a", 5)
        await stage.world.sleep(SOON_S)
        assert await stage.ttl_ms() == 5000

    run(story)


def test_events_that_change_hands_are_read_and_written_at_their_owner() -> None:
    async def story(stage: Stage) -> None:
        await stage.set_ttl("a", 7)
        assert await stage.ttl_ms() == 7000
        await stage.cluster.table.give([EVENTS], "b")
        await stage.set_ttl("b", 8)
        assert await stage.ttl_ms() == 8000
        # The other way round: who kept them hears of what is stored now.
        await stage.cluster.table.give([NAME], "a")
        assert await stage.ttl_ms("a") == 8000
        await stage.set_ttl("b", 6)
        await stage.world.sleep(SOON_S)
        assert await stage.ttl_ms("a") == 6000

    run(story)


def test_what_another_broker_writes_as_a_client_is_known_at_the_owner_when_it_is_stored() -> None:
    async def story(stage: Stage) -> None:
        await stage.set_ttl("a", 7)
        for seconds in (8, None, 9):
            await stage.set_ttl("b", seconds)
            assert await stage.ttl_ms() == (seconds or 0) * 1000
            found = await stage.at("a", lambda one: one.policies.topics.get(NAME))
            assert (found.document["messageTTLInSeconds"] if found else None) == seconds
        # Changes of both come one after the other, each with what the one before it left.
        await stage.set_maximum("a", 4)
        await stage.set_ttl("b", 5)
        await stage.set_maximum("a", 6)
        for broker in BROKERS:
            found = await stage.at(broker, lambda one: one.policies.topics.get(NAME, is_exact=True))
            assert found is not None
            assert found.document == {"messageTTLInSeconds": 5, "maxProducerPerTopic": 6}

    run(story)


def test_loaded_topics_of_the_owner_follow_what_another_broker_writes_also_the_first_of_all() -> None:
    async def story(stage: Stage) -> None:
        await stage.cluster.table.give([NAME], "a")
        assert await stage.ttl_ms("a") == 0
        await stage.set_ttl("b", 5)
        await stage.world.sleep(SOON_S)
        assert await stage.ttl_ms("a") == 5000

    run(story)


def test_reader_follows_to_another_owner_also_after_a_crash() -> None:
    async def story(stage: Stage) -> None:
        await stage.set_ttl("a", 7)
        assert await stage.ttl_ms() == 7000
        stage.cluster.crash("a")
        await stage.cluster.boot("a")
        await stage.set_ttl("a", 3)
        await stage.world.sleep(10 * SOON_S)
        assert await stage.ttl_ms() == 3000

    run(story)


def test_without_a_reader_a_topic_whose_policies_are_elsewhere_is_not_opened_without_them() -> None:
    async def story(stage: Stage) -> None:
        await stage.set_ttl("a", 7)
        with pytest.raises(TopicNotServedError, match="__change_events"):
            await stage.ttl_ms()

    run(story, reads_events=False)
