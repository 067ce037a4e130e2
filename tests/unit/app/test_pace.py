"""The pace of a backup holds over all that copy for it."""

from __future__ import annotations

import asyncio

from geminga import sim
from geminga.app.storage.pace import Pace


def took(bytes_per_s: int, sizes: list[int], workers: int) -> float:
    """Seconds that ``workers`` need who copy ``sizes`` each."""

    async def scenario(world: sim.SimWorld) -> float:
        async def copy(node: sim.SimNode) -> float:
            clock = node.runtime.clock
            pace, begun = Pace(clock, bytes_per_s), clock.monotonic()

            async def work() -> None:
                for size in sizes:
                    await pace.copied(size)

            await asyncio.gather(*(work() for _ in range(workers)))
            return clock.monotonic() - begun

        return await world.node("copier").run(copy)

    return sim.run(scenario, seed=1)


def test_all_workers_together_copy_as_much_a_second_as_is_allowed() -> None:
    for workers in (1, 4):
        seconds = took(1_000_000, [500_000] * 4, workers)
        assert 2.0 * workers <= seconds < 2.0 * workers + 0.1


def test_one_large_part_is_paid_for_by_who_comes_next_and_no_limit_holds_nobody_back() -> None:
    assert 7.0 <= took(1_000, [6_000, 1_000], 1) < 7.1
    assert took(0, [1_000_000_000] * 3, 2) == 0.0
