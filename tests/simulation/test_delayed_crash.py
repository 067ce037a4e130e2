"""A crash at any step of saving the delayed index: nothing is lost, early, or given twice."""

from __future__ import annotations

import os

import pytest

from geminga.broker.core.delayed import crash_points
from geminga.sim import SimWorld, run_seeds
from support.house.weekly_sample import of_week, run_week, share
from support.stories.delayed_crash import DelayedStory, delayed_story

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "12"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "500"))


def test_delayed_index_crash_at_any_step_delivers_everything_in_its_bounds() -> None:
    run_week(delayed_story, range(500), least=SEEDS)


def test_delayed_index_that_goes_before_the_data_is_caught() -> None:
    async def defective(world: SimWorld) -> None:
        await DelayedStory(world, index_first=True).run()

    assert run_seeds(defective, range(20), failures_max=1).failures, "20 seeds did not notice"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_delayed_index_crash_points_over_many_seeds_are_all_hit(capsys: pytest.CaptureFixture[str]) -> None:
    report = run_seeds(delayed_story, of_week(range(10_000, 10_000 + SEEDS_LONG)))
    with capsys.disabled():
        print("\n" + report.table())
    report.check(hits_min=share(20), labels=crash_points.ALL)
