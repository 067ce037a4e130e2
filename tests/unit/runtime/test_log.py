"""Logger names."""

from __future__ import annotations

from geminga.runtime import SparseWarnings, get_logger
from geminga.runtime.log import WARNING_INTERVAL_S


def test_logger_has_the_name_asked_for():
    assert get_logger("geminga.x").name == "geminga.x"


def test_sparse_warnings_are_one_a_minute_with_the_number_left_out(caplog):
    now = [1000.0]
    warnings = SparseWarnings(get_logger("geminga.test"), lambda: now[0])
    for number in range(5):
        warnings.warn(f"stranger {number}")
        warnings.warn("another kind", "other")
    now[0] += WARNING_INTERVAL_S - 0.001
    warnings.warn("stranger 5")
    now[0] += 0.001
    warnings.warn("stranger 6")
    now[0] += WARNING_INTERVAL_S
    warnings.warn("stranger 7")
    assert [record.getMessage() for record in caplog.records] == [
        "stranger 0",
        "another kind",
        "stranger 6 (5 more like it since the last of these lines)",
        "stranger 7",
    ]
