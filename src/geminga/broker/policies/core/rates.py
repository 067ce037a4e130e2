"""What the levels of policies say of rates: Pulsar's ``PublishRate``, ``DispatchRate`` and ``SubscribeRate``. Pure.

A level whose numbers limit nothing (below 1) sets nothing, as in Pulsar: the next level counts. A namespace keeps a map
from clusters to rates, of which this cluster's counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document, Json
from geminga.broker.core.rate_limit import Rate, rate_of
from geminga.broker.core.subscribe_rate import SubscribeRate, subscribe_rate_of

#: Seconds of a subscribe rate that does not say how long its period is.
SUBSCRIBE_PERIOD_S: Final = 30


class TopicRates(NamedTuple):
    """As broker, namespace and topic want them; None: no limit."""

    publish: Rate | None = None
    #: Of all subscriptions of the topic together.
    dispatch: Rate | None = None
    #: Of each subscription, but for those that have one, or none, of their own.
    subscription: Rate | None = None
    subscribe: SubscribeRate | None = None
    #: By name of the subscription; None there: it is not limited.
    single: Mapping[str, Rate | None] = {}

    def of_subscription(self, name: str) -> Rate | None:
        """The dispatch rate of one subscription; None: no limit."""
        return self.single.get(name, self.subscription)


#: Nobody is slowed down.
NO_RATES: Final = TopicRates()


def publish_rate_of(value: Json) -> Rate | None:
    """Pulsar's ``PublishRate``: per second."""
    if not isinstance(value, dict):
        return None
    return rate_of(_number(value, "publishThrottlingRateInMsg"), _number(value, "publishThrottlingRateInByte"))


def dispatch_rate_of(value: Json) -> Rate | None:
    """Pulsar's ``DispatchRate``."""
    if not isinstance(value, dict):
        return None
    return rate_of(
        _number(value, "dispatchThrottlingRateInMsg"),
        _number(value, "dispatchThrottlingRateInByte"),
        _number(value, "ratePeriodInSecond", 1),
        is_relative=value.get("relativeToPublishRate") is True,
    )


def single_rates_of(value: Json) -> Mapping[str, Rate | None] | None:
    """Of Pulsar's ``SubscriptionPolicies`` by subscription: the dispatch rates that are set, also to no limit."""
    if not isinstance(value, dict):
        return None
    rates = {name: of_one.get("dispatchRate") for name, of_one in value.items() if isinstance(of_one, dict)}
    return {name: dispatch_rate_of(rate) for name, rate in rates.items() if isinstance(rate, dict)}


def rates_of_clusters(value: Json) -> Mapping[str, Rate] | None:
    """A map from clusters to dispatch rates: those that limit something; None: none does."""
    if not isinstance(value, dict):
        return None
    rates = {cluster: dispatch_rate_of(rate) for cluster, rate in value.items()}
    return {cluster: rate for cluster, rate in rates.items() if rate is not None} or None


def subscribe_rate_of_document(value: Json) -> SubscribeRate | None:
    """Pulsar's ``SubscribeRate``."""
    if not isinstance(value, dict):
        return None
    return subscribe_rate_of(
        _number(value, "subscribeThrottlingRatePerConsumer"), _number(value, "ratePeriodInSecond", SUBSCRIBE_PERIOD_S)
    )


def _number(document: Document, key: str, default: int = 0) -> int:
    value = document.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
