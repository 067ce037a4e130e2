"""URLs of a cluster whose ports were others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tools.zookeeper_server import ZooKeeperServer

from geminga.app.storage.cluster_metadata import initialize, point_to
from geminga.app.storage.core.cluster_options import ClusterOptions
from geminga.app.storage.data_directory import METADATA_FILE
from geminga.broker.resources.initialization import KEPT_ALIKE_PATH
from geminga.metadata import SqliteMetadataStore
from geminga.runtime import real_runtime
from support.worlds.metadata_stores import zookeeper_address


def test_urls_on_this_machine_follow_and_those_that_an_operator_set_stay(zookeeper: ZooKeeperServer) -> None:
    address = zookeeper_address(zookeeper, "urls")

    def point(cluster: str, port: int) -> bool:
        return asyncio.run(point_to(address, cluster, f"http://127.0.0.1:{port}", f"pulsar://127.0.0.1:{port}"))

    def add(cluster: str, web_url: str, broker_url: str) -> None:
        assert initialize(ClusterOptions(cluster, web_url, str(address), broker_service_url=broker_url))

    add("moved", "http://127.0.0.1:1", "pulsar://127.0.0.1:1")
    add("set", "http://web.example:80", "pulsar://broker.example:6650")
    assert [point("moved", 2), point("moved", 2), point("set", 2)] == [True, False, False]


def test_who_sets_up_a_cluster_that_is_kept_alike_is_told_what_is_left_out(tmp_path: Path) -> None:
    options = ClusterOptions("east", "http://east", f"sqlite:{tmp_path}")
    told: list[str] = []
    assert "/admin/policies/public/default" in initialize(options, told.append)
    assert told == []

    async def keep_alike() -> None:
        runtime = real_runtime(lambda part, error: None)
        store = await SqliteMetadataStore.open(runtime, str(tmp_path / METADATA_FILE))
        await store.put(KEPT_ALIKE_PATH, b"", expected_version=None)
        await store.delete("/admin/policies/public/default")
        await store.close()
        await runtime.threads.close()

    asyncio.run(keep_alike())
    assert initialize(options, told.append) == []
    assert [text.partition(":")[0] for text in told] == [
        "the configuration of cluster east is kept alike with that of others"
    ]
