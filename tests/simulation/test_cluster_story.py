"""Whole clusters: one writer per topic, nothing acknowledged lost, order kept, every topic served in the end.

Brokers, bookies, clients and metadata crash, stall and are cut off from each other, sessions expire, watches are lost,
clocks jump, disks are slow, full and fail, bundles are split, unloaded, raced for and taken away, all in one story.
"""

from __future__ import annotations

from support.clusters.cluster_faults import LABELS
from support.clusters.cluster_story import cluster_story
from support.house.weekly_sample import SeedCheck, few_and_many


@few_and_many(range(313), least=3, most=60, many=range(13, 313), hits_min=100, timeout_s=3000)
def test_cluster_keeps_what_it_promised(check: SeedCheck) -> None:
    check(cluster_story, LABELS)
