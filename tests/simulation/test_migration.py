"""Topics move from one cluster to another while clients publish and acknowledge, and everything below changes.

Nothing that was acknowledged is lost, producers' messages stay in order through both clusters, each subscription that
was there receives all, and all topics are moved in bounded time; also where a move is undone half-way and begun again.
"""

from __future__ import annotations

from support.clusters.migration_story import migration
from support.house.weekly_sample import SeedCheck, few_and_many

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


@few_and_many(range(2000), least=4, many=range(2000), hits_min=500, timeout_s=10_000)
def test_topics_move_to_another_cluster(check: SeedCheck) -> None:
    check(migration, CHANGES)
