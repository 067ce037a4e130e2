"""Crashes at every step of creating, appending, changing, closing, recovering and deleting ledgers."""

from __future__ import annotations

import pytest

from geminga.bookkeeper import crash_points
from geminga.sim import run_seeds
from support.stories.ledger_life import ledger_life


@pytest.mark.slow
def test_ledgers_survive_crashes_at_every_step():
    report = run_seeds(ledger_life, range(200))
    # What readmits ledgers is the lake's restore, which has lives of its own.
    labels = [label for label in crash_points.ALL if not label.startswith("ledger.readmit")]
    report.check(hits_min=20, labels=labels)
    assert all(report.crashes[label] for label in labels), report.table()
