"""The rows hold every policy that Pulsar 4.2.4 has, each once, and what they say is there."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from geminga.broker.access.core.actions import PolicyName
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.coercion import Json
from geminga.broker.policies.core.delivery_rows import DELAYED_DELIVERY
from geminga.broker.policies.core.rate_rows import DISPATCH_RATE
from geminga.broker.policies.core.rates import dispatch_rate_of
from geminga.broker.policies.core.record_rows import PROPERTIES
from geminga.broker.policies.core.row import PolicyRow
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.policies.core.schema_rows import SCHEMA_COMPATIBILITY
from geminga.broker.policies.core.storage_rows import PERSISTENCE
from geminga.broker.policies.rules import broker_levels
from geminga.broker.resources.policies import new_policies
from geminga.broker.schema.core.strategy import Strategy
from geminga.managed_ledger import ManagedLedgerConfig
from support.house.source_tree import ROOT

SETTINGS = {**broker_levels(BrokerConfig()), **broker_levels(ManagedLedgerConfig())}
#: Members of Pulsar's classes, and the names of its permissions.
PULSAR = json.loads((ROOT / "tests" / "samples" / "policies-4.2.4.json").read_text(encoding="utf-8"))
#: Members that Pulsar 5.0 added and that are built.
OF_5_0 = ("is_allow_auto_update_schema_with_replicator",)


def test_each_member_of_pulsars_classes_is_in_exactly_one_row() -> None:
    namespace = [row.namespace.key for row in ROWS if row.namespace is not None]
    topic = [name for row in ROWS if row.topic is not None for name in row.topic.avro]
    assert Counter(namespace) == Counter([*PULSAR["Policies"], *OF_5_0])
    assert Counter(topic) == Counter(PULSAR["TopicPolicies"])
    assert len(topic) == 35


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_a_row_names_is_there(row: PolicyRow) -> None:
    assert row.policy.name in PULSAR["PolicyName"]
    assert row.text
    assert all(key in SETTINGS for key in row.keys)
    assert row.followed_by, "nobody follows it"
    for path in row.followed_by:
        assert (ROOT / "src" / "geminga" / "broker" / path).exists(), path
    for level in (row.namespace, row.topic):
        rest = level.rest if level is not None else None
        assert rest is None or rest.set_by in ("POST", "PUT")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_brokers_own_value_is_one_that_the_policy_could_have(row: PolicyRow) -> None:
    told = row.broker_level(SETTINGS)
    if told is not None and row.keys:
        # Rates that limit nothing are none, and so are no filters.
        none = (PolicyName.RATE, PolicyName.REPLICATION_RATE, PolicyName.ENTRY_FILTERS)
        assert row.read(told) is not None or row.policy in none
        assert row.value_of([None, None, told]) == row.read(told)
        assert row.merged([None, None, told]) == told
    assert row.value_of([None, None, None]) == row.otherwise


def test_a_new_namespace_sets_nothing() -> None:
    document = new_policies(["here"])
    for row in ROWS:
        level = row.namespace
        if level is not None and level.key not in (
            "replication_clusters",
            "bundles",
            "auth_policies",
            "properties",
            "backlog_quota_map",
        ):
            value = level.stored(document, "here")
            assert row.value_of([value]) == row.otherwise, row.name


def test_a_strategy_of_older_tools_counts_where_the_present_one_is_not_set() -> None:
    level = SCHEMA_COMPATIBILITY.namespace
    assert level is not None
    old = {"schema_auto_update_compatibility_strategy": "Forward"}
    for present, expected in ((None, Strategy.FORWARD), ("UNDEFINED", Strategy.FORWARD), ("FULL", Strategy.FULL)):
        document = {**old, "schema_compatibility_strategy": present}
        assert SCHEMA_COMPATIBILITY.value_of([level.stored(document, "here")]) is expected


def test_values_by_cluster_are_set_and_removed_one_by_one() -> None:
    level = DISPATCH_RATE.namespace
    assert level is not None
    document = {"topicDispatchRate": {"far": {"a": 1}}, "other": 2}
    changed = level.changed(document, "here", {"b": 2})
    assert changed == {"topicDispatchRate": {"far": {"a": 1}, "here": {"b": 2}}, "other": 2}
    assert level.reported(changed, "here") == {"b": 2}
    assert level.changed(changed, "here", None) == document
    assert level.changed({"topicDispatchRate": "what"}, "here", None) == {"topicDispatchRate": {}}


def test_a_policy_of_several_fields_is_set_and_told_as_one() -> None:
    level = DELAYED_DELIVERY.topic
    assert level is not None
    value = {"tickTime": 5, "active": True, "maxDeliveryDelayInMillis": 0}
    stored = level.changed({"other": 1}, value)
    assert stored["delayedDeliveryEnabled"] is True
    assert stored["other"] == 1
    assert level.reported(stored) == value
    assert level.reported({"delayedDeliveryTickTimeMillis": 5}) is None
    # The tick alone, which older versions could set, counts all the same.
    only_tick = level.stored({"delayedDeliveryTickTimeMillis": 5})
    assert DELAYED_DELIVERY.value_of([only_tick, {"active": False, "tickTime": 7}]) == (False, 5, 0)


def test_quorums_that_can_not_be_set_nothing() -> None:
    good = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2}
    assert PERSISTENCE.read(good) == (3, 2, 2, 0.0)
    for key, value in (("bookkeeperAckQuorum", 3), ("bookkeeperEnsemble", 6), ("bookkeeperWriteQuorum", "2")):
        assert PERSISTENCE.read({**good, key: value}) is None


def test_properties_of_a_namespace_have_bounds() -> None:
    assert PROPERTIES.check({"a": 1, "b": True}) == {"a": "1", "b": "true"}
    for given in ({str(number): "" for number in range(1001)}, {"a": "x" * (128 * 1024)}, {"a": None}, {"a": []}, 3):
        with pytest.raises(Exception, match=r"must be|at most"):
            PROPERTIES.check(given)


def test_the_older_name_of_the_dispatch_rate_counts_last() -> None:
    """What a namespace of Pulsar 2.2 has: followed where nothing else is set, and no answer to who asks for it."""

    def rate(messages: int) -> Json:
        return {"here": {"dispatchThrottlingRateInMsg": messages, "ratePeriodInSecond": 1}, "there": {}}

    old: dict[str, Json] = {"clusterDispatchRate": rate(5)}
    both = {**old, "topicDispatchRate": rate(7)}
    level = DISPATCH_RATE.namespace
    assert level is not None
    for document, expected in ((old, 5), (both, 7), ({}, None)):
        found = dispatch_rate_of(level.stored(document, "here"))
        assert (found.messages if found is not None else None) == expected
        assert dispatch_rate_of(level.stored(document, "there")) is None
    assert level.reported(old, "here") is None
    for wrong in ({"clusterDispatchRate": 5}, {"clusterDispatchRate": {"here": 5}}):
        assert dispatch_rate_of(level.stored(wrong, "here")) is None
