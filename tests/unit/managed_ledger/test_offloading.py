"""Ledgers go to the lake, are read from there, and leave bookies and lake when they should."""

from __future__ import annotations

import errno
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geminga.lake.core.names import parse_ledger_file
from geminga.lake.ownership import OWNER_FILE
from geminga.lake.parquet import SchemaFacts
from geminga.managed_ledger.offload import offloading as offloading_module
from geminga.managed_ledger.offload.lake_files import waiting
from geminga.managed_ledger.rules.offload import OffloadPolicy, record_of
from geminga.model.errors import (
    DiskFullError,
    DiskIOError,
    StorageError,
)
from geminga.model.position import EARLIEST, Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.worlds.lake_world import POLICY, PROPERTIES, MemoryLakeStore, everything, payloads
from support.worlds.ledger_world import NAME, acknowledge_cumulative, append, read_all

NOW = POLICY._replace(deletion_lag_ms=0)


def test_closed_ledgers_are_offloaded_registered_and_named_by_the_manifest(in_lake_world):
    async def scenario(w):
        ml, offloading = await w.offloaded(35)
        assert len(w.lake_store.ledgers) == 3, "the open one stays"
        records = [record_of(info) for info in ml.ledgers.infos]
        assert [record is not None and record.is_complete for record in records] == [True, True, True, False]
        assert [parse_ledger_file(name).uid for name in w.lake_store.ledgers] == [r.uid for r in records[:3]]
        root = await w.factory.lake().root("filesystem", PROPERTIES)
        manifest = await root.read_manifest(NAME)
        assert [one.ledger_id for one in manifest.ledgers] == [info.ledger_id for info in ml.ledgers.infos[:3]]
        assert manifest.topic == "persistent://public/default/topic"
        assert len(w.lake_store.manifests) == 1, "the older ones are deleted"
        assert await everything(ml) == payloads(35)
        await offloading.look()
        assert len(w.lake_store.ledgers) == 3

    in_lake_world(scenario)


def test_the_bookies_copy_goes_after_the_lag_and_reads_go_on(in_lake_world):
    async def scenario(w):
        ml, offloading = await w.offloaded(35)
        before = set(await w.bookkeeper.ledger_ids())
        await w.world.sleep(3600 * 3)
        await offloading.look()
        assert set(await w.bookkeeper.ledger_ids()) == before, "the lag is 4 hours"
        await w.world.sleep(3600 * 1.1)
        await offloading.look()
        gone = {info.ledger_id for info in ml.ledgers.infos[:3]}
        assert gone <= before
        assert not gone & set(await w.bookkeeper.ledger_ids())
        assert all(record_of(info).is_bookkeeper_deleted for info in ml.ledgers.infos[:3])
        assert await everything(ml) == payloads(35)
        again = await w.reopen()
        assert await everything(again) == payloads(35)

    in_lake_world(scenario)


def test_a_topic_with_only_offloaded_ledgers_is_loaded_read_and_appended_to(in_lake_world):
    async def scenario(w):
        ml, _ = await w.filled(20)
        cursor = await ml.open_cursor("sub", initial=EARLIEST)
        await ml.roll()
        offloading = w.offloading(ml, NOW)
        await offloading.look()
        await ml.close()
        again = await w.reopen()
        assert len(again.ledgers) == 2
        cursor = again.cursors["sub"]
        assert cursor.backlog_count == 20
        assert cursor.reading.has_more_entries
        assert await read_all(cursor) == payloads(20)
        assert again.ledgers.count_between(again.ledgers.first_position, again.extent.last_confirmed_position) == 20
        await again.reader.look_up_creation()
        assert again.ledgers.last.opened_ms > 0
        found = await again.reader.find_last(lambda entry: int(entry.data[1:]) <= 13)
        assert found == Position(again.ledgers.infos[1].ledger_id, 3)
        await w.fill(again, 5, prefix="n")
        assert len(await everything(again)) == 25

    in_lake_world(scenario)


def test_trimmed_ledgers_lose_their_files_and_the_manifest(in_lake_world):
    async def scenario(w):
        ml = await w.open(retention_ms=0)
        cursor = await ml.open_cursor("sub", initial=EARLIEST)
        await w.fill(ml, 35)
        offloading = w.offloading(ml)
        await offloading.look()
        await acknowledge_cumulative(cursor, Position(ml.ledgers.infos[1].ledger_id, 9))
        await ml.trimmer.trim()
        await w.world.sleep(1)
        assert len(w.lake_store.ledgers) == 1
        root = await w.factory.lake().root("filesystem", PROPERTIES)
        assert len((await root.read_manifest(NAME)).ledgers) == 1
        assert await waiting(w.store) == []

    in_lake_world(scenario)


def test_a_file_that_can_not_be_deleted_is_noted_told_and_deleted_later(in_lake_world):
    async def scenario(w):
        ml, _ = await w.offloaded(25)
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        w.lake_store.fail["delete"] = PermissionError(errno.EACCES, "not yours")
        await ml.trimmer.trim()
        await w.world.sleep(1)
        assert len(ml.ledgers) == 1
        assert len(w.lake_store.ledgers) == 2
        assert all("not yours" in deletion.error for deletion in await waiting(w.store))
        assert await w.factory.retry_lake_deletions() == 2
        w.lake_store.fail.clear()
        w.new_process()
        assert await w.factory.retry_lake_deletions() == 0
        assert w.lake_store.ledgers == []
        assert await waiting(w.store) == []

    in_lake_world(scenario)


def test_a_deleted_topic_leaves_nothing_in_the_lake(in_lake_world):
    async def scenario(w):
        await w.offloaded(25, NOW)
        await w.factory.delete(NAME)
        await w.world.sleep(1)
        assert list(w.lake_store.files) == [OWNER_FILE]
        assert await waiting(w.store) == []

    in_lake_world(scenario)


def test_a_topic_made_anew_keeps_its_manifest_when_files_of_the_old_one_go_late(in_lake_world):
    async def scenario(w):
        await w.offloaded(15)
        w.lake_store.fail["delete"] = OSError(errno.EIO, "no")
        await w.factory.delete(NAME)
        await w.world.sleep(1)
        w.lake_store.fail.clear()
        new = await w.open()
        await w.fill(new, 15, prefix="n")
        await w.offloading(new).look()
        assert await w.factory.retry_lake_deletions() == 0
        assert len(w.lake_store.ledgers) == len(w.lake_store.manifests) == 1
        assert (await everything(new))[0] == b"n0"

    in_lake_world(scenario)


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("operation", ["write", "commit", "read"])
def test_a_failed_write_leaves_nothing_and_is_tried_again(in_lake_world, operation, is_torn):
    async def scenario(w):
        ml, _ = await w.filled(15)
        offloading = w.offloading(ml)
        w.lake_store.is_torn = is_torn
        w.lake_store.fail[operation] = OSError(errno.ENOSPC, "full")
        with pytest.raises(DiskFullError if operation != "read" else StorageError):
            await offloading.look()
        w.lake_store.fail.clear()
        await w.world.sleep(1)
        assert not ml.ledgers.infos[0].offload_context
        assert w.lake_store.ledgers == []
        assert await everything(ml) == payloads(15)
        await offloading.look()
        assert len(w.lake_store.ledgers) == 1

    in_lake_world(scenario)


def test_a_file_that_gives_other_entries_is_never_registered(in_lake_world, monkeypatch):
    async def scenario(w):
        ml, _ = await w.filled(15)
        from geminga.lake import parquet

        monkeypatch.setattr(parquet, "rebuild_entries", lambda ids, *rest: [(one, b"other") for one in ids])
        with pytest.raises(StorageError, match="is not what the bookies have"):
            await w.offloading(ml).look()
        assert not ml.ledgers.infos[0].offload_context
        await w.world.sleep(1)
        assert w.lake_store.ledgers == []

    in_lake_world(scenario)


def test_a_damaged_file_is_named_and_the_bookies_copy_read_instead(in_lake_world, caplog):
    async def scenario(w):
        await w.offloaded(15)
        path = next(path for path in w.lake_store.files if path.endswith(".parquet"))
        whole = w.lake_store.files[path]
        for damage in (whole[:100], b"", whole[: len(whole) // 3] + b"\0" * 50 + whole[len(whole) // 3 + 50 :]):
            w.lake_store.files[path] = damage
            again = await w.reopen()
            assert await everything(again) == payloads(15)
            assert path in caplog.text
            caplog.clear()
        del w.lake_store.files[path]
        assert await everything(await w.reopen()) == payloads(15)

    in_lake_world(scenario)


def test_a_damaged_file_without_a_copy_on_bookies_is_an_error_that_names_it_and_never_loss(in_lake_world):
    async def scenario(w):
        await w.offloaded(15, NOW)
        path = next(path for path in w.lake_store.files if path.endswith(".parquet"))
        whole = w.lake_store.files.pop(path)
        again = await w.reopen()
        with pytest.raises(DiskIOError, match=path):
            await everything(again)
        with pytest.raises(DiskIOError, match=path):
            await again.reader.read([again.ledgers.first_position])
        w.lake_store.files[path] = whole
        assert await everything(again) == payloads(15), "and it goes on once the file is back"

    in_lake_world(scenario)


def test_bookies_first_reads_bookies_while_they_have_it(in_lake_world):
    async def scenario(w):
        ml, _ = await w.filled(15)
        policy = NOW._replace(is_bookkeeper_first=True, deletion_lag_ms=-1)
        offloading = w.offloading(ml, policy)
        await offloading.look()
        w.lake_store.calls.clear()
        assert await everything(ml) == payloads(15)
        assert w.lake_store.calls == []
        offloading.policy = policy._replace(deletion_lag_ms=0)
        await offloading.look()
        assert await everything(ml) == payloads(15)
        assert "read" in w.lake_store.calls

    in_lake_world(scenario)


def test_thresholds_by_size_and_age_and_none(in_lake_world):
    async def scenario(w):
        ml, _ = await w.filled(35)
        none = OffloadPolicy("filesystem", PROPERTIES)
        offloading = w.offloading(ml, none)
        await offloading.look()
        assert w.lake_store.ledgers == []
        size = ml.ledgers.infos[-1].size_bytes + ml.ledgers.infos[-2].size_bytes
        offloading.policy = none._replace(threshold_bytes=size)
        await offloading.look()
        assert len(w.lake_store.ledgers) == 2
        offloading.policy = none._replace(threshold_ms=60_000)
        await offloading.look()
        assert len(w.lake_store.ledgers) == 2
        await w.world.sleep(61)
        await offloading.look()
        assert len(w.lake_store.ledgers) == 3

    in_lake_world(scenario)


def test_what_may_not_be_read_yet_is_not_offloaded(in_lake_world):
    async def scenario(w):
        ml, _ = await w.filled(35)
        ml.set_read_limit(Position(ml.ledgers.infos[1].ledger_id, 8))
        offloading = w.offloading(ml)
        await offloading.look()
        assert len(w.lake_store.ledgers) == 1
        ml.set_read_limit(Position(ml.ledgers.infos[1].ledger_id, 9))
        await offloading.look()
        assert len(w.lake_store.ledgers) == 2

    in_lake_world(scenario)


def test_a_command_offloads_what_is_before_and_says_how_far(in_lake_world):
    async def scenario(w):
        ml, _ = await w.filled(35)
        offloading = w.offloading(ml, OffloadPolicy("filesystem", PROPERTIES))
        assert offloading.status.status == "NOT_RUN"
        offloading.start(ml.ledgers.infos[2].ledger_id)
        assert offloading.status.status == "RUNNING"
        await w.world.sleep(1)
        assert offloading.status == ("SUCCESS", "", Position(ml.ledgers.infos[2].ledger_id, 0))
        assert len(w.lake_store.ledgers) == 2
        w.lake_store.fail["write"] = OSError(errno.ENOSPC, "no room")
        offloading.start(ml.ledgers.infos[3].ledger_id)
        await w.world.sleep(1)
        assert offloading.status.status == "ERROR"
        assert "no room" in offloading.status.last_error

    in_lake_world(scenario)


def test_files_that_no_list_names_may_be_another_clusters_and_stay(in_lake_world, caplog):
    async def scenario(w):
        await w.offloaded(15)
        (name,) = w.lake_store.ledgers
        stray = f"{NAME}/{name[: -len('.parquet') - 32]}{'ab' * 16}.parquet"
        w.lake_store.files[stray] = b"the only copy that another cluster has"
        w.lake_store.files[f"{NAME}/notes.txt"] = b"of a user"
        again = await w.reopen()
        await w.offloading(again, OffloadPolicy("filesystem", PROPERTIES)).look()
        assert set(w.lake_store.ledgers) == {name, stray.rpartition("/")[2]}
        assert "1 files of its directory in the lake are in no list of this cluster" in caplog.text
        assert f"{NAME}/notes.txt" in w.lake_store.files

    in_lake_world(scenario)


def test_an_owner_that_lost_the_topic_registers_and_deletes_nothing(in_lake_world):
    async def scenario(w):
        w.new_process(is_shared=True)
        ml, _ = await w.filled(15)
        old = w.offloading(ml)
        w.new_process(is_shared=True)
        again = await w.open()
        new = w.offloading(again)
        await new.look()
        name = w.lake_store.ledgers
        assert name
        with pytest.raises(StorageError):
            await old.look()
        assert w.lake_store.ledgers == name, "the new owner's file stays"
        assert await everything(again) == payloads(15)

    in_lake_world(scenario)


def test_an_offload_ends_when_the_topic_is_closed(in_lake_world):
    async def scenario(w):
        ml, _ = await w.filled(35)
        offloading = w.offloading(ml)
        offloading.look_later()
        offloading.stop()
        await ml.close()
        await w.world.sleep(1)
        again = await w.reopen()
        assert await everything(again) == payloads(35)
        await w.offloading(again).look()
        assert len(w.lake_store.ledgers) == len(again.ledgers)
        assert await everything(again) == payloads(35)

    in_lake_world(scenario)


def test_contexts_of_pulsars_drivers_are_left_alone(in_lake_world):
    from geminga.wire.managed_ledger.offload_context import OffloadRecord, encode_offload_context

    async def scenario(w):
        ml, _ = await w.filled(15, retention_ms=-1)
        theirs = OffloadRecord("ab" * 16, "aws-s3", {"bucket": "b"}, is_complete=True, completed_ms=1)
        context = encode_offload_context(theirs)
        async with ml.stored.lock():
            await ml.stored.put_context(ml.ledgers.infos[0].ledger_id, context)
        await w.offloading(ml, NOW).look()
        assert ml.ledgers.infos[0].offload_context == context
        assert w.lake_store.ledgers == []
        assert await everything(ml) == payloads(15)
        await w.bookkeeper.delete_ledger(ml.ledgers.infos[0].ledger_id)
        with pytest.raises(StorageError, match="aws-s3"):
            await everything(await w.reopen())

    in_lake_world(scenario)


def test_a_file_that_is_gone_keeps_no_other_ledger_from_leaving_the_bookies_or_the_lake(in_lake_world):
    async def scenario(w):
        ml, offloading = await w.offloaded(35)
        first, *others = [info.ledger_id for info in ml.ledgers.infos[:3]]
        lost = next(path for path in w.lake_store.files if path.endswith(w.lake_store.ledgers[0]))
        del w.lake_store.files[lost]
        await w.world.sleep(3600 * 4.1)
        with pytest.raises(StorageError, match="is not there"):
            await offloading.look()
        there = await w.bookkeeper.ledger_ids()
        assert first in there
        assert not set(others) & set(there)
        # Nor has anybody that ledger any more.
        await w.bookkeeper.delete_ledger(first)
        offloading.policy = OffloadPolicy("filesystem", PROPERTIES)
        with pytest.raises(StorageError):
            await offloading.restore()
        assert set(others) <= set(await w.bookkeeper.ledger_ids())
        assert offloading.restoring.restored == 3, "one more was closed by its age"
        assert w.lake_store.ledgers == []

    in_lake_world(scenario)


def test_a_former_root_that_is_away_keeps_nothing_from_going_to_the_present_one(in_lake_world):
    async def scenario(w):
        ml, _ = await w.offloaded(25)
        await w.fill(ml, 20)
        await ml.close()
        present, former = MemoryLakeStore(), w.lake_store
        former.fail = dict.fromkeys(("read", "write", "list"), OSError(errno.EIO, "not mounted"))
        w.new_process()
        roots = {"memory://lake": former, "memory://present": present}
        w.factory._open_lake_store = lambda driver, properties: roots[properties["root"]]
        again = await w.open()
        policy = POLICY._replace(properties={**PROPERTIES, "root": "memory://present"})
        offloading = w.offloading(again, policy)
        with pytest.raises(StorageError, match="not mounted"):
            await offloading.look()
        assert len(present.ledgers) == 3
        assert len(present.manifests) == 1
        gone = [info.ledger_id for info in again.ledgers.infos if f"{info.ledger_id:019d}" in "".join(present.ledgers)]
        await w.world.sleep(3600 * 4.1)
        with pytest.raises(StorageError, match="not mounted"):
            await offloading.look()
        assert not set(gone) & set(await w.bookkeeper.ledger_ids())
        former.fail = {}
        await offloading.look()
        assert await everything(again) == payloads(25) + payloads(20)

    in_lake_world(scenario)


def test_schemas_go_with_a_file_as_far_as_there_is_room(in_lake_world, monkeypatch):
    """A schema that is named in many ways, or many large ones, would be larger than all that broker and file hold."""
    monkeypatch.setattr(offloading_module, "SCHEMAS_BYTES_MAX", 1000)

    async def scenario(w):
        ml = await w.open()
        entries = [
            encode_entry(
                pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, schema_version=version), b"x"
            )
            for version in (number.to_bytes(8, "big") for number in range(10))
        ]
        await append(ml, entries)
        await ml.roll()
        asked = []

        async def find(version):
            asked.append(version)
            return SchemaFacts(version, "JSON", "s", b"d" * 400, {}, 5)

        await w.offloading(ml, find_schema=find).look()
        (file,) = (data for path, data in w.lake_store.files.items() if path.endswith(".parquet"))
        written = json.loads(pq.read_metadata(pa.BufferReader(file)).metadata[b"geminga.schemas"])
        assert [one["version"] for one in written] == ["00" * 8, "00" * 7 + "01"]
        assert len(asked) == 3
        assert await everything(ml) == entries

    in_lake_world(scenario)
