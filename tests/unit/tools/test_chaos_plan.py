"""The plan of faults: the same for a seed, of everybody, within the promise."""

from __future__ import annotations

from tools.chaos.plan import BROKER, ZOOKEEPER, bookie_name, plan


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
