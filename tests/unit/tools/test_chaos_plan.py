"""The plan of faults: the same for a seed, of everybody, within the promise."""

from __future__ import annotations

from collections import Counter

import pytest
from tools.chaos.plan import (
    BROKER,
    ZOOKEEPER,
    ZOOKEEPER_LEADER,
    ZOOKEEPER_QUORUM,
    bookie_name,
    broker_name,
    kind_of,
    plan,
    zookeeper_faults,
    zookeeper_name,
)


def test_a_seed_gives_one_plan_and_another_seed_another() -> None:
    assert plan(3, 50, 5, 6.0) == plan(3, 50, 5, 6.0)
    assert plan(3, 50, 5, 6.0) != plan(4, 50, 5, 6.0)


def test_everybody_fails_in_both_ways_for_shorter_and_for_longer_than_a_session() -> None:
    faults = plan(1, 400, 5, 6.0)
    assert {fault.who for fault in faults} == {BROKER, ZOOKEEPER, *map(bookie_name, range(5))}
    for who in (BROKER, ZOOKEEPER, bookie_name(2)):
        for kind in ("kill", "pause"):
            away = [fault.away_s for fault in faults if (fault.who, fault.kind) == (who, kind)]
            assert min(away) < 3.0 < 6.0 < max(away)


def test_who_is_away_comes_back_before_the_next_fault() -> None:
    assert all(fault.before_s > 0 and fault.away_s > 0 for fault in plan(9, 100, 3, 6.0))


def test_of_several_zookeepers_each_fails_the_leader_and_now_and_then_the_quorum() -> None:
    faults = plan(1, 400, 5, 6.0, brokers=3, zookeepers=3)
    met = Counter(fault.who for fault in faults)
    servers = {zookeeper_name(number) for number in range(3)}
    assert servers | {ZOOKEEPER_LEADER, ZOOKEEPER_QUORUM} | {broker_name(2), bookie_name(4)} <= met.keys()
    assert 0 < met[ZOOKEEPER_QUORUM] < met[ZOOKEEPER_LEADER]
    assert all({"kill", "pause"} == {fault.kind for fault in faults if fault.who == who} for who in met)


def test_a_seed_means_what_it_meant_with_one_zookeeper() -> None:
    assert zookeeper_faults(1, 2) == [ZOOKEEPER, ZOOKEEPER]
    assert {fault.who for fault in plan(1, 200, 3, 6.0) if fault.who.startswith(ZOOKEEPER)} == {ZOOKEEPER}


@pytest.mark.parametrize(
    ("who", "kind"), [(BROKER, BROKER), ("bookie-3", "bookie"), ("zookeeper-2", ZOOKEEPER), (ZOOKEEPER_LEADER,) * 2]
)
def test_kinds_are_counted_without_numbers(who: str, kind: str) -> None:
    assert kind_of(who) == kind
