"""Who was given the fewest bundles gets the next one."""

from __future__ import annotations

from geminga.broker.ownership.core.broker_data import RegisteredBroker
from geminga.broker.ownership.core.bundles import Bundle
from geminga.broker.ownership.core.choosing import FewestBundles
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener


def broker(broker_id: str) -> RegisteredBroker:
    return RegisteredBroker(broker_id, OwnerData(OwnerListener("", "", "", ""), {}), {})


def bundle(number: int) -> Bundle:
    return Bundle("a/x", number, number + 1)


def test_bundles_spread_and_one_that_is_asked_for_again_counts_once() -> None:
    rule, brokers = FewestBundles(), [broker("a:1"), broker("b:1")]
    assert [rule.choose(bundle(number), brokers) for number in range(4)] == ["a:1", "b:1", "a:1", "b:1"]
    assert rule.choose(bundle(0), brokers) == "a:1"
    assert rule.choose(bundle(9), brokers) == "a:1"
    assert rule.choose(bundle(10), []) is None


def test_who_comes_back_begins_with_nothing() -> None:
    rule, both = FewestBundles(), [broker("a:1"), broker("b:1")]
    for number in range(4):
        rule.choose(bundle(number), both)
    assert rule.choose(bundle(4), both[1:]) == "b:1"
    # Its former bundles are not taken off what it has now.
    assert [rule.choose(bundle(number), both) for number in (0, 2, 5, 6, 7)] == ["a:1", "a:1", "a:1", "a:1", "b:1"]
