"""Which entries of a topic a page looks at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.app.console.core.positions import (
    EntryPlace,
    LogPiece,
    PlaceError,
    StartPlace,
    ledgers_of,
    places,
    start_of,
)

LOGS = st.lists(st.integers(0, 6), max_size=5).map(
    lambda sizes: [LogPiece(10 + 3 * number, size) for number, size in enumerate(sizes)]
)


@given(LOGS, st.none() | st.builds(EntryPlace, st.integers(8, 24), st.integers(0, 7)), st.booleans())
def test_entries_come_in_their_order_from_where_they_are_asked_for(
    log: list[LogPiece], start: EntryPlace | None, newest_first: bool
) -> None:
    every = [EntryPlace(each.ledger_id, entry) for each in log for entry in range(each.entries)]
    if newest_first:
        expected = [each for each in reversed(every) if start is None or each <= start]
    else:
        expected = [each for each in every if start is None or each >= start]
    assert list(places(log, start, newest_first=newest_first)) == expected


def test_ledger_that_is_written_to_has_what_is_told_beside_it() -> None:
    internal = {
        "ledgers": [{"ledgerId": 3, "entries": 5}, {"ledgerId": 4, "entries": 0}, {"ledgerId": 7, "entries": 0}],
        "currentLedgerEntries": 2,
    }
    assert ledgers_of(internal) == [LogPiece(3, 5), LogPiece(7, 2)]
    assert ledgers_of({}) == []


@pytest.mark.parametrize(
    ("text", "index"),
    [("3:7", -1), (" 3:7 ", -1), ("3:7:-1", -1), ("3:7:2", 2), ("3:7:2:5", 5), ("3:7:-1:0", 0), ("(3, 7, -1, 4)", 4)],
)
def test_message_id_is_read_as_it_is_written_anywhere(text: str, index: int) -> None:
    found = start_of(text)
    assert found == StartPlace(EntryPlace(3, 7), index)
    assert start_of(str(found)) == found


@pytest.mark.parametrize("text", ["", "3", "3:x", "-1:-1", "3:7:1:1:1", "9" * 20 + ":1"])
def test_what_is_no_message_id_says_what_is(text: str) -> None:
    with pytest.raises(PlaceError, match="expected LEDGER:ENTRY"):
        start_of(text)
