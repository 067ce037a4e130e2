"""What breaks above storage closes one subscription, topic or connection, is counted, and may come again later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import ClassVar

import pytest

from geminga.broker.core.dispatch.pending_acks import PendingAcks
from geminga.broker.core.holds import HOLD_FIRST_MS
from geminga.broker.failures import BrokenPart
from geminga.broker.policies.config import PolicyConfig
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.errors import InvariantError
from geminga.runtime import set_strict
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.waiting import turns
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker
from support.worlds.holding_part import with_parts

Sub = pb.CommandSubscribe
OTHER = "persistent://public/default/other"
TURNS = 60


def run_contained(scenario: Callable[[BrokerWorld], Awaitable[None]], **settings) -> None:
    """Run it with a broker whose failures stay with their parts, as outside of tests, and none but those it caused."""

    async def run(world: BrokerWorld) -> None:
        set_strict(asyncio.get_running_loop(), False)
        await scenario(world)

    run_with_broker(run, **settings)


def subscription(world: BrokerWorld, topic: str = TOPIC, name: str = "sub") -> Subscription:
    found = world.broker.topics[topic].subscriptions[name]
    assert isinstance(found, Subscription)
    return found


def acknowledge(client: Client, position: tuple[int, int], request_id: int = 0) -> None:
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
    if request_id:
        ack.request_id = request_id
    ack.message_id.add(ledgerId=position[0], entryId=position[1])
    client.send(pb.BaseCommand(type=Type.ACK, ack=ack))


def failures_of(world: BrokerWorld) -> dict[BrokenPart, int]:
    """Of all parts that broke; there are no others."""
    counts = world.broker.failures.counts
    assert counts.keys() == {*BrokenPart}
    return {part: count for part, count in counts.items() if count}


async def works(client: Client, topic: str, sequence_id: int) -> None:
    """Publish to ``topic``, receive it, acknowledge it with an answer."""
    client.received.clear()
    position = await client.publish(sequence_id)
    message = (await client.expect(Type.MESSAGE)).message.message_id
    assert (message.ledgerId, message.entryId) == position, topic
    acknowledge(client, position, request_id=700 + sequence_id)
    assert not (await client.expect(Type.ACK_RESPONSE)).ackResponse.HasField("error")


class BrokenPendingAcks(PendingAcks):
    """Books that raise as those of a consumer whose counts do not add up."""

    def remove(self, position):
        raise InvariantError(f"{position} was never sent")


class BrokenMap(dict):
    """A map that its owner believes to be whole."""

    def __getitem__(self, key):
        raise KeyError(key)

    def get(self, key, default=None):
        raise KeyError(key)


async def bystander(world: BrokerWorld) -> Client:
    """A client of another topic, and one of another subscription of the same one."""
    client = await world.publisher(OTHER)
    await client.subscribe(OTHER, subType=Sub.Shared)
    return client


def give_back(client: Client, position: tuple[int, int]) -> None:
    ids = [pb.MessageIdData(ledgerId=position[0], entryId=position[1])]
    request = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=ids)
    client.send(pb.BaseCommand(type=Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=request))


@pytest.mark.parametrize("command", [partial(acknowledge, request_id=77), give_back])
@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_broken_subscription_is_closed_and_nothing_else(
    sub_type: int, command: Callable[[Client, tuple[int, int]], None], caplog
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await bystander(world)
        client = await world.publisher()
        neighbour = await world.subscriber(subscription="neighbour", subType=Sub.Shared)
        positions = [await client.publish(sequence_id) for sequence_id in range(2)]
        await client.subscribe(subType=sub_type)
        for _ in positions:
            await client.expect(Type.MESSAGE)
        consumer = subscription(world).consumers[0]
        broken = BrokenPendingAcks()
        for position in consumer.pending.positions():
            broken.add(position, 1)
        consumer.pending = broken
        with caplog.at_level(logging.ERROR):
            command(client, positions[0])
            await client.expect(Type.CLOSE_CONSUMER)
        assert not client.is_closed
        assert client.connection.members.consumers == {}
        assert failures_of(world) == {BrokenPart.SUBSCRIPTION: 1}
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith(
            f"subscription sub of {TOPIC} broke in dispatch or an acknowledgment, it is closed for 1000 ms"
        )
        assert "was never sent" in line
        # The same connection publishes on; the other subscription, and the other topic, receive on.
        assert await client.publish(2) > positions[-1]
        for _ in range(3):
            await neighbour.expect(Type.MESSAGE)
        await works(other, OTHER, 0)
        assert world.broker.unacked_budget is None or world.broker.unacked_budget.total == 3
        # Who comes back at once is told to wait, and later finds everything again.
        refused = pb.CommandSubscribe(
            topic=TOPIC, subscription="sub", subType=sub_type, consumer_id=1, request_id=800, durable=True
        )
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=refused))
        assert (await client.error()).error == pb.ServiceNotReady
        await passed(HOLD_FIRST_MS)
        await client.subscribe(subType=sub_type)
        assert [(await client.expect(Type.MESSAGE)).message.message_id.entryId for _ in range(3)] == [0, 1, 2]
        subscription(world).dispatch.core.check_invariants()

    run_contained(scenario, max_unacked_messages_per_broker=1000)


async def passed(milliseconds: int) -> None:
    """Virtual time passes."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(milliseconds / 1000, done.set)
    await done.wait()


@pytest.mark.uncompiled("a broken map in the place of a replay queue")
def test_subscription_that_breaks_again_and_again_is_closed_longer_each_time() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        loop = asyncio.get_running_loop()
        began, joined = loop.time(), []
        while len(joined) < 6:
            client.received.clear()
            request = pb.CommandSubscribe(
                topic=TOPIC,
                subscription="sub",
                subType=Sub.Shared,
                consumer_id=1,
                request_id=client.next_request_id(),
                initialPosition=Sub.Earliest,
            )
            client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
            await client.wait_for_news()
            if client.received[0][0].type == Type.SUCCESS:
                joined.append(loop.time() - began)
                dispatch = subscription(world).dispatch
                assert dispatch is not None
                dispatch.core.replay = BrokenMap()
                flow = pb.CommandFlow(consumer_id=1, messagePermits=1)
                client.send(pb.BaseCommand(type=Type.FLOW, flow=flow))
                await client.expect(Type.CLOSE_CONSUMER)
            await passed(100)
        gaps = [round(after - before) for before, after in pairwise(joined)]
        assert gaps == [1, 2, 4, 8, 16]
        assert world.broker.failures.counts[BrokenPart.SUBSCRIPTION] == 6

    run_contained(scenario)


@pytest.mark.parametrize("is_answered", [False, True])
def test_broken_cursor_closes_its_topic_which_is_found_again_as_it_was_saved(is_answered: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await bystander(world)
        client = await world.publisher()
        positions = [await client.publish(sequence_id) for sequence_id in range(4)]
        await client.subscribe(subType=Sub.Shared)
        for _ in positions:
            await client.expect(Type.MESSAGE)
        acknowledge(client, positions[1], request_id=70)
        await client.expect(Type.ACK_RESPONSE)
        state = subscription(world).cursor.state
        state.batches._ledgers = BrokenMap({1: {}})
        state.batches.count = 1
        # As if everything were acknowledged: this must not be saved.
        state.mark_delete = positions[-1]
        acknowledge(client, (positions[-1][0] + 1, 0), request_id=71 if is_answered else 0)
        state.mark_delete = positions[0]
        acknowledge(client, positions[2], request_id=72 if is_answered else 0)
        await client.expect(Type.CLOSE_CONSUMER)
        await turns(TURNS)
        assert failures_of(world) == {BrokenPart.TOPIC: 1}
        assert not client.is_closed
        await works(other, OTHER, 0)
        client.request_producer(producer_id=2)
        assert (await client.error()).error == pb.ServiceNotReady
        await passed(HOLD_FIRST_MS)
        await client.create_producer(producer_id=3)
        position = await client.publish(9, producer_id=3)
        await client.subscribe(subType=Sub.Shared)
        again = [(await client.expect(Type.MESSAGE)).message.message_id.entryId for _ in range(3)]
        assert again == [0, 2, 3]
        message = (await client.expect(Type.MESSAGE)).message.message_id
        assert (message.ledgerId, message.entryId) == position
        world.broker.topics[TOPIC].check_invariants()

    run_contained(scenario)


def test_topic_that_breaks_while_it_publishes_closes_alone_and_stores_on() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await bystander(world)
        client = await world.publisher()
        await client.publish(0)
        topic = world.broker.topics[TOPIC]
        assert isinstance(topic, PersistentTopic)
        assert topic.dedup is not None
        topic.dedup.state._pushed = BrokenMap()
        client.send_message(1)
        assert (await client.expect(Type.CLOSE_PRODUCER)).close_producer.producer_id == 1
        assert failures_of(world) == {BrokenPart.TOPIC: 1}
        await works(other, OTHER, 0)
        await passed(HOLD_FIRST_MS)
        await client.create_producer(producer_id=2)
        client.send_message(1, producer_id=2)
        assert (await client.receipt()).sequence_id == 1

    run_contained(scenario, deduplication=True)


@pytest.mark.uncompiled("a text in the place of a number")
def test_topic_whose_answers_break_does_not_take_storage_with_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await bystander(world)
        client = await world.publisher()
        topic = world.broker.topics[TOPIC]
        assert isinstance(topic, PersistentTopic)
        topic.publishing.pending_batches = "none"  # type: ignore[assignment]
        topic.parts.stored = (BrokenMap(),)  # type: ignore[assignment]
        client.send_message(0)
        await client.expect(Type.CLOSE_PRODUCER)
        assert world.broker.failures.counts[BrokenPart.TOPIC] == 1
        await works(other, OTHER, 0)
        await passed(HOLD_FIRST_MS)
        await client.create_producer(producer_id=2)
        await client.publish(0, producer_id=2)

    run_contained(scenario)


def test_command_that_no_handler_expects_closes_its_connection_only() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await bystander(world)
        client = await world.client()
        client.connection.members.consumers = BrokenMap()
        request = pb.CommandCloseConsumer(consumer_id=1, request_id=1)
        client.send(pb.BaseCommand(type=Type.CLOSE_CONSUMER, close_consumer=request))
        assert client.is_closed
        client.connection.members.consumers = {}
        await turns(TURNS)
        assert world.broker.failures.counts[BrokenPart.CONNECTION] == 1
        await works(other, OTHER, 0)

    run_contained(scenario)


def test_task_of_a_connection_that_fails_closes_that_connection_only() -> None:
    async def fail() -> None:
        raise TypeError("no handler expects this")

    async def scenario(world: BrokerWorld) -> None:
        other = await bystander(world)
        client = await world.client()
        client.connection.run(fail(), "a request")
        await turns(TURNS)
        assert client.is_closed
        assert failures_of(world) == {BrokenPart.CONNECTION: 1}
        await works(other, OTHER, 0)

    run_contained(scenario)


def test_topic_that_breaks_while_it_is_loaded_is_tried_again_later() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await bystander(world)
        level, world.broker.policies.topics = world.broker.policies.topics, None  # type: ignore[assignment]
        client = await world.client()
        client.request_producer(TOPIC)
        assert (await client.error()).error == pb.ServiceNotReady
        world.broker.policies.topics = level
        client.request_producer(TOPIC, producer_id=2)
        assert "closed for" in (await client.error()).message
        assert failures_of(world) == {BrokenPart.TOPIC: 1}
        await works(other, OTHER, 0)
        await passed(HOLD_FIRST_MS)
        await client.create_producer(producer_id=3)
        await client.publish(0, producer_id=3)

    run_contained(scenario)


def test_timer_over_all_topics_that_fails_comes_again() -> None:
    async def scenario(world: BrokerWorld) -> None:
        failing = 0

        async def work() -> float:
            nonlocal failing
            failing += 1
            raise KeyError("a topic that went")

        world.broker.policy_upkeep._timers.repeat("failing", 1.0, work)
        await passed(3500)
        assert failing == 3
        assert failures_of(world) == {BrokenPart.BROKER: 3}
        assert (await world.client()).connection.is_connected

    run_contained(scenario)


class ThornyPart(TopicPart):
    """Its upkeep breaks in one topic."""

    name: ClassVar[str] = "thorny"
    times = 0

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic

    @classmethod
    def upkeep_s(cls, config: PolicyConfig) -> float | None:
        return 1

    def upkeep(self) -> None:
        if str(self._topic.name) == TOPIC:
            raise KeyError("a thorn")
        ThornyPart.times += 1


def test_upkeep_of_a_part_that_fails_closes_its_topic_and_goes_on_with_the_others() -> None:
    async def scenario(world: BrokerWorld) -> None:
        with_parts(world.broker, ThornyPart)
        client, other = await world.client(), await world.client()
        await client.create_producer()
        await other.create_producer(OTHER)
        before = ThornyPart.times
        await passed(1500)
        await client.expect(Type.CLOSE_PRODUCER)
        assert failures_of(world) == {BrokenPart.TOPIC: 1}
        await passed(1000)
        assert ThornyPart.times - before == 2
        await other.publish(0)

    run_contained(scenario)


def test_failure_of_storage_is_not_contained() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        topic = world.broker.topics[TOPIC]
        assert isinstance(topic, PersistentTopic)
        topic.ledger._appender._pending = None  # type: ignore[union-attr, assignment]
        client.send_message(1)
        await turns(TURNS)

    with pytest.raises(AttributeError, match="append"):
        run_contained(scenario)
