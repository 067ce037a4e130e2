"""The system's randomness, seeded or not."""

from __future__ import annotations

from geminga.runtime import SystemRng


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
