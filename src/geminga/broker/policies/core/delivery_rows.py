"""How messages are taken and delivered."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import PolicyName
from geminga.broker.core.coercion import Json, object_of
from geminga.broker.policies.core.avro_types import array, enum, optional, record
from geminga.broker.policies.core.readers import (
    SUBSCRIPTION_TYPES,
    Delays,
    count_of,
    delays_of,
    filters_of,
    flag_of,
    long_of,
    memberwise,
    types_of,
)
from geminga.broker.policies.core.row import NO_POLICIES, NamespaceLevel, Nothing, PolicyRow, Rest, TopicLevel
from geminga.broker.policies.core.values import (
    check_boolean,
    check_delayed_delivery,
    check_entry_filters,
    check_snapshot_interval,
    check_subscription_types,
    limit_check,
)

DEDUPLICATION: Final = PolicyRow(
    name="deduplication",
    policy=PolicyName.DEDUPLICATION,
    read=flag_of,
    otherwise=False,
    check=check_boolean,
    keys=("brokerDeduplicationEnabled",),
    namespace=NamespaceLevel("deduplicationEnabled", Rest("deduplication", nothing=Nothing.IS_REFUSED)),
    topic=TopicLevel({"deduplicationEnabled": optional("boolean")}, Rest("deduplicationEnabled")),
    followed_by=("topic/persistent.py",),
    text="Whether a message that a producer sends again is stored once.",
)
DEDUPLICATION_SNAPSHOTS: Final = PolicyRow(
    name="deduplicationSnapshotInterval",
    policy=PolicyName.DEDUPLICATION_SNAPSHOT,
    read=count_of,
    otherwise=0,
    check=limit_check("interval must be 0 or more"),
    keys=("brokerDeduplicationSnapshotIntervalSeconds",),
    namespace=NamespaceLevel(
        "deduplicationSnapshotIntervalSeconds",
        Rest("deduplicationSnapshotInterval", check=check_snapshot_interval, missing=NO_POLICIES),
    ),
    topic=TopicLevel({"deduplicationSnapshotIntervalSeconds": optional("int")}, Rest("deduplicationSnapshotInterval")),
    followed_by=("topic/deduplication.py",),
    text="Seconds between two snapshots of the sequence ids; 0: by the number of entries only.",
)


def _delays(is_active: object, tick_ms: object, longest_ms: object) -> Json:
    assert isinstance(tick_ms, int)
    assert isinstance(longest_ms, int)
    return {"tickTime": tick_ms, "active": bool(is_active), "maxDeliveryDelayInMillis": longest_ms}


DELAYED_DELIVERY: Final = PolicyRow(
    name="delayedDelivery",
    policy=PolicyName.DELAYED_DELIVERY,
    read=delays_of,
    otherwise=Delays(),
    check=check_delayed_delivery,
    keys=("delayedDeliveryEnabled", "delayedDeliveryTickTimeMillis", "delayedDeliveryMaxDelayInMillis"),
    of_broker=_delays,
    namespace=NamespaceLevel("delayed_delivery_policies", Rest("delayedDelivery", missing=NO_POLICIES)),
    topic=TopicLevel(
        {
            "delayedDeliveryEnabled": optional("boolean"),
            "delayedDeliveryTickTimeMillis": optional("long"),
            "delayedDeliveryMaxDelayInMillis": optional("long"),
        },
        Rest("delayedDelivery"),
        members={
            "delayedDeliveryTickTimeMillis": "tickTime",
            "delayedDeliveryEnabled": "active",
            "delayedDeliveryMaxDelayInMillis": "maxDeliveryDelayInMillis",
        },
        main="active",
    ),
    merge=memberwise({"active": flag_of, "tickTime": long_of, "maxDeliveryDelayInMillis": long_of}),
    followed_by=("topic/persistent.py", "topic/delays.py"),
    text="Whether messages wait for their delivery time, and how exactly; one that is to wait for longer than "
    "`maxDeliveryDelayInMillis` is refused (0 and less: none is).",
)
SUBSCRIPTION_TYPES_ENABLED: Final[PolicyRow[tuple[str, ...]]] = PolicyRow(
    name="subscriptionTypesEnabled",
    policy=PolicyName.SUBSCRIPTION_AUTH_MODE,
    read=types_of,
    otherwise=SUBSCRIPTION_TYPES,
    check=check_subscription_types,
    keys=("subscriptionTypesEnabled",),
    namespace=NamespaceLevel(
        "subscription_types_enabled",
        # An empty list and none set are the same: what the broker enables.
        Rest("subscriptionTypesEnabled", nothing=Nothing.IS_REFUSED, unset=[]),
        new=[],
        removed=[],
    ),
    topic=TopicLevel(
        {
            "subscriptionTypesEnabled": optional(
                array(enum("org.apache.pulsar.common.api.proto.CommandSubscribe.SubType", *SUBSCRIPTION_TYPES))
            )
        },
        Rest(
            "subscriptionTypesEnabled",
            nothing=Nothing.IS_CHECKED,
            unset_status=204,
            # An empty list is none set.
            check=lambda value: check_subscription_types(value) or None,
        ),
    ),
    followed_by=("topic/base.py",),
    text="Types of subscriptions that consumers may ask for.",
)
DISPATCHER_PAUSE: Final = PolicyRow(
    name="dispatcherPauseOnAckStatePersistent",
    policy=PolicyName.DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT,
    read=flag_of,
    otherwise=False,
    check=check_boolean,
    keys=("dispatcherPauseOnAckStatePersistentEnabled",),
    namespace=NamespaceLevel(
        "dispatcherPauseOnAckStatePersistentEnabled",
        Rest("dispatcherPauseOnAckStatePersistent", unset=False, fixed=True),
    ),
    topic=TopicLevel(
        {"dispatcherPauseOnAckStatePersistentEnabled": optional("boolean")},
        Rest("dispatcherPauseOnAckStatePersistent", unset=False, fixed=True),
    ),
    followed_by=("topic/persistent.py",),
    text="Whether Shared and Key_Shared subscriptions are sent nothing new while they have more ranges of acknowledged "
    "messages than `managedLedgerMaxUnackedRangesToPersist`.",
)
ENTRY_FILTERS: Final = PolicyRow(
    name="entryFilters",
    policy=PolicyName.ENTRY_FILTERS,
    read=filters_of,
    otherwise=None,
    check=lambda value: object_of(value, "entryFilters"),
    keys=("entryFilterNames",),
    of_broker=lambda names: {"entryFilterNames": ",".join(names)},
    namespace=NamespaceLevel("entryFilters", Rest("entryFilters", check=check_entry_filters)),
    topic=TopicLevel(
        {
            "entryFilters": optional(
                record("org.apache.pulsar.common.policies.data.EntryFilters", {"entryFilterNames": optional("string")})
            )
        },
        Rest("entryFilters", check=check_entry_filters),
    ),
    followed_by=("composition/late_filters.py",),
    text="Python callables that choose which entries a subscription gets.",
)

ROWS: Final = (
    DEDUPLICATION,
    DEDUPLICATION_SNAPSHOTS,
    DELAYED_DELIVERY,
    SUBSCRIPTION_TYPES_ENABLED,
    DISPATCHER_PAUSE,
    ENTRY_FILTERS,
)
