"""What the levels of policies say of rates: Pulsar's ``PublishRate``, ``DispatchRate`` and ``SubscribeRate``. Pure.

A level whose numbers limit nothing (below 1) sets nothing, as in Pulsar: the next level counts. A namespace keeps a map
from clusters to rates, of which this cluster's counts.
"""

from __future__ import annotations

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
    #: Of each subscription.
    subscription: Rate | None = None
    subscribe: SubscribeRate | None = None


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
