"""Answers of several brokers become one, and a refusal counts where it should."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from starlette.requests import Request
from starlette.responses import Response

from geminga import sim
from geminga.broker.core.steps import drained
from geminga.broker.peers.http_client import PeerAnswer
from geminga.broker.resources import PartitionedTopic
from geminga.broker.rest.calls.requests import RestError
from geminga.broker.rest.topic_routes import messages, scatter_gather, subscriptions, topics
from geminga.broker.rest.topic_routes.scatter_gather import (
    GATHERED,
    PartitionAnswer,
    _are_here,
    _ask_all,
    _partitions,
    settled,
)
from geminga.broker.upkeep.admin_steps import AdminSteps
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime.turns import TURN_STEPS_MAX

TOPIC = TopicName.parse("persistent://t/n/whole")


def answered(*statuses: int, bodies: list[object] | None = None) -> list[PartitionAnswer]:
    found = bodies or [{"reason": f"because {status}"} for status in statuses]
    return [
        PartitionAnswer(TOPIC.with_partition(index), PeerAnswer(status, json.dumps(body).encode(), "b:8080"))
        for index, (status, body) in enumerate(zip(statuses, found, strict=True))
    ]


def request(query: str = "") -> Request:
    parameters = {"domain": "persistent", "tenant": "t", "namespace": "n", "topic": "whole"}
    scope = {"type": "http", "query_string": query.encode(), "path_params": parameters, "headers": [], "state": {}}
    made = Request(scope)
    made.state.partitions = 3
    made.state.properties = {"team": "east"}
    return made


@pytest.mark.parametrize(
    ("handler", "statuses"),
    [
        (subscriptions.skip_all, (204, 404)),
        (subscriptions.create_subscription, (409, 204)),
        (subscriptions.list_subscriptions, (404, 404)),
        (topics.unload, (404, 404)),
        (topics.truncate, (204, 404, 204)),
        (topics.trim, (404, 404)),
    ],
)
def test_a_refusal_of_some_partitions_may_be_none(handler, statuses) -> None:
    found = settled(answered(*statuses), GATHERED[handler])
    assert len(found) == sum(status < 300 for status in statuses)


@pytest.mark.parametrize(
    ("handler", "statuses", "status"),
    [
        (subscriptions.skip_all, (404, 404), 404),
        (subscriptions.create_subscription, (409, 409), 409),
        (subscriptions.expire_messages, (204, 409), 409),
        (topics.terminate_partitions, (200, 404), 404),
        (subscriptions.delete_subscription, (204, 412), 412),
        (topics.truncate, (204, 405), 405),
    ],
)
def test_a_refusal_that_counts_is_the_answer(handler, statuses, status) -> None:
    with pytest.raises(RestError, match=f"because {status}") as raised:
        settled(answered(*statuses), GATHERED[handler])
    assert raised.value.http_status == status


def test_a_broker_that_fails_is_named_with_the_partition() -> None:
    with pytest.raises(UnavailableError, match=r"whole-partition-1: because 500 \(the broker at b:8080\)"):
        settled(answered(204, 500), GATHERED[subscriptions.skip_all])


def test_names_numbers_and_documents_are_joined() -> None:
    def joined(handler, *bodies: object, query: str = "") -> object:
        found = GATHERED[handler].join(request(query), answered(*(200 for _ in bodies), bodies=list(bodies)))
        return json.loads(found.body) if isinstance(found, Response) else drained(found)

    assert joined(subscriptions.list_subscriptions, ["a", "b"], ["b", "c"]) == ["a", "b", "c"]
    assert joined(subscriptions.get_properties, {"k": "v"}, {}) == {"k": "v"}
    assert joined(topics.terminate_partitions, {"ledgerId": 1}, {"ledgerId": 2}) == {
        "0": {"ledgerId": 1},
        "1": {"ledgerId": 2},
    }
    one = {"msgInCounter": 3, "publishers": [], "subscriptions": {}}
    stats = joined(topics.get_partitioned_stats, one, one)
    assert stats["metadata"]["properties"] == {"team": "east"}
    assert isinstance(stats, dict)
    assert (stats["msgInCounter"], stats["metadata"]["partitions"], len(stats["partitions"])) == (6, 3, 2)
    stats = joined(topics.get_partitioned_stats, one, query="perPartition=false")
    assert isinstance(stats, dict)
    assert stats["partitions"] == {}
    assert joined(topics.get_partitioned_internal_stats, {"entries": 1}) == {
        "metadata": {"partitions": 3, "deleted": False, "properties": {"team": "east"}},
        "partitions": {"persistent://t/n/whole-partition-0": {"entries": 1}},
    }
    backlog = {"storageSize": 2, "totalMessages": 1, "messageBacklog": 1, "dataLedgerDetails": [{}], "topicName": "x"}
    assert joined(messages.backlog, backlog, {**backlog, "cursorDetails": {"s": {}}}) == {
        **backlog,
        "storageSize": 4,
        "totalMessages": 2,
        "messageBacklog": 2,
        "dataLedgerDetails": [{}, {}],
        "cursorDetails": {"s": {}},
        "topicName": str(TOPIC),
    }


def test_what_is_no_json_object_is_told() -> None:
    with pytest.raises(UnavailableError, match="no JSON object"):
        GATHERED[topics.terminate_partitions].join(request(), answered(200, bodies=[[1]]))


def test_partitions_are_counted_up_in_turns_of_the_loop() -> None:
    """Names of all partitions were made at once: for a million of them a broker answered nobody meanwhile."""
    count = 10 * TURN_STEPS_MAX

    async def scenario(world: sim.SimWorld) -> None:
        async def find(_name: TopicName) -> PartitionedTopic:
            return PartitionedTopic(count)

        async def is_used(partition: TopicName) -> bool:
            return partition.partition % 5000 == 7

        async def is_here(_partition: TopicName) -> bool:
            return True

        clock = world.node("broker").runtime.clock
        parts = SimpleNamespace(
            resources=SimpleNamespace(partitioned_topics=SimpleNamespace(find=find)),
            partitions=SimpleNamespace(is_used=is_used),
            steps=lambda: AdminSteps(clock, lambda: False),
        )
        asked = request()
        asked.scope.update(
            app=SimpleNamespace(state=SimpleNamespace(context=SimpleNamespace(topics=parts))), method="GET"
        )
        for method, names in (("GET", range(7, count, 5000)), ("PUT", range(count))):
            asked.scope["method"] = method
            before = asyncio.get_running_loop().steps
            found = await _partitions(asked)
            assert [partition.partition for partition in found] == list(names)
            assert asyncio.get_running_loop().steps - before >= 9
        before = asyncio.get_running_loop().steps
        assert await _are_here(asked, SimpleNamespace(is_here=is_here), found)
        assert asyncio.get_running_loop().steps - before >= 9

    sim.run(scenario)


def test_partitions_are_asked_in_groups_to_the_last_or_to_a_refusal_that_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scatter_gather, "PARTITIONS_AT_ONCE", 2)
    refused: set[int] = set()
    heard: list[int] = []

    async def ask(partition: TopicName, method: str, rest: str, *, query: str, body: bytes) -> PeerAnswer:
        heard.append(partition.partition)
        status = 412 if partition.partition in refused else 204
        return PeerAnswer(status, b'{"reason": "no"}', "b:8080")

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    def made() -> Request:
        app = SimpleNamespace(state=SimpleNamespace(context=SimpleNamespace(body_bytes_max=-1)))
        path = "/admin/v2/persistent/t/n/whole/unload"
        return Request({**request().scope, "path": path, "method": "PUT", "app": app}, receive)

    async def main() -> None:
        partitions = [TOPIC.with_partition(index) for index in range(5)]
        peers = SimpleNamespace(ask=ask)
        found = await _ask_all(made(), peers, partitions, GATHERED[topics.unload])
        assert [one.partition for one in found] == partitions
        assert heard == [0, 1, 2, 3, 4]
        heard.clear()
        refused.add(2)
        with pytest.raises(RestError):
            await _ask_all(made(), peers, partitions, GATHERED[topics.unload])
        assert heard == [0, 1, 2, 3]

    asyncio.run(main())
