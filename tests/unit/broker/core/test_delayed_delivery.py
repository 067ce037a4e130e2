"""Delayed delivery when the clock steps back: what was due stays due, and comes once."""

from __future__ import annotations

import pytest

from geminga.broker.core.delayed.delivery import BACK_STEP_MS, DelayReader, TopicDelays
from geminga.model.position import Position

START_MS = 1_700_000_000_000
TICK_MS = 1000
DUE_MS = START_MS + 2 * BACK_STEP_MS
BACK_MS = START_MS + BACK_STEP_MS // 2
ENTRY = Position(1, 0)


def reader_that_is_owed_an_entry() -> DelayReader:
    """Its entry was due and not taken when the clock stepped back to before that."""
    reader = TopicDelays(tick_ms=TICK_MS, is_strict=False).attach(START_MS, TICK_MS)
    assert reader.must_wait(ENTRY, DUE_MS)
    assert reader.take(DUE_MS + 2 * TICK_MS, Position(1, 1), 0) == []
    assert reader.take(BACK_MS, Position(1, 1), 0) == []
    return reader


def test_what_is_owed_waits_for_its_turn_when_it_is_read_meanwhile() -> None:
    reader = reader_that_is_owed_an_entry()
    assert reader.must_wait(ENTRY, DUE_MS)
    assert reader.take(BACK_MS, Position(1, 1), 10) == [ENTRY]
    assert reader.take(DUE_MS + 4 * TICK_MS, Position(1, 1), 10) == []


@pytest.mark.parametrize(("read_position", "taken"), [(Position(1, 0), []), (Position(1, 1), [ENTRY])])
def test_what_is_owed_and_read_anew_is_left_to_the_read(read_position: Position, taken: list[Position]) -> None:
    reader = reader_that_is_owed_an_entry()
    assert reader.take(BACK_MS, read_position, 10) == taken


def test_reader_that_left_holds_nothing() -> None:
    delays = TopicDelays(tick_ms=TICK_MS, is_strict=False)
    gone, reader = delays.attach(START_MS, TICK_MS), delays.attach(START_MS, TICK_MS)
    assert reader.must_wait(ENTRY, DUE_MS)
    delays.detach(gone)
    assert reader.take(DUE_MS + 2 * TICK_MS, Position(1, 1), 10) == [ENTRY]
    assert (len(delays), delays.reader_count) == (0, 1)


def test_in_the_strict_mode_nothing_is_early_and_a_tick_late_at_most() -> None:
    for after_ms in (1, 100, 511, 512, 999):
        reader = TopicDelays(tick_ms=TICK_MS, is_strict=True).attach(START_MS, TICK_MS)
        deliver_at = DUE_MS + after_ms
        assert reader.must_wait(ENTRY, deliver_at)
        assert reader.take(deliver_at - 1, Position(1, 1), 10) == []
        assert reader.take(deliver_at + TICK_MS, Position(1, 1), 10) == [ENTRY]


def test_count_is_of_what_waits_and_is_not_acknowledged() -> None:
    reader = TopicDelays(tick_ms=TICK_MS, is_strict=False).attach(START_MS, TICK_MS)
    for entry_id in range(3):
        assert reader.must_wait(Position(1, entry_id), DUE_MS)
    counts = [reader.count(Position(1, mark_delete), Position(1, 3)) for mark_delete in (-1, 0, 1, 2)]
    assert counts == [3, 2, 1, 0]


def test_what_is_due_need_not_be_saved() -> None:
    delays = TopicDelays(tick_ms=TICK_MS, is_strict=False, fresh_max=10)
    reader = delays.attach(START_MS, TICK_MS)
    assert reader.must_wait(ENTRY, DUE_MS)
    assert reader.must_wait(Position(1, 1), DUE_MS + 10 * TICK_MS)
    delays.trim_fresh(DUE_MS + TICK_MS)
    assert delays.fresh_count == 1


def test_all_that_is_owed_comes_as_far_as_there_is_room() -> None:
    entries = [Position(1, entry_id) for entry_id in range(5)]
    reader = TopicDelays(tick_ms=TICK_MS, is_strict=False).attach(START_MS, TICK_MS)
    assert all(reader.must_wait(entry, DUE_MS) for entry in entries)
    assert reader.take(DUE_MS + 2 * TICK_MS, Position(1, 5), 0) == []
    assert reader.take(BACK_MS, Position(1, 5), 3) == entries[:3]
    assert reader.take(BACK_MS, Position(1, 5), 3) == entries[3:]


def test_what_is_due_comes_though_much_that_this_one_has_not_read_is_due_before_it() -> None:
    delays = TopicDelays(tick_ms=TICK_MS, is_strict=False)
    ahead, behind = delays.attach(START_MS, TICK_MS), delays.attach(START_MS, TICK_MS)
    assert all(ahead.must_wait(Position(1, entry_id), DUE_MS) for entry_id in range(4, 10))
    assert all(behind.must_wait(Position(1, entry_id), DUE_MS + 5 * TICK_MS) for entry_id in range(3))
    assert behind.take(DUE_MS + 9 * TICK_MS, Position(1, 3), 2) == [Position(1, 0), Position(1, 1)]


@pytest.mark.parametrize("is_strict", [False, True])
def test_finer_tick_of_another_neither_loses_what_is_due_nor_gives_it_again(is_strict: bool) -> None:
    """Asked for while a bucket is taken in part, and while all of it is."""
    entries = [Position(1, entry_id) for entry_id in range(4)]
    for taken in range(5):
        delays = TopicDelays(tick_ms=TICK_MS, is_strict=is_strict)
        reader = delays.attach(START_MS, TICK_MS)
        assert all(reader.must_wait(entry, DUE_MS) for entry in entries)
        due_ms = DUE_MS + TICK_MS
        found = reader.take(due_ms, Position(1, 4), taken)
        delays.attach(due_ms, TICK_MS // 100)
        found += reader.take(due_ms, Position(1, 4), 10)
        assert found == entries, taken


def test_what_was_due_by_a_coarse_tick_is_when_another_asks_for_a_finer_one() -> None:
    delays = TopicDelays(tick_ms=TICK_MS, is_strict=False)
    width = 1 << delays.index.bits
    start_ms = START_MS // width * width
    reader = delays.attach(start_ms, TICK_MS)
    assert not reader.must_wait(Position(1, 0), start_ms + width - 1)
    delays.attach(start_ms, TICK_MS // 100)
    assert not reader.must_wait(Position(1, 1), start_ms + width - 1)
    assert reader.must_wait(Position(1, 2), start_ms + width)


def test_what_was_taken_to_be_saved_is_fresh_no_more() -> None:
    delays = TopicDelays(tick_ms=TICK_MS, is_strict=False, fresh_max=10)
    reader = delays.attach(START_MS, TICK_MS)
    assert reader.must_wait(ENTRY, DUE_MS)
    assert len(list(delays.take_fresh(START_MS))) == 1
    assert delays.fresh_count == 0
    assert list(delays.take_fresh(START_MS)) == []


def test_what_comes_after_buckets_became_smaller_is_saved_in_these() -> None:
    delays = TopicDelays(tick_ms=TICK_MS, is_strict=False, fresh_max=10)
    delays.attach(START_MS, TICK_MS)
    reader = delays.attach(START_MS, 1)
    assert reader.must_wait(ENTRY, DUE_MS)
    later = TopicDelays(tick_ms=1, is_strict=False)
    assert [later.load(record, START_MS) for record in delays.take_fresh(START_MS)] == [True]
    assert len(later) == 1
