"""Power loss at any step of a bookie: nothing acknowledged lost, nothing corrupt served, fences kept."""

from __future__ import annotations

import os

import pytest

from geminga.bookie import Defects, crash_points
from geminga.sim import Report, SimWorld, run_seeds
from support.house.weekly_sample import run_week
from support.stories.bookie_crash import BookieStory, bookie_story

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "24"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "2500"))
#: Crashes at each named crash point that the long test demands of its seeds.
CRASHES_MIN = 20


def test_bookie_power_loss_at_any_step_keeps_every_promise():
    run_week(bookie_story, range(2500), least=SEEDS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_bookie_crash_points_over_many_seeds_are_all_hit(capsys):
    report = run_seeds(bookie_story, range(10_000, 10_000 + SEEDS_LONG))
    with capsys.disabled():
        print("\n" + report.table())
    report.check(hits_min=20, labels=crash_points.ALL)
    rare = {label: report.crashes[label] for label in crash_points.ALL if report.crashes[label] < CRASHES_MIN}
    assert not rare, f"fewer than {CRASHES_MIN} crashes at {rare}"


def _run_with(defects: Defects, seeds: range) -> Report:
    async def defective(world: SimWorld) -> None:
        await BookieStory(world, defects=defects).run()

    return run_seeds(defective, seeds, failures_max=1)


@pytest.mark.long
@pytest.mark.parametrize(
    "defects",
    [
        Defects(no_journal_sync=True),
        Defects(no_directory_sync=True),
        Defects(mark_before_flush=True),
        Defects(receipt_before_sync=True),
    ],
    ids=["no journal fsync", "no directory fsync", "mark before flush", "receipt before sync"],
)
def test_bookie_planted_defect_is_caught(defects):
    report = _run_with(defects, range(500))
    assert report.failures, f"{report.seeds} seeds did not notice {defects}"
    print(f"caught by seed {report.failures[0].seed}: {report.failures[0].error}")
