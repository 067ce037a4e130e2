"""Paths of geo-replication: this cluster is among those that a namespace, or a topic, lives in."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga.broker.core.coercion import Json
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import TWO_CLUSTERS, ask, done, rest_application

NAMESPACE = "/admin/v2/namespaces/public/default"
NOWHERE = "/admin/v2/namespaces/public/nowhere"
TOPIC = "/admin/v2/persistent/public/default"
CLUSTERS = "/admin/v2/clusters"


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        (f"{NAMESPACE}/replication", ["standalone"], 200, ""),
        (f"{NAMESPACE}/replication", ["standalone", "far"], 200, ""),
        (f"{NAMESPACE}/replication", ["far"], 200, ""),
        (f"{NAMESPACE}/replication", [], 412, "ClusterIds should not be null or empty"),
        (f"{NAMESPACE}/replication", None, 412, "ClusterIds should not be null or empty"),
        (f"{NAMESPACE}/replication", ["nowhere"], 403, "Invalid cluster id: nowhere"),
        (f"{NAMESPACE}/replication", ["strange"], 403, "Cluster [strange] is not in the list of allowed clusters"),
        (f"{NAMESPACE}/replication", "standalone", 400, "must be a list"),
        (f"{NOWHERE}/replication", ["standalone", "far"], 404, "Namespace does not exist"),
        ("/admin/v2/namespaces/nobody/nowhere/replication", ["standalone"], 404, "Tenant does not exist"),
        (f"{NAMESPACE}/allowedClusters", ["standalone"], 200, ""),
        (f"{NAMESPACE}/allowedClusters", ["standalone", "far"], 200, ""),
        (f"{NAMESPACE}/allowedClusters", ["far"], 400, "do not contain the replication cluster [standalone]"),
        (f"{NAMESPACE}/allowedClusters", ["strange"], 403, "Cluster [strange] is not in the list"),
        (f"{NAMESPACE}/allowedClusters", None, 400, "can not be empty|cannot be empty"),
        (f"{NOWHERE}/allowedClusters", ["standalone", "far"], 404, "Namespace does not exist"),
        (f"{TOPIC}/t/replication", ["standalone"], 204, ""),
        (f"{TOPIC}/t/replication", ["standalone", "far"], 204, ""),
        (f"{TOPIC}/t/replication", ["standalone", "strange"], 403, "Cluster [strange] is not in the list of allowed"),
        (f"{TOPIC}/t/replication", ["far"], 412, "Can not remove local cluster"),
        (f"{TOPIC}/t/replication", ["standalone", "nowhere"], 403, "Invalid cluster id: nowhere"),
        (f"{TOPIC}/nowhere/replication", ["standalone", "far"], 404, "not found"),
        (f"{CLUSTERS}/far/peers", [], 204, ""),
        (f"{CLUSTERS}/far/peers", [""], 204, ""),
        (f"{CLUSTERS}/far/peers", None, 204, ""),
        (f"{CLUSTERS}/far/peers", ["far"], 412, "far itself can't be part of peer-list"),
        (f"{CLUSTERS}/far/peers", ["nowhere"], 412, "Peer cluster nowhere does not exist"),
        (f"{CLUSTERS}/far/peers", ["standalone"], 204, ""),
        (f"{CLUSTERS}/nowhere/peers", ["standalone"], 404, "Cluster does not exist"),
        (f"{CLUSTERS}/nowhere", {"peerClusterNames": ["standalone"]}, 404, "Cluster does not exist"),
        (f"{CLUSTERS}/far", {"peerClusterNames": ["standalone"]}, 200, ""),
        (f"{CLUSTERS}/far", {"peerClusterNames": [""]}, 200, ""),
        (f"{TOPIC}/t/subscription/s/replicatedSubscriptionStatus", False, 204, ""),
        (f"{TOPIC}/t/subscription/s/replicatedSubscriptionStatus", True, 204, ""),
        (f"{TOPIC}/t/subscription/none/replicatedSubscriptionStatus", True, 404, "Subscription none not found"),
        (f"{TOPIC}/nowhere/subscription/s/replicatedSubscriptionStatus", True, 404, "not found"),
        (f"{TOPIC}/t/subscription/s/replicatedSubscriptionStatus", "yes", 400, "the body"),
        (f"{TOPIC}/several/subscription/s/replicatedSubscriptionStatus", False, 204, ""),
    ],
)
def test_clusters_that_exist_and_are_allowed_are_taken(path: str, body: Json, status: int, reason: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = await prepared(world)
        data = b"" if body is None else json.dumps(body).encode()
        answer = await ask(application, "POST", path, data)
        assert answer.status == status, answer
        assert any(part in (answer.reason if reason else "") for part in reason.split("|"))

    run_quietly(scenario)


async def prepared(world: BrokerWorld):
    """A tenant that may use another cluster, a topic, one with partitions, and a subscription of both."""
    application = rest_application(world.broker)
    await done(
        application,
        *TWO_CLUSTERS,
        ("PUT", f"{TOPIC}/several/partitions", 2),
        ("PUT", f"{TOPIC}/t", None),
        ("PUT", f"{TOPIC}/t/subscription/s", None),
        ("PUT", f"{TOPIC}/several/subscription/s", None),
    )
    return application


def test_what_is_so_is_told_also_after_it_was_set() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = await prepared(world)

        async def told(path: str) -> Json:
            answer = await ask(application, "GET", path, b"")
            assert answer.status == 200, (path, answer)
            return json.loads(answer.body) if answer.body else None

        several = "persistent://public/default/several-partition-"
        status = "subscription/s/replicatedSubscriptionStatus"
        expected: dict[str, Json] = {
            f"{NAMESPACE}/replication": ["standalone"],
            f"{NAMESPACE}/allowedClusters": [],
            f"{TOPIC}/t/replication": None,
            f"{TOPIC}/t/replication?applied=true": ["standalone"],
            f"{CLUSTERS}/far/peers": None,
            f"{TOPIC}/t/{status}": {"persistent://public/default/t": False},
            f"{TOPIC}/several/{status}": {f"{several}0": False, f"{several}1": False},
            f"{TOPIC}/several-partition-1/{status}": {f"{several}1": False},
        }
        assert {path: await told(path) for path in expected} == expected
        for path, body in (("allowedClusters", ["standalone"]), ("replication", ["standalone"])):
            assert (await ask(application, "POST", f"{NAMESPACE}/{path}", json.dumps(body).encode())).status == 200
            assert await told(f"{NAMESPACE}/{path}") == ["standalone"]
        assert (await ask(application, "POST", f"{TOPIC}/t/replication", b'["standalone"]')).status == 204
        assert await told(f"{TOPIC}/t/replication") == ["standalone"]
        assert (await ask(application, "DELETE", f"{TOPIC}/t/replication", b"")).status == 204
        assert await told(f"{TOPIC}/t/replication") is None
        assert (await ask(application, "POST", f"{CLUSTERS}/far/peers", b"[]")).status == 204
        assert await told(f"{CLUSTERS}/far/peers") == []
        assert (await ask(application, "POST", f"{TOPIC}/several-partition-1/{status}", b"true")).status == 204
        assert await told(f"{TOPIC}/several/{status}") == {f"{several}0": False, f"{several}1": True}
        assert (await ask(application, "POST", f"{TOPIC}/several/{status}", b"true")).status == 204
        assert await told(f"{TOPIC}/several/{status}") == {f"{several}0": True, f"{several}1": True}
        refused = await ask(application, "GET", f"/admin/v2/non-persistent/public/default/t/{status}", b"")
        assert refused.status == 405

    run_quietly(scenario)


def test_what_the_namespace_s_own_list_leaves_out_is_refused_for_it_and_its_topics() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = await prepared(world)
        assert (await ask(application, "POST", f"{NAMESPACE}/allowedClusters", b'["standalone"]')).status == 200
        for path, status in ((f"{NAMESPACE}/replication", 400), (f"{TOPIC}/t/replication", 403)):
            answer = await ask(application, "POST", path, b'["standalone", "far"]')
            assert (answer.status, answer.reason) == (
                status,
                "Cluster [far] is not in the list of allowed clusters list for namespace [public/default]",
            )

    run_quietly(scenario)


def test_what_is_said_of_a_cluster_while_its_peers_are_set_is_kept() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = await prepared(world)
        world.metadata.faults.delay_ms_max = 50
        for turn in range(20):
            data = {"serviceUrl": f"http://far-{turn}:8080"}
            told = asyncio.ensure_future(ask(application, "POST", f"{CLUSTERS}/far", json.dumps(data).encode()))
            peers = await ask(application, "POST", f"{CLUSTERS}/far/peers", b'["standalone"]')
            assert (peers.status, (await told).status) == (204, 200)
            found = await world.resources.clusters.get("far")
            assert found["serviceUrl"] == f"http://far-{turn}:8080", f"turn {turn}"

    run_quietly(scenario)
