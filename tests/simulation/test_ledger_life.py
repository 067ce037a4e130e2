"""Crashes at every step of creating, appending, changing, closing, recovering and deleting ledgers."""

from __future__ import annotations

import pytest

from geminga.bookkeeper import crash_points
from support.house.weekly_sample import run_each
from support.stories.ledger_life import ledger_life


@pytest.mark.slow
def test_ledgers_survive_crashes_at_every_step():
    # What readmits ledgers is the lake's restore, which has lives of its own.
    points = [point for point in crash_points.ALL if not point.startswith("ledger.readmit")]
    run_each(ledger_life, range(200), hits_min=20, points=points)
