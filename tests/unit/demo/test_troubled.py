"""The events that make trouble: the same from a seed, and of all the kinds that are promised."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from demo.accounts import expect
from demo.troubled import LARGE_BYTES, sent_again, troubled

ROWS, BATCH = 4000, 150


@pytest.fixture(scope="module")
def made():
    return troubled(5, ROWS, BATCH, large=2)


def test_a_seed_gives_the_same_rows_and_another_seed_others(made) -> None:
    assert troubled(5, ROWS, BATCH, large=2) == made
    assert troubled(6, ROWS, BATCH, large=2).rows != made.rows


def test_a_tenth_is_late_and_all_other_troubles_are_there(made) -> None:
    expected = expect(made.rows, batch=made.batch, delay_ms=made.delay_ms)
    assert len(made.rows) == ROWS
    assert 0.08 * ROWS < expected.late.total() < 0.13 * ROWS
    assert expected.duplicates > 0.005 * ROWS
    assert expected.refused.total() == 5
    assert sum(len(row.value) == LARGE_BYTES for row in made.rows) == 2
    assert 0.02 * ROWS < sum(row.key is None for row in made.rows) < 0.05 * ROWS
    assert any(key.repo == "" for key in expected.windows)
    # What is late is sometimes sent twice as well.
    assert max(expected.late.values()) > 1
    for is_first in (True, False):
        assert sum(row.is_first == is_first for row in made.rows) > ROWS / 5


def test_copies_are_the_same_to_the_byte_and_ids_are_of_one_event_each(made) -> None:
    values: dict[str, set[bytes]] = {}
    for row in made.rows:
        if row.id:
            values.setdefault(row.id, set()).add(row.value)
    assert all(len(of_id) == 1 for of_id in values.values())


def test_events_carry_the_time_and_the_key_that_their_message_has(made) -> None:
    for row in made.rows:
        if row.id:
            event = json.loads(row.value)
            assert (event["event_time"], event["repo"], event["id"]) == (row.at_ms, row.key, row.id)


def test_batches_that_leave_no_room_for_late_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="take smaller batches"):
        troubled(1, 1000, 200)


def test_rows_sent_again_are_all_there_some_of_them_twice_and_some_of_those_late(made) -> None:
    plain = [row for row in made.rows if row.id and row.at_ms is not None][:1000]
    rows = sent_again(plain, 3, 20, made.delay_ms // 4, apart=10)
    counts = Counter(rows)
    assert counts.keys() == set(plain)
    assert len(rows) - len(plain) == 100
    last_at = {row: number for number, row in enumerate(rows)}
    distances = sorted(last_at[row] - rows.index(row) for row, times in counts.items() if times > 1)
    assert distances[0] < 30
    assert distances[-1] > 100
