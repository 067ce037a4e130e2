"""What of many cases a week's ``make test`` runs."""

from __future__ import annotations

import math
from datetime import date

import pytest

from geminga import sim
from support.house.source_tree import ROOT
from support.house.weekly_sample import (
    LONG_TURNS,
    PARTS_VARIABLE,
    SEEDS_VARIABLE,
    TURNS,
    WEEK_VARIABLE,
    drawn,
    left_to_other_weeks,
    of_week,
    run_week,
    sampled,
    share,
    week,
    whose_turn_it_is_not,
)


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
    assert [param.values for param in sampled("rows", [(1, 2)], 1, are_rows=True)] == [(1, 2)]


async def strikes_the_last_digit(world: sim.SimWorld) -> None:
    world.points.hits[str(world.seed % 10)] += 1
    assert world.seed != 13


def seeds_of(capsys) -> list[int]:
    return [int(line.split()[2]) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("first_week", [1, 2, 3, 30])
def test_tests_of_a_file_take_turns_and_a_part_of_them_always_runs(monkeypatch, first_week) -> None:
    (file, part), *_ = TURNS.items()
    tests = [f"tests/{file}::test_{number}" for number in range(11)]
    ran: set[str] = set()
    for number in range(first_week, first_week + math.ceil(1 / part)):
        monkeypatch.setenv(WEEK_VARIABLE, f"2026-W{number:02}")
        waiting = whose_turn_it_is_not(file, tests)
        assert len(tests) - len(waiting) == math.ceil(part * len(tests))
        ran |= set(tests) - waiting
    assert ran == set(tests)
    assert len(whose_turn_it_is_not(file, tests[:1])) == 0
    assert whose_turn_it_is_not("unit/other.py", tests) == set()
    assert all((ROOT / "tests" / name).exists() for name in TURNS)


def test_seeds_run_until_all_is_reached_and_are_others_next_week(monkeypatch, capsys) -> None:
    digits = [str(digit) for digit in range(10)]
    runs = []
    for name in ("2026-W48", "2026-W49", "2026-W48"):
        monkeypatch.setenv(WEEK_VARIABLE, name)
        report = run_week(strikes_the_last_digit, range(20, 1000), least=3, most=200, labels=digits)
        runs.append(seeds_of(capsys))
        assert report.seeds == len(runs[-1]) >= 10
        assert {seed % 10 for seed in runs[-1]} == set(range(10))
        assert {seed % 10 for seed in runs[-1][:-1]} != set(range(10))
    assert runs[0] == runs[2] != runs[1]
    assert run_week(strikes_the_last_digit, range(20, 1000), least=7).seeds == 7


def test_a_seed_that_fails_and_a_label_that_is_not_reached_are_errors(monkeypatch, capsys) -> None:
    with pytest.raises(AssertionError, match=r"seeds \[13\]"):
        run_week(strikes_the_last_digit, range(13, 14), least=1)
    with pytest.raises(AssertionError, match="fewer than 1 times: \\['missing'\\]"):
        run_week(strikes_the_last_digit, range(20, 30), least=1, most=5, labels=["missing"])
    monkeypatch.setenv(SEEDS_VARIABLE, "21,7")
    capsys.readouterr()
    run_week(strikes_the_last_digit, range(20, 30), least=1, labels=["missing"])
    assert seeds_of(capsys) == [21, 7]


def test_three_weeks_of_long_simulations_run_each_seed_once_also_over_new_year(monkeypatch) -> None:
    monkeypatch.delenv(PARTS_VARIABLE, raising=False)
    for weeks in (["2026-W47", "2026-W48", "2026-W49"], ["2026-W52", "2026-W53", "2027-W01"]):
        ran: list[int] = []
        for name in weeks:
            monkeypatch.setenv(WEEK_VARIABLE, name)
            part = of_week(range(60, 5060))
            assert abs(len(part) - 5000 / 3) < 1
            ran += part
        assert sorted(ran) == [*range(60, 5060)]
    assert [share(hits) for hits in (500, 20, 1)] == [83, 3, 1]
    monkeypatch.setenv(PARTS_VARIABLE, "1")
    assert [*of_week(range(7))] == [*range(7)]
    assert share(500) == 500


def test_a_part_of_some_long_tests_runs_each_week_and_all_where_nobody_shares_them_out(monkeypatch) -> None:
    tests = [f"tests/{LONG_TURNS[0]}::test_{number}" for number in range(10)]
    monkeypatch.delenv(PARTS_VARIABLE, raising=False)
    assert left_to_other_weeks(LONG_TURNS[0], tests) == set()
    monkeypatch.setenv(PARTS_VARIABLE, "3")
    ran: list[str] = []
    for name in ("2026-W47", "2026-W48", "2026-W49"):
        monkeypatch.setenv(WEEK_VARIABLE, name)
        left = left_to_other_weeks(LONG_TURNS[0], tests)
        assert len(left) in (6, 7)
        ran += [test for test in tests if test not in left]
    assert sorted(ran) == tests
    assert left_to_other_weeks("unit/other.py", tests) == set()
    assert all((ROOT / "tests" / name).exists() for name in LONG_TURNS)
