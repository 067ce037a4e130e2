"""What the demo counts of events that were moved in transactions."""

from __future__ import annotations

import json

from demo.moving import Moved, document

ROWS = [("a", b"0"), ("b", b"1"), ("a", b"2")]
NUMBERED = [(number, *row) for number, row in enumerate(ROWS)]


def counted(*found: tuple[int, str, bytes]) -> Moved:
    moved = Moved(len(ROWS))
    moved.count(ROWS, found)
    return moved


def test_each_event_once_is_a_success_in_any_order() -> None:
    moved = counted(*reversed(NUMBERED))
    assert (moved.found, moved.lost, moved.duplicated, moved.damaged) == (3, 0, 0, 0)
    assert moved.failures() == []
    assert json.loads(json.dumps(document(moved)))["lost"] == 0


def test_lost_and_repeated_events_are_counted() -> None:
    moved = counted(NUMBERED[0], NUMBERED[0], NUMBERED[2])
    assert (moved.lost, moved.duplicated, moved.damaged) == (1, 1, 0)
    assert moved.failures() == ["1 events were lost", "1 events are there more than once"]


def test_event_that_is_not_what_was_published_is_damaged_and_lost() -> None:
    for wrong in ((1, "b", b"2"), (1, "a", b"1"), (3, "a", b"2"), (-1, "", b"")):
        moved = counted(NUMBERED[0], wrong, NUMBERED[2])
        assert (moved.lost, moved.duplicated, moved.damaged) == (1, 0, 1)
