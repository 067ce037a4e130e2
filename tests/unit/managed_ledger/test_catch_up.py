"""Catching up over entries of very different sizes: what is read is passed on, and many together hold little."""

from __future__ import annotations

import pytest

from geminga.bookkeeper import MemoryBookie
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.cursor.cursor_reads import READ_AHEAD_BYTES
from geminga.model.errors import LedgerClosedError
from geminga.model.position import EARLIEST
from support.worlds.ledger_world import append, read_entries

MEBIBYTE = 1024 * 1024
TINY = 100
HUGE = 480 * 1024
#: A tenth of what a dispatcher asks for, as all sizes here are.
READ_BYTES = 512 * 1024
#: No tail cache to speak of: everything comes from the bookie.
CONFIG = ManagedLedgerConfig(cache_size_mb=1)


class MeasuringBookie(MemoryBookie):
    """Counts the bytes of entries given to readers, and of those it was asked for and has not given yet."""

    def __init__(self) -> None:
        super().__init__()
        self.given_bytes = 0
        self.under_way_bytes = 0
        self.under_way_bytes_max = 0

    def read_entries(self, ledger_id, entry_ids, done, **more) -> None:
        def give(results) -> None:
            size_bytes = sum(len(result) for result in results)
            self.given_bytes += size_bytes
            self.under_way_bytes -= size_bytes
            done(results)

        results: list[list[bytes]] = []
        super().read_entries(ledger_id, entry_ids, results.append, **more)
        super()._reply(lambda: give(results[0]))
        entries = self._ledgers[ledger_id].entries
        sizes = [len(entries[entry_id]) for entry_id in entry_ids]
        limit = more.get("bytes_max")
        while limit is not None and len(sizes) > 1 and sum(sizes) > limit:
            sizes.pop()
        self.under_way_bytes += sum(sizes)
        self.under_way_bytes_max = max(self.under_way_bytes_max, self.under_way_bytes)


def pattern(name: str) -> list[bytes]:
    if name == "tiny then huge":
        return [b"t" * TINY] * 20_000 + [b"H" * HUGE] * 30
    if name == "huge then tiny":
        return [b"H" * HUGE] * 30 + [b"t" * TINY] * 20_000
    return [b"H" * HUGE, b"t" * TINY] * 30


async def caught_up(cursor, entries_max: int) -> list[bytes]:
    found: list[bytes] = []
    while entries := await read_entries(cursor, entries_max, READ_BYTES):
        assert len(entries) <= entries_max
        assert len(entries) == 1 or sum(len(entry.data) for entry in entries) <= READ_BYTES
        found += [entry.data for entry in entries]
    return found


@pytest.mark.parametrize("name", ["tiny then huge", "huge then tiny", "alternating"])
@pytest.mark.parametrize("entries_max", [100, 1])
def test_catch_up_reads_little_more_than_it_delivers(in_world, name, entries_max):
    async def scenario(w):
        w.bookie = MeasuringBookie()
        w.new_process()
        ml = await w.open()
        payloads = pattern(name)
        await append(ml, payloads)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        assert await caught_up(cursor, entries_max) == payloads
        delivered = sum(map(len, payloads)) + 36 * len(payloads)
        assert w.bookie.given_bytes < 1.2 * delivered
        assert w.bookie.under_way_bytes_max <= READ_BYTES + READ_AHEAD_BYTES
        assert w.factory.read_budget.held_bytes == 0

    in_world(scenario, CONFIG)


def test_subscriptions_catching_up_together_hold_no_more_than_the_budget(in_world):
    async def scenario(w):
        w.bookie = MeasuringBookie()
        w.new_process(ManagedLedgerConfig(cache_size_mb=1, reads_in_flight_mb=2))
        w.factory.entry_bytes_max = HUGE + 1000
        ml = await w.open()
        await append(ml, pattern("tiny then huge"))
        done: list[object] = []
        left = {i: await ml.open_cursor(f"s{i}", initial=EARLIEST) for i in range(20)}
        rounds = 0
        while left:
            rounds += 1
            for i, cursor in left.items():
                cursor.reading.read_entries(100, READ_BYTES, lambda result, i=i: done.append((i, len(result))))
            while len(done) < len(left):
                await w.world.sleep(0.001)
            # Everybody was served: none waits for others to be through.
            left = {i: left[i] for i, count in done if count}
            done.clear()
        assert rounds > 30
        assert w.bookie.under_way_bytes_max <= 2 * MEBIBYTE + 1000 * 36
        assert w.factory.read_budget.held_bytes == w.factory.read_budget.waiting_count == 0

    in_world(scenario)


def test_read_that_waits_for_its_turn_ends_with_its_cursor_and_leaves_the_budget(in_world):
    async def scenario(w):
        w.new_process(ManagedLedgerConfig(cache_size_mb=1, reads_in_flight_mb=1, catch_up_share=1.0))
        w.factory.entry_bytes_max = MEBIBYTE
        ml = await w.open()
        await append(ml, [b"H" * HUGE] * 8)
        first, second, third = [await ml.open_cursor(name, initial=EARLIEST) for name in "abc"]
        w.bookie.holds_replies = True
        results: dict[str, object] = {}
        for cursor in (first, second, third):
            cursor.reading.read_entries(4, MEBIBYTE, lambda result, name=cursor.name: results.update({name: result}))
        assert w.bookie.read_calls == 1
        assert w.factory.read_budget.waiting_count == 2
        await second.close()
        assert isinstance(results.pop("b"), LedgerClosedError)
        assert w.factory.read_budget.waiting_count == 1
        await first.close()  # its read is under way: what comes of it is dropped
        w.bookie.release()
        await w.world.sleep(0.1)
        assert isinstance(results["a"], LedgerClosedError)
        assert len(results["c"]) == 2
        assert w.factory.read_budget.held_bytes == 0

    in_world(scenario)


def test_failed_read_gives_its_bytes_back(in_world):
    async def scenario(w):
        ml = await w.open()
        await append(ml, [b"H" * HUGE] * 4)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        w.bookie.read_error = LedgerClosedError("not now")
        with pytest.raises(LedgerClosedError):
            await read_entries(cursor)
        assert w.factory.read_budget.held_bytes == 0

    in_world(scenario, CONFIG)


def test_positions_are_read_as_far_as_the_bytes_go(in_world):
    async def scenario(w):
        ml = await w.open()
        await append(ml, [b"t" * TINY, b"H" * HUGE] * 10)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        positions = [entry.position for entry in await read_entries(cursor, 20, 100 * MEBIBYTE)]
        wanted = [*positions[:8], *positions[10:]]
        found: list = []
        while wanted:
            entries, behind = await ml.reader.read_some(wanted, READ_BYTES)
            assert entries
            assert sum(len(entry.data) for entry in entries) <= READ_BYTES + HUGE
            assert [entry.position for entry in entries] + behind == wanted
            found += entries
            wanted = behind
        assert [entry.position for entry in found] == [*positions[:8], *positions[10:]]

    in_world(scenario, ManagedLedgerConfig(cache_size_mb=0))
