"""Topics are compacted through crashes at any step: no key is lost, no view goes back, no ledger is left over."""

from __future__ import annotations

import pytest

from support.house.weekly_sample import SeedCheck, few_and_many, few_seeds, many_seeds
from support.stories.compaction_story import POINTS, compaction_lives

pytestmark = pytest.mark.usefixtures("no_log")


@few_and_many(range(1000), least=few_seeds(4), many=many_seeds(1000), hits_min=20, timeout_s=3600)
def test_what_was_compacted_survives_a_crash_at_any_step(check: SeedCheck) -> None:
    check(compaction_lives, POINTS)
