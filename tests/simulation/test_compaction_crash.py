"""Topics are compacted through crashes at any step: no key is lost, no view goes back, no ledger is left over."""

from __future__ import annotations

import os

import pytest

from support.house.weekly_sample import SeedCheck, few_and_many
from support.stories.compaction_story import POINTS, compaction_lives

pytestmark = pytest.mark.usefixtures("no_log")

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "4"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "1000"))


@few_and_many(range(1000), least=SEEDS, many=range(10_000, 10_000 + SEEDS_LONG), hits_min=20, timeout_s=3600)
def test_what_was_compacted_survives_a_crash_at_any_step(check: SeedCheck) -> None:
    check(compaction_lives, POINTS)
