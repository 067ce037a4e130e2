"""Spreads and quantiles of weighted values, window by window."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.histogram import Histogram, Latencies

BOUNDS = (1.0, 5.0, 10.0)
VALUES = st.lists(st.integers(0, 12), min_size=1, max_size=40)
LATENCIES_MS = st.lists(st.tuples(st.floats(0.001, 100_000), st.integers(1, 5)), min_size=1, max_size=40)


def _counted(values: list[int]) -> tuple[int, ...]:
    """Bucket by bucket, value by value."""
    edges = (-1.0, *BOUNDS, float("inf"))
    return tuple(sum(low < value <= high for value in values) for low, high in pairwise(edges))


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_each_window_has_what_came_in_it(windows: list[list[int]]) -> None:
    histogram = Histogram(BOUNDS)
    for index, values in enumerate(windows):
        if index % 2:
            histogram.add_all(values, sum(values))
        else:
            for value in values:
                histogram.add(value)
        assert histogram.window(index * 10.0) == (_counted(values), sum(values))
    assert (histogram.count, histogram.total) == (sum(map(len, windows)), sum(map(sum, windows)))


def test_a_window_is_told_for_a_second() -> None:
    histogram = Histogram(BOUNDS)
    assert histogram.window(0.0).counts == (0, 0, 0, 0)
    histogram.add(3, weight=7)
    assert histogram.window(0.9).counts == (0, 0, 0, 0)
    assert histogram.window(1.0).counts == histogram.window(1.5).counts == (0, 7, 0, 0)
    assert histogram.window(2.5).counts == (0, 0, 0, 0)


@given(LATENCIES_MS, st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_quantiles_are_a_sixteenth_off_at_most(weighted: list[tuple[float, int]], quantile: float) -> None:
    latencies = Latencies()
    for latency_ms, weight in weighted:
        latencies.add(latency_ms, weight)
    each = sorted(latency_ms for latency_ms, weight in weighted for _ in range(weight))
    exact = each[max(0, ceil(quantile * len(each)) - 1)]
    found = latencies.quantiles(0.0, (quantile,))
    assert found.values[0][1] == pytest.approx(exact, rel=1 / 16 + 0.001)
    assert (found.seen, found.total) == (len(each), pytest.approx(sum(each)))


def test_a_window_without_values_has_no_quantiles() -> None:
    latencies = Latencies()
    latencies.add(5.0)
    assert [value for _, value in latencies.quantiles(0.0, (0.0, 1.0)).values] == pytest.approx([5.0, 5.0], rel=1 / 16)
    nothing = latencies.quantiles(1.0, (0.0, 0.5, 1.0))
    assert all(isnan(value) for _, value in nothing.values)
    assert (nothing.seen, nothing.total) == (1, 5.0)
