"""Times as they are shown and typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.app.console.core.moments import TIME_MS_MAX, MomentError, age_text, iso_time, milliseconds_of, shown_time
from geminga.broker.subscription.stats import iso_time as of_the_broker


@given(st.integers(0, TIME_MS_MAX + 1000))
def test_time_is_shown_as_the_broker_does_and_read_again(time_ms: int) -> None:
    assert iso_time(time_ms) == of_the_broker(time_ms)
    assert milliseconds_of(iso_time(time_ms)) == min(time_ms, TIME_MS_MAX)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1500", 1500),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01T02:00+02:00", 0),
        (" 1970-01-02 ", 86_400_000),
        ("1970-01-02+02:00", 79_200_000),
    ],
)
def test_time_may_be_typed_in_several_ways(text: str, time_ms: int) -> None:
    assert milliseconds_of(text) == time_ms


def test_times_of_a_table_are_as_long_as_one_another() -> None:
    assert shown_time("2026-11-28T12:00:00.5Z") == "2026-11-28 12:00:00.500"
    assert shown_time("2026-11-28T12:00:00Z") == "2026-11-28 12:00:00.000"


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "1" * 16, "٣"])
def test_what_is_no_time_says_what_is(text: str) -> None:
    with pytest.raises(MomentError, match="expected a time such as"):
        milliseconds_of(text)


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [(-5, "0 ms"), (999, "999 ms"), (1000, "1 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h"), (97_200_000, "1 d 3 h")],
)
def test_age_is_said_in_two_units(age_ms: int, text: str) -> None:
    assert age_text(age_ms) == text
