"""URLs of a cluster whose ports were others."""

from __future__ import annotations

import asyncio

from tools.zookeeper_server import ZooKeeperServer

from geminga.app.storage.cluster_metadata import initialize, point_to
from geminga.app.storage.core.cluster_options import ClusterOptions
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
