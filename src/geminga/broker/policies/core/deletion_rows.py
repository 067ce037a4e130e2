"""How long messages, subscriptions and topics stay, and how large a backlog becomes."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import PolicyName
from geminga.broker.core.coercion import Json
from geminga.broker.policies.core.avro_types import enum, mapping, optional, record
from geminga.broker.policies.core.readers import (
    AGE_QUOTA,
    SIZE_QUOTA,
    Inactivity,
    Quotas,
    RetentionPolicy,
    count_of,
    document_of,
    inactivity_of,
    memberwise,
    quotas_of,
    retention_of,
)
from geminga.broker.policies.core.row import NO_POLICIES, NamespaceLevel, Nothing, PolicyRow, Rest, TopicLevel
from geminga.broker.policies.core.values import (
    check_expiration,
    check_inactive,
    check_retention,
    check_ttl,
    limit_check,
)

_DATA: Final = "org.apache.pulsar.common.policies.data"
_GIB: Final = 1 << 30


def _retention(minutes: object, size_mb: object) -> Json:
    assert isinstance(minutes, int)
    assert isinstance(size_mb, int)
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}


RETENTION: Final = PolicyRow(
    name="retention",
    policy=PolicyName.RETENTION,
    read=retention_of,
    otherwise=RetentionPolicy(0, 0),
    check=check_retention,
    keys=("defaultRetentionTimeInMinutes", "defaultRetentionSizeInMB"),
    of_broker=_retention,
    namespace=NamespaceLevel("retention_policies", Rest("retention", missing=NO_POLICIES)),
    topic=TopicLevel(
        {
            "retentionPolicies": optional(
                record(f"{_DATA}.RetentionPolicies", {"retentionTimeInMinutes": "int", "retentionSizeInMB": "long"})
            )
        },
        Rest("retention", nothing=Nothing.CHANGES_NOTHING),
    ),
    followed_by=("topic/retention.py", "upkeep/inactive_topics.py"),
    text="How long, and how much of, what every subscription acknowledged is kept.",
)
MESSAGE_TTL: Final = PolicyRow(
    name="messageTTL",
    policy=PolicyName.TTL,
    read=count_of,
    otherwise=0,
    check=check_ttl,
    keys=("ttlDurationDefaultInSeconds",),
    namespace=NamespaceLevel("message_ttl_in_seconds", Rest("messageTTL", nothing=Nothing.IS_REFUSED)),
    topic=TopicLevel(
        {"messageTTLInSeconds": optional("int")},
        Rest("messageTTL", parameter="messageTTL", check=limit_check("Invalid value for message TTL")),
    ),
    followed_by=("upkeep/policies.py",),
    text="Seconds after which messages are acknowledged for every subscription; 0: never.",
)


def _quotas(size_bytes: object, size_gb: object, seconds: object, action: object) -> Json:
    assert isinstance(size_bytes, int)
    assert isinstance(size_gb, float | int)
    assert isinstance(seconds, int)
    # The older key wins where it is set, as in Pulsar.
    size = int(size_gb * _GIB) if size_gb > 0 else size_bytes
    policy = str(action)
    return {
        SIZE_QUOTA: {"limit": size, "limitSize": size, "limitTime": -1, "policy": policy},
        AGE_QUOTA: {"limit": -1, "limitSize": -1, "limitTime": seconds, "policy": policy},
    }


BACKLOG_QUOTAS: Final = PolicyRow(
    name="backlogQuota",
    policy=PolicyName.BACKLOG,
    read=quotas_of,
    otherwise=Quotas(),
    # Set one by one, by a check that names the namespace.
    check=lambda value: value,
    keys=(
        "backlogQuotaDefaultLimitBytes",
        "backlogQuotaDefaultLimitGB",
        "backlogQuotaDefaultLimitSecond",
        "backlogQuotaDefaultRetentionPolicy",
    ),
    of_broker=_quotas,
    namespace=NamespaceLevel("backlog_quota_map", Rest("backlogQuota", is_by_hand=True), new={}),
    topic=TopicLevel(
        {
            "backLogQuotaMap": optional(
                mapping(
                    record(
                        f"{_DATA}.impl.BacklogQuotaImpl",
                        {
                            "limit": "long",
                            "limitSize": optional("long"),
                            "limitTime": "int",
                            "policy": optional(
                                enum(
                                    f"{_DATA}.BacklogQuota.RetentionPolicy",
                                    "producer_request_hold",
                                    "producer_exception",
                                    "consumer_backlog_eviction",
                                )
                            ),
                        },
                    )
                )
            )
        },
        Rest("backlogQuota", is_by_hand=True),
    ),
    merge=memberwise({SIZE_QUOTA: document_of, AGE_QUOTA: document_of}),
    followed_by=("topic/quota_guard.py",),
    text="How much, or how old, the backlog of a subscription becomes, and what happens then.",
)
SUBSCRIPTION_EXPIRY: Final = PolicyRow(
    name="subscriptionExpirationTime",
    policy=PolicyName.SUBSCRIPTION_EXPIRATION_TIME,
    read=count_of,
    otherwise=0,
    check=check_expiration,
    keys=("subscriptionExpirationTimeMinutes",),
    namespace=NamespaceLevel(
        "subscription_expiration_time_minutes", Rest("subscriptionExpirationTime", nothing=Nothing.IS_REFUSED)
    ),
    topic=TopicLevel(
        {"subscriptionExpirationTimeInMinutes": optional("int")},
        Rest("subscriptionExpirationTime", parameter="subscriptionExpirationTime"),
    ),
    followed_by=("upkeep/policies.py",),
    text="Minutes after which a durable subscription that nobody uses is deleted; 0: never.",
)


def _inactivity(is_deleted: object, mode: object, seconds: object, frequency_s: object) -> Json:
    after_s = seconds or frequency_s
    assert isinstance(after_s, int)
    return {
        "inactiveTopicDeleteMode": str(mode),
        "maxInactiveDurationSeconds": after_s,
        "deleteWhileInactive": bool(is_deleted),
    }


INACTIVE_TOPICS: Final = PolicyRow(
    name="inactiveTopicPolicies",
    policy=PolicyName.INACTIVE_TOPIC,
    read=inactivity_of,
    otherwise=Inactivity(),
    check=check_inactive,
    keys=(
        "brokerDeleteInactiveTopicsEnabled",
        "brokerDeleteInactiveTopicsMode",
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
        "brokerDeleteInactiveTopicsFrequencySeconds",
    ),
    of_broker=_inactivity,
    namespace=NamespaceLevel("inactive_topic_policies", Rest("inactiveTopicPolicies", missing=NO_POLICIES)),
    topic=TopicLevel(
        {
            "inactiveTopicPolicies": optional(
                record(
                    f"{_DATA}.InactiveTopicPolicies",
                    {
                        "inactiveTopicDeleteMode": optional(
                            enum(
                                f"{_DATA}.InactiveTopicDeleteMode",
                                "delete_when_no_subscriptions",
                                "delete_when_subscriptions_caught_up",
                            )
                        ),
                        "maxInactiveDurationSeconds": "int",
                        "deleteWhileInactive": "boolean",
                    },
                )
            )
        },
        Rest("inactiveTopicPolicies"),
    ),
    followed_by=("upkeep/inactive_topics.py",),
    text="Whether, and after how many seconds, a topic that nobody uses is deleted.",
)

ROWS: Final = (RETENTION, MESSAGE_TTL, BACKLOG_QUOTAS, SUBSCRIPTION_EXPIRY, INACTIVE_TOPICS)
