"""Reads of a consumer that asked for what was compacted: from the right place, be it in the log or only compacted."""

from __future__ import annotations

import pytest

from geminga.broker.compacted.reads import BEHIND_COMPACTED, CompactedReads
from geminga.broker.subscription import seek
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.runtime import wait_ms
from geminga.transaction.core.pending_acks import Released, TxnAck
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, transacting
from support.stories.compaction_story import CompactionStory, compacted, only_compacted
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.policy_levels import SMALL_LEDGERS, run_quietly


@pytest.mark.parametrize(("start", "begins"), [(EARLIEST, 0), (None, 9), (LATEST, 9), (3, 3), (8, 8)])
def test_a_reader_begins_where_it_asked_to_also_in_what_was_trimmed(start: Position | int | None, begins: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await only_compacted(world, *((f"k{number}", "v") for number in range(9)))
        topic = await story.topic()
        wanted = story.sent[start].position if isinstance(start, int) else start
        cursor = topic.ledger.new_non_durable_cursor("r", LATEST if wanted is None else wanted)
        reads = CompactedReads(topic, cursor, wanted)
        assert reads.has_more is (begins < 9)
        found: list[Position] = []
        reads.read(100, 1 << 20, lambda entries: found.extend(entry.position for entry in entries))  # type: ignore[union-attr]
        await story.read()  # lets it come
        assert found == [one.position for one in story.sent[begins:]]
        assert not reads.has_more
        await cursor.close()

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


def test_a_durable_one_that_acknowledged_goes_on_from_there_and_not_from_the_beginning() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        topic = await story.topic()
        cursor = await topic.ledger.open_cursor("sub", initial=EARLIEST)
        await story.publish(*((f"k{number}", "v") for number in range(4)))
        await story.compact()
        cursor.acknowledge_cumulative(story.sent[1].position)
        cursor.reading.rewind()
        assert CompactedReads(topic, cursor, None)._next() == story.sent[2].position
        new = await topic.ledger.open_cursor("new", initial=EARLIEST)
        assert CompactedReads(topic, new, None)._next() == EARLIEST
        assert BEHIND_COMPACTED not in new.properties

    run_quietly(scenario)


@pytest.mark.parametrize("held", [True, False])
def test_a_durable_one_is_moved_into_what_is_only_compacted(held: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await only_compacted(world, *((f"k{number}", f"v{number}") for number in range(9)))
        if held:  # by what was not compacted
            await story.publish(("k9", "v9"))
        client = await transacting(world)
        await client.client.subscribe(read_compacted=True)
        everything = await client.read()
        assert len(everything) == 9 + held
        topic = await story.topic()
        for number in (5, 0, 7, 8):
            await seek.seek(topic.subscriptions["sub"], story.sent[number].position)
            await client.client.subscribe(read_compacted=True)
            assert await client.read() == everything[number:]
        await seek.seek(topic.subscriptions["sub"], story.sent[6].position)
        await world.restart()
        client = await transacting(world)
        await client.client.subscribe(read_compacted=True)
        assert await client.read() == everything[6:]
        topic = await story.topic()
        await seek.seek(topic.subscriptions["sub"], EARLIEST)
        await client.client.subscribe(read_compacted=True)
        assert await client.read() == everything
        # One that is made there begins there, too.
        await topic.create_subscription("other", story.sent[4].position)
        await client.client.subscribe(consumer_id=2, subscription="other", read_compacted=True)
        assert await client.read() == everything[4:]

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_all_that_was_kept_of_a_batch_is_acknowledged_message_by_message(in_transaction: bool) -> None:
    """By clients that count what was left out of it as messages: they do not acknowledge the entry."""

    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(("a", "1"), ("b", "1"), ("c", "1"), batched=True)
        ledger_id, entry_id = await story.publish(("a", "2"))
        await story.compact()
        client = await transacting(world)
        await client.client.subscribe(read_compacted=True)
        assert len(await client.read()) == 2
        txn_id = await client.begin() if in_transaction else None
        if txn_id is not None:
            await client.add_subscription(txn_id)
        for left in (0b101, 0b011):
            one = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id - 1, batch_size=3, ack_set=[left])
            assert not (await client.acknowledge([one], txn_id)).HasField("error")
        client.client.lose()
        other = await transacting(world)
        await other.client.subscribe(read_compacted=True)
        assert await other.read() == [b"2"]
        if txn_id is not None:
            await other.finish(txn_id, commit=False)
            assert len(await other.read()) == 1

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("is_cumulative", [False, True])
def test_what_is_only_compacted_is_acknowledged_in_a_transaction_as_without_one(is_cumulative: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await only_compacted(world, *((f"k{number}", f"v{number}") for number in range(9)))
        await story.publish(("k9", "v9"))
        client = await transacting(world)
        await client.client.subscribe(read_compacted=True)
        await wait_ms(50)
        for (message_id, _), is_in_log in zip(client.messages(), [*[False] * 9, True], strict=True):
            txn_id = await client.begin()
            await client.add_subscription(txn_id)
            answer = await client.acknowledge([message_id], txn_id, is_cumulative=is_cumulative)
            assert not answer.HasField("error"), answer
            acks = world.topic.subscriptions["sub"].transactions.acks
            assert acks.is_holding is is_in_log
            await client.finish(txn_id, commit=True)
        assert world.topic.subscriptions["sub"].cursor.backlog_count == 0

    run_quietly(scenario, ledger_config=SMALL_LEDGERS, transaction_coordinator_enabled=True)


async def consuming(world: BrokerWorld, permits: int) -> tuple[Transacting, list[Position]]:
    """Of six messages of as many keys, which were compacted, a durable consumer got so many."""
    story = await compacted(world, *((f"k{number}", f"v{number}") for number in range(6)))
    client = await transacting(world)
    await client.client.subscribe(permits=permits, read_compacted=True)
    assert await client.read() == [f"v{number}".encode() for number in range(permits)]
    return client, [one.position for one in story.sent]


def test_what_an_aborted_transaction_acknowledged_of_it_comes_again_and_nothing_else() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, positions = await consuming(world, permits=4)
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        ledger_id, entry_id = positions[1]
        held = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id)
        assert not (await client.acknowledge([held], txn_id)).HasField("error")
        await client.finish(txn_id, commit=False)
        client.flow(1, 100)
        assert await client.read() == [b"v1", b"v4", b"v5"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_an_abort_amid_a_read_of_it_leaves_nothing_out() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, positions = await consuming(world, permits=2)
        dispatch = world.topic.subscriptions["sub"].dispatch
        client.flow(1, 100)
        assert dispatch.reader.is_busy
        dispatch.give_back(Released((TxnAck(positions[1]),)))
        await wait_ms(50)
        assert await client.read() == [b"v1", b"v2", b"v3", b"v4", b"v5"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)
