"""The topic of events, by our own client, at a real broker in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.broker.synchronization.client_topic import SUBSCRIPTION, ClientEventTopic
from geminga.broker.synchronization.core.events import REPLACES, SCHEMA, SENDER, SyncEvent, event_of
from geminga.broker.synchronization.core.stamps import Stamp
from geminga.client.schema import AvroSchema, BytesSchema
from geminga.model.errors import PreconditionFailedError, UnavailableError
from geminga.model.topic_name import TopicName
from support.worlds.client_scenario import ClientScenario

NAME = TopicName.parse("persistent://public/default/events")
PATH = "/admin/policies/t/n"
EVENT = SyncEvent(PATH, b"{}", Stamp(7, "east"), replaces=Stamp(6, "west"), tells_replaced=True)


def run(story: Callable[[ClientScenario, ClientEventTopic], Awaitable[None]]) -> None:
    async def main(world: sim.SimWorld) -> None:
        stage = await ClientScenario(world).start()

        async def on_node(_: sim.SimNode) -> None:
            topic = ClientEventTopic(NAME, "east", stage.connect)
            await story(stage, topic)
            await topic.close()
            await topic.close()

        await stage.client_node.run(on_node)
        await stage.check_nothing_left()

    sim.run(main)


def test_event_comes_until_it_is_acknowledged() -> None:
    async def story(stage: ClientScenario, topic: ClientEventTopic) -> None:
        deletion = SyncEvent(PATH, None, Stamp(8, "east"), tells_replaced=True)
        await topic.publish(EVENT)
        await topic.publish(deletion)
        first = await topic.receive()
        assert event_of(first.fields, first.properties) == EVENT
        await topic.acknowledge(first)
        second = await topic.receive()
        await topic.close()
        await topic.acknowledge(second)
        again = await topic.receive()
        assert event_of(again.fields, again.properties) == deletion
        (subscription,) = stage.broker.broker.topics[str(NAME)].subscriptions
        assert subscription == SUBSCRIPTION

    run(story)


def test_message_has_what_pulsar_s_brokers_read_and_goes_where_it_is_to_go() -> None:
    async def story(stage: ClientScenario, topic: ClientEventTopic) -> None:
        async with stage.connect() as client:
            consumer = await client.subscribe(str(NAME), "s", schema=AvroSchema(schema_definition=SCHEMA))
            await topic.publish(EVENT)
            await topic.publish(EVENT, ["west"])
            messages = [await consumer.receive() for _ in range(2)]
        assert messages[0].value() == {
            "path": PATH,
            "value": b"{}",
            "options": [],
            "expectedVersion": None,
            "lastUpdatedTimestamp": 7,
            "sourceCluster": "east",
            "type": "Modified",
            "version": 0,
        }
        assert (messages[0].partition_key(), messages[0].properties()) == (
            PATH,
            {REPLACES: "6@west", SENDER: "east"},
        )

    run(story)


def test_event_that_comes_while_nobody_receives_is_kept_from_when_it_is_listened_to() -> None:
    async def story(stage: ClientScenario, topic: ClientEventTopic) -> None:
        await topic.listen()
        await topic.listen()
        await topic.close()
        other = ClientEventTopic(NAME, "west", stage.connect)
        await other.publish(EVENT)
        await other.close()
        found = await topic.receive()
        assert event_of(found.fields, found.properties) == EVENT

    run(story)


def test_event_that_is_too_large_for_the_topic_is_told_apart() -> None:
    async def story(stage: ClientScenario, topic: ClientEventTopic) -> None:
        with pytest.raises(PreconditionFailedError, match="takes none so large"):
            await topic.publish(EVENT._replace(value=b"x" * (6 << 20)))
        await topic.publish(EVENT)

    run(story)


def test_what_is_no_event_is_received_as_that() -> None:
    async def story(stage: ClientScenario, topic: ClientEventTopic) -> None:
        async with stage.connect() as client:
            await topic.publish(EVENT)
            producer = await client.create_producer(str(NAME), schema=BytesSchema(), batching_enabled=False)
            await producer.send(b"\xff")
            await producer.send(None)
            await producer.send(b"x" * 2_000_000)
            for why in ("", "can not be read", "no value", "2000000 bytes"):
                found = await topic.receive()
                assert why in found.problem
                assert bool(found.problem) == bool(why)
                await topic.acknowledge(found)

    run(story)


def test_topic_that_can_not_be_had_is_told_and_tried_again() -> None:
    async def story(stage: ClientScenario, topic: ClientEventTopic) -> None:
        resources = stage.broker.broker.resources
        await resources.partitioned_topics.create(NAME, 2)
        for attempt in (topic.receive, topic.listen, lambda: topic.publish(EVENT)):
            with pytest.raises(UnavailableError, match="expected a topic without partitions"):
                await attempt()
        await resources.partitioned_topics.delete(NAME)
        await topic.publish(EVENT)
        missing = ClientEventTopic(TopicName.parse("persistent://no/such/events"), "east", stage.connect)
        with pytest.raises(UnavailableError, match="can not be read now"):
            await missing.receive()
        with pytest.raises(UnavailableError, match="can not be written now"):
            await missing.publish(EVENT)
        await missing.close()
        await stage.broker_node.run(lambda _: stage.broker.restart())
        await topic.publish(EVENT)
        found = await topic.receive()
        assert not found.problem

    run(story)
