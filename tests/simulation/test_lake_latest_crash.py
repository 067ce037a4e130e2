"""A broker that serves compacted messages from its lake crashes at any step: no key is lost or comes back."""

from __future__ import annotations

import logging
import os

import pytest

from geminga.sim import run_seeds
from support.house.weekly_sample import of_week, run_week
from support.stories.lake_latest_story import lake_latest_lives

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "4"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "1000"))


@pytest.fixture(autouse=True)
def _no_log(caplog):
    """What is logged holds errors, and these whole simulated worlds."""
    caplog.set_level(logging.CRITICAL, logger="geminga")


def test_what_is_read_from_the_lake_is_right_through_crashes_at_any_step() -> None:
    run_week(lake_latest_lives, range(1000), least=SEEDS)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_what_is_read_from_the_lake_is_right_over_many_seeds(capsys) -> None:
    report = run_seeds(lake_latest_lives, of_week(range(10_000, 10_000 + SEEDS_LONG)))
    with capsys.disabled():
        print("\n" + report.table())
    report.check()
