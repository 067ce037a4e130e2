"""Topics of a namespace that left the cluster: counted, deleted by who has seen the counts, and not made again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from geminga import Standalone
from geminga.broker.rest.namespace_routes.left_topics import Left, turn_of
from geminga.client.blocking import connect
from geminga.model.topic_name import TopicName
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

NAMESPACE = "public/leaving"
LEFT = f"namespaces/{NAMESPACE}/leftTopics"


@pytest.fixture
def broker() -> Iterator[Standalone]:
    with Standalone() as running:
        rest = Rest(running.web_service_url)
        rest.put("clusters/other", {"serviceUrl": "http://127.0.0.1:9"})
        rest.post("tenants/public", {"adminRoles": [], "allowedClusters": ["standalone", "other"]})
        rest.put(f"namespaces/{NAMESPACE}")
        yield running


def fill(broker: Standalone) -> None:
    """A topic with a policy and a message, a partitioned one, and the events that have the policy."""
    rest = Rest(broker.web_service_url)
    rest.put(f"persistent/{NAMESPACE}/one")
    rest.put(f"persistent/{NAMESPACE}/whole/partitions", 2)
    rest.post(f"persistent/{NAMESPACE}/one/messageTTL?messageTTL=60")
    with connect(broker.service_url) as client:
        client.create_producer(f"persistent://{NAMESPACE}/one").send(b"x")


def leave(broker: Standalone) -> None:
    assert Rest(broker.web_service_url).post(f"namespaces/{NAMESPACE}/replication", ["other"]).status == 200


def test_what_is_left_is_counted_deleted_and_not_made_again(broker: Standalone) -> None:
    rest = Rest(broker.web_service_url)
    fill(broker)
    assert (rest.get(LEFT).status, rest.delete(f"{LEFT}?topics=3").status) == (412, 412)
    leave(broker)
    found = rest.get(LEFT).json
    assert (found["topics"], found["systemTopics"], found["topicsNotCopied"]) == (3, 1, 0)
    assert found["ledgers"] >= 1
    assert set(found) == {"topics", "systemTopics", "ledgers", "bytes", "topicsNotCopied"}
    assert len(found) == len(Left._fields)
    # Who asks has to have seen the counts.
    assert rest.delete(LEFT).status == 412
    refused = rest.delete(f"{LEFT}?topics=2")
    assert (refused.status, "has 3 topics here, not 2" in refused.reason) == (409, True)
    assert rest.get(LEFT).json == found
    assert rest.delete(f"{LEFT}?topics=3").status == 204
    assert rest.get(LEFT).json == {"topics": 0, "systemTopics": 0, "ledgers": 0, "bytes": 0, "topicsNotCopied": 0}
    assert "whole" not in str(rest.get(f"persistent/{NAMESPACE}/partitioned").json)
    # Again is the same as once, and the namespace itself is all clusters'.
    assert rest.delete(f"{LEFT}?topics=0").status == 204
    assert rest.get(f"namespaces/{NAMESPACE}").status == 200
    assert rest.put(f"persistent/{NAMESPACE}/one").status == 412


def test_a_namespace_that_came_back_loses_nothing(broker: Standalone) -> None:
    rest = Rest(broker.web_service_url)
    fill(broker)
    leave(broker)
    rest.post(f"namespaces/{NAMESPACE}/replication", ["standalone"])
    assert rest.delete(f"{LEFT}?topics=3").status == 412
    assert rest.get(f"persistent/{NAMESPACE}/one/internalStats").json["numberOfEntries"] == 1


def test_a_namespace_that_is_not_there_is_404(broker: Standalone) -> None:
    for method in ("get", "delete"):
        assert (
            getattr(Rest(broker.web_service_url), method)("namespaces/public/nowhere/leftTopics?topics=0").status == 404
        )


def test_topics_of_users_go_first_and_policies_of_topics_last() -> None:
    names = ("__change_events", "b", "__transaction_buffer_snapshot", "a")
    turns = sorted((TopicName.parse(f"persistent://{NAMESPACE}/{name}") for name in names), key=turn_of)
    assert [name.local_name for name in turns] == ["a", "b", "__transaction_buffer_snapshot", "__change_events"]
