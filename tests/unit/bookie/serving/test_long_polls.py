"""Long polls: woken once, by growth or by time; dropped with their connection; bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from geminga import sim
from geminga.bookie.serving import limits
from geminga.bookie.serving.long_polls import LongPolls
from geminga.sim import SimWorld


def run(main: Callable[[SimWorld, LongPolls, list[str]], Awaitable[None]]) -> None:
    async def scenario(world: SimWorld) -> None:
        await main(world, LongPolls(), [])

    sim.run(scenario, seed=1)


def test_growth_wakes_those_below_it_once():
    async def main(world: SimWorld, polls: LongPolls, woken: list[str]) -> None:
        for name, ledger_id, previous in (("a", 1, 5), ("b", 1, 9), ("c", 2, 5)):
            assert polls.wait(ledger_id, previous, 1000, None, lambda name=name: woken.append(name)) is not None
        polls.grew(1, 5)
        assert woken == []
        polls.grew(1, 7)
        polls.grew(1, 7)
        assert (woken, len(polls), polls.is_awaited) == (["a"], 2, True)
        await world.sleep(2)
        assert (sorted(woken), polls.is_awaited) == (["a", "b", "c"], False)

    run(main)


def test_time_is_bounded_and_begins_at_nothing():
    async def main(world: SimWorld, polls: LongPolls, woken: list[str]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        polls.wait(1, 5, -7, None, lambda: woken.append(f"now {loop.time() - start:.0f}"))
        polls.wait(1, 5, 1 << 62, None, lambda: woken.append(f"late {loop.time() - start:.0f}"))
        await world.sleep(limits.LONG_POLL_MS_MAX / 1000 + 1)
        assert woken == ["now 0", f"late {limits.LONG_POLL_MS_MAX // 1000}"]

    run(main)


def test_who_goes_or_is_answered_otherwise_is_not_woken():
    async def main(world: SimWorld, polls: LongPolls, woken: list[str]) -> None:
        mine, other = object(), object()
        poll = polls.wait(1, 5, 10, mine, lambda: woken.append("first"))
        polls.wait(2, 5, 10, mine, lambda: woken.append("second"))
        polls.wait(2, 5, 10, other, lambda: woken.append("other"))
        assert poll is not None
        assert polls.drop(poll)
        assert not polls.drop(poll)
        assert polls.forget(mine) == 1
        await world.sleep(1)
        assert woken == ["other"]

    run(main)


def test_one_more_than_may_wait_is_refused(monkeypatch):
    monkeypatch.setattr("geminga.bookie.serving.long_polls.LONG_POLLS_MAX", 2)

    async def main(world: SimWorld, polls: LongPolls, woken: list[str]) -> None:
        waiting = [polls.wait(ledger_id, 0, 10, None, lambda: None) is not None for ledger_id in range(3)]
        assert waiting == [True, True, False]

    run(main)


def test_one_connection_does_not_take_all_places():
    async def main(world: SimWorld, polls: LongPolls, woken: list[str]) -> None:
        greedy, other = object(), object()
        taken = 0
        while taken <= limits.LONG_POLLS_MAX and polls.wait(taken, 5, 1000, greedy, lambda: None) is not None:
            taken += 1
        poll = polls.wait(1, 5, 1000, other, lambda: woken.append("other"))
        assert poll is not None, f"one has all {taken} places"
        polls.grew(1, 6)
        assert woken == ["other"]
        # What is answered makes room, and so does who goes.
        assert polls.wait(1, 5, 1000, greedy, lambda: None) is not None
        assert polls.wait(1, 5, 1000, greedy, lambda: None) is None
        assert polls.forget(greedy) == taken == len(polls) + taken
        assert polls.forget(other) == 0
        assert polls.wait(1, 5, 1000, greedy, lambda: None) is not None

    run(main)
