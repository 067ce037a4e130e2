"""A crash at any step of a topic's life: cursors come back complete, nothing durable is lost, nothing is left over."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.rules import cursor_format
from geminga.managed_ledger.shared import crash_points
from geminga.sim import SimWorld
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import (
    SeedCheck,
    check_noticed,
    few_and_many,
    few_seeds,
    many_seeds,
    run_share,
    run_week,
    share,
)
from support.stories.cursor_crash import topic_story
from support.stories.cursor_window import window_story, window_story_of_pulsar

pytestmark = pytest.mark.usefixtures("no_log")

#: What topics without a lake pass.
POINTS = [
    point for point in crash_points.ALL if not point.startswith(("ml.hole", "ml.lake", "ml.offload", "ml.restore"))
]
#: Lines of ``tools/mutants/packages``.
DEFECTS = (
    "a cursor's marker is written before the segments that it names",
    "a cursor's node names its new ledger before the state is in it",
    "ledgers are deleted before the list without them is written",
)


@pytest.fixture(autouse=True)
def _few_inline_ranges(monkeypatch):
    """Markers that hold only two ranges, so that these short stories write segments."""
    monkeypatch.setattr(cursor_format, "INLINE_RANGES_MAX", 2)


async def segments_story(world: SimWorld) -> None:
    """The story as the fixture has it, for those who look for seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cursor_format, "INLINE_RANGES_MAX", 2)
        await topic_story(world)


def test_topic_crash_at_any_step_keeps_every_promise():
    run_week(topic_story, range(1000), least=few_seeds(8))


@few_and_many(range(1000), least=few_seeds(8), many=many_seeds(1000), timeout_s=1800)
def test_nothing_acknowledged_more_than_a_second_before_a_crash_is_lost(check: SeedCheck) -> None:
    check(window_story)


def test_a_write_a_second_would_lose_older_acknowledgments():
    check_noticed(window_story_of_pulsar, 30)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_topic_crash_points_over_many_seeds_are_all_hit():
    report = run_share(topic_story, many_seeds(1000), hits_min=20, labels=POINTS)
    least = share(len(many_seeds(1000)) // 50)
    rare = {label: report.crashes[label] for label in POINTS if report.crashes[label] < least}
    assert not rare, f"too few crashes at {rare}"


@pytest.mark.parametrize("why", DEFECTS)
def test_topic_with_writes_in_the_wrong_order_is_caught(why: str) -> None:
    check_is_caught(segments_story, why, 500)
