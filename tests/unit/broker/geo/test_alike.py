"""``compareTopicPartitions``: topics are copied only to clusters where they, and their creation, are as here."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import ASGIApp

from geminga.broker.peers.http_client import PeerAnswer
from geminga.model.errors import UnavailableError
from support.worlds.cluster_mesh import ClusterMesh, run_mesh
from support.worlds.rest_world import Answer, ask, rest_application

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/persistent/public/default"
COMPARED = f"{NAMESPACE}/replication?compareTopicPartitions=true"
Step = Callable[[str, str, str, object], Coroutine[Any, Any, Answer]]


def in_two_clusters(story: Callable[[Step, dict[str, str]], Coroutine[Any, Any, None]]) -> None:
    """``story`` gets what asks a cluster by name, and texts by path: refusals that west answers in their place."""

    async def scenario(mesh: ClusterMesh) -> None:
        applications: dict[str, ASGIApp] = {}
        refused: dict[str, str] = {}

        async def ask_cluster(cluster: str, path: str) -> PeerAnswer:
            if cluster == "west" and path in refused:
                return PeerAnswer(403, json.dumps({"reason": refused[path]}).encode(), cluster)
            if cluster not in applications:
                raise UnavailableError(f"the broker of {cluster} does not answer")
            answer = await ask(applications[cluster], "GET", path, b"")
            return PeerAnswer(answer.status, answer.body, cluster)

        async def step(cluster: str, method: str, path: str, body: object = None) -> Answer:
            data = b"" if body is None else json.dumps(body).encode()
            return await ask(applications[cluster], method, path, data)

        values = {"allowAutoTopicCreationType": "non-partitioned", "defaultNumPartitions": "1"}
        for name, world in mesh.worlds.items():
            applications[name] = rest_application(
                world.broker, name, ask_cluster=ask_cluster, configuration=lambda: values
            )
            for other in ("east", "west", "gone"):
                await step(name, "PUT", f"/admin/v2/clusters/{other}", {"serviceUrl": f"http://{other}:8080"})
            allowed = {"allowedClusters": ["east", "west", "gone"]}
            assert (await step(name, "POST", "/admin/v2/tenants/public", allowed)).status == 204
            assert (await step(name, "POST", f"{NAMESPACE}/replication", [name])).status == 200
        await story(step, refused)

    run_mesh(scenario, "east", "west")


def refusal(answer: Answer) -> str:
    assert answer.status == 409, answer
    return answer.reason


def test_counts_and_kinds_of_topics_are_compared_and_nothing_is_set_where_they_differ() -> None:
    async def story(step: Step, _: dict[str, str]) -> None:
        for cluster, partitions in (("east", 3), ("west", 2)):
            assert (await step(cluster, "PUT", f"{TOPICS}/several/partitions", partitions)).status == 204
        assert (await step("east", "PUT", f"{TOPICS}/only-here/partitions", 5)).status == 204
        assert (await step("east", "PUT", f"{TOPICS}/one")).status == 204
        assert (await step("west", "PUT", f"{TOPICS}/one/partitions", 4)).status == 204
        reason = refusal(await step("east", "POST", COMPARED, ["east", "west"]))
        assert "'persistent://public/default/one': local cluster has a non-partitioned topic" in reason
        assert reason.endswith("(1 more)")
        assert json.loads((await step("east", "GET", f"{NAMESPACE}/replication")).body) == ["east"]

        assert (await step("west", "DELETE", f"{TOPICS}/one/partitions")).status == 204
        reason = refusal(await step("east", "POST", COMPARED, ["east", "west"]))
        assert "local cluster has 3 partitions, remote cluster 'west' has 2 partitions" in reason
        assert "more" not in reason
        assert (await step("west", "POST", f"{TOPICS}/several/partitions", 3)).status == 204
        assert (await step("east", "POST", COMPARED, ["east", "west"])).status == 200
        # What is there already is not looked at again, as in Pulsar.
        assert (await step("west", "POST", f"{TOPICS}/several/partitions", 4)).status == 204
        assert (await step("east", "POST", COMPARED, ["west", "east"])).status == 200

    in_two_clusters(story)


def test_what_comes_to_be_by_itself_is_compared() -> None:
    async def story(step: Step, _: dict[str, str]) -> None:
        override = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 6}
        assert (await step("west", "POST", f"{NAMESPACE}/autoTopicCreation", override)).status == 204
        reason = refusal(await step("east", "POST", COMPARED, ["east", "west"]))
        assert "topicType: local=non-partitioned, remote=partitioned; defaultNumPartitions: local=1, remote=6" in reason
        assert (await step("east", "POST", f"{NAMESPACE}/autoTopicCreation", override)).status == 204
        assert (await step("east", "POST", COMPARED, ["east", "west"])).status == 200

    in_two_clusters(story)


def test_a_namespace_that_is_missing_there_is_a_conflict_and_one_that_lives_elsewhere_is_not() -> None:
    async def story(step: Step, _: dict[str, str]) -> None:
        other = "/admin/v2/namespaces/public/other"
        assert (await step("east", "PUT", other, {"replication_clusters": ["east"]})).status == 204
        path = f"{other}/replication?compareTopicPartitions=true"
        reason = refusal(await step("east", "POST", path, ["east", "west"]))
        assert "namespace 'public/other' between local cluster and remote cluster 'east' -> 'west'" in reason
        assert (await step("west", "PUT", other, {"replication_clusters": ["gone"]})).status == 204
        topics = "/admin/v2/persistent/public/other/several/partitions"
        assert (await step("east", "PUT", topics, 2)).status == 204
        assert (await step("east", "POST", path, ["east", "west"])).status == 200
        # And without this cluster nothing is copied from it.
        assert (await step("east", "POST", path, ["gone"])).status == 200

    in_two_clusters(story)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (NAMESPACE, "does not tell policies of public/default: no"),
        (f"{TOPICS}/partitioned?includeSystemTopic=true", "does not tell partitioned topics: no"),
        (f"{TOPICS}?includeSystemTopic=true", "does not tell topics: no"),
        ("/admin/v2/brokers/configuration/runtime", "does not tell its configuration: no"),
        (
            f"{TOPICS}/several/partitions?checkAllowAutoCreation=false",
            "partitions of persistent://public/default/sever",
        ),
    ],
)
def test_who_is_refused_there_or_can_not_ask_is_told_which_cluster_and_why(path: str, reason: str) -> None:
    async def story(step: Step, refused: dict[str, str]) -> None:
        for cluster in ("east", "west"):
            assert (await step(cluster, "PUT", f"{TOPICS}/several/partitions", 2)).status == 204
        refused[path] = "no"
        answer = await step("east", "POST", COMPARED, ["east", "west"])
        assert answer.status == 503
        assert answer.reason.startswith("cluster west does not tell ")
        assert reason in answer.reason
        answer = await step("east", "POST", COMPARED, ["east", "gone"])
        assert (answer.status, answer.reason) == (503, "the broker of gone does not answer")
        assert (await step("east", "POST", f"{NAMESPACE}/replication", ["east", "gone"])).status == 200

    in_two_clusters(story)


def test_a_topic_s_own_clusters_are_asked_for_its_partitions_where_they_are_new() -> None:
    async def story(step: Step, refused: dict[str, str]) -> None:
        for cluster, partitions in (("east", 3), ("west", 2)):
            assert (await step(cluster, "PUT", f"{TOPICS}/several/partitions", partitions)).status == 204
            assert (await step(cluster, "PUT", f"{TOPICS}/only-{cluster}/partitions", 2)).status == 204
        assert (await step("east", "PUT", f"{TOPICS}/one")).status == 204
        answer = await step("east", "POST", f"{TOPICS}/several/replication", ["east", "west"])
        assert answer.status == 412
        assert "with different partitions 2 on the remote cluster west" in answer.reason
        assert "to create it with partitions 3" in answer.reason
        assert (await step("east", "GET", f"{TOPICS}/several/replication")).body == b""
        assert (await step("east", "PUT", f"{TOPICS}/plain-there/partitions", 2)).status == 204
        assert (await step("west", "PUT", f"{TOPICS}/plain-there")).status == 204
        answer = await step("east", "POST", f"{TOPICS}/plain-there/replication", ["east", "west"])
        assert answer.status == 412
        assert "with different partitions 0 on the remote cluster west" in answer.reason
        for topic in ("only-east", "one"):
            assert (await step("east", "POST", f"{TOPICS}/{topic}/replication", ["east", "west"])).status == 204
        refused[f"{TOPICS}/several/partitions?checkAllowAutoCreation=false"] = "no"
        answer = await step("east", "POST", f"{TOPICS}/several/replication", ["east", "west"])
        assert answer.status == 503
        assert answer.reason.startswith("cluster west does not tell partitions of")
        refused.clear()
        assert (await step("west", "POST", f"{TOPICS}/several/partitions", 3)).status == 204
        assert (await step("east", "POST", f"{TOPICS}/several/replication", ["east", "west"])).status == 204
        # Who is named already is not asked again: a cluster that is away keeps nobody from naming another.
        refused[f"{TOPICS}/several/partitions?checkAllowAutoCreation=false"] = "no"
        assert (await step("east", "POST", f"{TOPICS}/several/replication", ["west", "east"])).status == 204

    in_two_clusters(story)


def test_clusters_of_a_topic_for_all_clusters_are_those_that_its_namespace_reaches() -> None:
    async def story(step: Step, _: dict[str, str]) -> None:
        assert (await step("east", "PUT", f"{TOPICS}/one")).status == 204
        path = f"{TOPICS}/one/replication?isGlobal=true"
        answer = await step("east", "POST", path, ["east", "west"])
        assert answer.status == 412
        assert "when namespace-level replication is not enabled" in answer.reason
        assert (await step("east", "POST", f"{NAMESPACE}/replication", ["east", "west"])).status == 200
        answer = await step("east", "POST", path, ["east", "gone"])
        assert answer.status == 412
        assert "only be copied to the clusters included in the namespace level" in answer.reason
        assert (await step("east", "POST", path, ["west"])).status == 204

    in_two_clusters(story)
