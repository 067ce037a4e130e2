"""Cursors that catch up near each other: each entry is read once from storage, and each cursor gets each of them."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  (seeded)

import pytest

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.cursor import cursor_reads
from geminga.managed_ledger.log.shared_reads import LOOKS_PER_READ, SharedReads
from geminga.managed_ledger.log.tail import Tail
from geminga.managed_ledger.rules import near_readers
from geminga.model.errors import LedgerClosedError, StorageError
from geminga.model.position import EARLIEST
from support.house.python_calls import counted_calls
from support.house.weekly_sample import sampled
from support.worlds.ledger_world import acknowledge_cumulative, read_entries

COUNT = 6_000
SIZE = 100
MANY_BYTES = 1 << 30
#: Instead of the real one, in the test of who is further behind.
NEAR = 4_000
CONFIG = ManagedLedgerConfig(cache_size_mb=4, max_entries_per_ledger=COUNT // 2 + 7, min_rollover_minutes=0)


def payloads(count: int = COUNT, size: int = SIZE) -> list[bytes]:
    return [b"%06d" % number + b"." * (size - 6) for number in range(count)]


async def catch_up(cursor, count: int, step: int, pause=None) -> list[bytes]:
    """The next entries that it reads."""
    found: list[bytes] = []
    while len(found) < count:
        found += [entry.data for entry in await read_entries(cursor, min(step, count - len(found)), MANY_BYTES)]
        if pause is not None:
            await pause()
    return found


@pytest.mark.parametrize("count", [2, 10])
def test_cursors_that_catch_up_side_by_side_read_each_entry_once(in_world, count):
    async def scenario(w):
        wanted = payloads()
        ml = await w.cold(wanted)
        cursors = [await ml.open_cursor(f"s{number}", initial=EARLIEST) for number in range(count)]
        found = await asyncio.gather(*(catch_up(cursor, COUNT, 100) for cursor in cursors))
        assert all(each == wanted for each in found)
        assert w.factory.cache.misses == COUNT
        assert w.factory.cache.hits + w.factory.cache.misses >= count * COUNT
        for cursor in cursors:
            await cursor.close()
        assert w.factory.cache.size_bytes == 0
        assert w.factory.read_budget.held_bytes == 0

    in_world(scenario, CONFIG)


def test_many_cursors_read_each_entry_once_though_they_are_looked_at_rarely(in_world):
    async def scenario(w):
        wanted = payloads(500)
        ml = await w.cold(wanted)
        cursors = [await ml.open_cursor(f"s{number}", initial=EARLIEST) for number in range(5 * LOOKS_PER_READ)]
        found = await asyncio.gather(*(catch_up(cursor, 500, 20) for cursor in cursors))
        assert all(each == wanted for each in found)
        assert w.factory.cache.misses == 500
        for cursor in cursors:
            await cursor.close()
        assert w.factory.cache.size_bytes == 0

    in_world(scenario, CONFIG)


@pytest.mark.uncompiled("counts calls")
def test_many_cursors_are_looked_at_once_for_several_reads(in_world, monkeypatch):
    monkeypatch.setattr(cursor_reads, "READ_AHEAD_BYTES", 2_000)

    async def scenario(w):
        ml = await w.cold(payloads(300))
        cursors = [await ml.open_cursor(f"s{number}", initial=EARLIEST) for number in range(4 * LOOKS_PER_READ)]
        with counted_calls(SharedReads.ask) as asked, counted_calls(Tail.positions) as looked:
            await asyncio.gather(*(catch_up(cursor, 300, 20) for cursor in cursors))
        assert asked() >= 10 * len(cursors)
        assert looked() < asked() / 2

    in_world(scenario, CONFIG)


def test_a_cursor_alone_keeps_nothing_for_others(in_world):
    async def scenario(w):
        wanted = payloads()
        ml = await w.cold(wanted)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        assert await catch_up(cursor, COUNT, 100) == wanted
        assert w.factory.cache.misses == COUNT
        assert not ml.tail.behind

    in_world(scenario, CONFIG)


def test_who_lags_a_little_finds_what_was_read_and_who_is_far_behind_reads_for_himself(in_world, monkeypatch):
    monkeypatch.setattr(near_readers, "NEAR_ENTRIES", NEAR)

    async def scenario(w):
        wanted = payloads()
        ml = await w.cold(wanted)
        first, second, far = [await ml.open_cursor(name, initial=EARLIEST) for name in ("first", "second", "far")]
        for each, start in ((first, NEAR + 600), (second, NEAR + 500)):
            await each.reset(ml.ledgers.position_at(start))
        one, other, third = await asyncio.gather(
            catch_up(first, 1_000, 100), catch_up(second, 1_000, 50), catch_up(far, 100, 100)
        )
        assert one == wanted[NEAR + 600 : NEAR + 1_600]
        assert other == wanted[NEAR + 500 : NEAR + 1_500]
        assert third == wanted[:100]
        # Of the first 1,100 entries from where the second began none was read twice.
        assert w.factory.cache.misses <= 1_100 + 2_000

    in_world(scenario, ManagedLedgerConfig(cache_size_mb=4))


def test_what_one_could_not_read_is_tried_by_the_others_and_told_to_each(in_world):
    async def scenario(w):
        wanted = payloads(500)
        ml = await w.cold(wanted)
        cursors = [await ml.open_cursor(f"s{number}", initial=EARLIEST) for number in range(3)]
        w.bookie.read_error = StorageError("not now")
        told = await asyncio.gather(*(read_entries(cursor, 10) for cursor in cursors), return_exceptions=True)
        assert [str(each) for each in told] == [str(told[0])] * 3
        assert all(isinstance(each, StorageError) for each in told)
        w.bookie.read_error = None
        found = await asyncio.gather(*(catch_up(cursor, 500, 50) for cursor in cursors))
        assert all(each == wanted for each in found)

    in_world(scenario, CONFIG)


def test_who_waits_for_anothers_read_gets_it_though_that_one_is_closed_meanwhile(in_world):
    async def scenario(w):
        wanted = payloads(500)
        ml = await w.cold(wanted)
        first, second, third = [await ml.open_cursor(f"s{number}", initial=EARLIEST) for number in range(3)]
        w.bookie.holds_replies = True
        reads = [asyncio.ensure_future(read_entries(cursor, 10)) for cursor in (first, second, third)]
        await w.world.sleep(0.01)
        await first.close()
        await second.close()
        w.bookie.release()
        told = await asyncio.gather(*reads, return_exceptions=True)
        assert [type(each) for each in told[:2]] == [LedgerClosedError] * 2
        assert [entry.data for entry in told[2]] == wanted[:10]
        assert w.factory.read_budget.held_bytes == 0

    in_world(scenario, CONFIG)


def test_what_is_kept_goes_with_time_when_nobody_comes_for_it(in_world):
    async def scenario(w):
        ml = await w.cold(payloads())
        first, second = [await ml.open_cursor(name, initial=EARLIEST) for name in ("first", "second")]
        await read_entries(second, 1, MANY_BYTES)
        await catch_up(first, COUNT, 100)
        assert 0 < sum(each.size_bytes for each in ml.tail.behind) <= w.factory.cache.budget_bytes // 4
        for cursor in (first, second):
            cursor.reading.rewind()
        await w.world.sleep(3 * w.factory.config.cache_eviction_ms / 1000)
        assert w.factory.cache.size_bytes == 0
        await ml.close()
        assert not ml.tail.behind

    # A quarter of its cache holds less than half of the entries.
    in_world(scenario, ManagedLedgerConfig(cache_size_mb=1))


@pytest.mark.parametrize("seed", sampled("cursors that share reads", range(12), 3))
def test_every_cursor_gets_every_entry_once_whatever_the_others_do(in_world, seed):
    async def scenario(w):
        drawn = random.Random(seed)
        wanted = payloads(drawn.randrange(200, COUNT), drawn.choice([50, 2_000]))
        ml = await w.cold(wanted)
        cursors = [await ml.open_cursor(f"s{number}", initial=EARLIEST) for number in range(drawn.randrange(2, 6))]

        async def read(cursor) -> None:
            async def pause() -> None:
                if drawn.random() < 0.1:
                    await w.world.sleep(drawn.choice([0.001, 0.05, 2]))

            position = marked = 0
            while position < len(wanted):
                step = drawn.choice([1, 30, 400])
                entries = await read_entries(cursor, step, drawn.choice([3_000, MANY_BYTES]))
                assert [each.data for each in entries] == wanted[position : position + len(entries)]
                position += len(entries)
                if drawn.random() < 0.03 and position < len(wanted):
                    # Back to what is acknowledged: all behind it comes again.
                    marked = max(marked, drawn.randrange(position))
                    if marked:
                        await acknowledge_cumulative(cursor, ml.ledgers.position_at(marked - 1))
                    cursor.reading.rewind()
                    position = marked
                await pause()

        await asyncio.gather(*map(read, cursors))
        for cursor in cursors:
            await cursor.close()
        assert w.factory.cache.size_bytes == 0
        assert w.factory.read_budget.held_bytes == 0

    in_world(scenario, CONFIG)
