"""A namespace of many partitioned topics is compared with one in a cluster that is far away."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import ClassVar

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.geo.alike import require_alike
from geminga.broker.geo.clusters import OtherClusters
from geminga.broker.geo.core.alike import NamespaceTopics, made_by
from geminga.broker.peers.http_client import REQUEST_S_MAX, REQUESTS_AT_ONCE
from geminga.broker.resources import Resources
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import ConflictError
from unit.broker.geo.test_clusters import DATA

NAMESPACE = "public/default"
ANSWER_S = 1.5
#: More than are answered within the time of one request, were all asked at once.
TOPICS = [f"persistent://{NAMESPACE}/t{number}" for number in range(1500)]


class Distant(asyncio.Protocol):
    """The administration of west: each partitioned topic has one partition, and the last two."""

    asked: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.head = b""

    def data_received(self, data: bytes) -> None:
        self.head += data
        if not self.head.endswith(b"\r\n\r\n"):
            return
        Distant.asked += 1
        Distant.most = max(Distant.most, Distant.asked)
        asyncio.get_running_loop().call_later(ANSWER_S, self._answer, self.head.split(b" ")[1].decode())

    def _answer(self, path: str) -> None:
        Distant.asked -= 1
        if "/partitions?" in path:
            found: object = {"partitions": 2 if path.partition("?")[0].endswith("/t1499/partitions") else 1}
        elif "/partitioned?" in path:
            found = TOPICS
        elif path.startswith("/admin/v2/persistent/"):
            found = []
        elif path.endswith("/runtime"):
            found = {"allowAutoTopicCreationType": "non-partitioned", "defaultNumPartitions": "1"}
        else:
            found = {"replication_clusters": ["west"]}
        body = json.dumps(found).encode()
        self.transport.write(b"HTTP/1.1 200 so\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
        self.transport.close()


def test_many_topics_are_compared_with_those_of_a_distant_cluster_and_leave_others_room_to_ask() -> None:
    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            resources = Resources(MemoryMetadataStore(node.runtime))
            await resources.clusters.create("west", DATA)
            clusters, west = OtherClusters(node.runtime, resources, BrokerConfig()), world.node("west")
            await west.run(lambda there: there.runtime.network.listen(Distant, "0.0.0.0", 8080))
            assert len(TOPICS) * ANSWER_S / REQUESTS_AT_ONCE > REQUEST_S_MAX
            here = NamespaceTopics("east", dict.fromkeys(TOPICS, 1), *made_by(None, "non-partitioned", 1))
            with pytest.raises(ConflictError, match=r"t1499': local cluster has 1 partitions, remote .* 2 partitions"):
                await require_alike(partial(clusters.answer, "west"), "west", NAMESPACE, here)
            assert Distant.most < REQUESTS_AT_ONCE
            await clusters.close()

        Distant.asked = Distant.most = 0
        await world.node("broker").run(on_node)

    sim.run(main)
