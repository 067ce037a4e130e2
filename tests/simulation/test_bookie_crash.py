"""Power loss at any step of a bookie: nothing acknowledged lost, nothing corrupt served, fences kept."""

from __future__ import annotations

import pytest

from geminga.bookie import crash_points
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import few_seeds, many_seeds, run_share, run_week, share
from support.stories.bookie_crash import bookie_story

#: Crashes at each named crash point that the long test demands of its seeds.
CRASHES_MIN = 20
#: Lines of ``tools/mutants/packages``.
DEFECTS = (
    "a receipt leaves before the entry is on stable storage",
    "adds are acknowledged when their group is handed to the disk",
    "the mark moves past entries that are not flushed",
    "the names of new journals are not on stable storage",
)


def test_bookie_power_loss_at_any_step_keeps_every_promise():
    run_week(bookie_story, range(2500), least=few_seeds(24))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_bookie_crash_points_over_many_seeds_are_all_hit():
    report = run_share(bookie_story, many_seeds(2500), hits_min=20, labels=crash_points.ALL)
    rare = {label: report.crashes[label] for label in crash_points.ALL if report.crashes[label] < share(CRASHES_MIN)}
    assert not rare, f"fewer than {CRASHES_MIN} crashes at {rare}"


@pytest.mark.parametrize("why", DEFECTS)
def test_bookie_planted_defect_is_caught(why: str) -> None:
    check_is_caught(bookie_story, why, 500)
