"""What of many cases a week's ``make test`` runs."""

from __future__ import annotations

from datetime import date

import pytest

from support.weekly_sample import WEEK_VARIABLE, drawn, sampled, seed_blocks, week


def test_a_week_is_that_of_its_thursday(monkeypatch) -> None:
    monkeypatch.delenv(WEEK_VARIABLE, raising=False)
    assert week(date(2026, 11, 27)) == "2026-W48"
    assert week(date(2027, 1, 1)) == "2026-W53"
    monkeypatch.setenv(WEEK_VARIABLE, "2027-W03")
    assert week(date(2026, 11, 27)) == "2027-W03"


def test_a_week_draws_the_same_cases_again_and_most_come_within_a_quarter() -> None:
    weeks = [f"2026-W{number:02}" for number in range(1, 14)]
    draws = [drawn("some", 10, 60, week=name) for name in weeks]
    assert draws == [drawn("some", 10, 60, week=name) for name in weeks]
    assert all(len(draw) == 10 and draw <= set(range(60)) for draw in draws)
    assert len(frozenset().union(*draws)) > 48
    assert drawn("some", 10, 60, week="2026-W01") != drawn("other", 10, 60, week="2026-W01")
    assert drawn("some", 70, 60, week="2026-W01") == frozenset(range(60))


def is_long(param) -> bool:
    return any(mark.name == "long" for mark in param.marks)


def test_all_cases_keep_their_names_and_those_of_other_weeks_are_long(monkeypatch) -> None:
    monkeypatch.setenv(WEEK_VARIABLE, "2026-W48")
    cases = [
        pytest.param(1, "a", id="one", marks=pytest.mark.slow),
        pytest.param(2, "b", id="two"),
        pytest.param(3, "c"),
    ]
    made = sampled("three", cases, 1)
    assert [param.values for param in made] == [(1, "a"), (2, "b"), (3, "c")]
    assert [param.id for param in made] == ["one", "two", None]
    assert [is_long(param) for param in made].count(False) == 1
    assert "slow" in {mark.name for mark in made[0].marks}
    assert [param.values for param in sampled("values", ["x", "y"], 2, ids=["X", "Y"])] == [("x",), ("y",)]


def test_blocks_of_seeds_leave_no_seed_out_and_say_which_they_are(monkeypatch) -> None:
    monkeypatch.setenv(WEEK_VARIABLE, "2026-W48")
    blocks = seed_blocks("seeds", range(100, 125), 10, count=2)
    assert [seed for param in blocks for seed in param.values[0]] == list(range(100, 125))
    assert [param.id for param in blocks] == ["seeds 100-109", "seeds 110-119", "seeds 120-124"]
    assert [is_long(param) for param in blocks].count(False) == 2
