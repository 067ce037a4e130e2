"""Clusters whose configuration is one, by a topic that is copied between them or in a store that all use.

What administrators say in one holds in all, whatever happens to links, brokers, bookies and owners; nothing that was
answered is lost to what was said before it; and no start of a broker brings back what was deleted. Of the seeds of
``mesh`` two in five are such stories.
"""

from __future__ import annotations

import pytest

from geminga.sim.seeds import Scenario
from support.clusters.mesh_alike import mesh_alike, mesh_shared
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import run_share, run_week, sampled

LONG_SEEDS = 300
STRIKES = ("said", "given", "seized", "unloaded", "crashed", "bookie down", "uncertain", "cut", "away")
#: By what ``tools/mutants/packages/synchronization.toml`` and ``geo.toml`` say of them.
DEFECTS = (
    (mesh_alike, "a cluster loses public/default to another one that has its own"),
    (mesh_alike, "a cluster that comes with a public/default of its own brings it back where it was deleted"),
    (mesh_alike, "a start makes again what an administrator deleted, and tells other clusters to have it, too"),
    (mesh_alike, "a start with transactions raises the number of coordinators of all other clusters"),
    (
        mesh_alike,
        "a deletion has the time at which it can be told, and takes away what was changed elsewhere before",
    ),
    (mesh_alike, "a broker that leads no more keeps events from the one that does"),
    (mesh_shared, "more partitions are told of than another cluster of the same store has"),
)
SEEDS = 60


@pytest.mark.parametrize("story", [mesh_alike, mesh_shared])
def test_what_is_said_in_one_cluster_holds_in_all(story: Scenario) -> None:
    run_week(story, range(LONG_SEEDS), least=1, most=1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("story", "why"), sampled("defects of one configuration", DEFECTS, 2, are_rows=True))
def test_planted_defect_is_caught_by_some_story(story: Scenario, why: str) -> None:
    check_is_caught(story, why, SEEDS)


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_what_is_said_in_one_cluster_holds_in_all_over_many_seeds() -> None:
    labels = [f"alike.{strike}" for strike in (*STRIKES, "late")]
    run_share(mesh_alike, range(LONG_SEEDS), hits_min=60, labels=labels)
    labels = [f"shared.{strike}" for strike in STRIKES]
    run_share(mesh_shared, range(LONG_SEEDS), hits_min=60, labels=labels)
