"""What is often said wrongly about delivery and deduplication; each test is named after what it prevents."""

from __future__ import annotations

import pytest

from geminga.broker.core.dedup import Deduplication, Verdict
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, Type, run_with_broker

Sub = pb.CommandSubscribe


def test_f17_a_retry_of_what_is_not_stored_yet_is_not_acknowledged() -> None:
    dedup = Deduplication()
    assert dedup.published("p", 1, 1) is Verdict.ACCEPTED
    assert dedup.published("p", 1, 1) is Verdict.UNKNOWN
    dedup.begin_settling()
    dedup.settled()
    assert dedup.published("p", 1, 1) is Verdict.ACCEPTED


def test_f17_a_batch_is_not_known_by_its_first_id_alone() -> None:
    dedup = Deduplication()
    dedup.published("p", 0, 9)
    dedup.stored("p", 9)
    assert dedup.published("p", 5, 5) is Verdict.DUPLICATE
    assert dedup.published("p", 5, 12) is Verdict.MIXED


def test_f18_deduplication_does_not_work_by_the_broker_alone_without_a_stable_name() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        for connection in range(2):
            await client.create_producer(producer_id=connection)
            client.send_message(0, producer_id=connection, producer_name=f"generated-{connection}")
            assert (await client.receipt()).message_id.entryId == connection

    run_with_broker(scenario, deduplication=True)


@pytest.mark.parametrize(
    ("sub_type", "waits"), [(Sub.Shared, True), (Sub.Key_Shared, True), (Sub.Exclusive, False), (Sub.Failover, False)]
)
def test_f19_delayed_messages_do_not_wait_for_shared_subscriptions_only(sub_type, waits: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.subscribe(subType=sub_type)
        due_ms = world.runtime.clock.wall_ms() + 5000
        began = world.runtime.clock.monotonic()
        client.send_message(0, metadata={"deliver_at_time": due_ms})
        await client.expect(Type.MESSAGE)
        assert (world.runtime.clock.monotonic() - began > 3) == waits

    run_with_broker(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_f26_cumulative_acknowledgment_is_barred_on_key_shared_too(sub_type) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.subscribe(subType=sub_type)
        ids = [await client.publish(number) for number in range(3)]
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative, request_id=77)
        ack.message_id.add(ledgerId=ids[2][0], entryId=ids[2][1])
        client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
        assert (await client.expect(Type.ACK_RESPONSE)).ackResponse.error == pb.NotAllowedError
        (topic,) = world.broker.topics.values()
        assert topic.subscriptions["sub"].cursor.backlog_count == 3

    run_with_broker(scenario)
