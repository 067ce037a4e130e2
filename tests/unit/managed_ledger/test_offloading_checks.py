"""What is looked at before a ledger goes to the lake, leaves the bookies or comes back: each look stops something."""

from __future__ import annotations

import errno

import pytest

from geminga import sim
from geminga.lake import parquet
from geminga.lake.core.names import ledger_file
from geminga.managed_ledger.offload.lake_files import waiting
from geminga.managed_ledger.rules.offload import OffloadPolicy, can_offload, due, leaves_bookies, record_of
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import LedgerClosedError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.runtime import spawn
from geminga.wire.managed_ledger.offload_context import OffloadRecord, encode_offload_context
from support.worlds.lake_world import POLICY, PROPERTIES, LakeWorld
from support.worlds.ledger_world import acknowledge_cumulative, read_all

NOW = POLICY._replace(deletion_lag_ms=0)
UID = "ab" * 16


def run(scenario) -> None:
    sim.run(lambda world: scenario(LakeWorld(world)))


async def put_record(ml, record: OffloadRecord, index: int = 0) -> int:
    """Register this of a ledger, as whoever was there before did; the ledger's id."""
    ledger_id = ml.ledgers.infos[index].ledger_id
    async with ml.stored.lock():
        await ml.stored.put_context(ledger_id, encode_offload_context(record))
    return ledger_id


def test_what_pulsars_driver_has_begun_is_left_to_it_and_said_not_to_be_offloaded():
    async def scenario(w):
        ml, _ = await w.filled(25)
        ledger_id = await put_record(ml, OffloadRecord(UID, "aws-s3", {"bucket": "b"}))
        infos, readable = ml.ledgers.infos, ml.extent.readable
        assert not can_offload(infos[0], readable)
        assert due(infos, readable, NOW, 0) == [infos[1].ledger_id]
        offloading = w.offloading(ml)
        assert await offloading.offload_before(infos[2].ledger_id) == Position(ledger_id, 0)
        assert len(w.lake_store.ledgers) == 1

    run(scenario)


def test_only_a_lake_file_of_ours_that_is_whole_takes_the_place_of_the_bookies_copy():
    whole = OffloadRecord(UID, "filesystem", PROPERTIES, is_complete=True, completed_ms=1)
    assert leaves_bookies(whole, NOW, 1)
    # One of Pulsar's drivers keeps its copies by its own clock, and nobody else can read what it wrote.
    assert not leaves_bookies(whole._replace(driver="aws-s3", properties={"bucket": "b"}), NOW, 1)
    assert not leaves_bookies(whole._replace(is_complete=False), NOW, 1)
    assert not leaves_bookies(whole._replace(is_bookkeeper_deleted=True), NOW, 1)
    assert not leaves_bookies(whole, NOW._replace(deletion_lag_ms=10), 10)
    assert leaves_bookies(whole, NOW._replace(deletion_lag_ms=10), 11)
    assert not leaves_bookies(whole, NOW._replace(deletion_lag_ms=-1), 11)


def test_a_file_that_says_something_else_of_the_ledger_is_never_registered(monkeypatch):
    """A defect of the writer's: the entries are right."""
    written = parquet._ledger_document
    monkeypatch.setattr(parquet, "_ledger_document", lambda facts: {**written(facts), "closedMs": 7})

    async def scenario(w):
        ml, _ = await w.filled(15)
        with pytest.raises(StorageError, match=r"closed_ms=7.*expected"):
            await w.offloading(ml).look()
        assert not ml.ledgers.infos[0].offload_context
        await w.world.sleep(1)
        assert w.lake_store.ledgers == []

    run(scenario)


def test_a_ledger_that_is_trimmed_while_it_is_written_leaves_no_file():
    async def scenario(w):
        ml = await w.open(retention_ms=0)
        cursor = await ml.open_cursor("sub", initial=EARLIEST)
        await w.fill(ml, 15)
        await acknowledge_cumulative(cursor, Position(ml.ledgers.infos[0].ledger_id, 9))
        await w.world.sleep(2)
        ml.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)
        await w.fill(ml, 10, prefix="n")
        await acknowledge_cumulative(cursor, Position(ml.ledgers.infos[0].ledger_id, 9))
        ledger_id = ml.ledgers.infos[0].ledger_id
        await w.world.sleep(2)
        w.bookie.holds_replies = True
        looking = spawn(w.offloading(ml).look(), name="look")
        await w.world.sleep(1)
        assert not record_of(ml.ledgers.infos[0]).is_complete
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await ml.trimmer.trim()
        assert ml.ledgers.find(ledger_id) is None
        await w.world.sleep(1)
        w.bookie.release()
        await looking
        await w.world.sleep(1)
        assert w.lake_store.ledgers == []

    run(scenario)


def test_who_reads_goes_on_with_the_file_once_the_ledger_is_in_the_lake():
    async def scenario(w):
        await w.filled(15)
        again = await w.reopen()

        async def read() -> None:
            cursor = again.new_non_durable_cursor("all", EARLIEST)
            assert len(await read_all(cursor)) == 15
            await cursor.close()

        await read()
        await w.offloading(again).look()
        w.lake_store.calls.clear()
        await read()
        assert "read" in w.lake_store.calls

    run(scenario)


def test_a_registration_counts_for_the_attempt_that_it_expects_and_for_none_of_a_closed_topic():
    async def scenario(w):
        ml, offloading = await w.offloaded(15)
        info = ml.ledgers.infos[0]
        context = info.offload_context
        other = OffloadRecord(UID, "filesystem", PROPERTIES)
        for expected in ("", UID):
            assert not await offloading._register(info.ledger_id, other, expected=expected)
        assert not await offloading._register(info.ledger_id + 999, other, expected="")
        offloading.stop()
        with pytest.raises(LedgerClosedError):
            await offloading._register(info.ledger_id, None, expected=record_of(info).uid)
        assert info.offload_context == context

    run(scenario)


def test_the_bookies_copy_stays_while_the_file_has_fewer_entries():
    async def scenario(w):
        ml, offloading = await w.offloaded(15)
        ml.ledgers.infos[0].entries += 1
        offloading.policy = NOW
        before = set(await w.bookkeeper.ledger_ids())
        with pytest.raises(StorageError, match="has 10 entries, the list says 11"):
            await offloading.look()
        assert ml.ledgers.infos[0].ledger_id in before & set(await w.bookkeeper.ledger_ids())
        assert not record_of(ml.ledgers.infos[0]).is_bookkeeper_deleted

    run(scenario)


def test_what_a_crash_left_of_an_attempt_goes_with_the_first_look_of_the_next_process():
    async def scenario(w):
        ml, _ = await w.filled(15)
        ledger_id = await put_record(ml, OffloadRecord(UID, "filesystem", PROPERTIES))
        again = await w.reopen()
        offloading = w.offloading(again, OffloadPolicy("filesystem", PROPERTIES))
        path = f"{offloading._directory}/{ledger_file(ledger_id, UID)}"
        w.lake_store.files[path] = b"a part"
        await offloading.look()
        assert path not in w.lake_store.files
        assert not again.ledgers.infos[0].offload_context
        assert await waiting(w.store) == []

    run(scenario)


def test_a_copy_that_a_crash_left_on_the_bookies_goes_with_the_first_look_of_the_next_process():
    async def scenario(w):
        ml, _ = await w.offloaded(15)
        record = record_of(ml.ledgers.infos[0])
        ledger_id = await put_record(ml, record._replace(is_bookkeeper_deleted=True))
        again = await w.reopen()
        assert ledger_id in await w.bookkeeper.ledger_ids()
        await w.offloading(again).look()
        assert ledger_id not in await w.bookkeeper.ledger_ids()

    run(scenario)


async def fails_behind_one_write(w, work) -> None:
    w.faults.next_writes.extend([WriteFault.NONE, *[WriteFault.UNKNOWN_BEFORE] * 100])
    with pytest.raises(StorageError):
        await work()
    w.faults.next_writes.clear()


async def check_next_look_deletes(w, ml, offloading) -> None:
    """Of a ledger that is registered as gone what bookies have of it."""
    info = ml.ledgers.infos[0]
    assert record_of(info).is_bookkeeper_deleted
    assert info.ledger_id in await w.bookkeeper.ledger_ids()
    offloading.look_later()
    await w.world.sleep(1)
    assert info.ledger_id not in await w.bookkeeper.ledger_ids()


def test_a_copy_that_could_not_be_deleted_on_the_bookies_goes_with_the_next_look():
    """It is registered as gone: nobody else would come for it before the topic is loaded again."""

    async def scenario(w):
        ml, offloading = await w.offloaded(15)
        offloading.policy = NOW
        await fails_behind_one_write(w, offloading.look)
        await check_next_look_deletes(w, ml, offloading)

    run(scenario)


def test_what_an_attempt_to_restore_left_on_the_bookies_goes_with_the_next_look():
    async def scenario(w):
        ml, offloading = await w.offloaded(15)
        ledger_id = ml.ledgers.infos[0].ledger_id
        offloading.policy = NOW
        await offloading.look()
        assert ledger_id not in await w.bookkeeper.ledger_ids()
        offloading.policy = OffloadPolicy("filesystem", PROPERTIES)
        # The ledger is there by then; what made it and what deletes it fail.
        await fails_behind_one_write(w, offloading.restore)
        await check_next_look_deletes(w, ml, offloading)

    run(scenario)


def test_a_ledger_that_has_fewer_entries_on_the_bookies_than_in_the_list_is_not_offloaded():
    async def scenario(w):
        ml, _ = await w.filled(15)
        ml.ledgers.infos[0].entries += 1
        with pytest.raises(StorageError, match="has 10 entries on the bookies, the list says 11"):
            await w.offloading(ml).look()
        assert w.lake_store.ledgers == []

    run(scenario)


def test_a_file_stays_where_the_bookies_lack_one_entry_of_it():
    async def scenario(w):
        ml, offloading = await w.offloaded(15)
        w.bookie.forget_entry(ml.ledgers.infos[0].ledger_id, 7)
        offloading.policy = OffloadPolicy("filesystem", PROPERTIES)
        with pytest.raises(StorageError):
            await offloading.restore()
        assert len(w.lake_store.ledgers) == 1
        assert record_of(ml.ledgers.infos[0]).is_complete

    run(scenario)


def test_a_failure_does_not_keep_the_others_back_and_is_told():
    async def scenario(w):
        ml, _ = await w.filled(25)
        w.bookie.forget_entry(ml.ledgers.infos[0].ledger_id, 3)
        offloading = w.offloading(ml)
        with pytest.raises(StorageError):
            await offloading.look()
        assert [bool(info.offload_context) for info in ml.ledgers.infos] == [False, True, False]
        w.lake_store.fail["write"] = OSError(errno.EIO, "broken")
        with pytest.raises(StorageError):
            await offloading.offload_before(ml.ledgers.infos[2].ledger_id)

    run(scenario)
