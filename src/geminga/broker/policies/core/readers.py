"""What one level's value of a policy means, whoever wrote it. Pure.

A reader takes the JSON that a namespace or a topic holds and gives what its effect needs; None: nothing is set, and the
next level counts. Documents can be written by hand and by versions that do not exist yet: a value of another type or
out of its range sets nothing, and never breaks a topic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from geminga.broker.core.coercion import INT_MAX, LONG_MAX, Document, Json
from geminga.broker.core.deletion import CAUGHT_UP_MODE
from geminga.broker.schema.core.strategy import Strategy

#: Pulsar's names of all types of subscriptions.
SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
#: Keys of ``backlog_quota_map``.
SIZE_QUOTA: Final = "destination_storage"
AGE_QUOTA: Final = "message_age"
#: ``SchemaAutoUpdateCompatibilityStrategy``, which the present field replaces -> its value there.
AUTO_UPDATE_STRATEGIES: Final = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
#: The first is Pulsar's own.
INACTIVE_MODES: Final = ("delete_when_no_subscriptions", CAUGHT_UP_MODE)
#: Bound of E, Qw and Qa.
_ENSEMBLE_MAX: Final = 5


class RetentionPolicy(NamedTuple):
    """``RetentionPolicies``: -1 is without limit, 0 is none."""

    time_minutes: int
    size_mb: int

    @property
    def limits(self) -> tuple[int, int]:
        """(milliseconds, bytes); -1 stays "without limit"."""
        time_ms = self.time_minutes * 60_000 if self.time_minutes >= 0 else -1
        return time_ms, self.size_mb << 20 if self.size_mb >= 0 else -1


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


class Quotas(NamedTuple):
    """Both kinds; None: no quota."""

    size: Quota | None = None
    age: Quota | None = None


class Delays(NamedTuple):
    """``DelayedDeliveryPolicies``: whether messages wait for their delivery time, and how exactly."""

    is_active: bool = True
    tick_ms: int = 1000
    #: A message that is to wait for longer is refused; 0: none is.
    longest_ms: int = 0


class TopicCreation(NamedTuple):
    """``AutoTopicCreationOverride``: whether topics are created on demand, of which type, with how many partitions."""

    is_allowed: bool = True
    topic_type: str = "non-partitioned"
    partitions: int = 1


class Inactivity(NamedTuple):
    """``InactiveTopicPolicies``: whether unused topics are deleted."""

    is_deleted: bool = False
    #: Whether a subscription with nothing left to read keeps its topic.
    mode: str = INACTIVE_MODES[0]
    after_s: int = 60


class PersistencePolicy(NamedTuple):
    """``PersistencePolicies``."""

    ensemble: int
    write_quorum: int
    ack_quorum: int
    #: Mark-delete positions stored in a second at most; 0 and less: no bound.
    mark_delete_rate: float


# ---- plain values


def flag_of(value: Json) -> bool | None:
    """True or false."""
    return value if isinstance(value, bool) else None


def count_of(value: Json) -> int | None:
    """A whole number that a Java int holds; less than 0, which old tools write for "no limit", is 0."""
    if isinstance(value, bool) or not isinstance(value, int) or not -INT_MAX - 1 <= value <= INT_MAX:
        return None
    return max(0, value)


def long_of(value: Json) -> int | None:
    """A whole number that a Java long holds."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LONG_MAX else None


def text_value_of(value: Json) -> str | None:
    """A text."""
    return value if isinstance(value, str) else None


def texts_value_of(value: Json) -> tuple[str, ...] | None:
    """Texts; none at all, and blank ones alone, set nothing: some tools write ``[""]`` for an empty list."""
    if not isinstance(value, list):
        return None
    return tuple(item for item in value if isinstance(item, str) and item.strip()) or None


def document_of(value: Json) -> Document | None:
    """A JSON object."""
    return value if isinstance(value, dict) else None


def filters_of(value: Json) -> str | None:
    """Pulsar's ``EntryFilters``: names of filters, with commas between them; blank ones set nothing."""
    names = value.get("entryFilterNames") if isinstance(value, dict) else None
    return (names.strip() or None) if isinstance(names, str) else None


def samples_of(value: Json) -> Document | None:
    """A map from clusters to sample rates: those that ask for something."""
    if not isinstance(value, dict):
        return None
    return {cluster: rate for cluster, rate in value.items() if (long_of(rate) or 0) > 0} or None


# ---- values of their own


def retention_of(value: Json) -> RetentionPolicy | None:
    """Pulsar's ``RetentionPolicies``."""
    if not isinstance(value, dict):
        return None
    minutes, size = long_of(value.get("retentionTimeInMinutes")), long_of(value.get("retentionSizeInMB"))
    return RetentionPolicy(minutes or 0, size or 0)


def quotas_of(value: Json) -> Quotas | None:
    """Pulsar's map of backlog quotas; one that makes no sense, or has no limit, is none."""
    if not isinstance(value, dict):
        return None
    return Quotas(_quota(value.get(SIZE_QUOTA), "limitSize", 1), _quota(value.get(AGE_QUOTA), "limitTime", 1000))


def _quota(value: Json, key: str, unit: int) -> Quota | None:
    if not isinstance(value, dict):
        return None
    limit = value.get(key)
    if limit is None and key == "limitSize":
        # Set by old administration tools, which knew of sizes only.
        limit = value.get("limit")
    found, action = long_of(limit), _ACTIONS.get(str(value.get("policy")))
    return Quota(found * unit, action) if found is not None and found > 0 and action is not None else None


def delays_of(value: Json) -> Delays | None:
    """Pulsar's ``DelayedDeliveryPolicies``."""
    if not isinstance(value, dict):
        return None
    is_active, tick_ms = flag_of(value.get("active")), long_of(value.get("tickTime"))
    longest_ms = long_of(value.get("maxDeliveryDelayInMillis"))
    tick_ms = max(1, tick_ms if tick_ms is not None else Delays().tick_ms)
    return Delays(is_active is not False, tick_ms, max(0, longest_ms or 0))


def types_of(value: Json) -> tuple[str, ...] | None:
    """Types of subscriptions; none at all set nothing."""
    return texts_value_of(value)


def strategy_of(value: Json) -> Strategy | None:
    """A schema compatibility strategy; UNDEFINED sets nothing."""
    if not isinstance(value, str) or value not in Strategy.__members__:
        return None
    strategy = Strategy(value)
    return None if strategy is Strategy.UNDEFINED else strategy


def topic_creation_of(value: Json) -> TopicCreation | None:
    """Pulsar's ``AutoTopicCreationOverride``."""
    if not isinstance(value, dict):
        return None
    topic_type, count = text_value_of(value.get("topicType")), count_of(value.get("defaultNumPartitions"))
    return TopicCreation(value.get("allowAutoTopicCreation") is True, topic_type or "non-partitioned", count or 1)


def subscription_creation_of(value: Json) -> bool | None:
    """Pulsar's ``AutoSubscriptionCreationOverride``."""
    return flag_of(value.get("allowAutoSubscriptionCreation")) if isinstance(value, dict) else None


def inactivity_of(value: Json) -> Inactivity | None:
    """Pulsar's ``InactiveTopicPolicies``; without a time that has passed nothing is deleted."""
    if not isinstance(value, dict):
        return None
    seconds = count_of(value.get("maxInactiveDurationSeconds"))
    is_deleted = value.get("deleteWhileInactive") is True and bool(seconds)
    mode = value.get("inactiveTopicDeleteMode")
    return Inactivity(is_deleted, CAUGHT_UP_MODE if mode == CAUGHT_UP_MODE else INACTIVE_MODES[0], seconds or 0)


def persistence_of(value: Json) -> PersistencePolicy | None:
    """Pulsar's ``PersistencePolicies``; quorums that can not be set nothing."""
    if not isinstance(value, dict):
        return None
    keys = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
    ensemble, write, ack = (count_of(value.get(key)) or 0 for key in keys)
    if not _ENSEMBLE_MAX >= ensemble >= write >= ack >= 1:
        return None
    rate = value.get("managedLedgerMaxMarkDeleteRate")
    is_rate = isinstance(rate, int | float) and not isinstance(rate, bool) and math.isfinite(rate)
    return PersistencePolicy(ensemble, write, ack, float(rate) if is_rate and isinstance(rate, int | float) else 0.0)


# ---- how levels come together

Merge = Callable[[Sequence[Json]], Json]


def first_of(read: Callable[[Json], object | None]) -> Merge:
    """The most particular level that sets something counts, as a whole; else the last one, whatever it says."""

    def merge(levels: Sequence[Json]) -> Json:
        return next((level for level in levels if level is not None and read(level) is not None), levels[-1])

    return merge


def memberwise(reads: Mapping[str, Callable[[Json], object | None]]) -> Merge:
    """Of each member the most particular level that sets it counts; members without a reader if they are not null."""

    def merge(levels: Sequence[Json]) -> Json:
        merged: Document = {}
        for level in levels:
            for key, value in level.items() if isinstance(level, dict) else ():
                read = reads.get(key)
                if key not in merged and value is not None and (read is None or read(value) is not None):
                    merged[key] = value
        return merged or None

    return merge
