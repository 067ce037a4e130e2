"""Deduplication on a topic: duplicates, unknown answers, failed writes, recovery, snapshots, switching."""

from __future__ import annotations

import pytest

from geminga.broker.topic.deduplication import FREE_PROPERTY, free_ids
from geminga.metadata.cas import CAS_ATTEMPTS_MAX
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import DiskFullError, DiskIOError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import DEDUP_CURSOR
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.waiting import turns
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker, send_frame
from support.worlds.policy_levels import seconds

NO_ID = (1 << 64) - 1


def test_duplicates_get_a_receipt_without_id_and_are_not_stored() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await client.publish(5)
        client.send_bytes(send_frame(4) + send_frame(5) + send_frame(6) + send_frame(6))
        receipts = [await client.receipt() for _ in range(3)]
        ids = [(r.sequence_id, r.message_id.ledgerId == NO_ID, r.message_id.entryId) for r in receipts]
        assert ids == [(4, True, NO_ID), (5, True, NO_ID), (6, False, 1)]
        # The second 6 came while the first was being written.
        error = (await client.expect(Type.SEND_ERROR)).send_error
        assert (error.sequence_id, error.error) == (6, pb.PersistenceError)
        assert "Cannot determine" in error.message
        await client.expect(Type.CLOSE_PRODUCER)
        assert world.topic.ledger.ledgers.entry_count == 2
        success = await client.create_producer(producer_name="producer", epoch=1)
        assert success.last_sequence_id == 6

    run_with_broker(scenario, deduplication=True)


def test_batches_count_up_to_their_highest_sequence_id() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        client.send_message(0, highest_sequence_id=9, num_messages=10)
        receipt = await client.receipt()
        assert (receipt.sequence_id, receipt.highest_sequence_id) == (0, 9)
        client.send_message(3, highest_sequence_id=9, num_messages=7)
        assert (await client.receipt()).message_id.ledgerId == NO_ID
        await client.publish(10)

    run_with_broker(scenario, deduplication=True)


def test_chunks_share_a_sequence_id_and_only_the_last_counts() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")

        def chunk(index: int) -> bytes:
            metadata = {"uuid": "p-0", "num_chunks_from_msg": 3, "total_chunk_msg_size": 3, "chunk_id": index}
            return send_frame(0, b"x", metadata=metadata, is_chunk=True)

        client.send_bytes(chunk(0) + chunk(1))
        client.send_bytes(chunk(2))
        assert [(await client.receipt()).message_id.entryId for _ in range(3)] == [0, 1, 2]
        client.send_bytes(chunk(2))
        assert (await client.receipt()).message_id.ledgerId == NO_ID
        await client.publish(1)

    run_with_broker(scenario, deduplication=True)


def test_sequence_ids_survive_a_restart_by_snapshot_and_replay() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await client.create_producer(producer_id=2, producer_name="q")
        for sequence_id in range(25):
            await client.publish(sequence_id)
            client.send_message(sequence_id * 2, producer_id=2, producer_name="q")
            await client.receipt()
        cursor = world.topic.ledger.cursors[DEDUP_CURSOR]
        await seconds(2)
        # Snapshots are taken as it goes, so that a crash replays little.
        assert cursor.mark_delete_position.entry_id >= 29
        assert cursor.properties["producer"] >= 14
        await world.restart()
        client = await world.client()
        assert (await client.create_producer(producer_name="producer")).last_sequence_id == 24
        assert (await client.create_producer(producer_id=2, producer_name="q")).last_sequence_id == 48
        client.send_message(24)
        assert (await client.receipt()).message_id.ledgerId == NO_ID

    run_with_broker(scenario, deduplication=True, deduplication_snapshot_entries=10)


def test_failed_write_that_was_stored_is_a_duplicate_afterwards() -> None:
    """Told that it failed, the producer sends it again; meanwhile recovery found it in the log."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await world.topic.create_subscription("keeper", EARLIEST)
        await client.publish(0)
        world.bookie.add_error, world.bookie.stores_before_error = DiskFullError("no answer in time"), True
        # The ledger can not be closed at what was confirmed: recovery finds its end.
        world.metadata.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * CAS_ATTEMPTS_MAX)
        client.send_message(1)
        await client.expect(Type.SEND_ERROR)
        await client.expect(Type.CLOSE_PRODUCER)
        world.bookie.add_error = None
        await seconds(3)
        success = await client.create_producer(producer_name="producer", epoch=1)
        client.send_message(1)
        receipt = await client.receipt()
        await client.publish(2)
        # In the log once: 0, 1, 2.
        assert world.topic.ledger.ledgers.entry_count == 3
        assert receipt.message_id.ledgerId == NO_ID
        assert success.last_sequence_id == 1

    run_with_broker(scenario, deduplication=True)


def test_tail_that_can_not_be_read_after_a_failed_write_is_read_later() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await client.publish(0)
        world.bookie.add_error = DiskFullError("no answer in time")
        # Neither is the ledger closed nor its end found, as long as the metadata store gives no answer.
        world.metadata.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * 2 * CAS_ATTEMPTS_MAX)
        client.send_message(1)
        await client.expect(Type.SEND_ERROR)
        world.bookie.add_error = None
        await seconds(0.5)
        assert world.topic.dedup.state.is_settling
        await seconds(3)
        assert not world.topic.dedup.state.is_settling

    run_with_broker(scenario, deduplication=True)


async def fail_without_an_end(world: BrokerWorld) -> Client:
    """A write failed, and where its ledger ends can not be found out at first."""
    client = await world.publisher(producer_name="producer")
    await client.create_producer(producer_id=2, producer_name="chunks")
    await client.publish(0)
    world.bookie.add_error = world.bookie.fence_error = DiskIOError("away")
    world.metadata.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * CAS_ATTEMPTS_MAX)
    client.send_message(1)
    await client.expect(Type.SEND_ERROR)
    await client.expect(Type.CLOSE_PRODUCER)
    await seconds(0.1)
    world.bookie.add_error = world.bookie.fence_error = None
    assert world.topic.dedup.state.is_settling
    return client


def test_what_a_failed_write_left_behind_is_looked_for_again_until_it_is_known() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await fail_without_an_end(world)
        await seconds(1)
        assert not world.topic.dedup.state.is_settling
        await client.create_producer(producer_name="producer", epoch=1)
        await client.publish(1)

    run_with_broker(scenario, deduplication=True)


def test_nothing_is_judged_after_a_failed_write_while_another_is_under_way() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await fail_without_an_end(world)
        topic = world.topic
        await topic.ledger.roll(only_failed=True)
        world.bookie.holds_replies = True
        # A chunk before the last is stored without being judged.
        metadata = {"uuid": "c-0", "num_chunks_from_msg": 2, "total_chunk_msg_size": 2, "chunk_id": 0}
        client.send_bytes(send_frame(0, b"x", 2, producer_name="chunks", metadata=metadata, is_chunk=True))
        await seconds(2)
        assert topic.publishing.pending_batches
        assert topic.dedup.state.is_settling
        world.bookie.release()
        await seconds(0.1)
        assert not topic.dedup.state.is_settling

    run_with_broker(scenario, deduplication=True)


def test_failed_write_that_was_not_stored_is_taken_afterwards() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await world.topic.create_subscription("keeper", EARLIEST)
        await client.publish(0)
        world.bookie.add_error = DiskFullError("no space left on device")
        client.send_message(1)
        await client.expect(Type.SEND_ERROR)
        await client.expect(Type.CLOSE_PRODUCER)
        world.bookie.add_error = None
        await seconds(3)
        dedup = world.topic.dedup
        assert dedup is not None
        assert not dedup.state.is_settling
        success = await client.create_producer(producer_name="producer", epoch=1)
        assert success.last_sequence_id == 0
        receipt = await client.publish(1)
        assert receipt[0] != NO_ID
        assert world.topic.ledger.ledgers.entry_count == 2

    run_with_broker(scenario, deduplication=True)


def test_resend_while_the_first_is_being_written_is_unknown_and_never_acknowledged() -> None:
    async def scenario(world: BrokerWorld) -> None:
        first = await world.publisher(producer_name="producer")
        await first.publish(0)
        world.bookie.holds_replies = True
        first.send_message(1)
        first.lose()
        await turns()
        second = await world.client()
        assert (await second.create_producer(producer_name="producer", epoch=1)).last_sequence_id == 0
        second.send_message(1)
        error = (await second.expect(Type.SEND_ERROR)).send_error
        assert error.sequence_id == 1
        await second.expect(Type.CLOSE_PRODUCER)
        world.bookie.holds_replies = False
        world.bookie.release()
        await turns(20)
        await second.create_producer(producer_name="producer", epoch=2)
        second.send_message(1)
        assert (await second.receipt()).message_id.ledgerId == NO_ID
        assert world.topic.ledger.ledgers.entry_count == 2

    run_with_broker(scenario, deduplication=True)


def test_namespace_policy_switches_deduplication_on_and_off_while_it_runs() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await client.publish(3)
        namespaces = world.resources.namespaces
        for is_on in (True, False):
            await namespaces.set_policy("public/default", "deduplicationEnabled", is_on)
            await world.broker.policies_changed("public/default")
            client.send_message(3)
            receipt = await client.receipt()
            assert (receipt.message_id.ledgerId == NO_ID) == is_on
            assert (DEDUP_CURSOR in world.topic.ledger.cursors) == is_on
            assert "pulsar.dedup" not in world.topic.subscriptions

    run_with_broker(scenario)


def test_changed_policy_is_heard_of_without_being_told() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.publisher(producer_name="producer")
        await world.resources.namespaces.set_policy("public/default", "deduplicationEnabled", True)
        await seconds(1)
        assert world.topic.dedup is not None

    run_with_broker(scenario)


def test_batch_with_stored_and_new_messages_is_refused_and_the_producer_goes_on() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await client.publish(5)
        client.send_message(4, highest_sequence_id=8, num_messages=5)
        error = (await client.expect(Type.SEND_ERROR)).send_error
        assert (error.sequence_id, error.error) == (4, pb.NotAllowedError)
        assert "end a batch at 5" in error.message
        client.send_message(6, highest_sequence_id=8, num_messages=3)
        assert (await client.receipt()).message_id.entryId == 1

    run_with_broker(scenario, deduplication=True)


def test_snapshot_is_taken_by_time_and_producers_gone_for_long_are_forgotten() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="stays")
        await client.create_producer(producer_id=2, producer_name="goes")
        for sequence_id in range(3):
            await client.publish(sequence_id)
            await client.publish(sequence_id, producer_id=2)
        cursor = world.topic.ledger.cursors[DEDUP_CURSOR]
        await client.close_producer(2)
        await seconds(100)
        assert not cursor.properties
        await seconds(25)
        assert cursor.properties == {"stays": 2, "goes": 2}
        assert cursor.mark_delete_position.entry_id == 5
        await seconds(400)
        assert set(world.topic.dedup.state.persisted) == {"stays", "goes"}
        await seconds(300)
        assert set(world.topic.dedup.state.persisted) == {"stays"}

    run_with_broker(
        scenario,
        deduplication=True,
        deduplication_snapshot_s=60,
        deduplication_inactivity_minutes=10,
        keep_alive_interval_s=100_000,
    )


def test_snapshot_is_taken_a_time_after_the_first_message_that_is_not_in_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        cursor = world.topic.ledger.cursors[DEDUP_CURSOR]
        await client.publish(0)
        await seconds(125)
        assert cursor.properties == {"producer": 0}
        # Messages that come meanwhile do not put it off.
        for sequence_id in range(1, 14):
            await client.publish(sequence_id)
            await seconds(10)
        assert cursor.properties["producer"] > 0

    run_with_broker(scenario, deduplication=True, deduplication_snapshot_s=60, keep_alive_interval_s=100_000)


@pytest.mark.parametrize("interval_s", [0, 120])
def test_snapshot_that_failed_is_taken_later_though_nothing_new_is_stored(interval_s: int) -> None:
    """By time; without that by entries, and not with each of them."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        topic = world.topic
        for number in range(4):
            await client.publish(number)
        cursor = topic.ledger.cursors[DEDUP_CURSOR]
        # Neither a new cursor ledger nor, in its place, the cursor's node can be written.
        world.metadata.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * 200)
        if interval_s:
            await seconds(interval_s + 50)
        else:
            await client.publish(4)
            await seconds(20)
        assert len(world.metadata.faults.next_writes) < 200
        world.metadata.faults.next_writes.clear()
        stored = 4 if interval_s else 5
        assert topic.dedup.stats()["entriesSinceSnapshot"] == stored
        assert cursor.mark_delete_position == EARLIEST
        if interval_s:
            await seconds(interval_s + 50)
        else:
            for number in range(5, 10):
                assert cursor.mark_delete_position == EARLIEST
                await client.publish(number)
            await seconds(5)
        assert cursor.mark_delete_position.entry_id == (3 if interval_s else 9)
        assert topic.dedup.stats()["entriesSinceSnapshot"] == 0

    run_with_broker(
        scenario,
        deduplication=True,
        deduplication_snapshot_entries=5,
        deduplication_snapshot_s=interval_s,
        keep_alive_interval_s=100_000,
    )


def test_snapshot_is_taken_however_long_the_names_are_of_producers_whose_transactions_were_aborted() -> None:
    """A node holds them, of at most a megabyte with all else that it has."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await client.publish(0)
        dedup = world.topic.dedup
        assert dedup is not None
        dedup.state.runs.restored({f"{number:03}" + "\x01" * 4093: [(1, 2)] for number in range(400)})
        await dedup.snapshot()
        cursor = world.topic.ledger.cursors[DEDUP_CURSOR]
        kept = free_ids(cursor.cursor_properties[FREE_PROPERTY])
        assert [name[:3] for name in kept] == [f"{number:03}" for number in range(400 - len(kept), 400)]
        assert len(kept) > 3

    run_with_broker(scenario, deduplication=True)


def test_active_producer_older_than_the_producers_a_snapshot_may_hold_stays_in_it() -> None:
    """A snapshot of the newest names left out one that had been there before them and still published."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="old")
        await client.publish(0)
        for index in range(5):
            await client.create_producer(producer_id=2 + index, producer_name=f"short-{index}")
            await client.publish(0, producer_id=2 + index)
            await client.close_producer(2 + index)
        await client.publish(1)
        await world.restart()
        client = await world.client()
        assert (await client.create_producer(producer_name="old")).last_sequence_id == 1
        assert (await client.create_producer(producer_id=2, producer_name="short-4")).last_sequence_id == 0

    run_with_broker(scenario, deduplication=True, deduplication_producers_max=2, delete_inactive_topics=False)


def test_producer_that_comes_back_is_told_what_its_last_writes_became() -> None:
    """Told the state before, it would batch stored messages together with new ones."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await client.publish(0)
        client.send_message(1)
        client.lose()
        again = await world.client()
        assert (await again.create_producer(producer_name="producer")).last_sequence_id == 1

    run_with_broker(scenario, deduplication=True)
