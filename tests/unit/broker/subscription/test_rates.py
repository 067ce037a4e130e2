"""Rates are computed from counters, when asked."""

from __future__ import annotations

import pytest

from geminga.broker.subscription.rates import Rates


def test_rates_are_zero_first_then_the_change_per_second():
    rates = Rates()
    assert rates.update(100.0, (5, 7)) == (0.0, 0.0)
    assert rates.update(110.0, (25, 7)) == (2.0, 0.0)
    assert rates.update(110.5, (1000, 7)) == (2.0, 0.0)  # too soon to tell
    assert rates.update(112.0, (1025, 8)) == pytest.approx((500.0, 0.5))
