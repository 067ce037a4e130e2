"""Namespaces that live in other clusters alone: clients are sent to a peer or refused; nothing is made or lost."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.coercion import Json
from geminga.broker.geo.residence import other_homes
from geminga.broker.resources import Policies
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, run_with_broker
from support.worlds.metadata_behind import MetadataBehind
from support.worlds.other_cluster import join
from support.worlds.rest_world import ask, rest_application

Type = pb.BaseCommand.Type
NAMESPACE = "/admin/v2/namespaces/public/default"
SEVERAL = "/admin/v2/persistent/public/default/several"
LOCAL = ["standalone"]
ELSEWHERE = (
    "Namespace missing local cluster name in clusters list: local_cluster=standalone ns=public/default clusters="
)


@pytest.mark.parametrize(
    ("replicated", "allowed", "is_here"),
    [
        ([], [], True),
        (LOCAL, [], True),
        (["far"], [], False),
        (["far"], ["far", "standalone"], True),
        (["far"], ["far"], False),
        (None, None, True),
    ],
)
def test_a_namespace_lives_where_it_is_replicated_or_allowed(replicated: Json, allowed: Json, is_here: bool) -> None:
    policies = Policies({"replication_clusters": replicated, "allowed_clusters": allowed})
    assert policies.lives_in("standalone") is is_here
    assert other_homes(policies, "standalone") == (["far"] if replicated == ["far"] else [])


async def asked(world: BrokerWorld, method: str, path: str, body: Json = None) -> int:
    data = b"" if body is None else json.dumps(body).encode()
    return (await ask(rest_application(world.broker), method, path, data)).status


async def prepared(world: BrokerWorld, *peers: str) -> None:
    """The default tenant may use another cluster, and this cluster has these peers."""
    await asked(
        world,
        "PUT",
        "/admin/v2/clusters/far",
        {"serviceUrl": "http://far:8080", "brokerServiceUrl": "pulsar://far:6650"},
    )
    await asked(world, "PUT", "/admin/v2/clusters/bare", {})
    assert await asked(world, "POST", "/admin/v2/tenants/public", {"allowedClusters": [*LOCAL, "far", "bare"]}) == 204
    assert await asked(world, "POST", "/admin/v2/clusters/standalone/peers", [*peers]) == 204


async def looked_up(client: Client, topic: str = TOPIC) -> pb.CommandLookupTopicResponse:
    client.send(pb.BaseCommand(type=Type.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=topic, request_id=1)))
    return (await client.expect(Type.LOOKUP_RESPONSE)).lookupTopicResponse


async def partitions(client: Client, topic: str) -> pb.CommandPartitionedTopicMetadataResponse:
    request = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=2, metadata_auto_creation_enabled=True)
    client.send(pb.BaseCommand(type=Type.PARTITIONED_METADATA, partitionMetadata=request))
    return (await client.expect(Type.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse


def test_a_namespace_that_is_taken_out_is_unloaded_refused_and_whole_when_it_comes_back() -> None:
    async def scenario(world: BrokerWorld) -> None:
        join(world)
        await prepared(world)
        client = await world.publisher(producer_name="producer")
        await client.publish(0, b"kept")
        assert await asked(world, "POST", f"{NAMESPACE}/replication", ["far"]) == 200
        assert world.broker.topics == {}
        await client.expect(Type.CLOSE_PRODUCER)
        found = await looked_up(client)
        assert (found.response, found.error) == (pb.CommandLookupTopicResponse.Failed, pb.MetadataError)
        assert found.message == f"{ELSEWHERE}[far]"
        # Also who comes without asking where, for a topic that is there or not.
        for topic in (TOPIC, f"{TOPIC}-other"):
            client.request_producer(topic)
            assert (await client.error()).message == f"{ELSEWHERE}[far]"
            answer = await partitions(client, topic)
            assert answer.message == f"{ELSEWHERE}[far]"
        assert await asked(world, "PUT", "/admin/v2/persistent/public/default/made") == 412
        assert await asked(world, "PUT", "/admin/v2/persistent/public/default/made/partitions", 2) == 412
        await world.restart()
        other = await world.client()
        assert (await looked_up(other)).error == pb.MetadataError
        assert world.broker.topics == {}
        join(world)
        assert await asked(world, "POST", f"{NAMESPACE}/replication", [*LOCAL, "far"]) == 200
        assert (await looked_up(other)).response == pb.CommandLookupTopicResponse.Connect
        await other.subscribe()
        assert (await other.expect_with_payload(Type.MESSAGE))[1].endswith(b"kept")
        assert await world.broker.registry.list("public/default") == [TOPIC]

    run_with_broker(scenario, delete_inactive_topics=False)


def test_clients_are_sent_to_the_peer_that_has_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await prepared(world, "far")
        assert await asked(world, "PUT", "/admin/v2/persistent/public/default/several/partitions", 3) == 204
        # A namespace, or a topic, is never in both of two peers.
        assert await asked(world, "POST", f"{SEVERAL}/replication", [*LOCAL, "far"]) == 409
        assert await asked(world, "POST", f"{NAMESPACE}/replication", [*LOCAL, "far"]) == 409
        assert (
            await asked(world, "PUT", "/admin/v2/namespaces/public/both", {"replication_clusters": [*LOCAL, "far"]})
            == 409
        )
        assert await asked(world, "POST", f"{NAMESPACE}/replication", ["far"]) == 200
        client = await world.client()
        found = await looked_up(client)
        assert (found.response, found.brokerServiceUrl) == (pb.CommandLookupTopicResponse.Redirect, "pulsar://far:6650")
        assert found.authoritative
        answer = await ask(rest_application(world.broker), "GET", "/lookup/v2/topic/persistent/public/default/t", b"")
        assert answer.status == 307
        # What is stored of partitions is told, as it may be stored for all clusters; nothing is made on demand.
        assert (await partitions(client, f"{TOPIC}-new")).partitions == 0
        assert (await partitions(client, "persistent://public/default/several")).partitions == 3
        assert TopicName.parse(f"{TOPIC}-new").local_name not in f"{await world.broker.registry.list('public/default')}"
        # Peers of which no address is known.
        assert await asked(world, "POST", "/admin/v2/clusters/standalone/peers", ["bare"]) == 204
        assert await asked(world, "POST", f"{NAMESPACE}/replication", ["bare"]) == 200
        assert "no brokerServiceUrl is stored" in (await looked_up(client)).message

    run_with_broker(scenario, delete_inactive_topics=False)


def test_what_is_heard_of_the_store_alone_unloads_it_too() -> None:
    """As of a configuration store that clusters share."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        await world.resources.namespaces.set_policy("public/default", "replication_clusters", ["far"])
        async with asyncio.timeout(5):
            await client.expect(Type.CLOSE_PRODUCER)

    run_with_broker(scenario, delete_inactive_topics=False)


@pytest.mark.parametrize("is_copied", [False, True])
def test_who_looks_at_a_topic_of_a_namespace_that_was_taken_out_changes_nothing_of_it(is_copied: bool) -> None:
    """It is loaded then: what was not copied stays so, and it is not deleted as one that nobody uses."""

    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        await prepared(world)
        client = await world.publisher(producer_name="producer")
        assert await asked(world, "POST", f"{NAMESPACE}/replication", [*LOCAL, "far"]) == 200
        if not is_copied:
            other.refused.add(b"kept")
        await client.publish(0, b"kept")
        await wait_ms(100)
        assert await asked(world, "POST", f"{NAMESPACE}/replication", ["far"]) == 200
        assert world.broker.topics == {}
        left = json.loads((await ask(rest_application(world.broker), "GET", f"{NAMESPACE}/leftTopics", b"")).body)
        assert (left["topics"], left["topicsNotCopied"]) == (1, int(not is_copied))
        path = "/admin/v2/persistent/public/default/topic/stats"
        assert await asked(world, "GET", path) == 200
        assert list(world.broker.topics) == [TOPIC]
        await wait_ms(200_000)
        again = json.loads((await ask(rest_application(world.broker), "GET", f"{NAMESPACE}/leftTopics", b"")).body)
        assert again == left
        other.refused.clear()
        assert await asked(world, "POST", f"{NAMESPACE}/replication", [*LOCAL, "far"]) == 200
        assert await asked(world, "GET", path) == 200
        await wait_ms(60_000)
        assert other.payloads == [b"kept"]

    run_with_broker(scenario, delete_inactive_topics_after_s=60)


def test_what_a_namespace_that_came_back_has_is_not_left_over_whatever_a_server_that_lags_behind_says() -> None:
    async def scenario(node: sim.SimNode) -> None:
        store = MetadataBehind(node.runtime)
        world = BrokerWorld(node.runtime, BrokerConfig(), ManagedLedgerConfig(), store=store)
        await world.start()
        await prepared(world)
        await world.broker.registry.get(TopicName.parse(TOPIC), create=True)
        await world.resources.namespaces.set_policy("public/default", "replication_clusters", ["far"])
        before = await store.get("/admin/policies/public/default")
        await world.resources.namespaces.set_policy("public/default", "replication_clusters", [*LOCAL])
        store.nodes_before["/admin/policies/public/default"] = before
        assert await asked(world, "DELETE", f"{NAMESPACE}/leftTopics?topics=1") == 412
        assert await world.broker.registry.exists(TopicName.parse(TOPIC))
        await world.stop()

    async def main(world: sim.SimWorld) -> None:
        await world.node("broker").run(scenario)

    sim.run(main)
