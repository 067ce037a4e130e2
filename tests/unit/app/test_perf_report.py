"""Percentiles and the lines of ``geminga perf``."""

from __future__ import annotations

import json

import pytest

from geminga.app.commands.perf_report import PerfLatencies, PerfProgress


def test_percentiles_are_right_to_two_percent() -> None:
    latencies = PerfLatencies()
    for milliseconds in range(1, 1001):
        latencies.add(float(milliseconds))
    assert latencies.percentile(50) == pytest.approx(500, rel=0.021)
    assert latencies.percentile(99) == pytest.approx(990, rel=0.021)
    assert latencies.percentile(100) == 1000
    assert latencies.as_json()["mean"] == 500.5


def test_extreme_latencies_are_counted() -> None:
    latencies = PerfLatencies()
    for milliseconds in (0.0, 1e-9, 1e12):
        latencies.add(milliseconds)
    assert latencies.count == 3
    assert latencies.max_ms == 1e12
    assert PerfLatencies().percentile(99) == 0.0


def test_figures_of_an_interval_begin_again(capsys) -> None:
    progress = PerfProgress("sent", is_json=True, interval_s=1.0)
    progress.add(100, 1.0)
    progress.tick()
    progress.add(100, 2.0)
    progress.add(100, 2.0)
    progress.tick()
    progress.finish()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["messages"] for line in lines] == [1, 2, 3]
    assert [line["latencyMs"]["max"] for line in lines] == [1.0, 2.0, 2.0]
    assert lines[-1]["total"] is True


def test_lines_for_people_name_rate_and_latency(capsys) -> None:
    progress = PerfProgress("received", is_json=False, interval_s=1.0)
    progress.add(1000, 3.0)
    progress.failed = 2
    progress.finish()
    line = capsys.readouterr().out
    assert line.startswith("total: 1 received in ")
    assert "2 failed" in line
    assert "p99 3.000" in line
