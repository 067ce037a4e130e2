"""Turns of those who catch up: short ones, one after the other, and time for others between them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.rules.catch_up_share import FLOW_S, QUIET_TURN_S, TURN_S
from geminga.managed_ledger.shared.catch_up_turns import BATCHES_MAX, CatchUpTurns
from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST
from geminga.runtime import next_turn
from geminga.sim import run
from support.house.stepping_clock import WorkClock
from support.worlds.ledger_world import append


class Reader:
    """Has ``batches`` to hand on, each of which takes ``batch_s``."""

    def __init__(self, turns: CatchUpTurns, clock: WorkClock, batches: int, batch_s: float) -> None:
        self.turns, self.clock = turns, clock
        self.left, self.batch_s = batches, batch_s
        self.ended_s = 0.0
        #: Batches by turn of the loop.
        self.by_turn: dict[float, int] = {}
        self.loop_turn = 0

    def start(self) -> None:
        while self.left and (seconds := self.turns.begin(self)):
            self.hand_on(seconds)

    def go(self, seconds: float) -> None:
        self.hand_on(seconds)
        self.start()

    def hand_on(self, seconds: float) -> None:
        assert seconds > 0
        began_s = self.turns.began_s()
        self.clock.worked_s += self.batch_s
        self.left -= 1
        self.ended_s = self.clock.monotonic()
        self.turns.ended(began_s)


def in_turns(story) -> None:
    run(story, seed=1)


async def caught_up(world, *readers: Reader) -> None:
    for reader in readers:
        reader.start()
    while any(reader.left for reader in readers):
        await world.sleep(0.001)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_reader_has_its_share_of_the_time_while_others_publish(share):
    async def story(world):
        clock = WorkClock()
        turns = CatchUpTurns(clock, share)
        reader = Reader(turns, clock, 2000, TURN_S / 2)
        began_s = clock.monotonic()
        reader.start()
        while reader.left:
            turns.published()
            await world.sleep(0.0005)
        took_s = reader.ended_s - began_s
        assert 0.8 * share <= turns.seconds / took_s <= 1.05 * share

    in_turns(story)


def test_reader_has_all_the_time_while_nobody_publishes():
    async def story(world):
        clock = WorkClock()
        turns = CatchUpTurns(clock, 0.1)
        turns.published()
        await world.sleep(FLOW_S * 1.1)
        reader = Reader(turns, clock, 1000, TURN_S)
        began_s = clock.monotonic()
        await caught_up(world, reader)
        assert reader.ended_s - began_s == pytest.approx(1000 * TURN_S)

    in_turns(story)


def test_others_have_the_loop_between_turns():
    async def story(world):
        clock = WorkClock()
        turns = CatchUpTurns(clock, 1.0)
        reader = Reader(turns, clock, 1000, QUIET_TURN_S / 10)
        reader.start()
        seen = [reader.left]
        while reader.left:
            await next_turn()
            seen.append(reader.left)
        assert max(before - after for before, after in pairwise(seen)) <= 2 * 11, (
            "one turn is over between two looks, another may be"
        )

    in_turns(story)


def test_turn_ends_where_no_time_passes():
    async def story(world):
        clock = WorkClock()
        turns = CatchUpTurns(clock, 1.0)
        reader = Reader(turns, clock, 1000, 0.0)
        reader.start()
        assert reader.left == 1000 - BATCHES_MAX
        await caught_up(world)
        while reader.left:
            await next_turn()

    in_turns(story)


def test_many_who_catch_up_take_turns():
    async def story(world):
        clock = WorkClock()
        turns = CatchUpTurns(clock, 0.5)
        readers = [Reader(turns, clock, 200, TURN_S) for _ in range(20)]
        for reader in readers:
            reader.start()
        while any(reader.left for reader in readers):
            turns.published()
            await world.sleep(0.0005)
            # Nobody is more than a turn, and what the first had before others came, ahead.
            left = [reader.left for reader in readers]
            assert max(left) - min(left) <= 2 + QUIET_TURN_S / TURN_S

    in_turns(story)


def test_who_leaves_is_not_called():
    async def story(world):
        clock = WorkClock()
        turns = CatchUpTurns(clock, 0.5)
        turns.published()
        first, second = (Reader(turns, clock, 10, QUIET_TURN_S) for _ in range(2))
        first.start()
        second.start()
        assert turns.waiting_count == 2
        turns.leave(second)
        before = second.left
        for _ in range(100):
            turns.published()
            await world.sleep(0.001)
        assert first.left == 0
        assert second.left == before
        turns.leave(second)
        assert turns.waiting_count == 0

    in_turns(story)


def test_reader_that_breaks_does_not_keep_others_waiting():
    async def story(world):
        clock = WorkClock()
        turns = CatchUpTurns(clock, 0.5)
        turns.published()

        class Broken(Reader):
            def go(self, seconds: float) -> None:
                raise RuntimeError("broken")

        full, broken, reader = (kind(turns, clock, 10, QUIET_TURN_S) for kind in (Reader, Broken, Reader))
        errors: list[dict] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        for each in (full, broken, reader):
            each.start()
        for _ in range(200):
            await world.sleep(0.001)
        assert len(errors) == 1
        assert full.left == reader.left == 0

    in_turns(story)


def test_close_ends_the_timer():
    async def story(world):
        clock = WorkClock()
        turns = CatchUpTurns(clock, 0.5)
        turns.published()
        reader = Reader(turns, clock, 10, QUIET_TURN_S)
        reader.start()
        left = reader.left
        turns.close()
        await world.sleep(1)
        assert reader.left == left

    in_turns(story)


# ---- the cursor in its turns


def test_cursor_hands_on_everything_in_order_while_others_publish(in_world):
    async def scenario(w):
        ml = await w.open()
        wanted = [b"%05d" % number + bytes(1000) for number in range(3000)]
        await append(ml, wanted)
        ml = await w.reopen()
        other = await w.factory.open("t/n/persistent/other")
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        found: list[bytes] = []

        def done(entries) -> None:
            found.extend(entry.data for entry in entries)
            if entries:
                cursor.reading.read_entries(100, 1 << 20, done)

        cursor.reading.read_entries(100, 1 << 20, done)
        while len(found) < len(wanted):
            await append(other, [b"live"])
            await w.world.sleep(0.0005)
            assert w.factory.cache.size_bytes <= 3 << 20
        assert found == wanted
        await cursor.close()
        assert w.factory.cache.size_bytes == 0
        assert w.factory.read_budget.held_bytes == 0

    in_world(scenario, ManagedLedgerConfig(cache_size_mb=4))


def test_cursor_that_is_closed_leaves_the_line(in_world):
    async def scenario(w):
        ml = await w.open()
        await append(ml, [b"%05d" % number + bytes(1000) for number in range(3000)])
        ml = await w.reopen()
        other = await w.factory.open("t/n/persistent/other")
        cursor = await ml.open_cursor("s", initial=EARLIEST)

        def done(entries) -> None:
            if not isinstance(entries, StorageError):
                cursor.reading.read_entries(100, 1 << 20, done)

        cursor.reading.read_entries(100, 1 << 20, done)
        while not w.factory.catch_up.waiting_count:
            await append(other, [b"live"])
        closing = asyncio.ensure_future(cursor.close())
        await next_turn()
        assert w.factory.catch_up.waiting_count == 0
        await closing

    in_world(scenario, ManagedLedgerConfig(cache_size_mb=4))


def test_publisher_that_waits_for_a_slow_disk_still_publishes(in_world):
    async def scenario(w):
        ml = await w.open()
        await append(ml, [b"first"])
        w.bookie.holds_replies = True
        results: list = []
        ml.append([b"second"], results.append)
        await w.world.sleep(FLOW_S * 2)
        assert not w.factory.catch_up.is_limited
        w.bookie.release()
        while not results:
            await next_turn()
        assert w.factory.catch_up.is_limited

    in_world(scenario)


def test_reader_at_the_tail_asks_for_no_turn(in_world):
    async def scenario(w):
        ml = await w.open()
        cursor = await ml.open_cursor("s")
        got: list = []
        cursor.reading.read_entries(10, 1000, got.append)
        await append(ml, [b"a", b"b"])
        cursor.reading.read_entries(10, 1000, got.append)
        assert [entry.data for entry in got[-1]] == [b"a", b"b"]

    in_world(scenario)
