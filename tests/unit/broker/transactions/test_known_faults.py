"""Ways in which transactions are known to have stopped whole brokers elsewhere, one test for each: not here.

apache/pulsar, as numbered there: transactions switched on stop all consumers (12386, 14192, 14889); a topic that is
held back is read in a loop (14286, 19169, 22944, 23189); readers wait for markers and aborted messages (11877, 22572,
22610); a coordinator that fails to recover, or recovers while its transactions time out, leaves them open (18923,
19200, 19201); acknowledgments that can not be recovered disable the subscription for good (17040, 21274).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from geminga.model.errors import DiskIOError
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, begun, both_ends, producing, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker

NAME = TopicName.parse(TOPIC)
NO_ENTRY = (1 << 64) - 1


def run(scenario: Callable[[BrokerWorld], Awaitable[None]], **settings) -> None:
    run_with_broker(scenario, **{"transaction_coordinator_enabled": True, **settings})


async def last_message(reader: Transacting, consumer_id: int = 1) -> int | None:
    """Entry id of the last message that the broker says there is; None: there is none."""
    request = pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=reader.client.next_request_id())
    reader.client.send(pb.BaseCommand(type=Type.GET_LAST_MESSAGE_ID, getLastMessageId=request))
    answer = await reader.client.expect(Type.GET_LAST_MESSAGE_ID_RESPONSE)
    entry_id = int(answer.getLastMessageIdResponse.last_message_id.entryId)
    return None if entry_id == NO_ENTRY else entry_id


@pytest.mark.parametrize("sub_type", [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared])
def test_transactions_switched_on_hold_back_no_topic_that_was_there(sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await transacting(world), await transacting(world)
        await reader.client.subscribe(subType=sub_type)
        reader.client.lose()
        await writer.client.create_producer()
        for number in range(5):
            await writer.publish(b"%d" % number)
        world.config = dataclasses.replace(world.config, transaction_coordinator_enabled=True)
        await world.restart()
        writer, reader = await transacting(world), await transacting(world)
        await reader.client.subscribe(subType=sub_type)
        await writer.client.create_producer()
        await writer.publish(b"5")
        assert await reader.read() == [b"%d" % number for number in range(6)]
        topic = await world.broker.registry.get(NAME, create=False)
        assert not topic.ledger.extent.is_limited

    run(scenario, transaction_coordinator_enabled=False)


def test_a_topic_that_is_held_back_is_not_read_in_a_loop() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        readers = []
        for number, sub_type in enumerate((pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared)):
            reader = await transacting(world)
            await reader.client.subscribe(subType=sub_type, subscription=f"s{number}")
            readers.append(reader)
        await writer.publish(b"before")
        loop = asyncio.get_running_loop()

        async def steps_of_ten_seconds() -> int:
            await wait_ms(100)
            before, calls = loop.steps, world.bookie.read_calls  # type: ignore[attr-defined]
            await wait_ms(10_000)
            assert world.bookie.read_calls == calls
            return int(loop.steps - before)  # type: ignore[attr-defined]

        idle = await steps_of_ten_seconds()
        txn_id = await writer.begin(timeout_ms=60_000)
        await writer.add_partition(txn_id)
        await writer.publish(b"held", txn_id)
        for number in range(20):
            await writer.publish(b"behind %d" % number)
        held = [await reader.read() for reader in readers]
        assert held == [[b"before"]] * 2
        # The snapshot of the aborted ones, and a look at what is held back, once in a while.
        assert await steps_of_ten_seconds() <= idle + 100
        await writer.end(txn_id, commit=True)
        for reader in readers:
            assert len(await reader.read()) == 21

    run(scenario)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_last_message_is_none_of_a_marker_or_of_what_was_aborted(is_restarted: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await both_ends(world)

        async def again() -> tuple[Transacting, Transacting]:
            if not is_restarted:
                return writer, reader
            await world.restart()
            fresh, other = await transacting(world), await transacting(world)
            await other.client.subscribe()
            await fresh.client.create_producer()
            return fresh, other

        aborted = await writer.begin()
        await writer.add_partition(aborted)
        await writer.publish(b"no", aborted)
        await writer.end(aborted, commit=False)
        writer, reader = await again()
        assert await last_message(reader) is None
        committed = await writer.begin()
        await writer.add_partition(committed)
        await writer.publish(b"yes", committed)
        await writer.end(committed, commit=True)
        assert await reader.read() == [b"yes"]
        last = await last_message(reader)
        assert last is not None
        for payload in (b"also no", b"no again"):
            aborted = await writer.begin()
            await writer.add_partition(aborted)
            await writer.publish(payload, aborted)
            await writer.end(aborted, commit=False)
        open_one = await writer.begin()
        await writer.add_partition(open_one)
        await writer.publish(b"perhaps", open_one)
        topic = await world.broker.registry.get(NAME, create=False)
        assert await last_message(reader) == last
        assert topic.ledger.extent.readable_position < topic.ledger.extent.last_confirmed_position
        assert await reader.read() == []

    run(scenario)


def test_a_coordinator_that_can_not_read_its_log_is_tried_again_and_its_transactions_time_out() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, txn_id = await begun(world, timeout_ms=1_000)
        await writer.publish(b"held", txn_id)
        await writer.publish(b"plain")
        world.bookie.read_error = DiskIOError("the disk says nothing")
        await world.restart()
        await wait_ms(3_000)
        world.bookie.read_error = None
        await wait_ms(10_000)
        # Nobody asked for it.
        (coordinator,) = world.broker.transactions.coordinators.open.values()
        assert not coordinator.state.open
        reader = await transacting(world)
        await reader.client.subscribe()
        assert await reader.read() == [b"plain"]
        assert (await reader.end(txn_id, commit=True)).HasField("error")

    run(scenario)


def test_acknowledgments_that_can_not_be_recovered_now_are_recovered_later() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await both_ends(world)
        await writer.publish(b"a")
        await writer.publish(b"b")
        txn_id = await writer.begin()
        await writer.add_subscription(txn_id)
        topic = await world.broker.registry.get(NAME, create=False)
        message_id = pb.MessageIdData(ledgerId=topic.ledger.ledgers.first_position.ledger_id, entryId=0)
        assert not (await reader.acknowledge([message_id], txn_id)).HasField("error")
        reader.client.lose()
        writer.client.lose()
        world.bookie.read_error = DiskIOError("the disk says nothing")
        await world.broker.registry.unload(NAME)
        reader = await transacting(world)
        # Refused or waited for, but not given up.
        request = pb.CommandSubscribe(
            topic=TOPIC, subscription="sub", subType=pb.CommandSubscribe.Exclusive, consumer_id=1, request_id=1
        )
        reader.client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        await wait_ms(1_000)
        world.bookie.read_error = None
        await wait_ms(1_000)
        reader = await transacting(world)
        await reader.client.subscribe()
        assert await reader.read() == [b"b"], "the first is held"
        await reader.finish(txn_id, commit=False)
        assert await reader.read() == [b"a"], "it has the other"

    run(scenario)
