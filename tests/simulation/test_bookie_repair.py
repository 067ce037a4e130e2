"""Bookies go for good or for a while, auto-recovery dies at every step: all copies are there again in the end."""

from __future__ import annotations

import os

import pytest

from geminga.replication import crash_points
from support.house.weekly_sample import run_share, run_week
from support.stories.repair_story import repair_story

SEEDS = int(os.environ.get("GEMINGA_REPAIR_SEEDS", "10"))
SEEDS_LONG = int(os.environ.get("GEMINGA_REPAIR_SEEDS_LONG", "500"))
LABELS = ("bookie lost", "repairer died", "writer died", "session expired", "copy checked")


@pytest.mark.slow
def test_copies_of_lost_bookies_are_made_anew():
    labels = (*LABELS, crash_points.MARKED, crash_points.REPLACED, crash_points.UNMARKED)
    run_week(repair_story, range(500), least=SEEDS, most=100, labels=labels)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_copies_of_lost_bookies_are_made_anew_over_many_seeds():
    labels = (*LABELS, *crash_points.ALL)
    report = run_share(repair_story, range(10_000, 10_000 + SEEDS_LONG), hits_min=20, labels=labels)
    assert all(report.crashes[label] for label in crash_points.ALL), report.table()
