"""Topics move from one cluster to another while clients publish and acknowledge, and everything below changes.

Nothing that was acknowledged is lost, producers' messages stay in order through both clusters, each subscription that
was there receives all, and all topics are moved in bounded time; also where a move is undone half-way and begun again.
"""

from __future__ import annotations

import pytest

from geminga.sim.seeds import run_seeds
from support.clusters.migration_story import migration
from support.house.weekly_sample import of_week, run_week, share

LONG_SEEDS = 2000
CHANGES = tuple(
    f"migration.{change}"
    for change in (
        "undone",
        "cut",
        "reset",
        "clients cut off",
        "given",
        "seized",
        "unloaded",
        "crashed",
        "bookie down",
        "clock",
        "uncertain",
    )
)


def test_topics_move_to_another_cluster() -> None:
    run_week(migration, range(LONG_SEEDS), least=4, most=4)


@pytest.mark.long
@pytest.mark.timeout(10_000)
def test_topics_move_to_another_cluster_over_many_seeds() -> None:
    run_seeds(migration, of_week(range(LONG_SEEDS))).check(hits_min=share(500), labels=CHANGES)
