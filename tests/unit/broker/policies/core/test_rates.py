"""What documents of policies say of rates, whoever wrote them."""

from __future__ import annotations

import pytest

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.rate_limit import PERIOD_MAX_S, UNLIMITED, Rate
from geminga.broker.core.subscribe_rate import SubscribeRate
from geminga.broker.policies.core.rates import NO_RATES, TopicRates
from geminga.broker.policies.rules import Levels, broker_levels
from geminga.managed_ledger import ManagedLedgerConfig

DEFAULTS = TopicRates(Rate(1), Rate(2), Rate(3), SubscribeRate(4, 30))
CONFIG = BrokerConfig(
    topic_publish_rate_messages=1,
    topic_dispatch_rate_messages=2,
    subscription_dispatch_rate_messages=3,
    subscribe_rate=4,
)
DISPATCH = {"dispatchThrottlingRateInMsg": 7, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 5}


def dispatch(**fields: object) -> dict:
    return {**DISPATCH, **fields}


def rates_of(config: BrokerConfig, namespace: dict | None, topic: dict | None, cluster: str) -> TopicRates:
    settings = {**broker_levels(ManagedLedgerConfig()), **broker_levels(config)}
    return Levels(settings, cluster, namespace or {}, topic or {}).rules().rates


def test_most_particular_level_that_limits_something_counts() -> None:
    namespace = {"topicDispatchRate": {"here": dispatch(), "there": dispatch(dispatchThrottlingRateInMsg=99)}}
    topic = {"dispatchRate": dispatch(dispatchThrottlingRateInMsg=8, relativeToPublishRate=True)}
    assert rates_of(CONFIG, None, None, "here") == DEFAULTS
    assert rates_of(CONFIG, namespace, None, "here").dispatch == Rate(7, 0, 5)
    assert rates_of(CONFIG, namespace, topic, "here").dispatch == Rate(8, 0, 5, is_relative=True)
    assert rates_of(CONFIG, namespace, None, "elsewhere").dispatch == Rate(2)
    off = {"dispatchRate": dispatch(dispatchThrottlingRateInMsg=0)}
    assert rates_of(CONFIG, namespace, off, "here").dispatch == Rate(7, 0, 5)
    assert rates_of(BrokerConfig(), {}, {}, "here") is NO_RATES


@pytest.mark.parametrize("value", [None, 5, "x", [], {}, {"dispatchThrottlingRateInMsg": True}, {"here": 5}])
def test_documents_that_make_no_sense_set_nothing(value) -> None:
    keys = ("publishMaxMessageRate", "topicDispatchRate", "subscriptionDispatchRate", "clusterSubscribeRate")
    assert rates_of(CONFIG, dict.fromkeys(keys, value), None, "here") == DEFAULTS
    assert rates_of(CONFIG, {key: {"here": value} for key in keys}, None, "here") == DEFAULTS
    topic = dict.fromkeys(("publishRate", "dispatchRate", "subscribeRate", "subscriptionPolicies"), value)
    assert rates_of(CONFIG, None, topic, "here") == DEFAULTS


def test_numbers_that_no_java_type_holds_are_bounded() -> None:
    huge = {"dispatchRate": dispatch(dispatchThrottlingRateInMsg=10**400, ratePeriodInSecond=10**400)}
    assert rates_of(BrokerConfig(), None, huge, "here").dispatch == Rate(UNLIMITED, 0, PERIOD_MAX_S)
    huge = {"subscribeRate": {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 10**400}}
    assert rates_of(BrokerConfig(), None, huge, "here").subscribe == SubscribeRate(1, PERIOD_MAX_S)


def test_single_subscriptions_have_rates_of_their_own() -> None:
    topic = {
        "subscriptionPolicies": {
            "a": {"dispatchRate": dispatch()},
            "b": {"dispatchRate": dispatch(dispatchThrottlingRateInMsg=-1)},
            "c": {"dispatchRate": None},
            "d": 5,
        }
    }
    rates = rates_of(CONFIG, None, topic, "here")
    assert [rates.of_subscription(name) for name in "abcde"] == [Rate(7, 0, 5), None, Rate(3), Rate(3), Rate(3)]
