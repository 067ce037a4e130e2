"""A crash between any two steps of an offload: nothing is lost, nothing is left over."""

from __future__ import annotations

import pytest

from support.house.weekly_sample import SeedCheck, few_and_many, few_seeds, many_seeds
from support.stories.lake_crash import POINTS, lake_story

pytestmark = pytest.mark.usefixtures("no_log")


@few_and_many(range(1000), least=few_seeds(16), many=many_seeds(1000), hits_min=20, timeout_s=1800)
def test_offload_crash_at_any_step_loses_nothing_and_leaves_nothing(check: SeedCheck) -> None:
    check(lake_story, [point for point in POINTS if not point.startswith("ml.delete")])
