"""Bookies whose directories are emptied, damaged or mixed up while they are down."""

from __future__ import annotations

import pytest

from geminga.sim import run_seeds
from support.house.weekly_sample import of_week, run_week, share
from support.stories.misfortune_story import misfortune_story

KINDS = ("all emptied", "directories changed places", "journal damaged", "journal emptied", "log has another's chunks")
LABELS = tuple(f"misfortune.{label}" for label in (*KINDS, "nothing", "not told", "refused", "started"))


def test_harmed_bookie_refuses_to_start_or_tells_nothing_wrong() -> None:
    run_week(misfortune_story, range(1_000), least=60, most=400, labels=LABELS)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_harmed_bookie_refuses_to_start_or_tells_nothing_wrong_over_many_seeds() -> None:
    run_seeds(misfortune_story, of_week(range(1_000, 6_000))).check(hits_min=share(100), labels=LABELS)
