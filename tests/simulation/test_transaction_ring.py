"""Money moved between topics in transactions through faults at every named step: the sum never changes.

``make sim`` runs as many seeds as one likes; here are some of them, and that a seed is always the same story.
"""

from __future__ import annotations

import pytest

from geminga import sim
from support.clusters.ring_steps import BY_CHANCE, POINTS
from support.clusters.token_ring import ACKNOWLEDGED_MIN, FAULTS_MIN, run_ring
from support.house.weekly_sample import run_share, run_week

#: What clients must have done in every run of some seeds.
DONE = tuple(
    f"ring.{name}"
    for name in (
        "committed",
        "aborted",
        "left open",
        "commit at the time-out",
        "both ends at once",
        "end asked twice",
        "end asked again",
        "conflict",
        "resent",
    )
)


@pytest.mark.slow
def test_no_token_appears_or_disappears() -> None:
    report = run_week(run_ring, range(1000), least=3, most=60, labels=DONE)
    struck = sum(report.hits[str(point)] for point in POINTS)
    assert struck >= report.seeds * FAULTS_MIN


@pytest.mark.slow
def test_a_seed_is_always_the_same_story() -> None:
    first, again = sim.run(run_ring, 3), sim.run(run_ring, 3)
    assert first == again
    assert first.faults >= FAULTS_MIN
    assert first.acknowledged >= ACKNOWLEDGED_MIN


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_token_appears_or_disappears_over_many_seeds() -> None:
    labels = [*DONE, *(str(point) for point in POINTS if point not in BY_CHANCE)]
    run_share(run_ring, range(100_000, 101_000), hits_min=10, labels=labels)
