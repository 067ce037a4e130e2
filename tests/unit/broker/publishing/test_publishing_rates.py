"""Which rates a topic holds to, and how often a consumer may subscribe."""

from __future__ import annotations

import re

import pytest

from geminga.broker.composition.metrics import Metrics
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.rate_limit import Rate
from geminga.broker.core.subscribe_rate import CONSUMERS_MAX, ConsumerIdentity, SubscribeCounts, SubscribeRate
from geminga.broker.policies.core.rates import NO_RATES, TopicRates
from geminga.broker.publishing.publish_throttle import PublishThrottle
from geminga.broker.publishing.rates import (
    NO_THROTTLES,
    SUBSCRIBES_TOO_OFTEN,
    BrokerThrottles,
    HeldRates,
    broker_throttles,
)
from geminga.broker.statistics.topics import TopicStatistics
from geminga.model.errors import ServerError
from geminga.runtime import Turns
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Client
from support.worlds.policy_levels import run_quietly, seconds, set_namespace, set_topic, topic_of

Type = pb.BaseCommand


class StoppedClock:
    """Time stands still."""

    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0


class NothingPublished:
    """A topic to which nothing is published."""

    def totals(self) -> tuple[int, int]:
        return 0, 0


class SilentPart:
    """Whose failure it would be."""

    def broke(self, what: str, error: BaseException) -> None:
        raise error


async def try_subscribe(client: Client, *, name: str = "", consumer_id: int = 1, topic: str = TOPIC) -> str:
    """The error's message, or nothing."""
    request_id = client.next_request_id()
    request = pb.CommandSubscribe(
        topic=topic,
        subscription="sub",
        subType=pb.CommandSubscribe.Shared,
        consumer_id=consumer_id,
        request_id=request_id,
        consumer_name=name,
    )
    client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
    command = pb.BaseCommand(type=Type.PING)
    while command.type == Type.PING:
        await client.wait_for_news()
        command, _ = client.received.popleft()
    if command.type == Type.SUCCESS:
        close = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=client.next_request_id())
        client.send(pb.BaseCommand(type=Type.CLOSE_CONSUMER, close_consumer=close))
        await client.expect(Type.SUCCESS)
        return ""
    assert command.error.error == int(ServerError.NOT_ALLOWED_ERROR)
    return command.error.message


def test_consumer_subscribes_so_often_in_a_period_and_others_are_counted_by_themselves() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, neighbour = await world.client(), await world.client()
        for _ in range(2):
            assert not await try_subscribe(client, name="a")
        assert await try_subscribe(client, name="a") == SUBSCRIBES_TOO_OFTEN
        # Another connection of the same host is the same consumer, another name or id is another one.
        assert await try_subscribe(neighbour, name="a") == SUBSCRIBES_TOO_OFTEN
        assert not await try_subscribe(neighbour, name="b")
        assert not await try_subscribe(client, name="a", consumer_id=2)
        await seconds(30)
        assert not await try_subscribe(client, name="a")
        # Nothing is stored there, and Pulsar counts nothing there.
        for _ in range(5):
            assert not await try_subscribe(client, name="a", topic="non-persistent://public/default/t")

    run_quietly(scenario, subscribe_rate=2)


def test_subscribe_rate_of_namespace_and_topic_hold_at_once() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        for _ in range(5):
            assert not await try_subscribe(client)
        rate = {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 10}
        await set_namespace(world, "clusterSubscribeRate", {"standalone": rate})
        assert not await try_subscribe(client)
        assert await try_subscribe(client) == SUBSCRIBES_TOO_OFTEN
        await seconds(10)
        assert not await try_subscribe(client)
        await set_topic(world, "subscribeRate", {**rate, "subscribeThrottlingRatePerConsumer": 3})
        for _ in range(3):
            assert not await try_subscribe(client)
        assert await try_subscribe(client) == SUBSCRIBES_TOO_OFTEN
        await set_topic(world, "subscribeRate", None)
        await set_namespace(
            world, "clusterSubscribeRate", {"standalone": {**rate, "subscribeThrottlingRatePerConsumer": 0}}
        )
        for _ in range(5):
            assert not await try_subscribe(client)

    run_quietly(scenario)


def test_thousands_of_consumers_come_once_each_and_are_forgotten() -> None:
    counts = SubscribeCounts(SubscribeRate(1, 30), 0.0)
    for number in range(CONSUMERS_MAX + 10):
        assert counts.admit(ConsumerIdentity("/10.0.0.1", "c", number), 1.0)
    assert counts.consumers_count == CONSUMERS_MAX
    assert not counts.admit(ConsumerIdentity("/10.0.0.1", "c", CONSUMERS_MAX + 9), 2.0)
    assert counts.admit(ConsumerIdentity("/10.0.0.1", "c", 5), 31.0)
    assert counts.consumers_count == 1


def test_policies_that_change_no_rate_keep_what_was_counted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        throttling, before = topic.throttles.throttling, topic.throttles.publish + topic.throttles.dispatch
        assert throttling is not None
        assert len(before) == 2
        await set_topic(world, "maxUnackedMessagesOnConsumer", 7)
        assert topic.throttles.publish + topic.throttles.dispatch == before
        assert topic.throttles.throttling is throttling

    run_quietly(scenario, topic_publish_rate_messages=5, topic_dispatch_rate_bytes=100)


@pytest.mark.parametrize("value", [0, -1])
def test_broker_without_rates_has_no_throttles(value) -> None:
    config = BrokerConfig(publish_rate_messages=value, dispatch_rate_bytes=value)
    assert broker_throttles(config, lambda: 0.0, None) == NO_THROTTLES
    config = BrokerConfig(publish_rate_messages=value, publish_rate_bytes=5, dispatch_rate_messages=3)
    publish, dispatch, copying = broker_throttles(config, lambda: 0.0, None)
    assert copying is None, "a group alone has one"
    assert publish.rate == Rate(0, 5)
    assert dispatch.rate == Rate(3, 0)


def test_statistics_and_metrics_tell_who_was_held() -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher, consumer = await world.client(), await world.client()
        await publisher.create_producer()
        for number in range(20):
            publisher.send_message(number)
            await publisher.receipt()
        await consumer.subscribe()
        await seconds(2)
        statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
        told = await statistics.of_topic(await topic_of(world), Turns(world.broker.runtime.clock))
        assert told["publishRateLimitedTimes"] == 11, "with the tenth token, and each after it"
        of_subscription = told["subscriptions"]["sub"]
        assert of_subscription["dispatchThrottledMsgEventsByTopicLimit"] >= 10
        assert of_subscription["dispatchThrottledBytesEventsByTopicLimit"] == 0
        text = Metrics(world.broker, statistics, cluster="standalone").text()
        (times,) = re.findall(r"^pulsar_publish_rate_limit_times.*", text, re.MULTILINE)
        assert times.endswith('topic="persistent://public/default/topic"} 11')
        found = re.findall(
            r'^pulsar_subscription_dispatch_throttled_(\w+)_events\{.*reason="(\w+)"\}', text, re.MULTILINE
        )
        assert found == [("msg", "topic")]

    run_quietly(scenario, topic_publish_rate_messages=10, topic_dispatch_rate_messages=5)


def test_rate_of_a_single_subscription_is_kept_and_holds_only_that_one() -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher = await world.publisher()
        for number in range(20):
            publisher.send_message(number)
            await publisher.receipt()
        rate = {
            "dispatchThrottlingRateInMsg": 3,
            "dispatchThrottlingRateInByte": -1,
            "ratePeriodInSecond": 1000,
            "relativeToPublishRate": False,
        }
        await set_topic(world, "subscriptionPolicies", {"slow": {"dispatchRate": rate}})
        for _ in range(2):
            for name, count in (("slow", 3), ("fast", 20)):
                client = await world.subscriber(subscription=name)
                await seconds(1)
                assert sum(command.type == Type.MESSAGE for command, _ in client.received) == count
                client.lose()
            await world.restart()

    run_quietly(scenario)


def test_a_topic_pays_for_rates_from_the_first_one_on() -> None:
    part, broker = SilentPart(), [NO_THROTTLES]
    held = HeldRates(lambda: broker[0], StoppedClock(), part, NothingPublished())
    assert not held.hold_to(NO_RATES)
    assert held.throttling is None
    assert held.hold_to(TopicRates(publish=Rate(messages=5)))
    assert [throttle.rate.messages for throttle in held.publish] == [5]
    assert not held.hold_to(TopicRates(publish=Rate(messages=5))), "the same: connections need not look again"
    broker[0] = BrokerThrottles(publish=PublishThrottle(Rate(messages=9), lambda: 0.0, part))
    assert held.hold_to(TopicRates(publish=Rate(messages=5)))
    assert [throttle.rate.messages for throttle in held.publish] == [9, 5]
    held.end()
    assert (held.publish, held.dispatch, held.of_subscription("s", None)) == ((), (), None)


def test_topics_of_the_broker_itself_have_no_rates() -> None:
    held = HeldRates(None, StoppedClock(), SilentPart(), NothingPublished())
    assert not held.hold_to(TopicRates(publish=Rate(messages=5)))
    assert (held.throttling, held.publish_limited_times) == (None, 0)
