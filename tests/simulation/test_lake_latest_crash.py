"""A broker that serves compacted messages from its lake crashes at any step: no key is lost or comes back."""

from __future__ import annotations

import os

import pytest

from support.house.weekly_sample import SeedCheck, few_and_many
from support.stories.lake_latest_story import lake_latest_lives

pytestmark = pytest.mark.usefixtures("no_log")

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "4"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "1000"))


@few_and_many(range(1000), least=SEEDS, many=range(10_000, 10_000 + SEEDS_LONG), timeout_s=3600)
def test_what_is_read_from_the_lake_is_right_through_crashes_at_any_step(check: SeedCheck) -> None:
    check(lake_latest_lives)
