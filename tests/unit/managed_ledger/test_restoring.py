"""Ledgers come back from the lake to bookies: each whole or not at all, and never over what a next owner did."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger import ManagedLedger
from geminga.managed_ledger.offload import restoring
from geminga.managed_ledger.offload.lake_files import waiting
from geminga.managed_ledger.offload.offloading import Offloading
from geminga.managed_ledger.rules.offload import OffloadPolicy, record_of
from geminga.model.errors import (
    ConflictError,
    CorruptionError,
    NoSuchLedgerError,
    StorageError,
)
from support.worlds.lake_world import POLICY, PROPERTIES, LakeWorld, everything, payloads
from support.worlds.ledger_world import NAME

NOW = POLICY._replace(deletion_lag_ms=0)


async def first_owner(w: LakeWorld) -> tuple[ManagedLedger, Offloading]:
    """One that offloaded its topic, and may lose it to another."""
    w.new_process(is_shared=True)
    return await w.offloaded(15, NOW)


def test_restore_brings_every_ledger_back_whether_bookies_have_it_still_or_deleted_it(in_lake_world, monkeypatch):
    monkeypatch.setattr(restoring, "WRITE_BYTES_MAX", 1)  # an entry at a time

    async def scenario(w):
        ml, offloading = await w.offloaded(25, NOW)
        with pytest.raises(ConflictError, match="thresholds"):
            await offloading.restore()
        await w.fill(ml, 20)
        offloading.policy = POLICY
        await offloading.look()
        assert len(w.lake_store.ledgers) == 4
        before = [(info.ledger_id, info.entries, info.size_bytes, info.closed_ms) for info in ml.ledgers.infos]
        gone = [info.ledger_id for info in ml.ledgers.infos[:4] if record_of(info).is_bookkeeper_deleted]
        assert len(gone) == 2
        (bookie,) = w.bookies.values()
        bookie.collect_garbage(set(await w.bookkeeper.ledger_ids()))
        assert set(gone) <= bookie.deleted
        offloading.policy = OffloadPolicy("filesystem", PROPERTIES)
        assert await offloading.restore() == 4
        assert w.lake_store.ledgers == []
        assert w.lake_store.manifests == [] or not (await read_manifest(w)).ledgers
        # As a ledger that never was in the lake: that is what Pulsar's brokers read.
        assert all(not info.offload_context for info in ml.ledgers.infos)
        assert [(info.ledger_id, info.entries, info.size_bytes, info.closed_ms) for info in ml.ledgers.infos] == before
        for ledger_id in gone:
            ledger = await w.bookkeeper.open_ledger(ledger_id, recover=False)
            assert ledger.metadata.is_closed
            assert bookie.is_fenced(ledger_id)
        assert await everything(await w.reopen()) == payloads(25) + payloads(20)
        assert await waiting(w.store) == []

    in_lake_world(scenario)


async def read_manifest(w):
    return await (await w.factory.lake().root("filesystem", PROPERTIES)).read_manifest(NAME)


def test_restore_of_a_damaged_file_or_without_a_bookie_changes_nothing_and_is_done_later(in_lake_world):
    async def scenario(w):
        ml, _ = await w.filled(15)
        offloading = w.offloading(ml, NOW)
        await offloading.look()
        (bookie,) = w.bookies.values()
        bookie.collect_garbage(set(await w.bookkeeper.ledger_ids()))
        offloading.policy = OffloadPolicy("filesystem", PROPERTIES)
        contexts = [info.offload_context for info in ml.ledgers.infos]
        (name,) = [path for path in w.lake_store.files if path.endswith(".parquet")]
        whole = w.lake_store.files[name]
        w.lake_store.files[name] = whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2)
        w.factory.lake().groups.forget(record_of(ml.ledgers.infos[0]).uid)
        with pytest.raises(CorruptionError, match="ledger-0"):
            await offloading.restore()
        w.lake_store.files[name] = whole
        for fail in ("add_error", "fence_error"):
            setattr(bookie, fail, StorageError("the bookie fails"))
            with pytest.raises(StorageError, match="the bookie fails"):
                await offloading.restore()
            setattr(bookie, fail, None)
            assert [info.offload_context for info in ml.ledgers.infos] == contexts
            assert ml.ledgers.infos[0].ledger_id not in await w.bookkeeper.ledger_ids(), (
                "nothing is left of the attempt"
            )
        assert await everything(ml) == payloads(15)
        assert await offloading.restore() == 1
        assert await everything(await w.reopen()) == payloads(15)

    in_lake_world(scenario)


def test_restore_that_stores_other_bytes_is_found_before_the_file_goes(in_lake_world, monkeypatch):
    async def scenario(w):
        ml, _ = await w.filled(15)
        offloading = w.offloading(ml, NOW)
        await offloading.look()
        offloading.policy = OffloadPolicy("filesystem", PROPERTIES)

        async def append_others(ledger, entries, stop):
            await append_rightly(ledger, [entries[0] + b"!", *entries[1:]], stop)

        append_rightly = restoring._append
        with monkeypatch.context() as patch:
            patch.setattr(restoring, "_append", append_others)
            with pytest.raises(CorruptionError, match="entry 0 is not what the bookies have"):
                await offloading.restore()
        assert len(w.lake_store.ledgers) == 1
        assert await everything(ml) == payloads(15)

    in_lake_world(scenario)


def test_restore_leaves_the_file_where_the_bookies_lack_an_entry(in_lake_world):
    async def scenario(w):
        ml, offloading = await w.offloaded(15)
        await w.bookkeeper.delete_ledger(ml.ledgers.infos[0].ledger_id)
        offloading.policy = OffloadPolicy("filesystem", PROPERTIES)
        with pytest.raises(NoSuchLedgerError):
            await offloading.restore()
        assert len(w.lake_store.ledgers) == 1
        assert await everything(ml) == payloads(15)

    in_lake_world(scenario)


def test_an_owner_that_lost_the_topic_while_it_restored_leaves_what_the_next_one_restored(in_lake_world, monkeypatch):
    async def scenario(w):
        _ml, old = await first_owner(w)
        old.policy = OffloadPolicy("filesystem", PROPERTIES)
        bookkeeper, resume = w.bookkeeper, asyncio.Event()

        async def append_late(ledger, entries, stop):
            # As where a machine stands still.
            monkeypatch.setattr(restoring, "_append", append)
            await resume.wait()
            await append(ledger, entries, stop)

        append = restoring._append
        monkeypatch.setattr(restoring, "_append", append_late)
        late = asyncio.ensure_future(old.restore())
        await w.world.sleep(1)
        w.new_process(is_shared=True)
        again = await w.open()
        assert await w.offloading(again, OffloadPolicy("filesystem", PROPERTIES)).restore() == 1
        assert w.lake_store.ledgers == [], "bookies have the only copy"
        resume.set()
        with pytest.raises(StorageError):
            await late
        assert again.ledgers.infos[0].ledger_id in await bookkeeper.ledger_ids()
        assert await everything(await w.reopen()) == payloads(15)

    in_lake_world(scenario)


def test_an_owner_that_lost_the_topic_before_it_tidied_up_leaves_what_the_next_one_restored(in_lake_world, monkeypatch):
    async def scenario(w):
        ml, _ = await first_owner(w)
        stale = w.offloading(ml, OffloadPolicy("filesystem", PROPERTIES))
        w.new_process(is_shared=True)
        again = await w.open()
        assert await w.offloading(again, OffloadPolicy("filesystem", PROPERTIES)).restore() == 1
        with pytest.raises(StorageError):
            await stale.look()
        assert await everything(await w.reopen()) == payloads(15)

    in_lake_world(scenario)


def test_a_restore_gives_up_where_many_ledgers_in_a_row_fail(in_lake_world):
    async def scenario(w):
        ml, offloading = await w.offloaded(105)
        for info in ml.ledgers.infos[:10]:
            await w.bookkeeper.delete_ledger(info.ledger_id)
        offloading.policy = OffloadPolicy("filesystem", PROPERTIES)
        reads = len(w.lake_store.calls)
        with pytest.raises(StorageError):
            await offloading.restore()
        assert len(w.lake_store.calls) == reads
        assert len(w.lake_store.ledgers) == 10

    in_lake_world(scenario)
