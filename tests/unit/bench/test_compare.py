"""The verdict of a comparison: worse is what lies below the limit and outside of what the base does to itself."""

from __future__ import annotations

import pytest
from bench.compare import Turns, unpack
from bench.servers import BenchError


def verdict(base: list[float], tree: list[float], again: list[float]):
    return Turns(base, tree, again).verdict(0.03)


def test_verdict_worse_than_limit_and_spread_is_not_ok():
    row = verdict([100, 101, 99], [90, 91, 89], [100, 100, 100])
    assert row["ok"] == "NO"
    assert row["this to base"] == pytest.approx(0.9, abs=0.01)


def test_verdict_within_the_spread_of_base_is_ok():
    assert verdict([100, 120, 100], [90, 100, 92], [120, 100, 99])["ok"] == "yes"


def test_verdict_within_the_limit_is_ok():
    assert verdict([100, 100, 100], [98, 98, 98], [100, 100, 100])["ok"] == "yes"


def test_verdict_spread_counts_both_directions():
    assert verdict([100, 100, 100], [96, 96, 96], [105, 105, 105])["its spread"] == "0.95 to 1.05"


def test_unpack_of_an_unknown_commit_says_so(tmp_path):
    with pytest.raises(BenchError, match="no-such-commit"):
        unpack("no-such-commit", tmp_path)
