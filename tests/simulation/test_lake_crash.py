"""A crash between any two steps of an offload: nothing is lost, nothing is left over."""

from __future__ import annotations

import os

import pytest

from support.house.weekly_sample import SeedCheck, few_and_many
from support.stories.lake_crash import POINTS, lake_story

pytestmark = pytest.mark.usefixtures("no_log")

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "16"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "1000"))


@few_and_many(range(1000), least=SEEDS, many=range(10_000, 10_000 + SEEDS_LONG), hits_min=20, timeout_s=1800)
def test_offload_crash_at_any_step_loses_nothing_and_leaves_nothing(check: SeedCheck) -> None:
    check(lake_story, [point for point in POINTS if not point.startswith("ml.delete")])
