"""Dispatch rates of topic and subscription: exact counts in virtual time, fair, and nobody else held."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.core.rate_limit import Rate
from geminga.broker.handlers import subscription as handlers
from geminga.model.errors import DiskIOError
from geminga.runtime import SystemRng
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.weekly_sample import sampled
from support.worlds.subscriptions import RecordedTopic, RecordingConnection, Sub, settle, with_topic

TYPES = [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared]
#: Whether a rate is the topic's or each subscription's.
LEVELS = ["dispatch", "subscription"]


async def fill(topic: RecordedTopic, count: int = 1000) -> list[str]:
    texts = [f"m{n}" for n in range(count)]
    await topic.publish(*texts, key="k")
    return texts


def acknowledge_all(topic: RecordedTopic, connection: RecordingConnection) -> None:
    ids = [message.id for message in connection.messages]
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids)
    handlers.handle_ack_command(connection, pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack))


def timers() -> int:
    """Timers that wait in the loop."""
    return sum(not due.timer.cancelled() for due in asyncio.get_running_loop()._scheduled)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sub_type", TYPES)
def test_dispatch_rate_sends_one_burst_and_then_exactly_the_rate_in_order(sub_type, level) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        texts = await fill(topic)
        topic.hold_to(**{level: Rate(messages=10)})
        connection = await topic.joined(sub_type)
        assert connection.texts() == texts[:10]
        for second in range(1, 11):
            await settle(1)
            assert abs(len(connection.messages) - 10 - 10 * second) <= 1
        assert connection.texts() == texts[: len(connection.messages)]
        subscription = topic.subscriptions["sub"]
        name = "Topic" if level == "dispatch" else "Subscription"
        assert subscription.throttled_counts[f"dispatchThrottledMsgEventsBy{name}Limit"] >= 90
        assert len(subscription.throttled_counts) == 1

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", TYPES)
def test_without_the_rate_everything_goes_at_once(sub_type) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        texts = await fill(topic, 500)
        topic.hold_to(dispatch=Rate(messages=1), subscription=Rate(messages=2))
        connection = await topic.joined(sub_type)
        assert connection.texts() == texts[:1]
        topic.hold_to(subscription=Rate(messages=20, period_s=10))
        await settle(0.1)
        assert 21 <= len(connection.messages) <= 22, "a changed rate begins with a burst of its own"
        await settle(10)
        assert 40 <= len(connection.messages) <= 42
        topic.hold_to()
        await settle()
        assert connection.texts() == texts

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", TYPES)
def test_subscriptions_share_the_topics_rate_fairly_and_one_that_takes_nothing_holds_nobody(sub_type) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await fill(topic)
        topic.hold_to(dispatch=Rate(messages=40))
        connections = {}
        for name in ("a", "b", "c"):
            connections[name] = topic.connect()
            await topic.join(connections[name], sub_type, subscription=name, permits=0 if name == "c" else 1000)
        await settle(10)
        a, b, c = (len(connections[name].messages) for name in "abc")
        assert c == 0
        assert 430 <= a + b <= 445
        assert min(a, b) >= 180, (a, b)
        # The third one has permits now: it gets its part.
        handlers.handle_flow(connections["c"], 1, 1000)
        await settle(9)
        assert 100 <= len(connections["c"].messages) <= 140
        connections["a"].drop()
        await settle(5)
        assert abs(len(connections["b"].messages) + len(connections["c"].messages) - (b + 240 + 200)) <= 45

    with_topic(scenario)


def test_rate_of_one_subscription_holds_only_that_one() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await fill(topic, 300)
        topic.hold_to(subscription=Rate(messages=10))
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Shared, subscription="a")
        await settle(5)
        await topic.join(second, Sub.Exclusive, subscription="b")
        await settle(5)
        assert 105 <= len(first.messages) <= 112
        assert 55 <= len(second.messages) <= 62
        assert timers() <= 4

    with_topic(scenario)


def test_subscription_with_a_rate_of_its_own_is_held_by_that_one() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await fill(topic, 300)
        topic.hold_to(subscription=Rate(messages=10), single={"a": Rate(messages=2), "b": None})
        connections = {name: topic.connect() for name in "abc"}
        for name, connection in connections.items():
            await topic.join(connection, Sub.Shared, subscription=name)
        await settle(5)
        assert 11 <= len(connections["a"].messages) <= 13
        assert len(connections["b"].messages) == 300
        assert 58 <= len(connections["c"].messages) <= 61

    with_topic(scenario)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared])
def test_batches_count_by_their_messages_and_bytes_by_the_entry(sub_type, level) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await topic.publish(*[f"b{n}" for n in range(5)], batch=1000)
        topic.hold_to(**{level: Rate(messages=1)})
        connection = await topic.joined(sub_type, permits=100_000)
        assert len(connection.messages) == 1
        await settle(998)
        assert len(connection.messages) == 1
        await settle(3)
        assert len(connection.messages) == 2
        # One period's bytes are less than an entry: it passes, one at a time.
        size = 30
        topic.hold_to(**{level: Rate(size_bytes=size // 3, period_s=10)})
        await settle()
        assert len(connection.messages) == 3
        await settle(100)
        assert len(connection.messages) == 5

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_what_comes_again_and_what_is_due_keep_the_rate_too(sub_type) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        now_ms = topic.services.runtime.clock.wall_ms()
        texts = await fill(topic, 30)
        delayed = [f"d{n}" for n in range(30)]
        await topic.publish(*delayed, key="k", deliver_at_time=now_ms + 20_000)
        connection = await topic.joined(sub_type)
        assert connection.texts() == texts
        topic.hold_to(dispatch=Rate(messages=10))
        connection.messages.clear()
        redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
        handlers.handle_redeliver(
            connection,
            pb.BaseCommand(
                type=pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=redeliver
            ),
        )
        await settle()
        assert connection.texts() == texts[:10]
        await settle(3)
        assert connection.texts() == texts
        await settle(16.9)
        assert len(connection.messages) == 30
        await settle(1.2)
        assert 10 <= len(connection.messages) - 30 <= 22
        await settle(3)
        assert connection.texts() == texts + delayed

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", TYPES)
def test_tail_keeps_the_rate_and_acknowledged_backlog_needs_none(sub_type) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        topic.hold_to(dispatch=Rate(messages=5))
        connection = await topic.joined(sub_type)
        for _ in range(3):
            await fill(topic, 5)
        assert len(connection.messages) == 5
        await settle(1.01)
        assert len(connection.messages) == 10
        await settle(60)
        assert len(connection.messages) == 15
        assert topic.throttles.dispatch[0].waiting_count == 0
        acknowledge_all(topic, connection)

    with_topic(scenario)


def test_consumer_that_leaves_while_it_waits_leaves_nothing_behind() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await fill(topic, 100)
        topic.hold_to(dispatch=Rate(messages=3), subscription=Rate(messages=2))
        for sub_type in TYPES:
            connection = await topic.joined(sub_type)
            await settle(0.5)
            assert (
                topic.throttles.dispatch[0].waiting_count + topic.subscriptions["sub"].throttles()[1].waiting_count == 1
            )
            connection.drop()
            await settle()
            assert topic.throttles.dispatch[0].waiting_count == 0
            assert topic.subscriptions["sub"].throttles()[1].waiting_count == 0
        topic.throttles.close()
        topic.subscriptions["sub"].apply_rates()
        assert topic.throttles.dispatch == ()

    with_topic(scenario)


def test_reconnecting_does_not_bring_a_new_burst() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await fill(topic, 500)
        topic.hold_to(subscription=Rate(messages=10))
        total = 0
        for _ in range(20):
            connection = await topic.joined(Sub.Shared)
            total += len(connection.messages)
            connection.drop()
            await settle(0.1)
        assert total <= 10 + 20 * 0.1 * 10 + 1

    with_topic(scenario)


@pytest.mark.parametrize("spares", [True, False])
def test_subscriptions_that_have_caught_up_are_spared_where_the_broker_is_told_so(spares) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        topic.hold_to(dispatch=Rate(messages=1))
        connection = await topic.joined(Sub.Exclusive, permits=10_000)
        await fill(topic, 900)
        assert len(connection.messages) == (900 if spares else 1)
        if spares:
            # With more than a thousand unacknowledged it is behind.
            await fill(topic, 900)
            assert 900 < len(connection.messages) < 1100

    with_topic(scenario, dispatch_throttling_on_non_backlog=not spares)


def test_entries_count_instead_of_messages_where_the_broker_is_told_so() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await topic.publish(*[f"b{n}" for n in range(50)], batch=100)
        topic.hold_to(dispatch=Rate(messages=10))
        connection = await topic.joined(Sub.Shared, permits=100_000)
        assert len(connection.messages) == 10
        await settle(2)
        assert 29 <= len(connection.messages) <= 31

    with_topic(scenario, dispatch_throttling_on_batch_message=True)


def test_rate_relative_to_the_publish_rate_is_added_to_it() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await fill(topic, 2000)
        topic.hold_to(dispatch=Rate(messages=10, is_relative=True))
        connection = await topic.joined(Sub.Shared, permits=5000)
        await settle(5)
        alone = len(connection.messages)
        assert 55 <= alone <= 62
        for _ in range(100):
            topic.messages_in += 3
            await settle(0.1)
        assert 350 <= len(connection.messages) - alone <= 440, "thirty a second come, forty go"

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", TYPES)
def test_one_timer_however_many_subscriptions_wait(sub_type) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await fill(topic, 20)
        await settle(5)
        topic.hold_to(dispatch=Rate(messages=1, period_s=1000))
        before = timers()
        for number in range(20):
            await topic.join(topic.connect(), sub_type, subscription=f"s{number}")
        await settle(5)
        assert topic.throttles.dispatch[0].waiting_count == 20
        assert timers() - before <= 2

    with_topic(scenario)


#: Rates of topic and subscription that come and go: messages, bytes.
CHANGES = [(0, 0), (3, 0), (50, 0), (0, 700), (1000, 1), (7, 10**6)]


@pytest.mark.parametrize(
    "seed",
    sampled(
        "test_whatever_rates_consumers_and_redeliveries_come_and_go_everything_is_sent_and_every_token_given_back",
        range(8),
        3,
    ),
)
def test_whatever_rates_consumers_and_redeliveries_come_and_go_everything_is_sent_and_every_token_given_back(
    seed,
) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        rng = SystemRng(seed)
        texts = [f"m{n}" for n in range(200)]
        for start in range(0, 200, 40):
            await topic.publish(*texts[start : start + 40], key=f"k{start}", batch=(0, 0, 5)[rng.below(3)])
        got: dict[str, list[RecordingConnection]] = {"a": [], "b": [], "c": [], "d": []}
        types = dict(zip(got, TYPES, strict=True))
        for _ in range(12):
            for level in (0, 1):
                rates[level] = Rate(*CHANGES[rng.below(len(CHANGES))], 1 + rng.below(3))
            topic.hold_to(
                **{name: rate for name, rate in zip(LEVELS, rates, strict=True) if rate.messages or rate.size_bytes}
            )
            for name, connections in got.items():
                if connections and rng.below(3) == 0 and not connections[-1].is_closed:
                    connections[-1].drop()
                if not connections or connections[-1].is_closed:
                    connections.append(topic.connect())
                    await topic.join(connections[-1], types[name], subscription=name, permits=10_000)
                elif rng.below(3) == 0:
                    request = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
                    command = pb.BaseCommand(
                        type=pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=request
                    )
                    handlers.handle_redeliver(connections[-1], command)
            await settle(rng.below(3000) / 1000)
        topic.hold_to()
        await settle(1)
        for name, connections in got.items():
            if connections[-1].is_closed:
                continue
            last = connections[-1].texts()
            assert set(last) == set(texts), name
            if types[name] == Sub.Exclusive:
                assert last[-1] == texts[-1]
        # With nothing left to send every token that was reserved is there.
        topic.hold_to(dispatch=Rate(messages=50, size_bytes=5000), subscription=Rate(messages=20))
        await settle(10)
        throttles = {throttle for one in topic.subscriptions.values() for throttle in one.throttles()}
        assert len(throttles) == 1 + len(topic.subscriptions)
        for throttle in throttles:
            _, messages, size_bytes = throttle.left(throttle.now_ns())
            assert (messages, size_bytes) in ((50, 5000), (20, 1 << 62))
            assert throttle.waiting_count == 0

    rates = [Rate(), Rate()]
    with_topic(scenario)


@pytest.mark.parametrize("sub_type", TYPES)
def test_read_that_fails_gives_its_room_back(sub_type) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await fill(topic, 10)
        topic.bookie.read_error = DiskIOError("broken")
        topic.hold_to(dispatch=Rate(messages=5, period_s=1000))
        connection = await topic.joined(sub_type)
        (throttle,) = topic.throttles.dispatch
        assert throttle.left(throttle.now_ns())[1] == 5
        topic.bookie.read_error = None
        await settle(16)
        assert len(connection.messages) == 5

    with_topic(scenario, cache_size_mb=0)


@pytest.mark.parametrize(("dispatch", "subscription"), [(10, 50), (50, 10)])
def test_of_two_rates_the_lower_one_holds(dispatch: int, subscription: int) -> None:
    async def scenario(topic: RecordedTopic) -> None:
        texts = await fill(topic, 200)
        topic.hold_to(dispatch=Rate(messages=dispatch), subscription=Rate(messages=subscription))
        connection = await topic.joined()
        assert connection.texts() == texts[:10]

    with_topic(scenario)
