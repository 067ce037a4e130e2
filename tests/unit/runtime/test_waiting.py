"""Waiting for time and for turns, on the loop's own timer."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

from geminga import sim
from geminga.model.errors import InvariantError, MetadataError, StorageError
from geminga.runtime import (
    AskedTogether,
    Bell,
    KeyedLocks,
    all_ended,
    answer_of,
    ended_in_turns,
    next_turn,
    set_within,
    settle,
    spawn,
)
from geminga.runtime.waiting import ASKED_BEFORE_S, wait_ms


def test_time_is_the_loops_own() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await wait_ms(1500)
        assert loop.time() - start_s == 1.5
        given_up = spawn(wait_ms(1_000_000), name="given up")
        await next_turn()
        given_up.cancel()
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        assert loop.time() - start_s == 1.5

    sim.run(scenario, seed=1)


def test_turn_lets_run_what_was_ready_and_takes_no_time() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        ran: list[int] = []
        for number in range(3):
            loop.call_soon(ran.append, number)
        await next_turn()
        assert ran == [0, 1, 2]
        assert loop.time() == start_s

    sim.run(scenario, seed=1)


def test_answer_comes_within_the_call_or_later_and_an_error_is_raised() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        loop = asyncio.get_running_loop()
        assert await answer_of(lambda done: done(7)) == 7
        assert await answer_of(lambda done: loop.call_soon(done, 8)) == 8
        with pytest.raises(StorageError, match="no"):
            await answer_of(lambda done: done(StorageError("no")))

    sim.run(scenario)


def test_those_that_are_begun_together_have_all_ended_when_the_first_error_is_raised() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        ended: list[int] = []

        async def one(number: int) -> int:
            await wait_ms(1000 - number)
            ended.append(number)
            if number in (2, 3):
                raise StorageError(f"{number}")
            return number

        assert await all_ended(one(number) for number in range(2)) == [0, 1]
        with pytest.raises(StorageError, match="2"):
            await all_ended(map(one, range(5)))
        assert ended == [1, 0, 4, 3, 2, 1, 0]

    sim.run(scenario)


def test_some_are_begun_in_each_turn_and_all_that_became_of_them_is_told_in_their_order() -> None:
    async def scenario(_: sim.SimWorld) -> None:
        turns = 0
        begun: list[int] = []

        async def count() -> None:
            nonlocal turns
            while True:
                await next_turn()
                turns += 1

        async def one(number: int) -> int:
            begun.append(turns)
            for _ in range(10 - number):
                await next_turn()
            if number == 4:
                raise StorageError("4")
            return number

        counting = spawn(count(), name="turns")
        found = await ended_in_turns(map(one, range(8)), 3)
        counting.cancel()
        assert isinstance(found.pop(4), StorageError)
        assert found == [0, 1, 2, 3, 5, 6, 7]
        assert [count for _, count in sorted(Counter(begun).items())] == [3, 3, 2]
        assert await ended_in_turns((), 3) == []

    sim.run(scenario)


def test_a_future_is_settled_once_and_one_that_was_called_off_never() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        good, bad, gone = (asyncio.get_running_loop().create_future() for _ in range(3))
        gone.cancel()
        settle(good, 7, None)
        for future in (good, bad, gone):
            settle(future, None, StorageError("no"))
        assert await good == 7
        assert gone.cancelled()
        with pytest.raises(StorageError, match="no"):
            await bad

    sim.run(scenario)


def test_an_event_is_waited_for_as_long_as_was_said() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        start_s = loop.time()
        assert not await set_within(event, 1.5)
        assert loop.time() - start_s == 1.5
        loop.call_later(1, event.set)
        assert await set_within(event, 1.5)
        assert loop.time() - start_s == 2.5

    sim.run(scenario)


def test_answer_for_who_was_called_off_goes_unheard() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        asked = []
        waiting = spawn(answer_of(asked.append), name="waiting")
        await next_turn()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        asked[0](1)

    sim.run(scenario)


# ---- together


class Store:
    """A value that changes, and how often it was read."""

    def __init__(self) -> None:
        self.value = 0
        self.reads = 0
        self.error: MetadataError | None = None

    async def read(self) -> int:
        self.reads += 1
        found = self.value
        await next_turn()
        if self.error is not None:
            raise self.error
        return found


def test_who_asks_in_one_turn_shares_the_answer_and_keys_do_not():
    async def main() -> None:
        asked, store, other = AskedTogether[str, int](), Store(), Store()
        other.value = 7
        told = await asyncio.gather(
            *(asked.ask("a", store.read) for _ in range(5)), *(asked.ask("b", other.read) for _ in range(2))
        )
        assert told == [0] * 5 + [7] * 2
        assert (store.reads, other.reads) == (1, 1)
        assert not asked._begun_next

    asyncio.run(main())


def test_a_bell_lets_on_who_waits_and_who_comes_until_it_is_silenced():
    async def main() -> None:
        bell = Bell()
        waits = spawn(bell.wait(), name="waits")
        await next_turn()
        with pytest.raises(InvariantError, match="two wait"):
            await bell.wait()
        assert not waits.done()
        bell.ring()
        # As it rang, whatever comes before he runs.
        bell.silence()
        await waits
        bell.ring()
        bell.ring()
        await bell.wait()
        bell.silence()
        given_up = spawn(bell.wait(), name="given up")
        await next_turn()
        given_up.cancel()
        # The next one may come before that one has gone.
        waits = spawn(bell.wait(), name="waits")
        await asyncio.wait([given_up])
        await next_turn()
        assert not waits.done()
        bell.ring()
        await waits

    asyncio.run(main())


def test_who_asks_while_it_is_read_gets_an_answer_of_his_own():
    async def main() -> None:
        asked, store = AskedTogether[str, int](), Store()
        first = asyncio.ensure_future(asked.ask("a", store.read))
        while not store.reads:
            await next_turn()
        # What changed before somebody asks, he is told.
        store.value = 1
        assert await asked.ask("a", store.read) == 1
        assert await first == 0
        assert store.reads == 2

    asyncio.run(main())


def test_those_who_ask_while_it_is_read_share_the_next_read():
    async def main() -> None:
        asked, store = AskedTogether[str, int](), Store()

        async def one_after_the_other(count: int) -> None:
            for _ in range(count):
                # What is told is never older than the question.
                before = store.value
                assert await asked.ask("a", store.read) >= before
                store.value += 1

        await asyncio.gather(*(one_after_the_other(10) for _ in range(20)))
        assert store.reads <= 2 * 10
        assert not asked._begun_next
        assert not asked._under_way

    asyncio.run(main())


def test_a_read_that_hangs_is_not_waited_for_by_those_behind_it_for_long():
    async def main(world: sim.SimWorld) -> None:
        asked, store, never = AskedTogether[str, int](), Store(), asyncio.Event()
        hanging = asyncio.ensure_future(asked.ask("a", never.wait))
        await world.sleep(0.1)
        began = world.loop.time()
        assert await asked.ask("a", store.read) == 0
        assert world.loop.time() - began == pytest.approx(ASKED_BEFORE_S)
        # Nor is it, when it ends, taken for the one that is under way by then.
        behind = asyncio.ensure_future(asked.ask("a", store.read))
        never.set()
        assert await hanging
        assert await behind == 0
        assert not asked._under_way

    sim.run(main)


def test_an_error_is_everybodys_and_one_who_goes_away_takes_nothing_from_the_others():
    async def main() -> None:
        asked, store = AskedTogether[str, int](), Store()
        gone, stays = (asyncio.ensure_future(asked.ask("a", store.read)) for _ in range(2))
        await next_turn()
        gone.cancel()
        assert await stays == 0
        store.error = MetadataError("away")
        for told in await asyncio.gather(*(asked.ask("a", store.read) for _ in range(3)), return_exceptions=True):
            assert told is store.error
        with pytest.raises(MetadataError, match="away"):
            await asked.ask("a", store.read)
        assert store.reads == 3

    asyncio.run(main())


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_key_is_had_in_turn_and_forgotten_when_nobody_wants_it(at_once: int) -> None:
    async def main() -> None:
        locks = KeyedLocks(partial(asyncio.Semaphore, 2)) if at_once == 2 else KeyedLocks()
        go_on, told = asyncio.Event(), list[str]()

        async def use(key: str, name: str) -> None:
            async with locks.of(key):
                told.append(name)
                await go_on.wait()

        users = [asyncio.ensure_future(use(*who)) for who in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"))]
        await next_turn()
        assert told == [*"123"[:at_once], "4"]
        assert (len(locks), "a" in locks, "c" in locks) == (2, True, False)
        await locks.until_free(lambda key: key == "c")
        gone = users.pop(2)
        gone.cancel()
        free = asyncio.ensure_future(locks.until_free(lambda key: key == "a"))
        await next_turn()
        assert not free.done() or at_once == 2
        go_on.set()
        await asyncio.gather(*users, free)
        assert gone.cancelled()
        assert sorted(told) == ["1", "2", "4"]
        assert not len(locks)

    asyncio.run(main())
