"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from geminga.model.iso_time import parse_moment

EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02", datetime(2026, 1, 2)),
        ("2026-01-02T03:04:05.5", datetime(2026, 1, 2, 3, 4, 5, 500_000)),
        ("2026-01-02 03:04+02:00", datetime(2026, 1, 2, 3, 4, tzinfo=EAST)),
        ("2026-01-02Z", datetime(2026, 1, 2, tzinfo=UTC)),
        ("2026-01-02+02:00", datetime(2026, 1, 2, tzinfo=EAST)),
        ("2026-01-02-02:00", datetime(2026, 1, 2, tzinfo=timezone(-timedelta(hours=2)))),
    ],
)
def test_a_time_is_what_is_written_and_the_zone_of_a_day_is_no_time_of_it(text: str, moment: datetime) -> None:
    assert parse_moment(text) == moment
    assert parse_moment(text).tzinfo == moment.tzinfo


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01", "2026-01-02x03:04", "2026-01-02T", "2026-01-02+25:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(text)
