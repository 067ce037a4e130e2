"""What the policies of namespaces and topics may be set to. Pure.

Each check takes the JSON that a client sent and returns what is stored; it raises BodyError (400) or
PreconditionFailedError (412), mostly with Pulsar's own words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from geminga.broker.core.coercion import (
    INT_MAX,
    LONG_MAX,
    BodyError,
    Document,
    Json,
    boolean_of,
    number_of,
    object_of,
    shown,
    text_of,
    texts_of,
)
from geminga.broker.policies.core.readers import (
    AUTO_UPDATE_STRATEGIES,
    INACTIVE_MODES,
    SIZE_QUOTA,
    SUBSCRIPTION_TYPES,
    RetentionPolicy,
    retention_of,
)
from geminga.broker.schema.core.strategy import Strategy
from geminga.model.errors import PreconditionFailedError

#: Properties of a namespace, and their characters altogether: its node in the metadata holds all its policies.
PROPERTIES_MAX: Final = 1000
PROPERTIES_CHARACTERS_MAX: Final = 128 * 1024
#: Pulsar's bound of E, Qw and Qa.
ENSEMBLE_MAX: Final = 5
SCHEMA_STRATEGIES: Final = tuple(strategy.value for strategy in Strategy)
QUOTA_POLICIES: Final = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
#: Limits of a quota and their largest values. ``limit`` is what ``limitSize`` was called.
QUOTA_LIMITS: Final = {"limitSize": LONG_MAX, "limitTime": INT_MAX}
#: A member of ``DelayedDeliveryPolicies`` whose effect is missing.
_TOPIC_TYPES: Final = ("partitioned", "non-partitioned")


def check_boolean(value: Json) -> Json:
    """True or false."""
    return boolean_of(value, "the body")


def check_ttl(value: Json) -> Json:
    """Seconds after which messages expire; 0: never."""
    seconds = number_of(value, "the body")
    if seconds < 0:
        raise PreconditionFailedError("Invalid value for message TTL, message TTL must >= 0")
    return seconds


def check_inactive(value: Json) -> Json:
    """Pulsar's ``InactiveTopicPolicies``: whether topics go, which, and after how many seconds; 0 and less: never."""
    document = object_of(value, "the body")
    is_deleted = document.get("deleteWhileInactive")
    mode = document.get("inactiveTopicDeleteMode")
    if mode is not None and mode not in INACTIVE_MODES:
        raise BodyError(f"inactiveTopicDeleteMode must be one of {', '.join(INACTIVE_MODES)}, not {shown(mode)}")
    found: Document = {
        "maxInactiveDurationSeconds": _member_number(document, "maxInactiveDurationSeconds", INT_MAX, 0),
        "deleteWhileInactive": is_deleted is not None and boolean_of(is_deleted, "deleteWhileInactive"),
    }
    return found if mode is None else {"inactiveTopicDeleteMode": mode, **found}


def check_persistence(value: Json) -> Json:
    """Pulsar's ``PersistencePolicies``: E, Qw, Qa, 1 to 5 each, and mark-deletes stored in a second at most."""
    if value is None:
        raise BodyError("persistence policies should not be null")
    document = object_of(value, "the body")
    words = (("Ensemble", "bookkeeperEnsemble"), ("WriteQuorum", "bookkeeperWriteQuorum"))
    sizes = []
    for word, key in (*words, ("AckQuorum", "bookkeeperAckQuorum")):
        size = _member_number(document, key, INT_MAX, 2)
        if not 0 < size <= ENSEMBLE_MAX:
            raise BodyError(f"Bookkeeper-{word} must be <= {ENSEMBLE_MAX} and > 0.")
        sizes.append(size)
    ensemble, write, ack = sizes
    if not ensemble >= write >= ack:
        raise BodyError(f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack})")
    found: Document = {"bookkeeperEnsemble": ensemble, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack}
    rate = document.get("managedLedgerMaxMarkDeleteRate")
    found["managedLedgerMaxMarkDeleteRate"] = (
        -1.0 if rate is None else _fraction(rate, "managedLedgerMaxMarkDeleteRate")
    )
    if document.get("managedLedgerStorageClassName") is not None:
        found["managedLedgerStorageClassName"] = text_of(
            document["managedLedgerStorageClassName"], "managedLedgerStorageClassName"
        )
    return found


def _fraction(value: Json, what: str) -> float:
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise BodyError(f"{what} must be a number, not {shown(value)}")
    return found


def check_dispatch_rate(value: Json) -> Json:
    """Pulsar's ``DispatchRate``; limits of 0 and less are none."""
    document = object_of(value, "the body")
    is_relative = document.get("relativeToPublishRate")
    return {
        "dispatchThrottlingRateInMsg": _member_number(document, "dispatchThrottlingRateInMsg", INT_MAX, 0),
        "dispatchThrottlingRateInByte": _member_number(document, "dispatchThrottlingRateInByte", LONG_MAX, 0),
        "relativeToPublishRate": False if is_relative is None else boolean_of(is_relative, "relativeToPublishRate"),
        "ratePeriodInSecond": _member_number(document, "ratePeriodInSecond", INT_MAX, 0),
    }


def check_publish_rate(value: Json) -> Json:
    """Pulsar's ``PublishRate``, a second's; limits of 0 and less are none."""
    document = object_of(value, "the body")
    return {
        "publishThrottlingRateInMsg": _member_number(document, "publishThrottlingRateInMsg", INT_MAX, -1),
        "publishThrottlingRateInByte": _member_number(document, "publishThrottlingRateInByte", LONG_MAX, -1),
    }


def check_subscribe_rate(value: Json) -> Json:
    """Pulsar's ``SubscribeRate``; a limit of 0 and less is none."""
    document = object_of(value, "the body")
    return {
        "subscribeThrottlingRatePerConsumer": _member_number(
            document, "subscribeThrottlingRatePerConsumer", INT_MAX, -1
        ),
        "ratePeriodInSecond": _member_number(document, "ratePeriodInSecond", INT_MAX, 30),
    }


def check_expiration(value: Json) -> Json:
    """Minutes after which subscriptions without consumers go; 0: never."""
    minutes = number_of(value, "the body")
    if minutes < 0:
        raise PreconditionFailedError("Invalid value for subscription expiration time")
    return minutes


def limit_check(refusal: str, most: int = INT_MAX) -> Callable[[Json], Json]:
    """A check of a whole number up to ``most``, 0 for no limit; ``refusal`` is said of a negative one."""

    def check(value: Json) -> Json:
        limit = number_of(value, "the body", most)
        if limit < 0:
            raise PreconditionFailedError(refusal)
        return limit

    return check


check_snapshot_interval = limit_check("interval must be greater than or equal to 0")


def check_strategy(value: Json) -> Json:
    """A schema compatibility strategy; nothing is that none is set."""
    if value is None:
        return Strategy.UNDEFINED.value
    if value not in SCHEMA_STRATEGIES:
        raise BodyError(f"the body must be one of {', '.join(SCHEMA_STRATEGIES)}, not {shown(value)}")
    return value


def check_auto_update_strategy(value: Json) -> Json:
    """The older name of one, ``SchemaAutoUpdateCompatibilityStrategy``."""
    if not isinstance(value, str) or value not in AUTO_UPDATE_STRATEGIES:
        raise BodyError(f"the body must be one of {', '.join(AUTO_UPDATE_STRATEGIES)}, not {shown(value)}")
    return value


def check_retention(value: Json) -> Json:
    """Pulsar's ``RetentionPolicies``, without what else the body holds."""
    document = object_of(value, "the body")
    minutes = _member_number(document, "retentionTimeInMinutes", INT_MAX, 0)
    size = _member_number(document, "retentionSizeInMB", LONG_MAX, 0)
    if minutes < -1:
        raise BodyError("Invalid retention policy: time limit must be >= -1")
    if size < -1:
        raise BodyError("Invalid retention policy: size limit must be >= -1")
    if (minutes == 0) != (size == 0):
        raise BodyError(
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has "
            "a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both "
            "limits must be set to 0."
        )
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size}


def check_subscription_types(value: Json) -> Json:
    """Pulsar's names of subscription types, each once and in one order."""
    names = texts_of(value, "the body")
    unknown = [name for name in names if name not in SUBSCRIPTION_TYPES]
    if unknown:
        raise BodyError(f"the body must be a list of {', '.join(SUBSCRIPTION_TYPES)}, not {shown(unknown[0])}")
    return [name for name in SUBSCRIPTION_TYPES if name in names]


def check_topic_creation(value: Json) -> Json:
    """Pulsar's ``AutoTopicCreationOverride``."""
    document = object_of(value, "the body")
    is_allowed = boolean_of(document.get("allowAutoTopicCreation"), "allowAutoTopicCreation")
    given, count = document.get("topicType"), document.get("defaultNumPartitions")
    topic_type = None if given is None else text_of(given, "topicType")
    partitions = None if count is None else number_of(count, "defaultNumPartitions")
    if is_allowed:
        _check_topic_type(topic_type, partitions)
    found: Document = {
        "allowAutoTopicCreation": is_allowed,
        "topicType": topic_type,
        "defaultNumPartitions": partitions,
    }
    return {key: member for key, member in found.items() if member is not None}


def _check_topic_type(topic_type: str | None, partitions: int | None) -> None:
    refusal = ""
    if topic_type not in _TOPIC_TYPES:
        refusal = f"Unknown topic type [{'null' if topic_type is None else topic_type}]"
    elif topic_type == "non-partitioned" and partitions is not None:
        refusal = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
    elif topic_type == "partitioned" and partitions is None:
        refusal = "[defaultNumPartitions] cannot be null when the type is partitioned."
    elif topic_type == "partitioned" and partitions is not None and partitions < 1:
        refusal = "[defaultNumPartitions] cannot be less than 1 for partition type."
    if refusal:
        raise PreconditionFailedError(f"Invalid configuration for autoTopicCreationOverride. the detail is {refusal}")


def check_subscription_creation(value: Json) -> Json:
    """Pulsar's ``AutoSubscriptionCreationOverride``; true or false alone will do."""
    if isinstance(value, bool):
        return {"allowAutoSubscriptionCreation": value}
    key = "allowAutoSubscriptionCreation"
    return {key: boolean_of(object_of(value, "the body").get(key), key)}


def check_delayed_delivery(value: Json) -> Document:
    """Pulsar's ``DelayedDeliveryPolicies``."""
    document = object_of(value, "the body")
    is_active = boolean_of(document.get("active"), "active")
    tick_ms = number_of(document.get("tickTime"), "tickTime", LONG_MAX)
    if tick_ms < 1:
        raise PreconditionFailedError("tickTime must be 1 or more milliseconds")
    longest_ms = _member_number(document, "maxDeliveryDelayInMillis", LONG_MAX, 0)
    return {"tickTime": tick_ms, "active": is_active, "maxDeliveryDelayInMillis": longest_ms}


def check_entry_filters(value: Json) -> Json:
    """Pulsar's ``EntryFilters``; none are set by removing them, as there."""
    # An empty text is Pulsar's JSON software's null.
    given = None if value == "" else object_of(value, "the body").get("entryFilterNames")
    names = "" if given is None else text_of(given, "entryFilterNames")
    if not names.replace(",", " ").strip():
        raise BodyError("entryFilterNames can't be empty. To remove entry filters use the remove method.")
    return {"entryFilterNames": names}


def check_bundles(value: Json) -> Json:
    """Pulsar's ``BundlesData``: boundaries, or how many bundles; the boundaries decide."""
    bundles = object_of(value, "bundles")
    boundaries = [] if bundles.get("boundaries") is None else texts_of(bundles["boundaries"], "boundaries")
    count = _member_number(bundles, "numBundles", INT_MAX, 0)
    return {"boundaries": [*boundaries], "numBundles": max(0, len(boundaries) - 1 if boundaries else count)}


def checked_properties(value: Json) -> Document:
    """Properties of a namespace: names and texts."""
    given = object_of(value, "the body")
    return {key: text_of(text, f"the value of {shown(key)}") for key, text in given.items()}


def check_properties_fit(properties: Mapping[str, Json]) -> None:
    """Raise PreconditionFailedError for more of them than a namespace keeps: every change of a policy rewrites them."""
    if len(properties) > PROPERTIES_MAX:
        raise PreconditionFailedError(f"a namespace has at most {PROPERTIES_MAX} properties")
    size = sum(len(key) + len(str(text)) for key, text in properties.items())
    if size > PROPERTIES_CHARACTERS_MAX:
        raise PreconditionFailedError(f"a namespace's properties have at most {PROPERTIES_CHARACTERS_MAX} characters")


def check_quota(value: Json, namespace: str) -> Document:
    """Pulsar's ``BacklogQuota``, without what else the body holds; -1 and 0 are without limit."""
    quota = object_of(value, "the body")
    if quota.get("policy") not in QUOTA_POLICIES:
        raise BodyError(
            f"Set namespace[{namespace}] backlog quota failed because the data validation failed. "
            "the attribute policy cannot be null"
        )
    old = _member_number(quota, "limit", LONG_MAX, 0)
    limits = {key: _member_number(quota, key, most, 0) for key, most in QUOTA_LIMITS.items()}
    if quota.get("limitSize") is None:
        limits["limitSize"] = old
    for key, limit in limits.items():
        if limit < -1:
            raise BodyError(f"{key} must be -1 (no limit) or more")
    return {"limit": limits["limitSize"], **limits, "policy": quota["policy"]}


def is_quota_within_retention(quotas: Mapping[str, Json], retention: Json) -> bool:
    """Whether what is retained anyway is more than the backlog may have: Pulsar's rule for the quota by size."""
    quota, kept = quotas.get(SIZE_QUOTA), retention_of(retention) or RetentionPolicy(0, 0)
    if not isinstance(quota, dict) or (kept.size_mb <= 0 and kept.time_minutes <= 0):
        return True
    # Set by old administration tools, a quota has no limitSize.
    size = _member_number(quota, "limitSize", LONG_MAX, _member_number(quota, "limit", LONG_MAX, 0))
    seconds = _member_number(quota, "limitTime", INT_MAX, 0)
    if kept.size_mb > 0 and size >= kept.size_mb << 20:
        return False
    return kept.time_minutes <= 0 or seconds < kept.time_minutes * 60


def _member_number(document: Mapping[str, Json], key: str, most: int, unset: int) -> int:
    value = document.get(key)
    return unset if value is None else number_of(value, key, most)
