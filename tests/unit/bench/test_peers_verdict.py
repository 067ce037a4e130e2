"""The table of ``bench peers``: who is ahead, beyond the spread of the turns, whichever direction is better."""

from __future__ import annotations

import pytest
from bench.peers.rows import ROWS, selected
from bench.peers.verdict import (
    AHEAD,
    BEHIND,
    FAILED,
    WITHIN,
    Figure,
    failed_line,
    is_red,
    lines,
    plain,
    spread,
    times_better,
    verdict,
)

RATE = Figure("msgs/s", "rate", is_more_better=True)
P99 = Figure("p99 ms", "p99", is_more_better=False)


@pytest.mark.parametrize(
    ("ours", "theirs", "more", "less"),
    [
        ([110, 120, 130], [80, 90, 100], AHEAD, BEHIND),
        ([80, 90, 100], [110, 120, 130], BEHIND, AHEAD),
        ([90, 120, 130], [80, 95, 100], WITHIN, WITHIN),
        ([100, 120, 130], [80, 90, 100], WITHIN, WITHIN),  # our worst turn is as good as their best: not beyond
        ([101, 101, 101], [100, 100, 100], WITHIN, WITHIN),  # apart, and yet the same
        ([103, 103, 103], [100, 100, 100], AHEAD, BEHIND),
        ([50], [100], BEHIND, AHEAD),
    ],
)
def test_verdict_is_given_beyond_the_spread_of_the_turns_only(ours, theirs, more, less):
    assert verdict(ours, theirs, is_more_better=True) == more
    assert verdict(ours, theirs, is_more_better=False) == less


def test_times_better_is_above_one_for_who_is_better_in_either_direction():
    assert times_better([200, 100, 300], [100, 90, 400], is_more_better=True) == pytest.approx(2.0)
    assert times_better([2, 1, 3], [1, 1, 4], is_more_better=False) == pytest.approx(0.5)
    assert times_better([0.0], [1.0], is_more_better=False) == float("inf")


def test_spread_shows_the_median_and_the_turns_around_it():
    assert spread([12345.6, 9000.2, 15000.1]) == "12,346 (9,000-15,000)"
    assert spread([0.123]) == "0.12"
    assert [plain(value) for value in (1234.5, 123.4, 12.34, 1.234)] == ["1,234", "123", "12.3", "1.23"]


def test_lines_have_cpu_time_beside_the_first_figure_with_a_verdict_of_its_own():
    ours = [{"rate": 100.0, "p99": 1.0, "cpu_us": 40.0}, {"rate": 110.0, "p99": 1.1, "cpu_us": 44.0}]
    theirs = [{"rate": 50.0, "p99": 3.0, "cpu_us": 20.0}, {"rate": 60.0, "p99": 2.0, "cpu_us": 22.0}]
    first, second = lines("a row", (RATE, P99), "Other 1.0", ours, theirs)
    assert (first["figure"], first["verdict"], first["CPU"], first["times "]) == ("msgs/s", AHEAD, BEHIND, "0.50")
    assert first["turns"]["our CPU us"] == [40.0, 44.0]
    assert (second["figure"], second["verdict"], second["CPU"]) == ("p99 ms", AHEAD, "")
    assert second["times"] == pytest.approx(2.38)
    assert is_red(first)
    assert not is_red(second)


def test_lines_without_cpu_time_have_none():
    (line,) = lines("start", (P99,), "Other", [{"p99": 1.0}], [{"p99": 9.0}])
    assert line["CPU us"] == line["CPU"] == ""
    assert not is_red(line)


def test_failed_line_has_the_columns_of_the_others_and_is_red():
    (line,) = lines("start", (P99,), "Other", [{"p99": 1.0}], [{"p99": 9.0}])
    assert failed_line("start", "Other").keys() == line.keys()
    assert failed_line("start", "Other")["verdict"] == FAILED
    assert is_red(failed_line("start", "Other"))


def test_selected_takes_parts_of_names_whatever_their_case():
    assert selected("") == list(ROWS)
    assert {row.name for row in selected("SERIAL or fan-out")} >= {"serial send, 100 B", "batched fan-out to 10"}
    assert selected("no such row") == []
    assert len({row.name for row in ROWS}) == len(ROWS)
