"""A namespace is created with no policy that its own path would refuse; how many partitions there may be."""

from __future__ import annotations

import json

import pytest

from geminga.broker.core.coercion import Json
from geminga.model.limits import PARTITIONS_MAX
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import TWO_CLUSTERS, ask, done, rest_application

CLUSTERS = "/admin/v2/clusters"
NAMESPACES = "/admin/v2/namespaces/public"
MANY: Json = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4}
TOO_MANY: Json = {
    "allowAutoTopicCreation": True,
    "topicType": "partitioned",
    "defaultNumPartitions": PARTITIONS_MAX + 1,
}
ELSEWHERE: Json = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": "file:///etc"}


async def prepared(world: BrokerWorld):
    """Two other clusters, one of which the tenant may use."""
    application = rest_application(world.broker)
    await done(application, *TWO_CLUSTERS)
    return application


@pytest.mark.parametrize(
    ("member", "path", "value", "status", "reason"),
    [
        ("allowed_clusters", "allowedClusters", ["standalone", "strange"], 403, "Cluster [strange] is not in the list"),
        ("allowed_clusters", "allowedClusters", ["standalone", "nowhere"], 403, "Cluster [nowhere] is not in the list"),
        ("allowed_clusters", "allowedClusters", ["standalone", "far"], 200, ""),
        ("autoTopicCreationOverride", "autoTopicCreation", MANY, 406, "should be less than or equal to 3"),
        ("offload_policies", "offloadPolicies", ELSEWHERE, 412, "fileSystemURI"),
        ("entryFilters", "entryFilters", {"entryFilterNames": "no-such-filter"}, 400, "no-such-filter"),
    ],
)
def test_what_its_own_path_refuses_is_refused_at_creation(
    member: str, path: str, value: Json, status: int, reason: str
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = await prepared(world)
        by_path = await ask(application, "POST", f"{NAMESPACES}/default/{path}", json.dumps(value).encode())
        made = await ask(application, "PUT", f"{NAMESPACES}/new", json.dumps({member: value}).encode())
        assert (by_path.status, made.status) == (status, status if status >= 400 else 204), (by_path, made)
        if reason:
            assert reason in by_path.reason
            assert reason in made.reason
            assert await world.resources.namespaces.find("public/new") is None

    run_quietly(scenario, partitions_max=3)


def test_no_namespace_has_more_partitions_by_default_than_a_topic_may_have() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = await prepared(world)
        path = f"{NAMESPACES}/default/autoTopicCreation"
        answer = await ask(application, "POST", path, json.dumps(TOO_MANY).encode())
        assert (answer.status, answer.reason) == (
            406,
            f"Number of partitions should be less than or equal to {PARTITIONS_MAX}",
        )
        assert (await ask(application, "POST", path, json.dumps(MANY).encode())).status == 204

    run_quietly(scenario)


@pytest.mark.parametrize(
    ("clusters", "allowed", "kept"),
    [
        ([], ["far"], (["standalone"], ["far", "standalone"])),
        (["far"], ["far"], (["far"], ["far", "standalone"])),
        (["far"], [], (["far"], [])),
        (["standalone", "far"], ["standalone"], None),
    ],
)
def test_a_namespace_is_allowed_where_it_lives_and_where_it_was_made(
    clusters: list[str], allowed: list[str], kept: tuple[list[str], list[str]] | None
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = await prepared(world)
        body = json.dumps({"replication_clusters": clusters, "allowed_clusters": allowed}).encode()
        made = await ask(application, "PUT", f"{NAMESPACES}/new", body)
        if kept is None:
            assert made.status == 400
            assert made.reason == (
                "[public/new] All replication clusters should be included in allowed clusters. "
                "Repl clusters: [standalone, far], allowed clusters: [standalone]"
            )
            return
        assert made.status == 204
        policies = await world.resources.namespaces.get("public/new")
        assert (list(policies.replication_clusters), list(policies.allowed_clusters)) == kept

    run_quietly(scenario)


def test_a_topic_of_more_partitions_than_there_may_be_is_refused_as_in_pulsar() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = await prepared(world)
        topic = "/admin/v2/persistent/public/default/t/partitions"
        refused = await ask(application, "PUT", topic, b"4")
        assert (refused.status, refused.reason) == (406, "Number of partitions should be less than or equal to 3")
        assert (await ask(application, "PUT", topic, b"3")).status == 204
        refused = await ask(application, "POST", topic, b"4")
        told = "Desired partitions 4 can't be greater than the maximum partitions per topic 3."
        assert (refused.status, refused.reason) == (422, told)

    run_quietly(scenario, partitions_max=3)


@pytest.mark.parametrize(
    "body",
    [
        {"bundles": {"numBundles": 2, "boundaries": [f"0x{number:08x}" for number in range(60_000)]}},
        {"autoTopicCreationOverride": {"allowAutoTopicCreation": True, "topicType": "x" * 1_000_000}},
        {"replication_clusters": ["x" * 1_000_000]},
    ],
    ids=["bundles", "text", "cluster"],
)
def test_a_reason_is_short_whatever_was_sent(body: Json) -> None:
    async def scenario(world: BrokerWorld) -> None:
        made = await ask(rest_application(world.broker), "PUT", f"{NAMESPACES}/new", json.dumps(body).encode())
        assert made.status in (400, 403, 412)
        assert 0 < len(made.reason) < 5_000

    run_quietly(scenario)
