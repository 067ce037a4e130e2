"""The system's clock and randomness behind their ports, and logger names."""

from __future__ import annotations

from geminga.runtime import SystemClock, SystemRng, get_logger


def test_monotonic_never_goes_back():
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_wall_clock_is_in_milliseconds_of_this_century():
    assert 1_700_000_000_000 < SystemClock().wall_ms() < 4_200_000_000_000


def test_seeded_rng_repeats_and_unseeded_does_not():
    def draws(rng):
        return [rng.random(), rng.below(1000), rng.token()]

    assert draws(SystemRng(7)) == draws(SystemRng(7))
    assert draws(SystemRng()) != draws(SystemRng())


def test_rng_values_are_in_range():
    rng = SystemRng(1)
    assert {rng.below(3) for _ in range(100)} == {0, 1, 2}
    assert all(0 <= rng.random() < 1 for _ in range(100))
    token = rng.token(5)
    assert len(token) == 10
    assert set(token) <= set("0123456789abcdef")


def test_logger_has_the_name_asked_for():
    assert get_logger("geminga.x").name == "geminga.x"
