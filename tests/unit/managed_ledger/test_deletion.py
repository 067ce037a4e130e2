"""Deleting a managed ledger: nothing of another owner's goes, and a deletion that failed can be done again."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger import ManagedLedgerFactory
from geminga.managed_ledger.shared.metadata_io import cursor_path, ledger_path
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import LedgerClosedError, LedgerFencedError, StorageError
from geminga.model.position import EARLIEST
from support.worlds.ledger_world import NAME, acknowledge, read_all

BEFORE, AFTER = WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER


def another_process(w) -> ManagedLedgerFactory:
    """Of another broker on the same storage, beside the world's own."""
    return ManagedLedgerFactory(w.runtime, w.store, w.bookkeeper, w.config)


def test_owner_that_was_replaced_deletes_nothing(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 25)
        await acknowledge(cursor, positions[3:4])
        taken = await another_process(w).open(NAME)
        await taken.stored.set_properties({"owner": "another"})
        with pytest.raises(LedgerFencedError):
            await w.factory.delete(NAME)
        assert ml.tenure.is_fenced
        assert await w.store.exists(cursor_path(NAME, "s"))
        assert len(await read_all(taken.cursors["s"])) == 24
        assert len(await taken.reader.read(positions)) == 25

    in_world(scenario)


def test_cursor_that_another_owner_wrote_is_not_deleted(in_world):
    async def scenario(w):
        ml = await w.open()
        await ml.open_cursor("s", initial=EARLIEST)
        taken = await another_process(w).open(NAME)
        await taken.cursors["s"].set_cursor_properties({"owner": "another"})
        with pytest.raises(LedgerFencedError):
            await ml.delete_cursor("s")
        assert await w.store.exists(cursor_path(NAME, "s"))
        assert "s" in ml.cursors

    in_world(scenario)


def test_deletion_is_done_again_after_every_failure(in_world):
    """Each write of it fails once, having happened or not; the next attempt leaves nothing."""

    async def scenario(w):
        for fault in (BEFORE, AFTER):
            for writes in range(8):
                ml, cursor = await w.subscribed()
                positions = await w.fill(ml, 25)
                await acknowledge(cursor, positions[3:4])
                await w.world.sleep(2)
                w.faults.next_writes.extend([WriteFault.NONE] * writes + [fault] * 40)
                try:
                    await w.factory.delete(NAME)
                except StorageError:
                    pass
                w.faults.next_writes.clear()
                await w.factory.delete(NAME)
                assert not await w.factory.exists(NAME)
                assert not await w.store.exists(cursor_path(NAME, "s"))

    in_world(scenario)


def test_deletion_that_stops_at_a_cursor_has_deleted_the_ledgers_of_those_before(in_world):
    async def scenario(w):
        ml, positions = await w.filled(25)
        for name in ("a", "b"):
            await acknowledge(await ml.open_cursor(name, initial=EARLIEST), positions[3:4])
        before = {name: ml.cursors[name].store.ledger_id for name in ("a", "b")}
        taken = await another_process(w).open(NAME)
        await taken.cursors["b"].set_cursor_properties({"owner": "another"})
        with pytest.raises(LedgerFencedError):
            await w.factory.delete(NAME)
        assert before["a"] not in await w.bookkeeper.ledger_ids()
        assert before["b"] in await w.bookkeeper.ledger_ids()
        await w.factory.delete(NAME)
        assert await w.bookkeeper.ledger_ids() == []

    in_world(scenario)


def test_cursor_that_comes_while_it_is_deleted_is_refused_and_not_left_behind(in_world):
    async def scenario(w):
        refused = 0
        for lead_ms in range(0, 400, 20):
            w.faults.delay_ms_max = 0
            ml, _ = await w.filled(5)
            w.faults.delay_ms_max = 50
            deletion = asyncio.ensure_future(w.factory.delete(NAME))
            await w.world.sleep(lead_ms / 1000)
            try:
                await ml.open_cursor("late", initial=EARLIEST)
            except LedgerClosedError:
                refused += 1
            await deletion
            assert not await w.store.exists(ledger_path(NAME))
            assert not await w.store.exists(cursor_path(NAME, "late"))
        assert refused

    in_world(scenario)


def test_subscription_deleted_at_the_same_time_does_not_stop_it(in_world):
    async def scenario(w):
        for lead_ms in range(0, 200, 10):
            w.faults.delay_ms_max = 0
            ml = await w.open()
            for name in ("a", "b", "c"):
                await ml.open_cursor(name, initial=EARLIEST)
            w.faults.delay_ms_max = 50
            gone = asyncio.ensure_future(ml.delete_cursor("b"))
            await w.world.sleep(lead_ms / 1000)
            await w.factory.delete(NAME)
            await gone
            assert not await w.factory.exists(NAME)

    in_world(scenario)
