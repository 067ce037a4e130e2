"""Who gets a lane for an offload when: roots in turns, and none of them all."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from geminga.lake.offload_lanes import OffloadLanes
from geminga.runtime import next_turn
from support.house.waiting import turns


def test_one_root_alone_has_all_lanes_in_the_order_in_which_it_asks() -> None:
    async def story() -> None:
        lanes = OffloadLanes(["a", "b"])
        assert {await lanes.take("r", 1), await lanes.take("r", 1)} == {"a", "b"}
        waiting = [asyncio.ensure_future(lanes.take("r", 1)) for _ in range(2)]
        await turns(3)
        assert not any(one.done() for one in waiting)
        lanes.give("r", "a", 1)
        await turns(3)
        assert [one.done() for one in waiting] == [True, False]
        lanes.give("r", "b", 1)
        assert await waiting[0] == "a"
        assert await waiting[1] == "b"

    asyncio.run(story())


def test_a_root_that_gives_nothing_back_leaves_a_lane_to_the_others() -> None:
    """Two offloads to a mount that hung ended those of all other roots."""

    async def story() -> None:
        lanes = OffloadLanes(["a", "b"])
        await lanes.take("hangs", 2)
        stuck = asyncio.ensure_future(lanes.take("hangs", 2))
        await turns(3)
        assert not stuck.done()
        for _ in range(3):
            lane = await lanes.take("works", 2)
            lanes.give("works", lane, 2)
            await turns(3)
        assert not stuck.done()
        stuck.cancel()

    asyncio.run(story())


def test_roots_that_wait_take_turns() -> None:
    async def story() -> None:
        lanes, got = OffloadLanes(["a"]), []

        async def offload(root: str) -> None:
            lane = await lanes.take(root, 2)
            got.append(root)
            await next_turn()
            lanes.give(root, lane, 2)

        await asyncio.gather(*map(offload, ["r", "r", "r", "s", "s"]))
        assert got == ["r", "r", "s", "r", "s"]

    asyncio.run(story())


def test_who_is_called_off_keeps_no_lane() -> None:
    async def story() -> None:
        lanes = OffloadLanes(["a"])
        lane = await lanes.take("r", 1)
        early, late, last = (asyncio.ensure_future(lanes.take("r", 1)) for _ in range(3))
        await turns(3)
        early.cancel()
        await turns(3)
        lanes.give("r", lane, 1)
        late.cancel()  # it has the lane, and was not told yet
        await turns(3)
        assert late.cancelled()
        assert await last == "a"

    asyncio.run(story())


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from("rst"), st.booleans()), max_size=60))
def test_no_lane_is_lost_or_given_twice(count: int, steps: list[tuple[str, bool]]) -> None:
    async def story() -> None:
        names = [str(number) for number in range(count)]
        lanes = OffloadLanes(names)
        asked: list[tuple[str, asyncio.Future[str]]] = []
        for root, is_taken in steps:
            have = [one for one in asked if one[1].done() and not one[1].cancelled()]
            if is_taken or not asked:
                asked.append((root, asyncio.ensure_future(lanes.take(root, 3))))
            elif have and root != "t":
                asked.remove(have[0])
                lanes.give(have[0][0], have[0][1].result(), 3)
            else:
                root, last = asked.pop()
                if not last.cancel():
                    lanes.give(root, last.result(), 3)
            await turns(3)
            given_out = [one.result() for _, one in asked if one.done()]
            assert len(given_out) == len(set(given_out))
        # All that wait have their turn by and by.
        while asked:
            done = [one for one in asked if one[1].done()]
            assert done
            for one in done:
                asked.remove(one)
                lanes.give(one[0], one[1].result(), 3)
            await turns(3)
        assert sorted([await lanes.take(name, 1) for name in names]) == names

    asyncio.run(story())
