"""Everything at once: quorums, disks, network, takeovers, auto-recovery, in one story a seed."""

from __future__ import annotations

import os

import pytest

from geminga.sim import run_seeds
from support.house.weekly_sample import of_week, run_week, share
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
def test_storage_keeps_what_it_acknowledged_whatever_happens() -> None:
    run_week(storage_story, range(1000), least=SEEDS, most=60, labels=LABELS)


@pytest.mark.slow
def test_beyond_the_promise_storage_gives_errors_and_no_other_bytes() -> None:
    labels = ("bookie lost", "no entry is told", "entry of what is left")
    run_week(beyond_story, range(1000), least=SEEDS // 2, most=60, labels=labels)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_storage_keeps_what_it_acknowledged_over_many_seeds(capsys) -> None:
    report = run_seeds(storage_story, of_week(range(10_000, 10_000 + SEEDS_LONG)))
    with capsys.disabled():
        print("\n" + report.table())
    report.check(hits_min=share(20), labels=LABELS)
