"""Two clusters with tenants, policies and numbers of partitions in one store: what one does, and the other keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import ASGIApp

from geminga import sim
from geminga.broker.administration.services import Force
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.geo.sharing import Sharing
from geminga.broker.peers.http_client import PeerAnswer
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.broker.resources.configuration_paths import ConfigurationPaths
from geminga.broker.resources.initialization import FIRST_NAMESPACES
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.divided import DividedMetadataStore
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import GemingaError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from support.worlds.broker_world import ENDPOINTS, BrokerWorld
from support.worlds.rest_world import Answer, ask, rest_application

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/persistent/public/default"
DOMAIN = "persistent://public/default"
SHARED_BY = ("east", "west")


class Instance:
    """The clusters of one configuration, each a broker with a store and ledgers of its own."""

    def __init__(self) -> None:
        self.worlds: dict[str, BrokerWorld] = {}
        self.applications: dict[str, ASGIApp] = {}
        #: Clusters that answer nobody.
        self.away: set[str] = set()

    async def call(self, cluster: str, method: str, path: str, body: bytes) -> PeerAnswer:
        if cluster in self.away:
            raise UnavailableError(f"the brokers of {cluster} do not answer")
        answer = await ask(self.applications[cluster], method, path, body)
        return PeerAnswer(answer.status, answer.body, cluster)

    async def ask(self, cluster: str, method: str, path: str, body: object = None) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        return await ask(self.applications[cluster], method, path, data)

    async def good(self, cluster: str, method: str, path: str, body: object = None) -> Any:
        answer = await self.ask(cluster, method, path, body)
        assert answer.status in (200, 204), answer
        return json.loads(answer.body) if answer.body else None

    async def names(self, cluster: str, of: str = "") -> list[str]:
        found = await self.good(cluster, "GET", f"{TOPICS}{of}")
        return sorted(name.removeprefix("persistent://public/default/") for name in found)

    async def add(self, runtime: Any, name: str, configuration: MemoryMetadata, *, partitions_max: int) -> None:
        stores = [MemoryMetadataStore(runtime, of) for of in (MemoryMetadata(), configuration)]
        metadata = DividedMetadataStore(*stores, ConfigurationPaths())

        def sharing(resources: Resources) -> Sharing:
            return Sharing(name, resources, self.call)

        config = BrokerConfig(
            cluster_name=name,
            delete_inactive_topics=False,
            keep_alive_interval_s=100_000,
            partitions_max=partitions_max,
        )
        world = BrokerWorld(runtime, config, ManagedLedgerConfig(), store=metadata, sharing=sharing)
        urls = {"serviceUrl": f"http://{name}:8080", "brokerServiceUrl": f"pulsar://{name}:6650"}
        await initialize_cluster(world.resources, ClusterSetup(name, urls, joins=FIRST_NAMESPACES))
        await world.broker.start(ENDPOINTS)
        self.worlds[name] = world
        self.applications[name] = rest_application(
            world.broker,
            name,
            configuration_url="zk:all",
            metadata_url="zk:own",
            forced=Force(force_delete_tenant=True, force_delete_namespace=True),
        )


def in_an_instance(story: Callable[[Instance], Coroutine[Any, Any, None]], *, west_partitions_max: int = 0) -> None:
    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            instance, configuration = Instance(), MemoryMetadata()
            for name in SHARED_BY:
                partitions_max = west_partitions_max if name == "west" else 0
                await instance.add(node.runtime, name, configuration, partitions_max=partitions_max)
            await story(instance)
            for each in instance.worlds.values():
                await each.stop()

        await world.node("brokers").run(on_node)

    sim.run(main, seed=0)


def test_what_is_said_in_one_cluster_holds_in_both_and_each_has_its_own_topics() -> None:
    async def story(instance: Instance) -> None:
        good, names = instance.good, instance.names
        await good("east", "PUT", "/admin/v2/tenants/acme", {"allowedClusters": [*SHARED_BY]})
        await good("west", "PUT", "/admin/v2/namespaces/acme/orders", {"replication_clusters": [*SHARED_BY]})
        await good("east", "POST", "/admin/v2/namespaces/acme/orders/messageTTL", 77)
        for name in SHARED_BY:
            assert await good(name, "GET", "/admin/v2/namespaces/acme/orders/messageTTL") == 77
            assert await good(name, "GET", "/admin/v2/clusters") == [*SHARED_BY]
            assert (await good(name, "GET", "/admin/v2/namespaces/public/default"))["replication_clusters"] == [
                *SHARED_BY
            ]
        await good("east", "PUT", f"{TOPICS}/single")
        assert (await names("east"), await names("west")) == (["single"], [])
        await good("east", "PUT", f"{TOPICS}/parts/partitions", 2)
        for name in SHARED_BY:
            assert (await good(name, "GET", f"{TOPICS}/parts/partitions"))["partitions"] == 2
        where = await good("east", "GET", "/admin/v2/brokers/internal-configuration")
        assert where["metadataStoreUrl"] == where["zookeeperServers"] == "zk:own"
        assert where["configurationMetadataStoreUrl"] == where["configurationStoreServers"] == "zk:all"

    in_an_instance(story)


def test_the_number_of_partitions_goes_with_the_last_cluster_that_has_some() -> None:
    async def story(instance: Instance) -> None:
        good, names = instance.good, instance.names
        await good("east", "PUT", f"{TOPICS}/t/partitions", 2)
        await good("west", "POST", f"{TOPICS}/t/createMissedPartitions")
        await good("east", "POST", f"{TOPICS}/t/permissions/somebody", ["consume"])
        instance.away = {"west"}
        refused = await instance.ask("east", "DELETE", f"{TOPICS}/t/partitions")
        assert refused.status == 503
        assert "the brokers of west do not answer" in refused.reason
        assert await names("east") == ["t-partition-0", "t-partition-1"]
        instance.away = set()
        await good("east", "DELETE", f"{TOPICS}/t/partitions")
        assert (await names("east"), await names("west")) == ([], ["t-partition-0", "t-partition-1"])
        for name in SHARED_BY:
            assert (await good(name, "GET", f"{TOPICS}/t/partitions"))["partitions"] == 2
        assert "somebody" in await good("west", "GET", f"{TOPICS}/t/permissions")
        await good("west", "DELETE", f"{TOPICS}/t/partitions")
        for name in SHARED_BY:
            assert (await instance.ask(name, "GET", f"{TOPICS}/t/partitions")).status == 404
            assert await names(name, "/partitioned") == []

    in_an_instance(story)


def test_new_partitions_are_everywhere_with_their_subscriptions_before_anybody_hears_of_them() -> None:
    async def story(instance: Instance) -> None:
        good, names = instance.good, instance.names
        await good("east", "PUT", f"{TOPICS}/t/partitions", 1)
        await good("west", "POST", f"{TOPICS}/t/createMissedPartitions")
        for name in SHARED_BY:
            await good(name, "PUT", f"{TOPICS}/t/subscription/of-{name}")
        instance.away = {"west"}
        assert (await instance.ask("east", "POST", f"{TOPICS}/t/partitions", 3)).status == 503
        for name in SHARED_BY:
            assert (await good(name, "GET", f"{TOPICS}/t/partitions"))["partitions"] == 1
        instance.away = set()
        await good("east", "POST", f"{TOPICS}/t/partitions", 3)
        for name in SHARED_BY:
            assert (await good(name, "GET", f"{TOPICS}/t/partitions"))["partitions"] == 3
            assert await names(name) == [f"t-partition-{number}" for number in range(3)]
            for number in range(3):
                found = await good(name, "GET", f"{TOPICS}/t-partition-{number}/subscriptions")
                assert found == [f"of-{name}"], (name, number)

    in_an_instance(story)


def test_a_number_that_another_cluster_does_not_allow_is_nobody_s() -> None:
    """What is published there to new partitions before their subscriptions come would be lost to them."""

    async def story(instance: Instance) -> None:
        good, names = instance.good, instance.names
        await good("east", "PUT", f"{TOPICS}/t/partitions", 1)
        await good("west", "POST", f"{TOPICS}/t/createMissedPartitions")
        await good("west", "PUT", f"{TOPICS}/t/subscription/s")
        refused = await instance.ask("east", "POST", f"{TOPICS}/t/partitions", 3)
        assert "cluster west" in refused.reason
        assert "the maximum partitions per topic 2" in refused.reason
        for name in SHARED_BY:
            assert (await good(name, "GET", f"{TOPICS}/t/partitions"))["partitions"] == 1
        await good("east", "POST", f"{TOPICS}/t/partitions", 2)
        assert await names("west") == ["t-partition-0", "t-partition-1"]
        assert await good("west", "GET", f"{TOPICS}/t-partition-1/subscriptions") == ["s"]

    in_an_instance(story, west_partitions_max=2)


def test_a_deletion_that_another_cluster_began_takes_nothing_here() -> None:
    async def story(instance: Instance) -> None:
        await instance.good("east", "PUT", f"{TOPICS}/t/partitions", 2)
        west = instance.worlds["west"].broker
        topics = instance.worlds["east"].resources.partitioned_topics
        name = TopicName.parse("persistent://public/default/t")
        await topics.mark_deleted(name, True, partitions=2)  # and then the broker in east is killed
        # Without partitions here it is the other's still.
        with pytest.raises(GemingaError, match="is being deleted"):
            await west.registry.partitioned_count(name)
        for _ in range(10):
            await wait_ms(100)
        assert (await topics.find_stored(name)) is not None
        await west.ledgers.create(name.with_partition(0).managed_ledger_name)
        west.partitions.finish_deletion_soon(name)
        while (found := await topics.find_stored(name)) is not None and found.is_deleted:
            await wait_ms(10)
        assert await instance.names("west") == ["t-partition-0"]
        assert (await instance.good("east", "GET", f"{TOPICS}/t/partitions"))["partitions"] == 2

    in_an_instance(story)


def test_partitions_that_nobody_uses_leave_their_number_to_the_other_cluster() -> None:
    async def story(instance: Instance) -> None:
        name = TopicName.parse("persistent://public/default/t")
        east = instance.worlds["east"]
        await east.resources.partitioned_topics.create(name, 2)
        assert not await east.broker.partitions.delete_if_empty(name)
        assert await east.resources.partitioned_topics.find(name) is not None
        await instance.good("east", "POST", f"{NAMESPACE}/replication", ["east"])
        assert await east.broker.partitions.delete_if_empty(name)
        assert await east.resources.partitioned_topics.find_stored(name) is None

    in_an_instance(story)


def test_what_is_left_in_a_cluster_goes_without_what_is_shared() -> None:
    async def story(instance: Instance) -> None:
        good, names = instance.good, instance.names
        await good("east", "PUT", f"{TOPICS}/t/partitions", 2)
        await good("west", "POST", f"{TOPICS}/t/createMissedPartitions")
        await good("east", "POST", f"{TOPICS}/t/permissions/somebody", ["consume"])
        # In east nobody used this one yet.
        await instance.worlds["east"].resources.partitioned_topics.create(TopicName.parse(f"{DOMAIN}/late"), 2)
        await good("west", "POST", f"{TOPICS}/late/createMissedPartitions")
        await good("east", "POST", f"{NAMESPACE}/replication", ["east"])
        left = f"{NAMESPACE}/leftTopics"
        assert (await good("west", "GET", left))["topics"] == 4
        await good("west", "DELETE", f"{left}?topics=4")
        assert (await good("west", "GET", left))["topics"] == 0
        assert await names("east") == ["t-partition-0", "t-partition-1"]
        for topic in ("t", "late"):
            assert (await good("east", "GET", f"{TOPICS}/{topic}/partitions"))["partitions"] == 2
        assert "somebody" in await good("east", "GET", f"{TOPICS}/t/permissions")

    in_an_instance(story)


def test_a_namespace_goes_where_it_lives_alone() -> None:
    async def story(instance: Instance) -> None:
        for name in SHARED_BY:
            refused = await instance.ask(name, "DELETE", NAMESPACE)
            assert refused.status == 412
            assert refused.reason.startswith("Cannot delete the global namespace public/default. There are still more")
        await instance.good("east", "POST", f"{NAMESPACE}/replication", ["east"])
        sent = await instance.ask("west", "DELETE", f"{NAMESPACE}?force=false")
        assert sent.status == 307
        assert sent.headers["location"] == f"http://east:8080{NAMESPACE}?force=false&authoritative=false"
        await instance.good("east", "DELETE", NAMESPACE)
        for name in SHARED_BY:
            assert (await instance.ask(name, "GET", NAMESPACE)).status == 404

    in_an_instance(story)


def test_a_tenant_takes_no_namespace_of_another_cluster_along() -> None:
    async def story(instance: Instance) -> None:
        good = instance.good
        await good("east", "PUT", "/admin/v2/tenants/acme", {"allowedClusters": [*SHARED_BY]})
        for name, clusters in (("here", ["east"]), ("there", ["west"])):
            await good("east", "PUT", f"/admin/v2/namespaces/acme/{name}", {"replication_clusters": clusters})
        refused = await instance.ask("east", "DELETE", "/admin/v2/tenants/acme?force=true")
        assert (refused.status, refused.reason) == (
            412,
            "namespace acme/there lives in cluster west: delete it there first",
        )
        await good("west", "POST", "/admin/v2/namespaces/acme/there/replication", [*SHARED_BY])
        refused = await instance.ask("east", "DELETE", "/admin/v2/tenants/acme?force=true")
        assert refused.status == 412
        assert refused.reason.startswith("Cannot delete the global namespace acme/there")
        assert await good("west", "GET", "/admin/v2/namespaces/acme") == ["acme/here", "acme/there"]
        await good("west", "POST", "/admin/v2/namespaces/acme/there/replication", ["east"])
        await good("east", "DELETE", "/admin/v2/tenants/acme?force=true")
        for cluster in SHARED_BY:
            assert (await instance.ask(cluster, "GET", "/admin/v2/tenants/acme")).status == 404

    in_an_instance(story)
