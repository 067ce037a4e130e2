"""What the levels of policies say of rates: Pulsar's ``PublishRate``, ``DispatchRate`` and ``SubscribeRate``. Pure.

A level whose numbers limit nothing (below 1) sets nothing, as in Pulsar: the next level counts. A namespace keeps a map
from clusters to rates, of which this cluster's counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from geminga.broker.core.coercion import Document, Json
from geminga.broker.core.rate_limit import Rate, rate_of
from geminga.broker.core.subscribe_rate import SubscribeRate, subscribe_rate_of

T = TypeVar("T")

#: Seconds of a subscribe rate that does not say how long its period is.
SUBSCRIBE_PERIOD_S: Final = 30


class TopicRates(NamedTuple):
    """As broker, namespace and topic want them; None: no limit."""

    publish: Rate | None = None
    #: Of all subscriptions of the topic together.
    dispatch: Rate | None = None
    #: Of each subscription.
    subscription: Rate | None = None
    subscribe: SubscribeRate | None = None


#: Nobody is slowed down.
NO_RATES: Final = TopicRates()


def rates_of(
    defaults: TopicRates, namespace: Mapping[str, Json] | None, topic: Mapping[str, Json] | None, cluster: str
) -> TopicRates:
    """The rates of a topic; None: the level sets nothing."""

    def first(read: Callable[[Document], T | None], key: str, topic_key: str, default: T | None) -> T | None:
        of_clusters = namespace.get(key) if namespace is not None else None
        for value in (
            topic.get(topic_key) if topic is not None else None,
            of_clusters.get(cluster) if isinstance(of_clusters, dict) else None,
        ):
            found = read(value) if isinstance(value, dict) else None
            if found is not None:
                return found
        return default

    found = TopicRates(
        first(publish_rate_of, "publishMaxMessageRate", "publishRate", defaults.publish),
        first(dispatch_rate_of, "topicDispatchRate", "dispatchRate", defaults.dispatch),
        first(dispatch_rate_of, "subscriptionDispatchRate", "subscriptionDispatchRate", defaults.subscription),
        first(subscribe_rate_of_document, "clusterSubscribeRate", "subscribeRate", defaults.subscribe),
    )
    # One object for all topics without rates: most have none.
    return found if found != NO_RATES else NO_RATES


def publish_rate_of(value: Document) -> Rate | None:
    """Pulsar's ``PublishRate``: per second."""
    return rate_of(_number(value, "publishThrottlingRateInMsg"), _number(value, "publishThrottlingRateInByte"))


def dispatch_rate_of(value: Document) -> Rate | None:
    """Pulsar's ``DispatchRate``."""
    return rate_of(
        _number(value, "dispatchThrottlingRateInMsg"),
        _number(value, "dispatchThrottlingRateInByte"),
        _number(value, "ratePeriodInSecond", 1),
        is_relative=value.get("relativeToPublishRate") is True,
    )


def subscribe_rate_of_document(value: Document) -> SubscribeRate | None:
    """Pulsar's ``SubscribeRate``."""
    return subscribe_rate_of(
        _number(value, "subscribeThrottlingRatePerConsumer"), _number(value, "ratePeriodInSecond", SUBSCRIBE_PERIOD_S)
    )


def _number(document: Document, key: str, default: int = 0) -> int:
    value = document.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
