"""A disk that is full to its last byte: what deletions leave comes back, and nothing acknowledged goes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from geminga import sim
from geminga.bookie.cut import cut_of
from geminga.model.errors import DiskFullError, LedgerFencedError, NoSuchLedgerError
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.clusters.bookie_node import BookieNode, Ledgers, entries_of, run_bookie

#: Of twenty ledgers; their neighbours in the entry logs are deleted, and most logs go as a whole.
LIVE = frozenset({1, 2, 20})
#: Added last and not flushed: only the journal has them.
UNFLUSHED = 21


async def fill(case: BookieNode) -> None:
    """Each ledger 1,000 bytes, a flush each: about four ledgers to a log; and one that is in the journal alone."""
    for ledger_id in range(1, UNFLUSHED):
        assert await case.add(ledger_id, 0, entries_of(ledger_id, 0, 10, size=100)) is None
        await case.bookie.flush()
    assert await case.add(UNFLUSHED, 0, entries_of(UNFLUSHED, 0, 10, size=100)) is None


def fill_disk(case: BookieNode) -> None:
    case.disk.capacity_bytes = case.disk.used_bytes()


async def check(case: BookieNode) -> None:
    """Everything that lives is there, the rest is certainly gone."""
    for ledger_id in sorted({*LIVE, UNFLUSHED}):
        assert await case.read(ledger_id, *range(10)) == entries_of(ledger_id, 0, 10, size=100)
    assert isinstance((await case.read(5, 0))[0], NoSuchLedgerError)


def logs_of(case: BookieNode) -> int:
    return sum(len(case.disk.contents(path)) for path in case.files(".log"))


async def collect(case: BookieNode, rounds: int = 1) -> None:
    """As often as a bookie does by itself, and it looks at its disk in between."""
    for _ in range(rounds):
        await case.bookie.collect_garbage(compact_below=0.0)
        await case.world.sleep(1)


async def fill_journal(case: BookieNode) -> None:
    """Until not even a fence finds room."""
    fill_disk(case)
    entry_id = 10
    while await case.add(UNFLUSHED, entry_id, entries_of(UNFLUSHED, entry_id, 1, size=1000)) is None:
        entry_id += 1
    assert isinstance(await case.fence(1), DiskFullError)


def test_disk_without_a_free_byte_gets_back_what_deletions_leave():
    async def main(case: BookieNode) -> None:
        await fill(case)
        logs = logs_of(case)
        case.ledgers.live = {*LIVE, UNFLUSHED}
        fill_disk(case)
        with pytest.raises(DiskFullError):
            await case.bookie.flush()
        assert not case.bookie.is_writable
        await collect(case)
        assert logs_of(case) < logs / 2
        assert case.bookie.is_writable
        await check(case)
        assert await case.add(UNFLUSHED, 10, [b"next"]) is None
        await case.reopen()
        await check(case)
        assert case.fatal == []

    run_bookie(main)


def test_each_of_many_rounds_on_a_disk_that_others_fill_again_gives_back_what_was_deleted():
    async def main(case: BookieNode) -> None:
        await fill(case)
        logs = logs_of(case)
        for last in range(4, 21):
            fill_disk(case)
            case.ledgers.live = {1, 2, *range(last, 22)}
            assert (await case.bookie.collect_garbage(compact_below=0.0)).deleted_ledgers == 1
        assert logs_of(case) < logs / 2
        await check(case)
        case.disk.capacity_bytes = 1 << 30
        await case.reopen()
        await check(case)

    run_bookie(main)


def test_metadata_that_move_on_do_not_keep_a_full_disk_from_being_collected():
    async def main(case: BookieNode) -> None:
        await fill(case)
        logs = logs_of(case)
        # Ledgers come to be on other bookies: the mark in the metadata store is to be left anew.
        case.ledgers.live, case.ledgers.next_id = {*LIVE, UNFLUSHED}, 50
        fill_disk(case)
        await collect(case)
        assert logs_of(case) < logs / 2
        await case.reopen()
        await check(case)

    run_bookie(main)


def test_fence_on_a_bookie_whose_journal_found_no_room_is_taken_as_soon_as_there_is_a_little_and_adds_are_not():
    async def main(case: BookieNode) -> None:
        await case.reopen(disk_usage_threshold=1.0)
        await fill(case)
        await fill_journal(case)
        case.disk.capacity_bytes += 8_000
        await case.world.sleep(1)
        assert not case.bookie.is_writable, "no room for a journal of the usual size"
        assert isinstance(await case.add(2, 10, [b"refused"]), DiskFullError)
        fences = [asyncio.ensure_future(case.fence(ledger_id)) for ledger_id in (1, 3, 4)]
        case.disk.capacity_bytes = 1 << 30
        assert await asyncio.gather(*fences) == [None, None, None]
        for ledger_id in range(5, 20):
            assert await case.fence(ledger_id) is None
            await case.world.sleep(0.03)
        assert case.bookie.is_writable
        assert await case.add(2, 10, [b"taken"]) is None
        await case.reopen()
        for ledger_id in (1, *range(3, 20)):
            assert isinstance(await case.add(ledger_id, 10, [b"late"]), LedgerFencedError)
        assert await case.read(UNFLUSHED, *range(10)) == entries_of(UNFLUSHED, 0, 10, size=100)
        assert case.fatal == []

    run_bookie(main)


def test_fence_and_recovered_end_are_taken_by_a_disk_that_has_room_above_its_threshold_and_no_adds():
    async def main(case: BookieNode) -> None:
        await case.reopen(disk_check_interval_ms=3_600_000, disk_usage_threshold=0.5)
        await fill(case)
        await fill_journal(case)
        # Room for a journal, and far more in use than it may be.
        case.disk.capacity_bytes = case.disk.used_bytes() + 40_000
        await case.bookie.probe_disk()
        assert (case.bookie.room.disk_usage or 0) > 0.5, "and the threshold is lower"
        assert await case.fence(1) is None
        assert await case.add(1, 10, [b"the end"], recovery=True) is None
        assert not case.bookie.is_writable
        assert isinstance(await case.add(2, 10, [b"refused"]), DiskFullError)
        assert case.fatal == []

    run_bookie(main)


def run_lives(*lives: Callable[[BookieNode], Coroutine[Any, Any, None]], power_loss: bool, **config: Any) -> None:
    """The lives of one bookie, each of which ends by a crash; all see the same list of ledgers.

    ``config``: its files are smaller than what is deleted; in all lives but the first also this.
    """

    async def scenario(world: SimWorld) -> None:
        node, ledgers = world.node("bookie"), Ledgers()
        # Most ledgers are deleted at once: that is meant.
        tiny = {"quarantine_share": 1.0, "journal_pre_alloc_size_mb": 0.004}

        def life(main: Callable[[BookieNode], Coroutine[Any, Any, None]]) -> Callable[[SimNode], Any]:
            async def on_node(node: SimNode) -> None:
                case = BookieNode(world, node)
                case.ledgers = ledgers
                await case.open(**{**tiny, **(config if main is not lives[0] else {})})
                await main(case)
                assert case.fatal == []

            return on_node

        for main in lives:
            node.start()
            try:
                await node.run(life(main))
            except NodeCrashedError:
                pass
            node.disk.on_step = None
            world.crash(node, power_loss=power_loss)

    sim.run(scenario)


#: Of the write cache: what is in the journal fits in, or has to be flushed while it is replayed.
@pytest.mark.parametrize("write_cache_max_size_mb", [0.032, 0.001])
@pytest.mark.parametrize("power_loss", [False, True])
def test_start_on_a_disk_without_a_free_byte_reads_everything_and_takes_entries_once_there_is_room(
    power_loss, write_cache_max_size_mb
):
    async def before(case: BookieNode) -> None:
        await fill(case)
        fill_disk(case)
        # What a journal that was not full gives back is little.
        case.disk.inject("write", "*.log", error=errno.ENOSPC, times=None)

    async def full(case: BookieNode) -> None:
        assert not case.bookie.is_writable
        assert isinstance(await case.add(1, 10, [b"refused"]), DiskFullError)
        # Who takes a topic over fences its ledger and writes back its end: else it could not be deleted.
        assert await case.fence(UNFLUSHED) is None
        assert await case.add(UNFLUSHED, 9, entries_of(UNFLUSHED, 9, 1, size=100), recovery=True) is None
        assert isinstance(await case.add(UNFLUSHED, 10, [b"late"]), (DiskFullError, LedgerFencedError))
        copied = [file.size_bytes or 0 for file in cut_of(case.bookie).files if file.name.endswith(".journal")]
        assert sum(copied) > 1000, "a backup has what only the journal has"
        for ledger_id in range(1, UNFLUSHED + 1):
            assert await case.read(ledger_id, *range(10)) == entries_of(ledger_id, 0, 10, size=100)

    async def freed(case: BookieNode) -> None:
        await full(case)
        case.disk.clear_faults()
        case.disk.capacity_bytes = 1 << 30
        await case.world.sleep(1)
        assert case.bookie.is_writable
        assert await case.add(1, 10, entries_of(1, 10, 1)) is None

    async def after(case: BookieNode) -> None:
        assert await case.read(1, 10) == entries_of(1, 10, 1)
        assert isinstance(await case.add(UNFLUSHED, 10, [b"late"]), LedgerFencedError)
        assert await case.read(UNFLUSHED, *range(10)) == entries_of(UNFLUSHED, 0, 10, size=100)

    run_lives(before, full, freed, after, power_loss=power_loss, write_cache_max_size_mb=write_cache_max_size_mb)


@pytest.mark.parametrize("power_loss", [False, True])
def test_killed_at_any_step_of_a_collection_on_a_full_disk_the_next_life_gets_the_space_back(power_loss):
    killed = 0

    def story(step: int) -> None:
        async def before(case: BookieNode) -> None:
            nonlocal killed
            await fill(case)
            fill_disk(case)
            case.ledgers.live = {*LIVE, UNFLUSHED}
            case.world.crash_at_disk_step(case.node, step)
            killed = step
            await case.bookie.collect_garbage(compact_below=0.0)
            killed = 0

        async def after(case: BookieNode) -> None:
            await collect(case, rounds=2)
            assert logs_of(case) < 3 * 4096
            assert case.bookie.is_writable
            await check(case)

        run_lives(before, after, check, power_loss=power_loss)

    step = 1
    while True:
        story(step)
        if not killed:
            break
        step += 1
    assert step > 10
