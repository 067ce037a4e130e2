"""The rules of one topic: what its own policies say, else its namespace's, else the broker's. Pure.

Each rule is taken from the most particular level that sets it, as in Pulsar: topic, namespace, broker.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from geminga.broker.policies.core.rates import NO_RATES, TopicRates, rates_of
from geminga.broker.resources.documents import Json
from geminga.broker.resources.policies import Policies, Retention
from geminga.broker.resources.topic_policies import TopicPolicies
from geminga.broker.subscription.limits import UnackedLimits

T = TypeVar("T")

MINUTE_MS: Final = 60_000
#: Pulsar's names of all types of subscriptions.
SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
#: Keys of ``backlog_quota_map``.
SIZE_QUOTA: Final = "destination_storage"
AGE_QUOTA: Final = "message_age"


class QuotaAction(StrEnum):
    """What happens when a backlog quota is used up; values are Pulsar's."""

    #: Producers are disconnected; their clients go on trying until there is room or their send timeout passes.
    HOLD = "producer_request_hold"
    #: Producers are disconnected and told so with an error.
    REFUSE = "producer_exception"
    #: The oldest messages are acknowledged for the subscriptions that are furthest behind.
    EVICT = "consumer_backlog_eviction"


_ACTIONS: Final = {action.value: action for action in QuotaAction}


class Quota(NamedTuple):
    """A backlog quota."""

    #: Bytes, or milliseconds of the oldest message's age.
    limit: int
    action: QuotaAction


class TopicRules(NamedTuple):
    """What holds for one topic."""

    #: Minutes and MiB; -1 without limit.
    retention: Retention = Retention(0, 0)
    #: Messages older than this are acknowledged for every subscription; 0: never.
    ttl_ms: int = 0
    size_quota: Quota | None = None
    age_quota: Quota | None = None
    #: Subscriptions without consumers for this long are deleted; 0: never.
    subscription_expiry_ms: int = 0
    deduplication: bool = False
    #: Between two snapshots of the sequence ids, if anything was stored; 0: by the number of entries only.
    dedup_snapshot_ms: int = 0
    #: Whether messages wait for their delivery time, and how exactly, in milliseconds.
    delays: bool = True
    delay_tick_ms: int = 1000
    unacked: UnackedLimits = UnackedLimits()
    #: Types that new consumers may ask for.
    subscription_types: tuple[str, ...] = SUBSCRIPTION_TYPES
    #: Who publishes, is sent messages or subscribes faster is slowed down.
    rates: TopicRates = NO_RATES


class RuleDefaults(NamedTuple):
    """The broker's own settings."""

    retention: Retention
    ttl_s: int
    #: -1: no limit.
    quota_bytes: int
    quota_s: int
    quota_action: QuotaAction
    subscription_expiry_minutes: int
    deduplication: bool
    dedup_snapshot_s: int
    delays: bool = True
    delay_tick_ms: int = 1000
    unacked: UnackedLimits = UnackedLimits()
    subscription_types: tuple[str, ...] = SUBSCRIPTION_TYPES
    rates: TopicRates = NO_RATES


def rules_of(
    defaults: RuleDefaults, namespace: Policies | None, topic: TopicPolicies | None, cluster: str = ""
) -> TopicRules:
    """The rules of a topic in ``cluster``; None: the level sets nothing."""
    ttl_s, expiry_minutes = defaults.ttl_s, defaults.subscription_expiry_minutes
    snapshot_s = defaults.dedup_snapshot_s
    retention, deduplication = defaults.retention, defaults.deduplication
    delays, tick_ms = defaults.delays, defaults.delay_tick_ms
    per_consumer, per_subscription = defaults.unacked
    types = defaults.subscription_types
    maps: list[dict[str, dict[str, Json]]] = []
    if namespace is not None:
        ttl_s = _set_or(namespace.message_ttl_seconds, ttl_s)
        expiry_minutes = _set_or(namespace.number("subscription_expiration_time_minutes"), expiry_minutes)
        retention = _set_or(namespace.retention, retention)
        deduplication = _set_or(namespace.deduplication_enabled, deduplication)
        snapshot_s = _set_or(namespace.number("deduplicationSnapshotIntervalSeconds"), snapshot_s)
        maps.append(namespace.backlog_quotas)
        per_consumer = _set_or(namespace.number("max_unacked_messages_per_consumer"), per_consumer)
        per_subscription = _set_or(namespace.number("max_unacked_messages_per_subscription"), per_subscription)
        types = namespace.subscription_types_enabled or types
        active, tick = namespace.delayed_delivery
        delays, tick_ms = _set_or(active, delays), _set_or(tick, tick_ms)
    if topic is not None:
        ttl_s = _set_or(topic.message_ttl_seconds, ttl_s)
        retention = _set_or(topic.retention, retention)
        deduplication = _set_or(topic.deduplication_enabled, deduplication)
        snapshot_s = _set_or(topic.number("deduplicationSnapshotIntervalSeconds"), snapshot_s)
        maps.insert(0, topic.backlog_quotas)
        per_consumer = _set_or(topic.number("maxUnackedMessagesOnConsumer"), per_consumer)
        per_subscription = _set_or(topic.number("maxUnackedMessagesOnSubscription"), per_subscription)
        types = topic.subscription_types_enabled or types
        active, tick = topic.delayed_delivery
        delays, tick_ms = _set_or(active, delays), _set_or(tick, tick_ms)
    return TopicRules(
        retention,
        max(0, ttl_s) * 1000,
        _quota(maps, SIZE_QUOTA, "limitSize", defaults.quota_bytes, defaults.quota_action, unit=1),
        _quota(maps, AGE_QUOTA, "limitTime", defaults.quota_s, defaults.quota_action, unit=1000),
        max(0, expiry_minutes) * MINUTE_MS,
        deduplication,
        max(0, snapshot_s) * 1000,
        delays,
        max(1, tick_ms),
        # Old administration tools write -1 for "no limit".
        UnackedLimits(max(0, per_consumer), max(0, per_subscription)),
        types,
        rates_of(
            defaults.rates,
            None if namespace is None else namespace.document,
            None if topic is None else topic.document,
            cluster,
        ),
    )


def _set_or(value: T | None, default: T) -> T:
    return default if value is None else value


def _quota(
    maps: list[dict[str, dict[str, Json]]], kind: str, key: str, default: int, action: QuotaAction, *, unit: int
) -> Quota | None:
    for quotas in maps:
        quota = quotas.get(kind)
        if quota is None:
            continue
        limit = quota.get(key)
        if limit is None and kind == SIZE_QUOTA:
            # Set by old administration tools, which knew of sizes only.
            limit = quota.get("limit")
        found = _ACTIONS.get(str(quota.get("policy")))
        return Quota(limit * unit, found) if isinstance(limit, int) and limit > 0 and found is not None else None
    return Quota(default * unit, action) if default > 0 else None
