"""What a client has on a connection, and what is remembered of what it had."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from geminga.broker.connection.members import CLOSED_PRODUCERS_REMEMBERED_MAX, LEAVING_AT_ONCE
from geminga.broker.core.departure import Departure
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker
from support.worlds.policy_levels import seconds


def test_late_messages_of_a_producer_that_the_broker_closed_are_dropped() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await world.broker.registry.unload(TopicName.parse(TOPIC))
        await client.expect(Type.CLOSE_PRODUCER)
        client.send_message(0)
        assert not client.is_closed
        client.send_message(0, producer_id=2)
        assert client.is_closed

    run_with_broker(scenario)


def test_closed_producers_are_remembered_up_to_a_number() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        for producer_id in range(CLOSED_PRODUCERS_REMEMBERED_MAX + 1):
            client.connection.members.producer_closed_by_broker(producer_id)
        client.send_message(0, producer_id=1)
        assert not client.is_closed
        client.send_message(0, producer_id=0)
        assert client.is_closed

    run_with_broker(scenario)


def test_what_a_departing_consumer_is_asked_is_answered_behind_its_end() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.subscriber()
        connection = client.connection
        departure = Departure(lambda _: True)
        topic = world.broker.topics[TOPIC]
        topic.life.departure = departure
        (consumer,) = connection.members.consumers.values()
        consumer.disconnect()
        for number, request in enumerate(
            (
                {"type": Type.ACK, "ack": pb.CommandAck(consumer_id=1, ack_type=0, request_id=70)},
                {"type": Type.SEEK, "seek": pb.CommandSeek(consumer_id=1, request_id=71)},
                {"type": Type.UNSUBSCRIBE, "unsubscribe": pb.CommandUnsubscribe(consumer_id=1, request_id=72)},
            )
        ):
            client.send(pb.BaseCommand(**request))
            assert len(connection.members._departing[1]) == number + 1
        assert not client.received
        (leaving,) = departure.clients
        connection.output.write_soon(leaving.farewell("pulsar://next:6650", ""))
        leaving.told()
        close = (await client.expect(Type.CLOSE_CONSUMER)).close_consumer
        assert (close.consumer_id, close.assignedBrokerServiceUrl) == (1, "pulsar://next:6650")
        assert (await client.expect(Type.ACK_RESPONSE)).ackResponse.error == pb.ConsumerNotFound
        assert [(await client.expect(Type.ERROR)).error.request_id for _ in range(2)] == [71, 72]
        # From now on there is nothing to wait for.
        client.send(pb.BaseCommand(type=Type.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=73)))
        assert (await client.expect(Type.ERROR)).error.request_id == 73

    run_with_broker(scenario)


def test_creation_that_was_asked_for_again_is_not_ended_by_the_first_one() -> None:
    async def scenario(world: BrokerWorld) -> None:
        connection = (await world.client()).connection
        connection.members.requests[5, 1] = 8
        assert not connection.members.request_ended((5, 1), 7)
        assert connection.members.request_ended((5, 1), 8)
        assert not connection.members.requests

    run_with_broker(scenario)


def test_creation_for_a_connection_that_is_closed_is_for_nobody() -> None:
    async def scenario(world: BrokerWorld) -> None:
        connection = (await world.client()).connection
        connection.members.requests[5, 1] = 7
        connection.close()
        assert not connection.members.request_ended((5, 1), 7)

    run_with_broker(scenario)


def test_thousands_of_consumers_of_a_lost_connection_leave_in_several_turns() -> None:
    """All of them in one turn held up everybody else: each that leaves a Key_Shared subscription moves keys."""
    count = 10 * LEAVING_AT_ONCE

    async def scenario(world: BrokerWorld) -> None:
        client, other = await world.client(), await world.client()
        for consumer_id in range(count):
            await client.subscribe(consumer_id=consumer_id, subType=pb.CommandSubscribe.Key_Shared)
        await other.subscribe(consumer_id=1, subType=pb.CommandSubscribe.Key_Shared)
        subscription = world.broker.topics[TOPIC].subscriptions["sub"]
        assert len(subscription.consumers) == count + 1
        client.lose()
        left = [len(subscription.consumers)]
        while left[-1] > 1:
            await asyncio.sleep(0)  # noqa: TID251  # one turn of the loop
            left.append(len(subscription.consumers))
        assert max(before - after for before, after in pairwise([count + 1, *left])) == LEAVING_AT_ONCE
        assert [consumer.connection for consumer in subscription.consumers] == [other.connection]

    run_with_broker(scenario)


def test_nobody_who_waits_on_a_lost_connection_is_given_access_on_the_way() -> None:
    """Who had it came back, and was fenced for good: the epoch had moved by one for each who waited."""

    async def scenario(world: BrokerWorld) -> None:
        client, other = await world.client(), await world.client()
        made = await client.create_producer(producer_name="first", producer_access_mode=pb.Exclusive)
        for number in range(2, 12):
            await client.create_producer(producer_id=number, producer_access_mode=pb.WaitForExclusive)
        client.lose()
        await seconds(1)
        assert not world.topic.attendance.all()
        again = await other.create_producer(
            producer_name="first", producer_access_mode=pb.Exclusive, topic_epoch=made.topic_epoch
        )
        assert (made.topic_epoch, again.topic_epoch) == (0, 0)

    run_with_broker(scenario)
