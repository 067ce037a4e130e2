"""The broker's limit of unacknowledged messages: who stands still while it is short, and who is told when it is not."""

from __future__ import annotations

import pytest

from geminga.broker.core.dispatch.unacked_budget import UnackedBudget
from geminga.model.errors import InvariantError


def test_broker_is_short_from_its_limit_until_less_than_half_of_it():
    budget = UnackedBudget(9, 0.5)
    assert budget.share == 4
    states = []
    for change in (8, 1, -4, 3, -3, -1, 4, 1):
        budget.change(change)
        states.append(budget.is_short)
    assert states == [False, True, True, True, True, False, False, True]
    assert budget.total == 9


def test_those_that_wait_are_told_once_and_those_that_left_are_not():
    told = []
    budget = UnackedBudget(4, 0.25)
    budget.change(4)
    for name in ("a", "b", "c"):
        budget.wait(name, lambda name=name: told.append(name))
    budget.stop_waiting("b")
    budget.stop_waiting("never waited")
    budget.change(-2)
    assert told == []
    budget.change(-1)
    assert told == ["a", "c"]
    budget.change(3)
    budget.change(-4)
    assert told == ["a", "c"]


def test_more_cannot_come_back_than_was_sent():
    budget = UnackedBudget(4, 0.25)
    with pytest.raises(InvariantError):
        budget.change(-1)
