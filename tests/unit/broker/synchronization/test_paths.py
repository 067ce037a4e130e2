"""Which paths, and which values, one cluster takes from another."""

from __future__ import annotations

import json

import pytest

from geminga.broker.resources.configuration_paths import ConfigurationPaths
from geminga.broker.synchronization.paths import (
    PATH_CHARACTERS_MAX,
    VALUE_BYTES_MAX,
    Partitioned,
    cluster_at,
    digest_at,
    is_being_deleted,
    namespace_at,
    partitioned_at,
    partitions_in,
    problem_of_path,
    problem_of_value,
    takes_out,
    value_for,
)
from geminga.model.limits import PARTITIONS_MAX

SHARED = ConfigurationPaths().is_shared
NAMESPACE = "/admin/policies/t/n"
TOPIC = "/admin/partitioned-topics/t/n/persistent/a%2Fb"


@pytest.mark.parametrize(
    "path",
    [
        NAMESPACE,
        TOPIC,
        "/admin/policies/t",
        "/admin/clusters/east",
        "/admin/clusters/east/failureDomain/d",
        "/admin/clusters/east/namespaceIsolationPolicies",
        "/admin/resourcegroups/g",
        f"/admin/policies/{'x' * (PATH_CHARACTERS_MAX - 16)}",
    ],
)
def test_paths_that_clusters_may_share_are_taken(path: str) -> None:
    assert problem_of_path(path, SHARED) == ""


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "admin/policies/t",
        "/admin/policies",
        "/admin/policies/",
        "/admin/policies//n",
        "/admin/policies/../local-policies/t",
        "/admin/policies/./t",
        "/admin/policies/t\x00",
        "/admin/policies/t\ud800",
        "/admin/policies2/t",
        "/admin/configuration",
        "/admin/local-policies/t/n",
        "/admin/clusters/east/policies",
        "/managed-ledgers/t/n/persistent/a",
        "/geminga/configuration-sync/admin/policies/t",
        "/ledgers/idgen/x",
        "/admin/policies" + "/a" * 7,
        # Below what is a document, which could not be deleted then.
        "/admin/policies/t/n/x",
        f"{TOPIC}/x",
        "/admin/partitioned-topics/t/n/persistent",
        "/admin/resourcegroups/g/x",
        "/admin/clusters/east/failureDomain/d/x",
        f"/admin/policies/{'x' * (PATH_CHARACTERS_MAX - 15)}",
    ],
)
def test_other_paths_are_not(path: str) -> None:
    assert problem_of_path(path, SHARED) != ""


def test_values_are_json_objects_of_some_size() -> None:
    def problem(value: bytes | None) -> str:
        return problem_of_value(NAMESPACE, value)

    assert problem(None) == problem(b"{}") == ""
    assert problem(b'{"a":"' + b"x" * (VALUE_BYTES_MAX - 8) + b'"}') == ""
    assert "1000001 bytes" in problem(b'{"a":"' + b"x" * (VALUE_BYTES_MAX - 7) + b'"}')
    for value in (b"[]", b"", b"{", b"\xff", b"[" * 100_000):
        assert "JSON" in problem(value)
    # Nobody could write it again.
    assert "half a character" in problem(b'{"a":"\\ud800"}')
    assert problem(b'{"a":"\\ud83d\\ude00"}') == ""


def test_partitions_are_no_more_than_a_broker_counts() -> None:
    for count, is_taken in ((PARTITIONS_MAX, True), (PARTITIONS_MAX + 1, False), (10**30, False)):
        assert (problem_of_value(TOPIC, b'{"partitions":%d}' % count) == "") == is_taken
    assert problem_of_value(NAMESPACE, b'{"partitions":%d}' % 10**30) == ""


def test_paths_say_what_they_are_of() -> None:
    assert (namespace_at(NAMESPACE), namespace_at("/admin/policies/t"), namespace_at(TOPIC)) == ("t/n", "", "")
    assert namespace_at("/admin/policies/t/c/n") == ""
    assert partitioned_at(TOPIC) == Partitioned("t/n", "persistent", "a%2Fb")
    assert partitioned_at("/admin/partitioned-topics/t/n/persistent") is None
    assert (cluster_at("/admin/clusters/east"), cluster_at("/admin/clusters/east/x"), cluster_at(TOPIC)) == (
        "east",
        "",
        "",
    )


def test_number_of_partitions_is_a_positive_one() -> None:
    counts = [partitions_in(json.dumps({"partitions": count}).encode()) for count in (4, 0, -1, "4", True, 1.5)]
    assert counts == [4, 0, 0, 0, 0, 0]
    assert partitions_in(None) == partitions_in(b"[]") == 0


def test_digest_is_of_what_is_kept_alike() -> None:
    assert digest_at(NAMESPACE, None) == digest_at(NAMESPACE, b"") == ""
    assert digest_at(NAMESPACE, b'{"a":1,"b":2}') == digest_at(NAMESPACE, b'{ "b": 2, "a": 1, "bundles": {} }')
    assert digest_at(TOPIC, b'{"bundles":1}') != digest_at(TOPIC, b"{}")
    assert digest_at(TOPIC, b'{"a":1}') != digest_at(TOPIC, b'{"a":2}')
    assert digest_at(TOPIC, b"no JSON") not in ("", digest_at(TOPIC, b"none"))


def test_bundles_of_a_namespace_are_each_cluster_s_own() -> None:
    here, there = b'{"bundles":{"numBundles":4},"a":1}', b'{"a":2,"bundles":{"numBundles":8}}'
    assert json.loads(value_for(NAMESPACE, here, there)) == {"a": 2, "bundles": {"numBundles": 4}}
    assert json.loads(value_for(NAMESPACE, b'{"a":1}', there)) == {"a": 2}
    assert value_for(NAMESPACE, None, there) == there
    assert value_for(TOPIC, here, there) == there


def test_mark_of_a_deletion_is_seen() -> None:
    assert is_being_deleted(b'{"deleted":true}')
    assert not any(map(is_being_deleted, (b'{"deleted":false}', b"{}", b"[]", b"", None)))


def test_policies_say_whether_they_take_a_cluster_out() -> None:
    both, east = b'{"replication_clusters":["east","west"]}', b'{"replication_clusters":["east"]}'
    assert takes_out("west", both, east)
    assert takes_out("west", b"{}", east)
    assert not takes_out("east", both, east)
    assert not takes_out("west", east, east)
    assert not takes_out("west", None, east)
    assert not takes_out("west", both, b'{"replication_clusters":["east"],"allowed_clusters":["west"]}')
