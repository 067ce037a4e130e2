"""What a move of a cursor hits, counted by ledgers: never less than by walking over every entry."""

from __future__ import annotations

import pytest

from geminga.app.console.core.cursor_moves import BEGINNING, NOWHERE, CursorMove, entries_before, move_to
from geminga.app.console.core.positions import EntryPlace, LogPiece

LEDGERS = [LogPiece(3, 4), LogPiece(7, 2), LogPiece(9, 5)]
WHOLE = [EntryPlace(piece.ledger_id, number) for piece in LEDGERS for number in range(piece.entries)]


@pytest.mark.parametrize(
    "place", [*WHOLE, BEGINNING, EntryPlace(3, 9), EntryPlace(5, 1), EntryPlace(9, 5), EntryPlace(99, 0)]
)
def test_entries_before_a_place_are_those_of_a_walk(place: EntryPlace) -> None:
    assert entries_before(LEDGERS, place) == sum(1 for one in WHOLE if one < place)


@pytest.mark.parametrize("goal", [*WHOLE, BEGINNING, None])
@pytest.mark.parametrize("marked", ["-1:-1", "3:0", "3:3", "7:1", "9:4"])
def test_a_move_is_counted_as_by_a_walk(marked: str, goal: EntryPlace | None) -> None:
    ledger, entry = (int(number) for number in marked.split(":"))
    done = [one for one in WHOLE if one <= EntryPlace(ledger, entry)]
    before = WHOLE if goal is None else [one for one in WHOLE if one < goal]
    again = [one for one in done if one not in before]
    skipped = [one for one in before if one not in done]
    assert move_to(LEDGERS, {"markDeletePosition": marked}, goal) == (len(again), len(skipped))


def test_what_was_acknowledged_one_by_one_comes_again_too() -> None:
    cursor = {"markDeletePosition": "3:1", "geminga": {"acknowledgedEntries": 3}}
    assert move_to(LEDGERS, cursor, BEGINNING) == CursorMove(2 + 3, 0)
    assert move_to(LEDGERS, cursor, EntryPlace(7, 0)) == CursorMove(3, 2)
    assert move_to(LEDGERS, cursor, None) == CursorMove(0, 9)


def test_moves_add_up() -> None:
    assert CursorMove(1, 2).plus(CursorMove(3, 4)) == CursorMove(4, 6)
    assert (NOWHERE.hits, CursorMove(1, 2).hits) == (0, 3)
