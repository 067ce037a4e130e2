"""Policies of topics whose namespace's events another broker owns, read there by our own client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from geminga import sim
from geminga.broker.composition.service import Broker
from geminga.broker.rest.namespace_routes.deletion import delete_namespace_and_topics
from geminga.model.errors import TopicNotServedError
from geminga.model.topic_name import TopicName
from support.clusters.two_brokers import BROKERS, PLAIN, Cluster

T = TypeVar("T")
NAME = TopicName.parse(PLAIN[0])
EVENTS = TopicName.parse("persistent://public/default/__change_events")
#: A namespace that is deleted, its events and a topic of it.
GONE = "public/gone"
GONE_EVENTS = TopicName.parse(f"persistent://{GONE}/__change_events")
GONE_NAME = TopicName.parse(f"persistent://{GONE}/topic")
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

    async def make_namespace(self) -> None:
        await self.at("a", lambda one: one.resources.namespaces.create(GONE, {"replication_clusters": ["c"]}))

    async def delete_namespace(self) -> None:
        """By broker a, which has all of it by then."""
        await self.cluster.table.give([GONE_NAME], "a")
        await self.at("a", lambda one: delete_namespace_and_topics(one.administered, GONE))

    async def gone_ttl_ms(self, broker: str) -> int:
        async def ttl(one: Broker) -> int:
            return (await one.registry.get(GONE_NAME, create=True)).rules.ttl_ms

        return await self.at(broker, ttl)

    async def set_gone_ttl(self, seconds: int) -> None:
        await self.at(
            "a",
            lambda one: one.policies.topics.update(GONE_NAME, lambda found: {**found, "messageTTLInSeconds": seconds}),
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
        cluster.table.owners |= {str(EVENTS): "a", str(NAME): "b", str(GONE_EVENTS): "a", str(GONE_NAME): "b"}
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


@pytest.mark.parametrize("late_s", [0.0, 0.05, 0.1])
def test_change_that_was_waiting_when_the_events_were_given_back_is_not_lost(late_s: float) -> None:
    async def story(stage: Stage) -> None:
        await stage.cluster.table.give([NAME], "a")
        await stage.set_ttl("a", 7)
        assert await stage.ttl_ms("a") == 7000
        stage.cluster.stores["a"].faults.delay_ms_max = 300
        changes = asyncio.gather(stage.set_maximum("a", 3), stage.set_ttl("a", 9), return_exceptions=True)
        await stage.world.sleep(late_s)
        # Its session ended, and nobody else wanted them: they are read anew, by whoever asks first.
        await stage.cluster.table.brokers["a"].tell_given(lambda name: name == EVENTS)
        await stage.at("a", lambda one: one.policies.topics.get(NAME))
        _, refused = await changes
        assert refused is None
        await stage.world.sleep(SOON_S)
        assert await stage.ttl_ms("a") == 9000
        found = await stage.at("a", lambda one: one.policies.topics.get(NAME))
        assert found is not None
        assert found.document["messageTTLInSeconds"] == 9

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


def test_policies_of_a_namespace_that_another_broker_deleted_do_not_hold_in_a_later_one_of_that_name() -> None:
    async def story(stage: Stage) -> None:
        await stage.make_namespace()
        await stage.set_gone_ttl(7)
        assert await stage.gone_ttl_ms("b") == 7000
        await stage.delete_namespace()
        await stage.make_namespace()
        await stage.cluster.table.give([GONE_NAME], "b")
        assert await stage.gone_ttl_ms("b") == 0
        await stage.set_gone_ttl(4)
        await stage.world.sleep(SOON_S)
        assert await stage.gone_ttl_ms("b") == 4000

    run(story)


def test_owner_of_the_events_forgets_what_another_broker_deleted_with_the_namespace() -> None:
    async def story(stage: Stage) -> None:
        await stage.make_namespace()
        await stage.set_gone_ttl(7)
        await stage.cluster.table.give([GONE_NAME], "a")
        assert await stage.gone_ttl_ms("a") == 7000
        # What the deleting broker asks of the owner of topics, and does itself.
        for name in (GONE_NAME, GONE_EVENTS):
            await stage.at("a", lambda one, name=name: one.registry.delete(name, force=True, is_namespace_going=True))
        await stage.at("b", lambda one: one.resources.namespaces.delete(GONE))
        await stage.make_namespace()
        assert await stage.gone_ttl_ms("a") == 0

    run(story)


def test_events_of_a_namespace_that_is_gone_are_not_followed_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        await stage.make_namespace()
        await stage.set_gone_ttl(7)
        assert await stage.gone_ttl_ms("b") == 7000
        await stage.delete_namespace()
        await stage.world.sleep(60)
        caplog.clear()
        await stage.world.sleep(600)
        assert not [record for record in caplog.records if GONE in record.getMessage()]

    run(story)


@pytest.mark.parametrize("late_s", [0.5, 0.55, 0.6])
def test_events_that_are_let_go_of_while_they_are_opened_again_are_not_followed(late_s: float) -> None:
    async def story(stage: Stage) -> None:
        await stage.make_namespace()
        await stage.set_gone_ttl(7)
        assert await stage.gone_ttl_ms("b") == 7000
        await stage.cluster.table.give([GONE_NAME], "a")
        # They can not be read for a while, and are tried again and again.
        await stage.at("a", lambda one: one.resources.namespaces.set_policy(GONE, "deleted", True))
        await stage.at("a", lambda one: one.registry.unload(GONE_EVENTS))
        await stage.world.sleep(3)
        await stage.at("a", lambda one: one.resources.namespaces.set_policy(GONE, "deleted", False))
        await stage.world.sleep(late_s)
        await stage.cluster.table.brokers["b"].tell_taken(lambda name: name == GONE_EVENTS)
        await stage.world.sleep(60)

        async def readers(one: Broker) -> list[str]:
            return list((await one.registry.get(GONE_EVENTS, create=True)).subscriptions)

        assert await stage.at("a", readers) == []

    run(story)


def test_events_are_followed_as_long_as_something_of_their_namespace_is_here() -> None:
    other = TopicName.parse(f"{NAME}-beside")

    async def story(stage: Stage) -> None:
        stage.cluster.table.owners[str(other)] = "b"
        await stage.set_ttl("a", 7)
        assert await stage.ttl_ms() == 7000
        await stage.at("b", lambda one: one.registry.get(other, create=True))

        async def readers(one: Broker) -> int:
            return len((await one.registry.get(EVENTS, create=False)).subscriptions)

        assert await stage.at("a", readers) == 1
        await stage.cluster.table.give([NAME], "a")
        await stage.world.sleep(SOON_S)
        assert await stage.at("a", readers) == 1
        await stage.cluster.table.give([other], "a")
        await stage.world.sleep(SOON_S)
        assert await stage.at("a", readers) == 0
        await stage.set_ttl("a", 8)
        await stage.cluster.table.give([NAME], "b")
        assert await stage.ttl_ms("b") == 8000
        await stage.set_ttl("a", 9)
        await stage.world.sleep(SOON_S)
        assert await stage.ttl_ms("b") == 9000

    run(story)
