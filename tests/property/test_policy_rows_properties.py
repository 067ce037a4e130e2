"""Rows against documents that anybody may have written: nothing breaks, and nothing that was there is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.access.core.actions import PolicyName
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.policies.core.row import PolicyRow
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.policies.rules import Levels, TopicRules, broker_levels
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.errors import RemoteError

SETTINGS = {**broker_levels(BrokerConfig()), **broker_levels(ManagedLedgerConfig())}
#: Values near the edges of what Java's types hold, and beyond.
NUMBERS = st.sampled_from(
    [0, 1, -1, 5, 7, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 70), 10**30, 1.5, -0.0]
)
MEMBERS = sorted(
    {
        *("retentionTimeInMinutes", "retentionSizeInMB", "active", "tickTime", "allowAutoSubscriptionCreation"),
        *("allowAutoTopicCreation", "topicType", "defaultNumPartitions", "destination_storage", "message_age"),
        *("limitSize", "limitTime", "limit", "policy", "deleteWhileInactive", "maxInactiveDurationSeconds"),
        *("inactiveTopicDeleteMode", "bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"),
        *("managedLedgerMaxMarkDeleteRate", "dispatchThrottlingRateInMsg", "ratePeriodInSecond", "standalone"),
    }
)
WORDS = st.sampled_from(["FULL", "UNDEFINED", "Shared", "producer_exception", "partitioned", "x", ""])
LEAVES = st.none() | st.booleans() | NUMBERS | WORDS
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=8,
)
NAMESPACE_KEYS = [row.namespace.key for row in ROWS if row.namespace is not None]
TOPIC_KEYS = [name for row in ROWS if row.topic is not None for name in row.topic.avro]
NAMESPACES = st.dictionaries(st.sampled_from([*NAMESPACE_KEYS, "unknown"]), JSON, max_size=6)
TOPICS = st.dictionaries(st.sampled_from([*TOPIC_KEYS, "unknown"]), JSON, max_size=6)
SINGLE = [row for row in ROWS if row.merge is None]


@given(NAMESPACES, TOPICS, TOPICS)
def test_any_documents_come_to_rules(namespace: dict, topic: dict, for_all: dict) -> None:
    rules = Levels(SETTINGS, "standalone", namespace, topic, for_all).rules()
    for name in ("retention", "ttl_ms", "size_quota", "age_quota", "limits", "unacked", "delay_tick_ms"):
        assert getattr(rules, name) is not None or name.endswith("quota")
    assert rules.ttl_ms >= 0
    assert rules.delay_tick_ms >= 1
    assert min(rules.limits) >= 0
    assert rules == Levels(SETTINGS, "standalone", namespace, topic, for_all).rules()
    assert isinstance(rules, TopicRules)


@given(st.sampled_from(SINGLE), NAMESPACES, TOPICS, TOPICS)
def test_the_most_particular_level_that_can_be_read_counts(
    row: PolicyRow, namespace: dict, topic: dict, for_all: dict
) -> None:
    levels = Levels(SETTINGS, "standalone", namespace, topic, for_all)
    # The oracle is the rule in words, with nothing but the levels' values.
    told = []
    if row.topic is not None:
        told += [row.topic.stored(topic), row.topic.stored(for_all)]
    if row.namespace is not None:
        told.append(row.namespace.stored(namespace, "standalone"))
    told.append(row.broker_level(SETTINGS))
    meant = [row.read(value) for value in told if value is not None]
    expected = next((value for value in meant if value is not None), row.otherwise)
    assert levels.value(row) == expected


@given(st.sampled_from(ROWS), NAMESPACES, TOPICS, JSON)
def test_a_change_keeps_everything_else(row: PolicyRow, namespace: dict, topic: dict, value: object) -> None:
    for value_set in (value, None):
        if row.namespace is not None:
            changed = row.namespace.changed(namespace, "standalone", value_set)
            others = {key: one for key, one in namespace.items() if key != row.namespace.key}
            assert {key: one for key, one in changed.items() if key != row.namespace.key} == others
        if row.topic is not None:
            changed = row.topic.changed(topic, value_set)
            others = {key: one for key, one in topic.items() if key not in row.topic.avro}
            assert {key: one for key, one in changed.items() if key not in row.topic.avro} == others


@given(st.sampled_from(ROWS), JSON)
def test_what_a_check_lets_in_is_read_back_and_nothing_else_is_raised(row: PolicyRow, value: object) -> None:
    for level in (row.namespace, row.topic):
        if level is None:
            continue
        if level.rest is not None and level.rest.is_by_hand and level.rest.check is None:
            continue  # its handler checks, with what else it knows: tests/integration/rest, tests/unit/broker/rest
        check = level.rest.check if level.rest is not None else None
        try:
            stored = (check or row.check)(value)
        except RemoteError:
            continue
        # What only stands for "not set" need mean nothing.
        is_blank = isinstance(stored, list) and not any(str(item).strip() for item in stored)
        is_rate = row.policy in (PolicyName.RATE, PolicyName.REPLICATION_RATE)
        assert row.read(stored) is not None or is_blank or is_rate or stored in (None, "UNDEFINED", {})


def test_a_level_that_nobody_set_is_the_brokers() -> None:
    rules = Levels(SETTINGS, "standalone").rules()
    assert rules.unacked == (50_000, 200_000)
    assert rules.retention == (0, 0)
    with pytest.raises(TypeError):
        hash(rules)
