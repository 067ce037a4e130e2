"""How fast is published, dispatched and subscribed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from geminga.broker.access.core.actions import PolicyName
from geminga.broker.core.coercion import Json, object_of
from geminga.broker.core.rate_limit import Rate
from geminga.broker.policies.core.avro_types import mapping, optional, record
from geminga.broker.policies.core.rates import (
    SUBSCRIBE_PERIOD_S,
    dispatch_rate_of,
    publish_rate_of,
    rates_of_clusters,
    single_rates_of,
    subscribe_rate_of_document,
)
from geminga.broker.policies.core.row import NO_POLICIES, NamespaceLevel, Nothing, PolicyRow, Rest, TopicLevel
from geminga.broker.policies.core.values import check_dispatch_rate, check_publish_rate, check_subscribe_rate

_DATA: Final = "org.apache.pulsar.common.policies.data"
_DISPATCH: Final = optional(
    record(
        f"{_DATA}.impl.DispatchRateImpl",
        {
            "dispatchThrottlingRateInByte": "long",
            "dispatchThrottlingRateInMsg": "int",
            "ratePeriodInSecond": "int",
            "relativeToPublishRate": "boolean",
        },
    )
)


def _dispatch(messages: object = 0, size: object = 0, is_relative: object = False) -> Json:
    assert isinstance(messages, int)
    assert isinstance(size, int)
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size,
        "relativeToPublishRate": bool(is_relative),
        "ratePeriodInSecond": 1,
    }


def _check_clusters(value: Json) -> Json:
    return {cluster: check_dispatch_rate(rate) for cluster, rate in object_of(value, "clusterDispatchRate").items()}


def _publish(messages: object = 0, size: object = 0) -> Json:
    assert isinstance(messages, int)
    assert isinstance(size, int)
    return {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": size}


def _subscribe(count: object = 0, period_s: object = SUBSCRIBE_PERIOD_S) -> Json:
    assert isinstance(count, int)
    assert isinstance(period_s, int)
    return {"subscribeThrottlingRatePerConsumer": count, "ratePeriodInSecond": period_s}


PUBLISH_RATE: Final = PolicyRow(
    name="publishRate",
    policy=PolicyName.RATE,
    read=publish_rate_of,
    otherwise=None,
    check=check_publish_rate,
    keys=(
        "maxPublishRatePerTopicInMessages",
        "maxPublishRatePerTopicInBytes",
    ),
    of_broker=_publish,
    namespace=NamespaceLevel("publishMaxMessageRate", Rest("publishRate"), new={}, is_per_cluster=True),
    topic=TopicLevel(
        {
            "publishRate": optional(
                record(
                    f"{_DATA}.PublishRate",
                    {"publishThrottlingRateInMsg": "int", "publishThrottlingRateInByte": "long"},
                )
            )
        },
        Rest("publishRate", nothing=Nothing.CHANGES_NOTHING, unset_status=204),
    ),
    followed_by=("publishing/rates.py",),
    text="What producers of a topic publish in a second, together.",
)
DISPATCH_RATE: Final = PolicyRow(
    name="dispatchRate",
    policy=PolicyName.RATE,
    read=dispatch_rate_of,
    otherwise=None,
    check=check_dispatch_rate,
    keys=(
        "dispatchThrottlingRatePerTopicInMsg",
        "dispatchThrottlingRatePerTopicInByte",
        "dispatchThrottlingRateRelativeToPublishRate",
    ),
    of_broker=_dispatch,
    namespace=NamespaceLevel(
        "topicDispatchRate", Rest("dispatchRate"), new={}, is_per_cluster=True, older_name="clusterDispatchRate"
    ),
    topic=TopicLevel({"dispatchRate": _DISPATCH}, Rest("dispatchRate", nothing=Nothing.CHANGES_NOTHING)),
    followed_by=("publishing/rates.py",),
    text="What is delivered of a topic in a period, to all subscriptions together.",
)
SUBSCRIPTION_DISPATCH_RATE: Final = PolicyRow(
    name="subscriptionDispatchRate",
    policy=PolicyName.RATE,
    read=dispatch_rate_of,
    otherwise=None,
    check=check_dispatch_rate,
    keys=(
        "dispatchThrottlingRatePerSubscriptionInMsg",
        "dispatchThrottlingRatePerSubscriptionInByte",
        "dispatchThrottlingRateRelativeToPublishRate",
    ),
    of_broker=_dispatch,
    namespace=NamespaceLevel("subscriptionDispatchRate", Rest("subscriptionDispatchRate"), new={}, is_per_cluster=True),
    topic=TopicLevel(
        {"subscriptionDispatchRate": _DISPATCH}, Rest("subscriptionDispatchRate", nothing=Nothing.CHANGES_NOTHING)
    ),
    followed_by=("publishing/rates.py",),
    text="What each subscription delivers in a period.",
)
SUBSCRIBE_RATE: Final = PolicyRow(
    name="subscribeRate",
    policy=PolicyName.RATE,
    read=subscribe_rate_of_document,
    otherwise=None,
    check=check_subscribe_rate,
    keys=(
        "subscribeThrottlingRatePerConsumer",
        "subscribeRatePeriodPerConsumerInSecond",
    ),
    of_broker=_subscribe,
    namespace=NamespaceLevel("clusterSubscribeRate", Rest("subscribeRate"), new={}, is_per_cluster=True),
    topic=TopicLevel(
        {
            "subscribeRate": optional(
                record(
                    f"{_DATA}.SubscribeRate",
                    {"subscribeThrottlingRatePerConsumer": "int", "ratePeriodInSecond": "int"},
                )
            )
        },
        Rest("subscribeRate", nothing=Nothing.CHANGES_NOTHING),
    ),
    followed_by=("publishing/rates.py",),
    text="How often one consumer may connect in a period.",
)
REPLICATOR_DISPATCH_RATE: Final = PolicyRow(
    name="replicatorDispatchRate",
    policy=PolicyName.REPLICATION_RATE,
    read=dispatch_rate_of,
    otherwise=None,
    check=check_dispatch_rate,
    keys=(
        "dispatchThrottlingRatePerReplicatorInMsg",
        "dispatchThrottlingRatePerReplicatorInByte",
        "dispatchThrottlingRateRelativeToPublishRate",
    ),
    of_broker=_dispatch,
    namespace=NamespaceLevel(
        "replicatorDispatchRate", Rest("replicatorDispatchRate", missing=NO_POLICIES), new={}, is_per_cluster=True
    ),
    topic=TopicLevel({"replicatorDispatchRate": _DISPATCH}, Rest("replicatorDispatchRate")),
    followed_by=("geo/rate.py",),
    text="What goes to each other cluster in a period.",
)
SUBSCRIPTION_POLICIES: Final[PolicyRow[Mapping[str, Rate | None]]] = PolicyRow(
    name="policies of single subscriptions",
    policy=PolicyName.RATE,
    read=single_rates_of,
    otherwise=MappingProxyType({}),
    check=lambda value: value,
    topic=TopicLevel(
        {
            "subscriptionPolicies": optional(
                mapping(record(f"{_DATA}.SubscriptionPolicies", {"dispatchRate": _DISPATCH}))
            )
        },
        Rest("{subscription}/dispatchRate", is_by_hand=True),
    ),
    followed_by=("publishing/rates.py",),
    text="The dispatch rate of one subscription.",
)
CLUSTER_DISPATCH_RATE: Final[PolicyRow[Any]] = PolicyRow(
    name="clusterDispatchRate",
    policy=PolicyName.RATE,
    read=rates_of_clusters,
    otherwise=None,
    check=_check_clusters,
    namespace=NamespaceLevel("clusterDispatchRate", new={}),
    followed_by=("policies/core/rate_rows.py",),
    text="What Pulsar's older versions called `dispatchRate`; it counts where that one is not set.",
)

ROWS: Final = (
    PUBLISH_RATE,
    DISPATCH_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIBE_RATE,
    REPLICATOR_DISPATCH_RATE,
    SUBSCRIPTION_POLICIES,
    CLUSTER_DISPATCH_RATE,
)
