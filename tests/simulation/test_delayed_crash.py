"""A crash at any step of saving the delayed index: nothing is lost, early, or given twice."""

from __future__ import annotations

from geminga.broker.core.delayed import crash_points
from support.house.weekly_sample import SeedCheck, check_noticed, few_and_many, few_seeds, many_seeds
from support.stories.delayed_crash import DelayedStory, delayed_story


@few_and_many(range(500), least=few_seeds(12), many=many_seeds(500), hits_min=20, timeout_s=1800)
def test_delayed_index_crash_at_any_step_delivers_everything_in_its_bounds(check: SeedCheck) -> None:
    check(delayed_story, crash_points.ALL)


def test_delayed_index_that_goes_before_the_data_is_caught() -> None:
    check_noticed(lambda world: DelayedStory(world, index_first=True).run(), 20)
