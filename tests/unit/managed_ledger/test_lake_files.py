"""Files of the lake are deleted when nothing names them, not before, and are read while they are there and right."""

from __future__ import annotations

import copy
import errno

import pytest

from geminga import sim
from geminga.lake import parquet
from geminga.managed_ledger.offload import lake_files, manifests
from geminga.managed_ledger.rules.offload import record_of
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.model.errors import CorruptionError, LedgerFencedError, SessionExpiredError, StorageError
from geminga.wire.managed_ledger.offload_context import OffloadRecord, encode_offload_context
from support.worlds.lake_world import POLICY, PROPERTIES, LakeWorld, MemoryLakeStore
from support.worlds.ledger_world import NAME

OTHER = f"{NAME}-other"
NOW = POLICY._replace(deletion_lag_ms=0)


def run(scenario) -> None:
    sim.run(lambda world: scenario(LakeWorld(world)))


async def manifest_of(w):
    root = await w.factory.lake().root("filesystem", PROPERTIES)
    return await root.read_manifest(NAME)


async def put_record(ml, record: OffloadRecord) -> None:
    async with ml.stored.lock():
        await ml.stored.put_context(ml.ledgers.infos[0].ledger_id, encode_offload_context(record))


def test_a_file_that_goes_leaves_the_manifest_first_and_not_before_its_time():
    async def scenario(w):
        ml, _ = await w.offloaded(25)
        services, info = ml._services, ml.ledgers.infos[0]
        later_ms = services.clock.wall_ms() + 1000
        noted = await lake_files.note(services, NAME, ml.stored.created_ms, [info], not_before_ms=later_ms)
        assert await lake_files.carry_out(services, noted) == 1
        assert len(w.lake_store.ledgers) == len((await manifest_of(w)).ledgers) == 2
        await w.world.sleep(1)
        assert await lake_files.carry_out(services, noted) == 0
        assert [one.ledger_id for one in (await manifest_of(w)).ledgers] == [ml.ledgers.infos[1].ledger_id]
        assert len(w.lake_store.ledgers) == 1

    run(scenario)


@pytest.mark.parametrize("fails", [None, "list", "delete"])
def test_the_manifest_goes_with_the_last_file_and_is_not_left_when_the_topic_goes(fails):
    """``fails``: what the store refuses at first, so that the file goes with a later attempt."""

    async def scenario(w):
        ml, _ = await w.offloaded(25, NOW)
        if fails is not None:
            w.lake_store.fail[fails] = OSError(errno.EIO, "no")
        await ml.trimmer.truncate()
        await w.world.sleep(1)
        w.lake_store.fail.clear()
        assert await w.factory.retry_lake_deletions() == 0
        assert (w.lake_store.ledgers, w.lake_store.manifests) == ([], [])
        await w.factory.delete(NAME)
        assert list(w.lake_store.files) == ["_geminga/owner.json"]

    run(scenario)


def test_no_manifest_is_written_of_a_topic_that_was_deleted_meanwhile():
    async def scenario(w):
        _, offloading = await w.offloaded(15)
        w.lake_store.fail["delete"] = OSError(errno.EIO, "no")
        await w.factory.delete(NAME)
        w.lake_store.fail.clear()
        await offloading.write_manifests()
        assert await w.factory.retry_lake_deletions() == 0
        assert list(w.lake_store.files) == ["_geminga/owner.json"]

    run(scenario)


def test_a_note_of_a_file_that_the_list_names_still_does_nothing_and_goes_an_hour_later():
    async def scenario(w):
        ml, _ = await w.offloaded(15)
        services = ml._services
        await lake_files.note(services, NAME, ml.stored.created_ms, ml.ledgers.infos)
        assert await w.factory.retry_lake_deletions() == 1
        await w.world.sleep(lake_files.STALE_MS / 1000)
        assert await w.factory.retry_lake_deletions() == 0
        assert await lake_files.waiting(w.store) == []
        assert len(w.lake_store.ledgers) == 1

    run(scenario)


@pytest.mark.parametrize("uid", ["00" * 16, "ff" * 16])
def test_a_list_that_can_not_be_read_keeps_the_files_of_its_own_topic_alone(uid, caplog):
    """``uid``: so that its note comes before, or behind, the other's."""

    async def scenario(w):
        ml, _ = await w.offloaded(25, NOW)
        w.lake_store.fail["delete"] = OSError(errno.EIO, "no")
        await ml.trimmer.truncate()
        w.lake_store.fail.clear()
        other = LedgerInfo(7, entries=1, offload_context=encode_offload_context(OffloadRecord(uid, "f", PROPERTIES)))
        await lake_files.note(ml._services, OTHER, 1, [other])
        await w.store.put(ledger_path(OTHER), b"\xff no list", expected_version=None)
        assert await w.factory.retry_lake_deletions() == 1
        assert w.lake_store.ledgers == []
        assert [one.name for one in await lake_files.waiting(w.store)] == [OTHER]
        assert f"{OTHER}: the file of ledger 7, {uid}, stays" in caplog.text

    run(scenario)


def test_what_pulsars_driver_stored_is_not_looked_for_here():
    async def scenario(w):
        ml, _ = await w.filled(15)
        await put_record(ml, OffloadRecord("ab" * 16, "aws-s3", {"bucket": "b"}, is_complete=True, completed_ms=1))
        assert await lake_files.note(ml._services, NAME, ml.stored.created_ms, ml.ledgers.infos) == []
        assert await lake_files.waiting(w.store) == []

    run(scenario)


def test_a_manifest_names_what_is_complete():
    async def scenario(w):
        ml, offloading = await w.offloaded(15)
        assert len((await manifest_of(w)).ledgers) == 1
        await put_record(ml, record_of(ml.ledgers.infos[0])._replace(is_complete=False))
        await offloading.write_manifests()
        assert await manifest_of(w) is None

    run(scenario)


def test_a_file_with_other_entries_than_the_list_says_is_not_served():
    async def scenario(w):
        ml, _ = await w.offloaded(15, NOW)
        info = ml.ledgers.infos[0]
        info.entries += 1
        with pytest.raises(StorageError, match="has 10 entries, the list says 11"):
            await ml.reader.open_to_read(info)

    run(scenario)


def test_a_file_that_is_damaged_where_it_is_read_is_read_from_the_bookies(monkeypatch):
    async def scenario(w):
        ml, _ = await w.offloaded(15)
        ledger = await ml.reader.open_to_read(ml.ledgers.infos[0])

        def damaged(*columns):
            raise CorruptionError("a row group is damaged")

        monkeypatch.setattr(parquet, "rebuild_entries", damaged)
        assert list(await ledger.read_entries(0, 9)) == [b"m%d" % number for number in range(10)]

    run(scenario)


def test_bookies_are_not_asked_for_what_left_them(caplog):
    async def scenario(w):
        ml, _ = await w.offloaded(15, NOW._replace(is_bookkeeper_first=True))
        assert record_of(ml.ledgers.infos[0]).is_bookkeeper_deleted
        ledger = await ml.reader.open_to_read(ml.ledgers.infos[0])
        assert len(await ledger.read_entries(0, 9)) == 10
        assert "is read from the lake" not in caplog.text

    run(scenario)


@pytest.mark.parametrize("was_offloaded", [True, False])
def test_a_list_that_was_brought_back_from_a_backup_counts_and_not_the_later_manifest(in_lake_world, was_offloaded):
    """Without the broker's manifest readers of the lake would have what the topic has not, under the same ids."""

    async def scenario(w):
        ml, _ = await w.filled(15)
        if was_offloaded:
            await w.offloading(ml).look()
        await ml.close()
        saved = copy.deepcopy((w.server.tree, w.bookie._ledgers))
        ml = await w.reopen()
        for prefix in ("later", "even later"):
            await w.fill(ml, 15, prefix)
            await w.offloading(ml).look()
        await ml.close()
        root = await w.factory.lake().root("filesystem", PROPERTIES)
        later = await root.read_manifest(NAME)
        w.server.tree, w.bookie._ledgers = saved
        w.new_process()
        ml = await w.open()
        offloading = w.offloading(ml, POLICY if was_offloaded else POLICY._replace(threshold_bytes=1 << 30))
        await offloading.look()
        root = await w.factory.lake().root("filesystem", PROPERTIES)
        manifest = await root.read_manifest(NAME)
        uids = [one.uid for one in manifest.ledgers] if manifest is not None else []
        assert uids == [record.uid for info in ml.ledgers.infos if (record := record_of(info)) is not None]
        assert uids != [one.uid for one in later.ledgers]
        assert bool(uids) == was_offloaded
        await w.fill(ml, 15, "other")
        offloading.policy = POLICY
        await offloading.look()
        manifest = await root.read_manifest(NAME)
        uids = [one.uid for one in manifest.ledgers]
        assert uids == [record.uid for info in ml.ledgers.infos if (record := record_of(info)) is not None]
        assert len(w.lake_store.manifests) == 1

    in_lake_world(scenario)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_former_owner_that_is_late_leaves_the_manifest_of_the_next_one_alone(in_lake_world, is_closed):
    async def scenario(w):
        former, _ = await w.offloaded(15)
        services = former._services
        if is_closed:
            await former.close()
        ml = await w.reopen()
        await w.fill(ml, 15)
        await w.offloading(ml).look()
        root = await w.factory.lake().root("filesystem", PROPERTIES)
        theirs = await root.read_manifest(NAME)
        with pytest.raises(LedgerFencedError):
            await manifests.write(former.stored, services)
        assert await root.read_manifest(NAME) == theirs
        assert former.tenure.is_over
        assert not ml.tenure.is_over

    in_lake_world(scenario)


def test_a_file_whose_digest_type_is_damaged_is_read_from_the_bookies_or_told_as_damaged():
    """Nothing protects a footer: an error that is none of storage closes the topic, and is met by the next load."""

    async def scenario(w):
        ml, offloading = await w.offloaded(15)
        (path,) = (path for path in w.lake_store.files if path.endswith(".parquet"))
        whole = w.lake_store.files[path]
        assert whole.count(b'"CRC32C"') == 1
        w.lake_store.files[path] = whole.replace(b'"CRC32C"', b'"CRC32B"')
        ledger = await ml.reader.open_to_read(ml.ledgers.infos[0])
        assert list(await ledger.read_entries(0, 9)) == [b"m%d" % number for number in range(10)]
        await w.world.sleep(3600 * 4)
        with pytest.raises(CorruptionError, match="CRC32B"):
            await offloading.look()
        assert not record_of(ml.ledgers.infos[0]).is_bookkeeper_deleted, "it is the only copy that can be read"

    run(scenario)


async def notes_of(w, services, properties, count: int) -> list[str]:
    """Noted deletions of that many files below one root; their uids."""
    prefix = "a" if properties is PROPERTIES else "0"
    uids = [prefix + f"{number:031x}" for number in range(count)]
    for number, uid in enumerate(uids):
        record = OffloadRecord(uid, "filesystem", properties)
        info = LedgerInfo(number, entries=1, offload_context=encode_offload_context(record))
        await lake_files.note(services, OTHER, 1, [info])
    return uids


def test_a_root_that_is_away_is_asked_for_a_few_files_a_time_and_holds_up_no_other():
    """Each answer of a bucket that is away takes minutes, in the lane of all small files."""

    async def scenario(w):
        away = MemoryLakeStore()
        away.fail["list"] = OSError(errno.EIO, "nobody answers")
        w.factory._open_lake_store = lambda driver, found: away if "region" in found else w.lake_store
        services = (await w.filled(1))[0]._services
        await notes_of(w, services, {**PROPERTIES, "region": "away"}, 100)
        await notes_of(w, services, PROPERTIES, 20)
        assert await w.factory.retry_lake_deletions() == 100
        assert len(away.calls) == lake_files.FAILURES_MAX
        away.fail.clear()
        assert await w.factory.retry_lake_deletions() == 0
        assert await lake_files.waiting(w.store) == []

    run(scenario)


def test_files_that_can_not_be_deleted_do_not_keep_those_behind_them():
    async def scenario(w):
        services = (await w.filled(1))[0]._services
        uids = await notes_of(w, services, PROPERTIES, 3 * lake_files.FAILURES_MAX)
        refused = set(uids[: 2 * lake_files.FAILURES_MAX])
        delete = w.lake_store.delete

        def delete_some(path: str) -> None:
            if any(uid in path for uid in refused):
                raise PermissionError(errno.EACCES, "not yours")
            delete(path)

        w.lake_store.delete = delete_some
        for _ in range(3):
            await w.factory.retry_lake_deletions()
        assert {deletion.uid for deletion in await lake_files.waiting(w.store)} == refused
        # All have failed; of these the last can be deleted now.
        refused.remove(uids[2 * lake_files.FAILURES_MAX - 1])
        for _ in range(20):
            await w.factory.retry_lake_deletions()
        assert {deletion.uid for deletion in await lake_files.waiting(w.store)} == refused

    run(scenario)


@pytest.mark.parametrize("is_away", [False, True])
def test_many_files_that_go_are_noted_at_once_and_each_of_them(is_away):
    """The list of who trims is nobody else's meanwhile."""

    async def scenario(w):
        services = (await w.filled(1))[0]._services
        infos = [
            LedgerInfo(
                number, 1, offload_context=encode_offload_context(OffloadRecord(f"{number:032x}", "f", PROPERTIES))
            )
            for number in range(2 * lake_files.NOTED_AT_ONCE + 1)
        ]
        w.faults.delay_ms_max = 10
        if is_away:
            w.store.expire_session(1000)
            with pytest.raises(SessionExpiredError):
                await lake_files.note(services, OTHER, 1, infos)
            await w.world.sleep(2)
        before = w.world.now
        noted = await lake_files.note(services, OTHER, 1, infos)
        assert w.world.now - before < 1
        assert [deletion.ledger_id for deletion in noted] == [info.ledger_id for info in infos]
        assert {deletion.uid for deletion in await lake_files.waiting(w.store)} == {one.uid for one in noted}

    run(scenario)
