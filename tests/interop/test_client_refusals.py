"""What brokers refuse, and the names our client gives it."""

from __future__ import annotations

import pytest

import geminga.client as gc
from support.stories.client_stories import RECEIVE_MS, contents, drain, publish, run
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest


@pytest.fixture
def rest(broker) -> Rest:
    """The judge's administration."""
    return Rest(broker.web_service_url)


@pytest.fixture
def namespace(rest, topic) -> str:
    """One of its own, for policies."""
    name = f"public/{topic}"
    assert rest.put(f"namespaces/{name}").status == 204
    return name


def test_a_terminated_topic_takes_no_more_and_gives_what_it_has(broker, rest, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        await publish(client, topic, 3)
        producer = await client.create_producer(topic)
        await producer.send(b"m3")
        assert rest.post(f"persistent/public/default/{topic}/terminate").status == 200
        with pytest.raises(gc.TopicTerminated):
            await producer.send(b"m4")
        with pytest.raises(gc.TopicTerminated):
            await client.create_producer(topic)
        assert contents([await consumer.receive(RECEIVE_MS) for _ in range(4)]) == [0, 1, 2, 3]
        reader = await client.create_reader(topic, gc.MessageId.earliest)
        found = []
        while await reader.has_message_available():
            found.append(await reader.read_next(RECEIVE_MS))
        assert contents(found) == [0, 1, 2, 3]

    run(broker, main)


def test_topics_and_subscriptions_that_may_not_be_made_are_not_found(broker, rest, namespace, topic) -> None:
    policy = {"allowAutoTopicCreation": False}
    assert rest.post(f"namespaces/{namespace}/autoTopicCreation", policy).status == 204
    policy = {"allowAutoSubscriptionCreation": False}
    assert rest.post(f"namespaces/{namespace}/autoSubscriptionCreation", policy).status == 204
    name = f"persistent://{namespace}/{topic}"

    async def main(client):
        with pytest.raises(gc.TopicNotFound):
            await client.create_producer(name)
        with pytest.raises(gc.TopicNotFound):
            await client.subscribe(name, "sub")
        assert rest.put(name.replace("://", "/")).status == 204
        async with await client.create_producer(name) as producer:
            await producer.send(b"m0")
        with pytest.raises(gc.SubscriptionNotFound):
            await client.subscribe(name, "sub")
        # One that is not durable is no subscription that stays.
        async with await client.create_reader(name, gc.MessageId.earliest) as reader:
            assert contents([await reader.read_next(RECEIVE_MS)]) == [0]

    run(broker, main)


def test_limits_of_a_namespace_have_names(broker, rest, namespace, topic) -> None:
    for limit in ("maxProducersPerTopic", "maxConsumersPerTopic"):
        assert rest.post(f"namespaces/{namespace}/{limit}", 1).status == 204
    name = f"persistent://{namespace}/{topic}"

    async def main(client):
        await client.create_producer(name)
        with pytest.raises(gc.ProducerBusy):
            await client.create_producer(name)
        await client.subscribe(name, "one")
        with pytest.raises(gc.ConsumerBusy):
            await client.subscribe(name, "two")

    run(broker, main, operation_timeout_ms=3000)


def test_a_subscription_keeps_its_type_while_it_has_consumers(broker, topic) -> None:
    async def main(client):
        first = await client.subscribe(topic, "sub", consumer_type=gc.ConsumerType.Shared)
        with pytest.raises((gc.ConsumerBusy, gc.NotAllowedError)) as refusal:
            await client.subscribe(topic, "sub", consumer_type=gc.ConsumerType.Failover)
        assert type(refusal.value) is gc.ConsumerBusy
        await first.close()
        await client.subscribe(topic, "sub", consumer_type=gc.ConsumerType.Failover)

    run(broker, main)


def test_a_deleted_topic_is_made_again_for_those_who_use_it(broker, rest, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        producer = await client.create_producer(topic)
        await producer.send(b"m0")
        assert contents([await consumer.receive(RECEIVE_MS)]) == [0]
        assert rest.delete(f"persistent/public/default/{topic}").status == 412
        assert rest.delete(f"persistent/public/default/{topic}?force=true").status == 204
        await producer.send(b"m1")
        assert contents([await consumer.receive(RECEIVE_MS)]) == [1]

    run(broker, main)


def test_partitions_are_named_and_a_topic_without_them_is_itself(broker, rest, topic) -> None:
    async def main(client):
        full = f"persistent://public/default/{topic}"
        assert rest.put(f"persistent/public/default/{topic}/partitions", 3).status == 204
        assert await client.get_topic_partitions(topic) == [f"{full}-partition-{index}" for index in range(3)]
        producer = await client.create_producer(topic, auto_update_partitions_interval_ms=100)
        consumer = await client.subscribe(topic, "sub", auto_update_partitions_interval_ms=100)
        assert rest.post(f"persistent/public/default/{topic}/partitions", 5).status == 204
        sent = []
        while len({each.partition() for each in sent}) < 5:
            sent.append(await producer.send(b"m0"))
        found = await drain(consumer, count=len(sent))
        assert {message.message_id() for message in found} == set(sent)
        await publish(client, f"{topic}-single", 1)
        assert await client.get_topic_partitions(f"{topic}-single") == [f"{full}-single"]

    run(broker, main)
