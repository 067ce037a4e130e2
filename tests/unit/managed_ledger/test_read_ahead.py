"""Batches of a reader that catches up: while one is handed out the next is on its way, and nothing comes twice."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)

import pytest

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.cursor.cursor_reads import LARGE_ENTRY_BYTES, READ_AHEAD_BYTES, READ_AHEAD_LARGE_BYTES
from geminga.model.errors import LedgerClosedError, StorageError
from geminga.model.position import EARLIEST, Position
from support.house.weekly_sample import sampled
from support.worlds.ledger_world import acknowledge, read_entries

SIZE = 1000
#: Of some batches.
COUNT = 4 * READ_AHEAD_BYTES // SIZE
CONFIG = ManagedLedgerConfig(cache_size_mb=4, max_entries_per_ledger=COUNT // 2 + 7, min_rollover_minutes=0)
MANY_BYTES = 1 << 30


def payloads(count: int = COUNT) -> list[bytes]:
    return [b"%06d" % number + b"." * (SIZE - 6) for number in range(count)]


def data_of(entries) -> list[bytes]:
    return [entry.data for entry in entries]


def test_next_batch_is_on_its_way_while_one_is_handed_out(in_world):
    async def scenario(w):
        wanted = payloads()
        cursor = await (await w.cold(wanted)).open_cursor("s", initial=EARLIEST)
        found = data_of(await read_entries(cursor, 100, MANY_BYTES))
        w.bookie.holds_replies = True
        calls = w.bookie.read_calls
        results: list = []
        reads = 0
        while reads == len(results):
            # Served within the call as long as the batch has something.
            cursor.reading.read_entries(100, MANY_BYTES, results.append)
            reads += 1
            assert w.bookie.read_calls == calls + 1, "the next batch is asked for once, and early"
        assert (100 + 100 * len(results)) * SIZE >= READ_AHEAD_BYTES
        w.bookie.release()
        await w.world.sleep(0.01)
        found += [data for result in results for data in data_of(result)]
        waits = 0
        while found != wanted:
            results.clear()
            cursor.reading.read_entries(100, MANY_BYTES, results.append)
            waits += not results
            await w.world.sleep(0.001)  # the bookie answers meanwhile
            found += data_of(results[0])
            assert w.factory.cache.size_bytes <= 2 * READ_AHEAD_BYTES
        assert waits <= 1, "but for the first batch of the other ledger"
        await cursor.close()
        assert w.factory.cache.size_bytes == 0
        assert w.factory.read_budget.held_bytes == 0

    in_world(scenario, CONFIG)


@pytest.mark.parametrize("cache_mb", [8, 1])
def test_batches_of_large_entries_are_larger_where_the_cache_has_room(in_world, cache_mb):
    count = 4 * READ_AHEAD_LARGE_BYTES // LARGE_ENTRY_BYTES
    batch = READ_AHEAD_LARGE_BYTES if cache_mb > 1 else READ_AHEAD_BYTES

    async def scenario(w):
        wanted = [b"%06d" % number + b"." * (LARGE_ENTRY_BYTES - 6) for number in range(count)]
        cursor = await (await w.cold(wanted)).open_cursor("s", initial=EARLIEST)
        calls = w.bookie.read_calls
        found: list[bytes] = []
        while len(found) < count:
            found += data_of(await read_entries(cursor, 10, MANY_BYTES))
            assert w.factory.cache.size_bytes <= 2 * batch
        assert found == wanted
        batches = count * LARGE_ENTRY_BYTES // batch
        assert batches - 1 <= w.bookie.read_calls - calls <= batches + 1
        await cursor.close()
        assert w.factory.cache.size_bytes == 0

    in_world(scenario, ManagedLedgerConfig(cache_size_mb=cache_mb))


def test_jump_passes_over_what_is_on_its_way(in_world):
    async def scenario(w):
        wanted = payloads()
        cursor = await (await w.cold(wanted)).open_cursor("s", initial=EARLIEST)
        await read_entries(cursor, 100, MANY_BYTES)
        w.bookie.holds_replies = True
        await read_entries(cursor, 100, MANY_BYTES)
        cursor.reading.rewind()
        assert w.factory.cache.size_bytes == 0
        w.bookie.release()
        await w.world.sleep(0.01)
        assert w.factory.cache.size_bytes == 0
        assert data_of(await read_entries(cursor, 100, MANY_BYTES)) == wanted[:100]

    in_world(scenario, CONFIG)


def test_jump_of_a_read_that_waits_for_the_batch_starts_anew(in_world):
    async def scenario(w):
        wanted = payloads()
        cursor = await (await w.cold(wanted)).open_cursor("s", initial=EARLIEST)
        first = await read_entries(cursor, 100, MANY_BYTES)
        w.bookie.holds_replies = True
        results: list = []
        reads = 0
        while reads == len(results):
            cursor.reading.read_entries(100, MANY_BYTES, results.append)
            reads += 1
        cursor.reading.rewind()
        w.bookie.release()
        await w.world.sleep(0.01)
        assert len(results) == reads
        assert results[-1][0].position == first[0].position

    in_world(scenario, CONFIG)


def test_batch_that_fails_is_asked_for_again_by_who_needs_it(in_world):
    async def scenario(w):
        wanted = payloads()
        cursor = await (await w.cold(wanted)).open_cursor("s", initial=EARLIEST)
        found = data_of(await read_entries(cursor, 100, MANY_BYTES))
        w.bookie.read_error = StorageError("not now")
        found += data_of(await read_entries(cursor, 100, MANY_BYTES))
        await w.world.sleep(0.01)
        w.bookie.read_error = None
        while entries := await read_entries(cursor, 100, MANY_BYTES):
            found += data_of(entries)
        assert found == wanted

    in_world(scenario, CONFIG)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_end_with_a_batch_on_its_way_gives_everything_back(in_world, is_awaited):
    async def scenario(w):
        cursor = await (await w.cold(payloads())).open_cursor("s", initial=EARLIEST)
        await read_entries(cursor, 100, MANY_BYTES)
        w.bookie.holds_replies = True
        results: list = []
        reads = 0
        while reads == len(results) and (is_awaited or not reads):
            cursor.reading.read_entries(100, MANY_BYTES, results.append)
            reads += 1
        if is_awaited:
            await cursor.close()
            assert isinstance(results[-1], LedgerClosedError)
        else:
            cursor.reading.deactivate()
        assert len(results) == reads
        w.bookie.release()
        await w.world.sleep(0.01)
        assert len(results) == reads
        assert w.factory.cache.size_bytes == 0
        assert w.factory.read_budget.held_bytes == w.factory.read_budget.waiting_count == 0

    in_world(scenario, CONFIG)


@pytest.mark.parametrize("seed", sampled("read ahead", range(15), 6))
def test_any_reads_acknowledgments_and_jumps_give_what_is_not_acknowledged_in_order(in_world, seed):
    """Against the simplest log there is: a list, and a set of what was acknowledged."""

    async def scenario(w):
        rng = random.Random(seed)
        wanted = [entry[: rng.choice((20, SIZE))] for entry in payloads(1500)]
        cursor = await (await w.cold(wanted)).open_cursor("s", initial=EARLIEST)
        numbers = {entry[:6]: number for number, entry in enumerate(wanted)}
        acked: set[int] = set()
        places: dict[int, Position] = {}
        at = 0
        for _ in range(60):
            w.bookie.holds_replies = rng.random() < 0.5
            results: list = []
            cursor.reading.read_entries(
                rng.choice((1, 10, 100, 700)), rng.choice((50, 40_000, MANY_BYTES)), results.append
            )
            if not results and rng.random() < 0.2:
                cursor.reading.rewind()
                at = 0
            w.bookie.release()
            while not results:
                await w.world.sleep(0.001)
            assert not isinstance(results[0], StorageError)
            left = [number for number in range(at, len(wanted)) if number not in acked]
            found = [numbers[entry.data[:6]] for entry in results[0]]
            assert found == left[: len(found)]
            assert bool(found) == bool(left)
            places.update(zip(found, (entry.position for entry in results[0]), strict=True))
            at = found[-1] + 1 if found else len(wanted)
            if rng.random() < 0.3:
                some = [number for number in places if rng.random() < 0.3]
                acked.update(some)
                assert await acknowledge(cursor, [places[number] for number in some]) is None
            if rng.random() < 0.1 or not found:
                cursor.reading.rewind()
                at = 0
        await cursor.close()
        assert w.factory.cache.size_bytes == 0

    in_world(scenario, CONFIG)
