"""A broker that serves compacted messages from its lake crashes at any step: no key is lost or comes back."""

from __future__ import annotations

import pytest

from support.house.weekly_sample import SeedCheck, few_and_many, few_seeds, many_seeds
from support.stories.lake_latest_story import lake_latest_lives

pytestmark = pytest.mark.usefixtures("no_log")


@few_and_many(range(1000), least=few_seeds(4), many=many_seeds(1000), timeout_s=3600)
def test_what_is_read_from_the_lake_is_right_through_crashes_at_any_step(check: SeedCheck) -> None:
    check(lake_latest_lives)
