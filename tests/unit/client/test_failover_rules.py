"""When a cluster is left for another one, and when the first is used again."""

from __future__ import annotations

import pytest

from geminga.client.rules.failover import FailoverRules


def test_a_cluster_is_left_after_the_delay_and_not_for_a_gap_in_between() -> None:
    rules = FailoverRules(10, 20)
    rules.looked(answers=False, now_s=0)
    assert (rules.is_given_up(9), rules.next_look_s(0, 30), rules.next_look_s(4, 3)) == (False, 10, 3)
    rules.looked(answers=True, now_s=9)
    rules.looked(answers=False, now_s=12)
    assert not rules.is_given_up(21)
    rules.looked(answers=False, now_s=22)
    assert rules.is_given_up(22)
    assert rules.next_look_s(23, 30) == 30
    rules.switched(2)
    assert (rules.current, rules.is_given_up(100)) == (2, False)


def test_the_primary_is_used_again_after_it_answered_for_a_while() -> None:
    rules = FailoverRules(10, 20)
    rules.switched(1)
    rules.looked_at_primary(answers=True, now_s=0)
    assert (rules.goes_back(19), rules.next_look_s(0, 30)) == (False, 20)
    rules.looked_at_primary(answers=False, now_s=19)
    rules.looked_at_primary(answers=True, now_s=25)
    assert not rules.goes_back(40)
    rules.looked_at_primary(answers=True, now_s=45)
    assert rules.goes_back(45)
    rules.switched(0)
    assert not rules.goes_back(1000)


@pytest.mark.parametrize("delay_s", [0, 5])
def test_the_primary_is_used_at_once_where_the_secondary_is_given_up(delay_s: float) -> None:
    rules = FailoverRules(delay_s, 1000)
    rules.switched(1)
    rules.looked(answers=False, now_s=0)
    rules.looked_at_primary(answers=True, now_s=0)
    assert rules.goes_back(0) is (delay_s == 0)
    assert rules.goes_back(5)
