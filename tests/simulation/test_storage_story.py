"""Everything at once: quorums, disks, network, takeovers, auto-recovery, in one story a seed."""

from __future__ import annotations

import os

import pytest

from support.house.weekly_sample import SeedCheck, few_and_many, run_week
from support.stories.storage_story import KINDS, beyond_story, storage_story

SEEDS = int(os.environ.get("GEMINGA_STORAGE_SEEDS", "4"))
SEEDS_LONG = int(os.environ.get("GEMINGA_STORAGE_SEEDS_LONG", "1000"))
LABELS = (
    *KINDS,
    "bookie ended itself",
    "bookie lost",
    "taken over",
    "cornered",
    "read along",
    "copy checked",
    "repairer died",
    "writer died",
)


@pytest.mark.slow
@few_and_many(range(1000), least=SEEDS, most=60, many=range(10_000, 10_000 + SEEDS_LONG), hits_min=20, timeout_s=7200)
def test_storage_keeps_what_it_acknowledged_whatever_happens(check: SeedCheck) -> None:
    check(storage_story, LABELS)


@pytest.mark.slow
def test_beyond_the_promise_storage_gives_errors_and_no_other_bytes() -> None:
    labels = ("bookie lost", "no entry is told", "entry of what is left")
    run_week(beyond_story, range(1000), least=SEEDS // 2, most=60, labels=labels)
