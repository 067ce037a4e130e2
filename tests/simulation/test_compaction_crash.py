"""Topics are compacted through crashes at any step: no key is lost, no view goes back, no ledger is left over."""

from __future__ import annotations

import logging
import os

import pytest

from geminga.sim import run_seeds
from support.house.weekly_sample import of_week, run_week, share
from support.stories.compaction_story import POINTS, compaction_lives

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "4"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "1000"))


@pytest.fixture(autouse=True)
def _no_log(caplog):
    """What is logged holds errors, and these whole simulated worlds."""
    caplog.set_level(logging.CRITICAL, logger="geminga")


def test_what_was_compacted_survives_a_crash_at_any_step() -> None:
    run_week(compaction_lives, range(1000), least=SEEDS)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_what_was_compacted_survives_crashes_over_many_seeds(capsys) -> None:
    report = run_seeds(compaction_lives, of_week(range(10_000, 10_000 + SEEDS_LONG)))
    with capsys.disabled():
        print("\n" + report.table())
    report.check(hits_min=share(20), labels=POINTS)
