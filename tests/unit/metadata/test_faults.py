"""Misbehaviour is drawn as the switches say, and costs no randomness while they are off."""

from __future__ import annotations

import pytest

from geminga.metadata.core.faults import MetadataFaults, WriteFault
from geminga.runtime import SystemRng


def never():
    raise AssertionError("randomness was drawn with every switch off")


def test_without_switches_nothing_is_drawn():
    faults = MetadataFaults()
    assert faults.write_fault(never) is WriteFault.NONE
    assert faults.watch_delays_ms(never) == (0,)
    assert faults.delay_ms(never) == 0


def test_aimed_faults_come_first_in_order():
    faults = MetadataFaults(unknown_before_percent=100)
    faults.next_writes.extend([WriteFault.NONE, WriteFault.UNKNOWN_AFTER])
    assert [faults.write_fault(lambda: 0.0) for _ in range(3)] == [
        WriteFault.NONE,
        WriteFault.UNKNOWN_AFTER,
        WriteFault.UNKNOWN_BEFORE,
    ]


@pytest.mark.parametrize(("drawn", "fault"), [(0.05, "UNKNOWN_BEFORE"), (0.15, "UNKNOWN_AFTER"), (0.35, "NONE")])
def test_percentages_share_one_draw(drawn, fault):
    faults = MetadataFaults(unknown_before_percent=10, unknown_after_percent=20)
    assert faults.write_fault(lambda: drawn) is WriteFault[fault]


def test_same_seed_gives_the_same_deliveries():
    faults = MetadataFaults(watch_lost_percent=20, watch_twice_percent=30, watch_late_percent=50, watch_late_ms_max=40)

    def draws(seed):
        rng = SystemRng(seed)
        return [faults.watch_delays_ms(rng.random) for _ in range(200)]

    assert draws(3) == draws(3)
    assert {len(delays) for delays in draws(3)} == {0, 1, 2}
    assert all(0 <= delay < 40 for delays in draws(3) for delay in delays)


def test_delay_stays_below_its_limit():
    faults = MetadataFaults(delay_ms_max=7)
    assert {faults.delay_ms(lambda i=i: i / 100) for i in range(100)} == set(range(7))
