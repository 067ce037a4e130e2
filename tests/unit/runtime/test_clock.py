"""The system's clocks."""

from __future__ import annotations

from geminga.runtime import SystemClock


def test_monotonic_never_goes_back():
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_wall_clock_is_in_milliseconds_of_this_century():
    assert 1_700_000_000_000 < SystemClock().wall_ms() < 4_200_000_000_000
