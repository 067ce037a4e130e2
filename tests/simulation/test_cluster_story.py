"""Whole clusters: one writer per topic, nothing acknowledged lost, order kept, every topic served in the end.

Brokers, bookies, clients and metadata crash, stall and are cut off from each other, sessions expire, watches are lost,
clocks jump, disks are slow, full and fail, bundles are split, unloaded, raced for and taken away, all in one story.
"""

from __future__ import annotations

import pytest

from geminga.sim.seeds import run_seeds
from support.clusters.cluster_faults import LABELS
from support.clusters.cluster_story import cluster_story
from support.house.weekly_sample import of_week, run_week, share

SHORT_SEEDS = 13
LONG_SEEDS = 300


def test_cluster_keeps_what_it_promised() -> None:
    run_week(cluster_story, range(SHORT_SEEDS + LONG_SEEDS), least=3, most=60, labels=LABELS)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_cluster_keeps_what_it_promised_over_many_seeds() -> None:
    run_seeds(cluster_story, of_week(range(SHORT_SEEDS, SHORT_SEEDS + LONG_SEEDS))).check(
        hits_min=share(100), labels=LABELS
    )
