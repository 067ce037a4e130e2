"""Settings that are changed at run time take effect on what is loaded already."""

from __future__ import annotations

import pytest

from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.managed_ledger.shared.entry_cache import TailWindow
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld
from support.worlds.live_world import live_settings_of
from support.worlds.policy_levels import run_quietly, seconds

NAME = TopicName.parse(TOPIC)
OTHER = TopicName.parse("persistent://public/default/other")


def test_creation_limits_and_rules_of_topics_follow() -> None:
    async def scenario(world: BrokerWorld) -> None:
        live = live_settings_of(world)
        await world.broker.registry.get(NAME, create=True)
        await live.set("allowAutoTopicCreation", "false")
        with pytest.raises(GemingaError):
            await world.broker.registry.get(OTHER, create=True)
        await live.delete("allowAutoTopicCreation")
        await live.set("maxTopicsPerNamespace", "1")
        with pytest.raises(GemingaError):
            await world.broker.registry.get(OTHER, create=True)
        await live.delete("maxTopicsPerNamespace")
        await world.broker.registry.get(OTHER, create=True)
        await live.set("subscriptionTypesEnabled", "Exclusive,Shared")
        assert world.topic.rules.subscription_types == ("Exclusive", "Shared")
        await live.set("maxPublishRatePerTopicInMessages", "7")
        assert world.topic.throttles.throttling is not None
        await live.delete("maxPublishRatePerTopicInMessages")
        assert not world.topic.throttles.publish

    run_quietly(scenario)


def test_rates_of_the_broker_begin_change_and_end_on_loaded_topics() -> None:
    async def scenario(world: BrokerWorld) -> None:
        live = live_settings_of(world)
        client, consumer = await world.client(), await world.client()
        await client.create_producer()
        await consumer.subscribe(permits=1000)
        topic = world.topic
        assert not topic.throttles.publish
        await live.set("brokerPublisherThrottlingMaxMessageRate", "2")
        await live.set("dispatchThrottlingRateInMsg", "3")
        assert [throttle.rate.messages for throttle in topic.throttles.publish] == [2]
        assert [throttle.rate.messages for throttle in topic.throttles.dispatch] == [3]
        # A topic's own rate stands beside it, and goes by itself.
        await live.set("maxPublishRatePerTopicInMessages", "50")
        assert [throttle.rate.messages for throttle in topic.throttles.publish] == [2, 50]
        for number in range(4):
            client.send_message(number)
        for _ in range(4):
            await client.receipt()
        assert client.transport.is_reading_paused
        await live.delete("brokerPublisherThrottlingMaxMessageRate")
        # Who was held by the rate that is gone goes on.
        assert not client.transport.is_reading_paused
        assert [throttle.rate.messages for throttle in topic.throttles.publish] == [50]
        await live.delete("dispatchThrottlingRateInMsg")
        assert not topic.throttles.dispatch
        for _ in range(4):
            await consumer.expect(pb.BaseCommand.MESSAGE)

    run_quietly(scenario)


def test_a_rate_that_stays_keeps_what_was_taken_of_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        live = live_settings_of(world)
        await world.publisher()
        await live.set("brokerPublisherThrottlingMaxMessageRate", "2")
        before = world.topic.throttles.publish
        await live.set("maxTopicsPerNamespace", "100")
        assert world.topic.throttles.publish == before

    run_quietly(scenario)


def test_dispatchers_of_every_type_follow() -> None:
    async def scenario(world: BrokerWorld) -> None:
        live = live_settings_of(world)
        client = await world.subscriber(consumer_id=1, subscription="alone")
        await client.subscribe(consumer_id=2, subscription="many", subType=pb.CommandSubscribe.Shared)
        await client.subscribe(consumer_id=3, subscription="keys", subType=pb.CommandSubscribe.Key_Shared)
        await live.set("dispatcherMaxReadBatchSize", "5")
        await live.set("dispatcherMaxReadSizeBytes", "77")
        await live.set("preciseDispatcherFlowControl", "true")
        await live.set("dispatcherMaxRoundRobinBatchSize", "3")
        await live.set("keySharedLookAheadMsgInReplayThresholdPerConsumer", "11")
        for subscription in world.topic.subscriptions.values():
            dispatch = subscription.dispatch
            assert dispatch is not None
            assert (dispatch._entries_max, dispatch._bytes_max, dispatch._batches_least) == (5, 77, 0)
            if isinstance(dispatch, SharedDispatch):
                limits = dispatch.core._limits
                assert (limits.read_entries_max, limits.round_robin_messages) == (5, 3)
                assert limits.look_ahead_per_consumer == 11
                assert limits.unacked_max == 200_000

    run_quietly(scenario)


def test_the_cache_shrinks_and_the_publish_buffer_grows() -> None:
    async def scenario(world: BrokerWorld) -> None:
        live = live_settings_of(world)
        client = await world.client()
        cache, window = world.ledgers.cache, TailWindow(1, 0)
        cache.add(window, [b"x" * 1000], 1000)
        await live.set("managedLedgerCacheSizeMB", "0")
        assert (cache.size_bytes, cache.budget_bytes, window.get(0, 0)) == (0, 0, [])
        buffer = world.broker.publish_buffer
        buffer.bytes_max, buffer.size_bytes = 10, 100
        buffer.hold(client.connection.publishes)
        await live.set("maxMessagePublishBufferSizeInMB", "3")
        assert (buffer.bytes_max, buffer.held) == (3 << 20, {})
        buffer.size_bytes = 0

    run_quietly(scenario)


def test_an_hour_between_looks_for_inactive_topics_does_not_last_once_it_is_a_minute() -> None:
    async def scenario(world: BrokerWorld) -> None:
        live = live_settings_of(world)
        await world.broker.registry.get(NAME, create=True)
        await live.set("brokerDeleteInactiveTopicsEnabled", "true")
        await live.set("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", "1")
        await live.set("brokerDeleteInactiveTopicsFrequencySeconds", "5")
        await seconds(6)
        assert TOPIC not in world.broker.topics

    run_quietly(scenario, delete_inactive_topics_frequency_s=3600)


def test_thousands_of_changes_leave_topics_served() -> None:
    async def scenario(world: BrokerWorld) -> None:
        live = live_settings_of(world)
        client, consumer = await world.client(), await world.client()
        await client.create_producer()
        await consumer.subscribe(permits=1000)
        for number in range(2000):
            await live.set("dispatchThrottlingRateInMsg", str(number % 3))
        await client.publish(0)
        await consumer.expect(pb.BaseCommand.MESSAGE)

    run_quietly(scenario)
