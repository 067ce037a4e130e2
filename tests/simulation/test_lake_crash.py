"""A crash between any two steps of an offload: nothing is lost, nothing is left over."""

from __future__ import annotations

import logging
import os

import pytest

from geminga.sim import run_seeds
from support.house.weekly_sample import of_week, run_week, share
from support.stories.lake_crash import POINTS, lake_story

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "16"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "1000"))


@pytest.fixture(autouse=True)
def _no_log(caplog):
    """What is logged holds errors, and these whole simulated worlds."""
    caplog.set_level(logging.CRITICAL, logger="geminga")


def test_offload_crash_at_any_step_loses_nothing_and_leaves_nothing():
    run_week(lake_story, range(1000), least=SEEDS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_offload_crash_points_over_many_seeds_are_all_hit(capsys):
    report = run_seeds(lake_story, of_week(range(10_000, 10_000 + SEEDS_LONG)))
    with capsys.disabled():
        print("\n" + report.table())
    labels = [point for point in POINTS if not point.startswith("ml.delete")]
    report.check(hits_min=share(20), labels=labels)
