"""Subscriptions of non-persistent topics: who gets what, and what is dropped."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.handlers import subscription as handlers
from geminga.broker.publishing.life import TopicLife
from geminga.broker.subscription.consumer import SENT_AWAY_A_TURN, Consumer
from geminga.broker.subscription.limits import NO_LIMITS, ConsumerCounts
from geminga.broker.subscription.non_persistent import subscribe_non_persistent
from geminga.broker.subscription.stats import subscription_counts
from geminga.model import TopicName
from geminga.model.errors import ConsumerBusyError
from geminga.runtime import SystemClock, SystemRng, next_turn, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.house.python_calls import counted_calls
from support.worlds.subscriptions import RecordingConnection, Sub


class NonPersistentTopicInMemory:
    """A topic as the subscriptions need it."""

    def __init__(self):
        self.name = TopicName.parse("non-persistent://public/default/t")
        self.limits = NO_LIMITS
        self.consumer_counts = ConsumerCounts()
        self.filters = None
        self.hides = ()
        self.subscriptions = {}
        runtime = SimpleNamespace(clock=SystemClock(), rng=SystemRng(1))
        self.services = SimpleNamespace(runtime=runtime, config=BrokerConfig(), consumer_kind=None)
        self.life = TopicLife(self.name, runtime.clock)

    async def join(self, connection, sub_type, *, consumer_id=1, permits=100, **fields):
        request = Sub(
            topic=str(self.name), subscription="s", subType=sub_type, consumer_id=consumer_id, request_id=1, **fields
        )
        consumer = await subscribe_non_persistent(self, connection, request)
        if permits:
            handlers.handle_flow(connection, consumer_id, permits)
        return consumer

    def publish(self, *texts, keys=None):
        for index, text in enumerate(texts):
            metadata = pb.MessageMetadata(producer_name="p", sequence_id=index, publish_time=1)
            if keys:
                metadata.partition_key = keys[index]
            for subscription in self.subscriptions.values():
                subscription.dispatch([encode_entry(metadata, text.encode())])


def with_non_persistent(scenario):
    asyncio.run(scenario(NonPersistentTopicInMemory()))


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared])
def test_messages_reach_a_consumer_with_permits_and_the_rest_is_dropped(sub_type):
    async def scenario(topic):
        connection = RecordingConnection(topic)
        consumer = await topic.join(connection, sub_type, permits=2)
        topic.publish("a", "b", "c")
        assert connection.texts() == ["a", "b"]
        assert consumer.permits == 0
        stats = subscription_counts(topic.subscriptions["s"])
        assert topic.subscriptions["s"].messages_dropped == 1
        assert stats["msgOutCounter"] == 2

    with_non_persistent(scenario)


def test_exclusive_is_busy_and_failover_takes_over():
    async def scenario(topic):
        first, second = RecordingConnection(topic), RecordingConnection(topic)
        a = await topic.join(first, Sub.Exclusive)
        with pytest.raises(ConsumerBusyError):
            await topic.join(second, Sub.Exclusive)
        a.close()
        a = await topic.join(first, Sub.Failover, consumer_name="a", priority_level=0)
        await topic.join(second, Sub.Failover, consumer_name="b", priority_level=1)
        topic.publish("1")
        a.close()
        topic.publish("2")
        assert (first.texts(), second.texts()) == (["1"], ["2"])

    with_non_persistent(scenario)


@pytest.mark.parametrize("durable", [True, False])
def test_exclusive_consumer_on_dead_connection_gives_way(durable):
    async def scenario(topic):
        dead = RecordingConnection(topic)
        await topic.join(dead, Sub.Exclusive, durable=durable)
        dead.is_alive = False
        connection, other = RecordingConnection(topic), RecordingConnection(topic)
        joining = [topic.join(each, Sub.Exclusive, durable=durable) for each in (connection, other)]
        _, refused = await asyncio.gather(*joining, return_exceptions=True)
        assert isinstance(refused, ConsumerBusyError)
        topic.publish("m")
        assert (connection.texts(), other.texts(), dead.texts()) == (["m"], [], [])

    with_non_persistent(scenario)


def test_shared_takes_turns_and_key_shared_goes_by_key():
    async def scenario(topic):
        first, second = RecordingConnection(topic), RecordingConnection(topic)
        a, b = await topic.join(first, Sub.Shared), await topic.join(second, Sub.Shared)
        topic.publish("1", "2", "3", "4")
        assert (first.texts(), second.texts()) == (["1", "3"], ["2", "4"])
        a.close()
        b.close()
        first.messages.clear()
        second.messages.clear()
        await topic.join(first, Sub.Key_Shared, consumer_name="a")
        await topic.join(second, Sub.Key_Shared, consumer_name="b")
        keys = [f"k{i % 20}" for i in range(200)]
        topic.publish(*keys, keys=keys)
        assert first.messages
        assert second.messages
        assert not set(first.texts()) & set(second.texts())

    with_non_persistent(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_a_message_is_no_look_at_all_consumers(sub_type):
    async def scenario(topic):
        connection = RecordingConnection(topic)
        for number in range(100):
            await topic.join(connection, sub_type, consumer_id=number, permits=0)
        handlers.handle_flow(connection, 50, 1000)
        topic.publish("first")
        looked = 0
        for number in range(40):
            with counted_calls(Consumer.can_receive) as calls:
                topic.publish(str(number))
                looked += calls()
        assert looked <= 40
        if sub_type == Sub.Shared:
            connection.is_writable = False
            topic.publish("dropped")
            connection.set_writable()
            topic.publish("last")
            assert connection.texts(50)[-1] == "last"
            assert "dropped" not in connection.texts(50)
        connection.consumers[50].close()
        connection.messages.clear()
        topic.publish("for nobody")
        assert connection.texts() == []

    with_non_persistent(scenario)


def test_consumers_by_key_have_one_policy():
    async def scenario(topic):
        sticky = pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=0, end=100)])
        unordered = pb.KeySharedMeta(keySharedMode=pb.AUTO_SPLIT, allowOutOfOrderDelivery=True)
        first = await topic.join(RecordingConnection(topic), Sub.Key_Shared)
        for other in (sticky, unordered):
            with pytest.raises(ConsumerBusyError, match="different key shared policy"):
                await topic.join(RecordingConnection(topic), Sub.Key_Shared, keySharedMeta=other)
        assert topic.subscriptions["s"].consumers == [first]
        first.close()
        await topic.join(RecordingConnection(topic), Sub.Key_Shared, keySharedMeta=sticky)
        with pytest.raises(ConsumerBusyError, match="different key shared policy"):
            await topic.join(RecordingConnection(topic), Sub.Key_Shared)

    with_non_persistent(scenario)


def test_non_durable_subscription_goes_with_its_last_consumer():
    async def scenario(topic):
        connection = RecordingConnection(topic)
        consumer = await topic.join(connection, Sub.Exclusive, durable=False)
        consumer.close()
        assert topic.subscriptions == {}
        await topic.join(connection, Sub.Exclusive)
        connection.drop()
        assert set(topic.subscriptions) == {"s"}

    with_non_persistent(scenario)


def test_deletion_by_force_sends_many_away_in_turns_and_who_joined_meanwhile_with_them():
    async def scenario(topic):
        connection, late = RecordingConnection(topic), RecordingConnection(topic)
        consumers = [
            await topic.join(connection, Sub.Shared, consumer_id=index) for index in range(SENT_AWAY_A_TURN + 5)
        ]
        subscription = topic.subscriptions["s"]
        deletion = spawn(subscription.delete(force=True), name="delete")
        await next_turn()
        assert not all(consumer.is_closed for consumer in consumers)
        newcomer = await topic.join(late, Sub.Shared)
        await deletion
        assert all(consumer.is_closed for consumer in [*consumers, newcomer])
        assert topic.subscriptions == {}
        assert len(late.of_type(pb.BaseCommand.CLOSE_CONSUMER)) == 1

    with_non_persistent(scenario)
