"""A crash at any step of saving the delayed index: nothing is lost, early, or given twice."""

from __future__ import annotations

import os

from geminga.broker.core.delayed import crash_points
from geminga.sim import SimWorld, run_seeds
from support.house.weekly_sample import SeedCheck, few_and_many
from support.stories.delayed_crash import DelayedStory, delayed_story

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "12"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "500"))


@few_and_many(range(500), least=SEEDS, many=range(10_000, 10_000 + SEEDS_LONG), hits_min=20, timeout_s=1800)
def test_delayed_index_crash_at_any_step_delivers_everything_in_its_bounds(check: SeedCheck) -> None:
    check(delayed_story, crash_points.ALL)


def test_delayed_index_that_goes_before_the_data_is_caught() -> None:
    async def defective(world: SimWorld) -> None:
        await DelayedStory(world, index_first=True).run()

    assert run_seeds(defective, range(20), failures_max=1).failures, "20 seeds did not notice"
