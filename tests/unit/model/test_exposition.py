"""Prometheus' text format, written."""

from __future__ import annotations

import math

import pytest

from geminga.model.exposition import Page
from geminga.model.histogram import Latencies
from support.house.exposition import Sample, samples


def test_samples_of_a_name_stand_together_with_their_labels() -> None:
    page = Page()
    page.add("a", (("x", "1"),), 1)
    page.add("b_total", (), 2.5)
    page.add("a", (("x", 'q"\\\n'),), 3)
    assert page.text().splitlines() == [
        "# TYPE a gauge",
        'a{x="1"} 1',
        'a{x="q\\"\\\\\\n"} 3',
        "# TYPE b_total counter",
        "b_total 2.5",
    ]
    samples(page.text())


@pytest.mark.parametrize(("value", "text"), [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (2.0, "2")])
def test_numbers(value: float, text: str) -> None:
    page = Page()
    page.add("a", (), value)
    assert page.text() == f"# TYPE a gauge\na {text}\n"


def test_a_source_tells_numbers_and_summaries() -> None:
    latencies = Latencies()
    latencies.add(3.0, 4)
    page = Page()
    page.add_source(lambda: {"n": 1, "ms": latencies.quantiles(100.0, (0.5,))}, (("cluster", "c"),))
    found = samples(page.text())
    assert Sample("n", {"cluster": "c"}, 1) in found
    assert Sample("ms_count", {"cluster": "c", "success": "true"}, 4) in found


def test_buckets_sum_and_count_are_one_histogram() -> None:
    page = Page()
    page.add("before_count", (), 1)
    page.add("left_bucket", (("le", "5.0"),), 2)
    page.add("left_bucket", (("le", "+Inf"),), 3)
    page.add("left_sum", (), 12.5)
    page.add("left_count", (), 3)
    assert page.text().splitlines() == [
        "# TYPE before_count gauge",
        "before_count 1",
        "# TYPE left histogram",
        'left_bucket{le="5.0"} 2',
        'left_bucket{le="+Inf"} 3',
        "left_sum 12.5",
        "left_count 3",
    ]
