"""Which level of policies counts."""

from __future__ import annotations

import itertools

import pytest

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.policies.core.readers import Quota, QuotaAction, RetentionPolicy
from geminga.broker.policies.rules import Levels, TopicRules, broker_levels
from geminga.managed_ledger import ManagedLedgerConfig

DEFAULTS = {
    **broker_levels(ManagedLedgerConfig()),
    **broker_levels(
        BrokerConfig(
            default_retention_minutes=1,
            default_retention_mb=1,
            message_ttl_s=10,
            backlog_quota_bytes=100,
            backlog_quota_s=100,
            backlog_quota_action="producer_request_hold",
            subscription_expiry_minutes=1,
        )
    ),
}


def rules_of(defaults: dict[str, object], namespace: dict | None, topic: dict | None) -> TopicRules:
    return Levels(defaults, "here", namespace or {}, topic or {}).rules()


def quotas_of(*levels: dict | None) -> tuple[Quota | None, Quota | None]:
    rules = rules_of(DEFAULTS, *levels)
    return rules.size_quota, rules.age_quota


@pytest.mark.parametrize(("namespace", "topic"), list(itertools.product((None, 0, 20), (None, 0, 30))))
def test_ttl_is_that_of_the_most_particular_level_that_sets_it(namespace, topic) -> None:
    rules = rules_of(DEFAULTS, {"message_ttl_in_seconds": namespace}, {"messageTTLInSeconds": topic})
    # The oracle is the rule in words: topic, else namespace, else broker; 0 is a value (never), not "unset".
    expected = topic if topic is not None else namespace if namespace is not None else 10
    assert rules.ttl_ms == expected * 1000


@pytest.mark.parametrize(("namespace", "topic"), list(itertools.product((None, 2), (None, 3))))
def test_retention_is_that_of_the_most_particular_level_that_sets_it(namespace, topic) -> None:
    def document(value: int | None):
        return None if value is None else {"retentionTimeInMinutes": value, "retentionSizeInMB": value}

    rules = rules_of(
        DEFAULTS,
        {"retention_policies": document(namespace)},
        {"retentionPolicies": document(topic)},
    )
    expected = topic or namespace or 1
    assert rules.retention == RetentionPolicy(expected, expected)


def test_retention_of_nothing_at_the_topic_beats_retention_of_the_namespace() -> None:
    nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    everything = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    rules = rules_of(DEFAULTS, {"retention_policies": everything}, {"retentionPolicies": nothing})
    assert rules.retention.limits == (0, 0)


def test_quotas_of_each_kind_come_from_their_own_level() -> None:
    namespace = {
        "backlog_quota_map": {
            "destination_storage": {"limitSize": 500, "policy": "producer_exception"},
            "message_age": {"limitTime": 50, "policy": "consumer_backlog_eviction"},
        }
    }
    topic = {"backLogQuotaMap": {"message_age": {"limitTime": 7, "policy": "producer_request_hold"}}}
    assert quotas_of(None, None) == (Quota(100, QuotaAction.HOLD), Quota(100_000, QuotaAction.HOLD))
    assert quotas_of(namespace, None) == (
        Quota(500, QuotaAction.REFUSE),
        Quota(50_000, QuotaAction.EVICT),
    )
    assert quotas_of(namespace, topic) == (Quota(500, QuotaAction.REFUSE), Quota(7_000, QuotaAction.HOLD))


def test_quota_without_limit_at_a_level_switches_off_those_below() -> None:
    unlimited = {"backlog_quota_map": {"destination_storage": {"limitSize": -1, "policy": "producer_exception"}}}
    assert rules_of(DEFAULTS, unlimited, None).size_quota is None
    assert rules_of(DEFAULTS, unlimited, None).age_quota is not None


def test_quota_written_by_old_tools_has_its_size_in_limit() -> None:
    old = {"backlog_quota_map": {"destination_storage": {"limit": 9, "policy": "producer_exception"}}}
    assert rules_of(DEFAULTS, old, None).size_quota == Quota(9, QuotaAction.REFUSE)


@pytest.mark.parametrize(("namespace", "topic"), list(itertools.product((None, False, True), (None, False, True))))
def test_deduplication_is_that_of_the_most_particular_level_that_sets_it(namespace, topic) -> None:
    rules = rules_of(DEFAULTS, {"deduplicationEnabled": namespace}, {"deduplicationEnabled": topic})
    assert rules.deduplication is (topic if topic is not None else bool(namespace))


def test_snapshots_of_sequence_ids_and_delays_are_those_of_the_most_particular_level() -> None:
    of_namespace = {
        "deduplicationSnapshotIntervalSeconds": 7,
        "delayed_delivery_policies": {"active": False, "tickTime": 20},
    }
    of_topic = {
        "deduplicationSnapshotIntervalSeconds": 0,
        "delayedDeliveryEnabled": True,
        "delayedDeliveryTickTimeMillis": 30,
    }
    for namespace, topic, expected in (
        ({}, {}, (120_000, True, 1000)),
        (of_namespace, {}, (7000, False, 20)),
        ({}, of_topic, (0, True, 30)),
        (of_namespace, of_topic, (0, True, 30)),
    ):
        rules = rules_of(DEFAULTS, dict(namespace), dict(topic))
        assert (rules.dedup_snapshot_ms, rules.delays, rules.delay_tick_ms) == expected


def test_subscriptions_expire_by_namespace_or_broker() -> None:
    assert rules_of(DEFAULTS, None, None).subscription_expiry_ms == 60_000
    assert rules_of(DEFAULTS, {"subscription_expiration_time_minutes": 5}, None).subscription_expiry_ms == 300_000
    assert rules_of(DEFAULTS, {"subscription_expiration_time_minutes": 0}, None).subscription_expiry_ms == 0


@pytest.mark.parametrize(("namespace", "topic"), list(itertools.product((None, 0, 20), (None, 0, 30))))
@pytest.mark.parametrize("index", [0, 1])
def test_unacked_limits_are_those_of_the_most_particular_level_that_sets_them(index, namespace, topic) -> None:
    keys = [
        ("max_unacked_messages_per_consumer", "maxUnackedMessagesOnConsumer"),
        ("max_unacked_messages_per_subscription", "maxUnackedMessagesOnSubscription"),
    ][index]
    defaults = {**DEFAULTS, "maxUnackedMessagesPerConsumer": 10, "maxUnackedMessagesPerSubscription": 100}
    rules = rules_of(defaults, {keys[0]: namespace}, {keys[1]: topic})
    # 0 is a value (no limit), not "unset".
    expected = topic if topic is not None else namespace if namespace is not None else (10, 100)[index]
    assert rules.unacked[index] == expected
    assert rules.unacked[1 - index] == (10, 100)[1 - index]


def test_unacked_limit_below_zero_is_none() -> None:
    assert rules_of(DEFAULTS, {"max_unacked_messages_per_consumer": -1}, None).unacked.per_consumer == 0


@pytest.mark.parametrize(
    ("namespace", "topic"), list(itertools.product((None, [], ["Failover"]), (None, [], ["Exclusive", "Shared"])))
)
def test_subscription_types_are_those_of_the_most_particular_level_that_names_any(namespace, topic) -> None:
    defaults = {**DEFAULTS, "subscriptionTypesEnabled": ("Key_Shared",)}
    rules = rules_of(
        defaults,
        {"subscription_types_enabled": namespace},
        {"subscriptionTypesEnabled": topic},
    )
    assert rules.subscription_types == tuple(topic or namespace or ["Key_Shared"])
