"""Shares of a resource group's limit: never more than the limit, nobody starves, what a broker left is divided."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.group_shares import Use, fair_shares, floor_of, next_share

names = st.sampled_from([f"b{number}" for number in range(8)])
limits = st.integers(20, 1 << 40)


def most(limit: int, brokers: int) -> int:
    """Of all shares together: the limit, and floors that are not less than 1."""
    return limit + max(limit // 20, brokers)


@given(limits, st.dictionaries(names, st.tuples(st.integers(0, 1 << 40), st.booleans()), min_size=1))
def test_fair_shares_are_the_limit_and_nobody_is_left_out(limit, found):
    shares = fair_shares(limit, {name: Use(0, used, is_held) for name, (used, is_held) in found.items()})
    assert shares.keys() == found.keys()
    assert sum(shares.values()) == limit
    for name, (used, is_held) in found.items():
        assert shares[name] >= 1
        equal = limit // len(found)
        # An equal part is everybody's who needs it.
        assert shares[name] >= min(used, equal) or shares[name] >= equal
        if is_held:
            assert shares[name] >= equal - len(found)


@given(
    limits,
    st.lists(
        st.one_of(
            st.tuples(st.just("look"), names, st.integers(0, 1 << 40), st.booleans()),
            st.tuples(st.just("goes"), names),
        ),
        max_size=40,
    ),
)
def test_whoever_looks_when_the_shares_are_never_more_than_the_limit_and_floors(limit, steps):
    uses: dict[str, Use] = {}

    for kind, name, *more in steps:
        if kind == "goes":
            uses.pop(name, None)
            continue
        used, is_held = more
        before = uses.get(name)
        uses[name] = Use(before.share if before else 0, used, is_held)
        uses[name] = uses[name]._replace(share=next_share(limit, name, uses))
        # Newcomers have their floors while the others still have all: with eight brokers less than a tenth.
        assert sum(use.share for use in uses.values()) <= limit + sum(floor_of(limit, n) for n in range(2, 9))


@given(limits, st.lists(names, unique=True, min_size=1), st.data())
def test_after_two_looks_of_each_all_that_is_held_have_equal_parts(limit, brokers, data):
    """Also when a broker that had everything went: it is in the document no more."""
    uses = {name: Use(data.draw(st.integers(0, limit)), 0, is_held=True) for name in brokers}
    for _ in range(2):
        for name in brokers:
            uses[name] = uses[name]._replace(share=next_share(limit, name, uses))
    equal = limit // len(brokers)
    for name in brokers:
        assert uses[name].share >= equal * 0.9 - 1
    assert sum(use.share for use in uses.values()) <= most(limit, len(brokers))
