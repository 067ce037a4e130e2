"""Isolation policies and failure domains over HTTP, and what a broker tells of itself."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from geminga import Standalone
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

POLICIES = "clusters/standalone/namespaceIsolationPolicies"
FAILOVER = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "80"}}


@pytest.fixture(autouse=True)
def without_policies(rest: Rest) -> Iterator[None]:
    yield
    for name in rest.get(POLICIES).json or {}:
        rest.delete(f"{POLICIES}/{name}")


def policy(namespace: str, primary: str = "nobody.*", **more: str) -> dict[str, object]:
    return {
        "namespaces": [namespace],
        "primary": [primary],
        "secondary": [],
        "auto_failover_policy": FAILOVER,
        **more,
    }


def test_a_policy_that_is_set_unloads_the_namespaces_that_may_have_to_go(
    rest: Rest, client: pulsar.Client, namespace: str
) -> None:
    topic = f"persistent://{namespace}/t"

    def counted() -> int:
        """Messages since the topic was loaded."""
        client.create_producer(topic).send(b"x")
        return rest.get(f"persistent/{namespace}/t/stats").json["msgInCounter"]

    assert counted() == 1
    assert rest.post(f"{POLICIES}/mine", policy(namespace, unload_scope="none")).status == 204
    assert rest.post(f"{POLICIES}/other", policy("x/y")).status == 204
    assert counted() == 2
    # The same expressions and brokers again: nothing can have to move.
    assert rest.post(f"{POLICIES}/mine", policy(namespace)).status == 204
    assert counted() == 3
    assert rest.post(f"{POLICIES}/mine", policy(namespace, primary="somebody.*")).status == 204
    assert counted() == 1


def test_what_a_policy_can_not_be_says_what_is_wrong_and_changes_nothing(rest: Rest) -> None:
    for body, told in (
        (policy("(?=x)"), "namespaces: '(?=x)' is no regular expression, or has what RE2 does not know"),
        ({**policy("a/b"), "primary": []}, "primary must have a regular expression"),
        ({**policy("a/b"), "namespaces": ["a"] * 1 + [f"n{n}" for n in range(1000)]}, "1001 members; 1000 are allowed"),
        (policy("a/b", unload_scope="some"), "unload_scope must be one of all_matching, none, changed, not 'some'"),
    ):
        answer = rest.post(f"{POLICIES}/bad", body)
        assert (answer.status, told in answer.reason) == (400, True), answer.reason
    assert "bad" not in (rest.get(POLICIES).json or {})


def test_a_domain_s_name_leads_nowhere_else(rest: Rest) -> None:
    for name in ("..", ".", "a%2F..%2F..%2Fx", "%2Fadmin"):
        for answer in (
            rest.post(f"clusters/standalone/failureDomains/{name}", {"brokers": ["b"]}),
            rest.get(f"clusters/standalone/failureDomains/{name}"),
            rest.delete(f"clusters/standalone/failureDomains/{name}"),
        ):
            assert answer.status in (404, 405, 412)
    assert rest.get("clusters/standalone/failureDomains").json == {}


def test_failure_domains_go_with_their_cluster_and_isolation_policies_hold_it(rest: Rest) -> None:
    rest.put("clusters/west", {"serviceUrl": "http://w:1"})
    assert rest.post("clusters/west/failureDomains/d", {"brokers": ["b"]}).status == 204
    assert rest.post("clusters/west/namespaceIsolationPolicies/p", policy("x/y")).status == 204
    refused = rest.delete("clusters/west")
    assert (refused.status, refused.reason) == (412, "Cluster not empty")
    assert rest.get("clusters/west/failureDomains").json == {"d": {"brokers": ["b"]}}
    assert rest.delete("clusters/west/namespaceIsolationPolicies/p").status == 204
    assert rest.delete("clusters/west").status == 204
    rest.put("clusters/west", {"serviceUrl": "http://w:1"})
    assert rest.get("clusters/west/failureDomains").json == {}
    assert rest.get("clusters/west/namespaceIsolationPolicies").status == 404
    rest.delete("clusters/west")


def test_a_broker_tells_its_bundles_and_the_statistics_of_its_topics(
    broker: Standalone, rest: Rest, client: pulsar.Client, namespace: str
) -> None:
    own = rest.get("brokers").json[0]
    client.create_producer(f"persistent://{namespace}/t").send(b"x")
    bundle = f"{namespace}/{rest.get(f'/lookup/v2/topic/persistent/{namespace}/t/bundle').body.decode()}"
    shared = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    assert rest.get(f"brokers/standalone/{own}/ownedNamespaces").json[bundle] == shared
    rest.post(f"{POLICIES}/mine", policy(namespace, primary="127.*", unload_scope="none"))
    controlled = {"broker_assignment": "primary", "is_controlled": True, "is_active": True}
    assert rest.get(f"brokers/standalone/{own}/ownedNamespaces").json[bundle] == controlled
    client.create_producer(f"persistent://{namespace}/t").send(b"y")
    (domains,) = rest.get("broker-stats/topics").json[namespace].values()
    stats = domains["persistent"][f"persistent://{namespace}/t"]
    assert stats["msgInCounter"] >= 1
    assert stats["producerCount"] >= 1
    assert rest.get("brokers/internal-configuration").json["metadataStoreUrl"] == "memory:local"
