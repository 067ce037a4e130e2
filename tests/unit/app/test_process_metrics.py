"""What the process tells of itself."""

from __future__ import annotations

from geminga.app.lifecycle.process_metrics import process_metrics


def test_process_tells_cpu_memory_and_files() -> None:
    values = process_metrics()
    assert values["process_cpu_seconds_total"] > 0
    assert values["process_resident_memory_bytes"] > 1_000_000
    assert values["process_open_fds"] > 0
    assert values["process_start_time_seconds"] > 1_600_000_000
