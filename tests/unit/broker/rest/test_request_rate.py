"""How many HTTP requests a second are answered: evenly, and a second's worth after a pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.rest.http.request_rate import RequestRate


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_seconds_worth_passes_at_once_and_then_as_they_come() -> None:
    time = Time()
    rate = RequestRate(4, time)
    assert [rate.admits("/admin/v2/clusters") for _ in range(6)] == [True] * 4 + [False] * 2
    time.now_s = 0.25
    assert [rate.admits("/metrics") for _ in range(2)] == [True, False]
    time.now_s = 100.0
    assert sum(rate.admits("/admin/v2/clusters") for _ in range(10)) == 4
    assert rate.metrics() == {"pulsar_broker_http_rejected_requests_total": 9}


@pytest.mark.parametrize("path", ["/status.html", "/health"])
def test_who_asks_whether_the_process_is_there_is_always_answered(path: str) -> None:
    rate = RequestRate(1, Time())
    assert all(rate.admits(path) for _ in range(5))
    assert rate.admits("/metrics")
    assert not rate.admits("/metrics")
    assert rate.admits(path)


def test_there_may_be_fewer_than_one_a_second() -> None:
    time = Time()
    rate = RequestRate(0.1, time)
    passed = 0
    for second in range(101):
        time.now_s = float(second)
        passed += rate.admits("/")
    assert passed == 11


@given(st.floats(0.001, 1e6), st.lists(st.floats(0.0, 3.0), max_size=50))
def test_never_more_pass_than_the_rate_and_one_seconds_worth(per_s: float, pauses: list[float]) -> None:
    time = Time()
    rate = RequestRate(per_s, time)
    passed = 0
    for pause in pauses:
        time.now_s += pause
        passed += sum(rate.admits("/") for _ in range(3))
    assert passed <= time.now_s * per_s + max(1, per_s) + 1e-6 * (1 + passed)
