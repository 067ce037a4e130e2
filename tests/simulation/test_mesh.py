"""Two to four clusters carry each other's messages, while policies, links, owners, brokers, bookies and clocks change.

Nothing that was acknowledged, and is meant for another cluster, is missing there when all is healed; nothing comes back
or goes on to a third one, or where it is not meant to go; producers' messages stay in order, and are there once where
deduplication is on; what a replicator's cursor has acknowledged is stored over there at any time. What is there is read
from the entries of the bookies.
"""

from __future__ import annotations

from support.clusters.mesh_story import mesh
from support.house.weekly_sample import SeedCheck, few_and_many

CHANGES = tuple(
    f"mesh.{change}"
    for change in (
        "policy of a namespace",
        "policy of a topic",
        "cut",
        "cut one way",
        "slow",
        "reset",
        "given",
        "seized",
        "unloaded",
        "crashed",
        "bookie down",
        "clock",
        "refused 204",
        "transaction committed",
        "transaction aborted",
    )
)


@few_and_many(range(2000), least=1, many=range(2000), hits_min=500, timeout_s=20_000)
def test_clusters_carry_each_others_messages(check: SeedCheck) -> None:
    check(mesh, CHANGES)
