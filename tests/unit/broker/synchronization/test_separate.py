"""Two brokers of clusters with stores of their own, kept alike: what is said in one, and what stays in the other."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp

from geminga import sim
from geminga.broker.administration.services import Force
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.resources import ClusterSetup, initialize_cluster
from geminga.broker.synchronization.guard import StoredTopics
from geminga.broker.synchronization.separate import SeparateStores
from geminga.broker.synchronization.synchronizer import Synchronizer
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import ENDPOINTS, BrokerWorld
from support.worlds.event_topics import NAME, MemoryEventTopic
from support.worlds.rest_world import Answer, ask, rest_application

NAMES = ("east", "west")
BOTH = "/admin/v2/namespaces/acme/both"
TOPICS = "/admin/v2/persistent/acme/both"
#: Virtual seconds: until everybody heard everything, and until a walk has looked for what may go now.
SOON_S, WALKED_S = 5.0, 700.0


class Cluster:
    def __init__(self, name: str, node: sim.SimNode) -> None:
        self.name = name
        store = MemoryMetadataStore(node.runtime, MemoryMetadata())
        config = BrokerConfig(cluster_name=name, delete_inactive_topics=False, keep_alive_interval_s=100_000)
        self.world = BrokerWorld(
            node.runtime,
            config,
            ManagedLedgerConfig(),
            store=store,
            sharing=lambda resources: SeparateStores(name, resources),
        )
        self.topic = MemoryEventTopic(name)
        guard = StoredTopics(
            store, self.world.resources, name, NAME, self._make_partitions, self.world.broker.policies.rules
        )
        self.synchronizer = Synchronizer(
            node.runtime, store, self.topic, guard, cluster=name, leads=lambda: True, part=None
        )
        self.application: ASGIApp | None = None

    async def _make_partitions(self, name: TopicName, count: int) -> None:
        await self.world.broker.partitions.make_for_others(name, count)

    async def start(self) -> None:
        urls = {"serviceUrl": f"http://{self.name}:8080", "brokerServiceUrl": f"pulsar://{self.name}:6650"}
        await initialize_cluster(self.world.resources, ClusterSetup(self.name, urls))
        await self.world.resources.namespaces.set_policy(NAME.namespace, "replication_clusters", [*NAMES])
        await self.world.broker.start(ENDPOINTS)
        self.application = rest_application(
            self.world.broker,
            self.name,
            is_kept_alike=True,
            forced=Force(force_delete_tenant=True, force_delete_namespace=True),
        )
        self.synchronizer.start()

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        assert self.application is not None
        return await ask(self.application, method, path, b"" if body is None else json.dumps(body).encode())

    async def good(self, method: str, path: str, body: object = None) -> Any:
        answer = await self.ask(method, path, body)
        assert answer.status in (200, 204), answer
        return json.loads(answer.body) if answer.body else None


def run(story: Callable[[sim.SimWorld, Cluster, Cluster], Awaitable[None]]) -> None:
    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            east, west = (Cluster(name, node) for name in NAMES)
            east.topic.others, west.topic.others = [west.topic], [east.topic]
            for cluster in (east, west):
                await cluster.start()
            # The first one tells the other again, which listens later.
            await world.sleep(60)
            await east.good("PUT", "/admin/v2/tenants/acme", {"allowedClusters": [*NAMES]})
            await east.good("PUT", BOTH, {"replication_clusters": [*NAMES]})
            await world.sleep(SOON_S)
            await story(world, east, west)
            for cluster in (east, west):
                await cluster.synchronizer.close()
                await cluster.world.stop()

        await world.node("brokers").run(on_node)

    sim.run(main)


def test_partitions_that_are_made_more_have_the_subscriptions_of_the_first_everywhere() -> None:
    async def story(world: sim.SimWorld, east: Cluster, west: Cluster) -> None:
        await east.good("PUT", f"{TOPICS}/t/partitions", 2)
        await world.sleep(SOON_S)
        await west.good("PUT", f"{TOPICS}/t/subscription/mine")
        await east.good("POST", f"{TOPICS}/t/partitions", 3)
        await world.sleep(SOON_S)
        assert (await west.good("GET", f"{TOPICS}/t/partitions"))["partitions"] == 3
        assert await west.good("GET", f"{TOPICS}/t-partition-2/subscriptions") == ["mine"]

    run(story)


def test_partitioned_topic_that_is_deleted_in_one_cluster_stays_in_the_other_until_it_is_there_too() -> None:
    async def story(world: sim.SimWorld, east: Cluster, west: Cluster) -> None:
        await east.good("PUT", f"{TOPICS}/t/partitions", 2)
        await world.sleep(SOON_S)
        await west.good("POST", f"{TOPICS}/t/createMissedPartitions")
        await east.good("DELETE", f"{TOPICS}/t/partitions")
        await world.sleep(WALKED_S)
        assert (await west.good("GET", f"{TOPICS}/t/partitions"))["partitions"] == 2
        assert len(await west.good("GET", TOPICS)) == 2
        await west.good("DELETE", f"{TOPICS}/t/partitions")
        await world.sleep(SOON_S)
        for cluster in (east, west):
            assert await cluster.good("GET", f"{TOPICS}/partitioned") == []
        # And may be made again.
        await west.good("PUT", f"{TOPICS}/t/partitions", 1)
        await world.sleep(SOON_S)
        assert (await east.good("GET", f"{TOPICS}/t/partitions"))["partitions"] == 1

    run(story)


def test_namespace_goes_where_it_lives_alone_and_what_is_left_of_it_first() -> None:
    async def story(world: sim.SimWorld, east: Cluster, west: Cluster) -> None:
        await east.good("PUT", f"{TOPICS}/t/partitions", 2)
        await world.sleep(SOON_S)
        await west.good("POST", f"{TOPICS}/t/createMissedPartitions")
        for cluster in (east, west):
            assert (await cluster.ask("DELETE", BOTH)).status == 412
        await east.good("POST", f"{BOTH}/replication", ["east"])
        await world.sleep(SOON_S)
        sent = await west.ask("DELETE", BOTH)
        assert (sent.status, sent.headers["location"]) == (307, f"http://east:8080{BOTH}?authoritative=false")
        # What is left in west is not what east has.
        await west.good("DELETE", f"{BOTH}/leftTopics?topics=2")
        await world.sleep(SOON_S)
        assert (await east.good("GET", f"{TOPICS}/t/partitions"))["partitions"] == 2
        await west.world.resources.namespaces.get("acme/both")
        await east.good("DELETE", f"{BOTH}?force=true")
        await world.sleep(WALKED_S)
        for cluster in (east, west):
            assert (await cluster.ask("GET", BOTH)).status == 404

    run(story)


def test_namespace_that_is_deleted_elsewhere_keeps_its_topics_here_and_what_is_said_of_it() -> None:
    async def story(world: sim.SimWorld, east: Cluster, west: Cluster) -> None:
        await west.good("PUT", f"{TOPICS}/kept")
        await east.good("POST", f"{BOTH}/replication", ["east"])
        await world.sleep(SOON_S)
        await east.good("DELETE", f"{BOTH}?force=true")
        await world.sleep(WALKED_S)
        assert (await east.ask("GET", BOTH)).status == 404
        assert (await west.good("GET", BOTH))["replication_clusters"] == ["east"]
        assert (await west.good("GET", f"{BOTH}/leftTopics"))["topics"] == 1
        await west.good("DELETE", f"{BOTH}/leftTopics?topics=1")
        await world.sleep(WALKED_S)
        assert (await west.ask("GET", BOTH)).status == 404

    run(story)


def test_what_a_broker_removes_by_itself_stays_where_others_may_need_it() -> None:
    async def story(world: sim.SimWorld, east: Cluster, west: Cluster) -> None:
        await east.good("PUT", f"{TOPICS}/t/partitions", 2)
        await world.sleep(SOON_S)
        await east.good("POST", f"{TOPICS}/t/permissions/somebody", ["consume"])
        name = TopicName.parse("persistent://acme/both/t")
        for index in range(2):
            await east.good("DELETE", f"{TOPICS}/t-partition-{index}")
        assert not await east.world.broker.partitions.delete_if_empty(name)
        await world.sleep(SOON_S)
        for cluster in (east, west):
            assert (await cluster.good("GET", f"{TOPICS}/t/partitions"))["partitions"] == 2
            assert "somebody" in await cluster.good("GET", f"{TOPICS}/t/permissions")

    run(story)


def test_namespace_that_is_not_there_has_no_other_clusters() -> None:
    async def story(_: sim.SimWorld, east: Cluster, west: Cluster) -> None:
        apart = SeparateStores("east", east.world.resources)
        assert await apart.others("acme/both") == ["west"]
        assert await apart.others("acme/none") == await apart.holders(NAME) == []
        await apart.make_partitions(NAME, 3)
        assert west.name == "west"

    run(story)
