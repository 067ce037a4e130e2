"""Places of a stretch of the log."""

from __future__ import annotations

from geminga.broker.core.delayed.log_stretch import LogStretch
from geminga.model import Position

PIECES = [(3, 10, 14), (5, 0, 0), (9, 100, 101)]


def test_places_and_positions_are_each_other_s_inverse():
    stretch = LogStretch(PIECES)
    assert (stretch.span, len(stretch)) == (8, 3)
    assert (stretch.first, stretch.last) == (Position(3, 10), Position(9, 101))
    assert list(stretch.pieces()) == PIECES
    positions = stretch.positions(range(8))
    assert positions == [(3, 10), (3, 11), (3, 12), (3, 13), (3, 14), (5, 0), (9, 100), (9, 101)]
    assert [stretch.place_of(*position) for position in positions] == list(range(8))
    assert [stretch.place_of(3, 15), stretch.place_of(3, 9), stretch.place_of(4, 0), stretch.place_of(10, 0)] == [
        None
    ] * 4
    assert LogStretch(PIECES[:1]).positions([4, 0]) == [(3, 14), (3, 10)]
    assert (stretch.move_of(9), stretch.move_of(5)) == (94, -5)


def test_places_through_any_position():
    stretch = LogStretch(PIECES)
    for ledger_id in range(12):
        for entry_id in (0, 9, 10, 12, 14, 15, 99, 100, 101, 102):
            wanted = sum(position <= (ledger_id, entry_id) for position in stretch.positions(range(8)))
            assert stretch.places_through(ledger_id, entry_id) == wanted
