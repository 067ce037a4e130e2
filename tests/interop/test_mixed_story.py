"""The official Java, Go and Python clients on a cluster of an Apache Pulsar broker and a Geminga broker.

Bundles are unloaded to the other broker and brokers are killed while they publish, consume and span topics with
transactions. What is drawn follows ``MIXED_SEED``, which is printed; ``MIXED_UNLOADS``, ``MIXED_KILLS``: how many.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from tools.zookeeper_server import ZooKeeperServer

from support.processes.mixed_cluster import BUNDLES, mixed_cluster
from support.processes.mixed_load import Load, PythonLoad, go_load, java_load, seed_from_environment
from support.processes.mixed_story import PROGRESS_S, Story, check, check_transactions

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1700)]

NAMESPACE: Final = "public/story"
UNLOADS: Final = int(os.environ.get("MIXED_UNLOADS", "30"))
KILLS: Final = int(os.environ.get("MIXED_KILLS", "10"))
TOPICS_EACH: Final = 3


def full(names: list[str]) -> list[str]:
    return [f"persistent://{NAMESPACE}/{name}" for name in names]


def test_nothing_is_lost_while_topics_go_to_and_fro_and_brokers_are_killed(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    seed = seed_from_environment()
    print(f"\nMIXED_SEED={seed}")
    with mixed_cluster(zookeeper, tmp_path, bookie_processes=3) as cluster:
        rest = cluster.rest("geminga")
        assert rest.put(f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": BUNDLES}}).status == 204
        assert rest.post(f"namespaces/{NAMESPACE}/deduplication", True).status == 204
        forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        assert rest.post(f"namespaces/{NAMESPACE}/retention", forever).status == 204
        url = cluster.service_url
        transacted = full(["transacted-1", "transacted-2"])
        topics = {name: full([f"{name}-{n}" for n in range(TOPICS_EACH)]) for name in ("java", "go", "python")}
        loads: list[Load] = []
        try:
            loads.append(java_load(url, topics["java"], transacted, tmp_path))
            loads.append(go_load(url, topics["go"], tmp_path))
            loads.append(PythonLoad(url, topics["python"], tmp_path))
            for load in loads:
                load.told.wait_for("progress", PROGRESS_S)
            story = Story(cluster, seed, loads)
            story.run(unloads=UNLOADS, kills=KILLS)
            for load in loads:
                load.stop()
            for what in ("sent", "delivered"):
                for load in loads:
                    load.told.wait_for(what, PROGRESS_S)
            check(cluster, story, tmp_path)
            check_transactions(cluster, loads[0], transacted, tmp_path)
            for load in loads:
                load.end()
        finally:
            for load in loads:
                load.kill()
