"""Bookies whose directories are emptied, damaged or mixed up while they are down."""

from __future__ import annotations

from support.house.weekly_sample import SeedCheck, few_and_many
from support.stories.misfortune_story import misfortune_story

KINDS = ("all emptied", "directories changed places", "journal damaged", "journal emptied", "log has another's chunks")
LABELS = tuple(f"misfortune.{label}" for label in (*KINDS, "nothing", "not told", "refused", "started"))


@few_and_many(range(1_000), least=60, most=400, many=range(1_000, 6_000), hits_min=100, timeout_s=900)
def test_harmed_bookie_refuses_to_start_or_tells_nothing_wrong(check: SeedCheck) -> None:
    check(misfortune_story, LABELS)
