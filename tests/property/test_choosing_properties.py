"""Bundles are spread evenly over the brokers that are there, whoever comes and goes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.ownership.core import choosing
from geminga.broker.ownership.core.broker_data import RegisteredBroker
from geminga.broker.ownership.core.bundles import Bundle
from geminga.broker.ownership.core.choosing import FewestBundles
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener

NAMES = "abcd"
STEPS = st.lists(
    st.tuples(st.integers(0, 40), st.lists(st.sampled_from(NAMES), min_size=0, max_size=4, unique=True)), max_size=60
)


def broker(name: str) -> RegisteredBroker:
    return RegisteredBroker(name, OwnerData(OwnerListener(f"pulsar://{name}:1"), {}), {})


def bundle(number: int) -> Bundle:
    return Bundle("t/n", number, number + 1)


@given(STEPS)
def test_whoever_has_the_fewest_gets_the_next_one(steps: list[tuple[int, list[str]]]) -> None:
    rule, model = FewestBundles(), dict[int, str]()
    for number, names in steps:
        model = {one: name for one, name in model.items() if name in names and one != number}
        counts = Counter(model.values())
        chosen = rule.choose(bundle(number), [broker(name) for name in sorted(names)])
        if not names:
            assert chosen is None
            continue
        assert chosen in names
        assert counts[chosen] == min(counts[name] for name in names)
        model[number] = chosen


def test_a_burst_spreads_and_what_is_remembered_has_a_limit(monkeypatch) -> None:
    monkeypatch.setattr(choosing, "GIVEN_REMEMBERED_MAX", 8)
    rule = FewestBundles()
    found = Counter(rule.choose(bundle(number), [broker(name) for name in NAMES]) for number in range(8))
    assert set(found.values()) == {2}
    for number in range(8, 100):
        rule.choose(bundle(number), [broker(name) for name in NAMES])
    assert len(rule._given) == 8
    assert rule._counts.total() == 8
