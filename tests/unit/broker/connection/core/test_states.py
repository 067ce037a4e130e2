"""The states of a connection as a table: what each takes, and where each event leads."""

from __future__ import annotations

import pytest

from geminga.broker.connection.core.states import Event, State, Takes
from support.house.source_tree import ROOT

N, H, A = Takes.NOTHING, Takes.HANDSHAKE, Takes.ALL
NEW, GREETING, SERVING = State.NEW, State.GREETING, State.SERVING
GREETING_LEFT, LEFT = State.GREETING_LEFT, State.LEFT
CLOSING, CLOSING_LEFT, GONE = State.CLOSING, State.CLOSING_LEFT, State.GONE

#: State: takes, is written to, is closed, has left; then where ACCEPTED, WELCOMED, LOST, CLOSED and DONE lead.
TABLE = [
    (NEW, N, "", "", "", GREETING, NEW, NEW, CLOSING, GONE),
    (GREETING, H, "written", "", "", GREETING, SERVING, GREETING_LEFT, CLOSING, GONE),
    (SERVING, A, "written", "", "", SERVING, SERVING, LEFT, CLOSING, GONE),
    (GREETING_LEFT, H, "", "", "left", GREETING_LEFT, LEFT, GREETING_LEFT, CLOSING_LEFT, GONE),
    (LEFT, A, "", "", "left", LEFT, LEFT, LEFT, CLOSING_LEFT, GONE),
    (CLOSING, N, "", "closed", "", CLOSING, CLOSING, CLOSING, CLOSING, GONE),
    (CLOSING_LEFT, N, "", "closed", "left", CLOSING_LEFT, CLOSING_LEFT, CLOSING_LEFT, CLOSING_LEFT, GONE),
    (GONE, N, "", "closed", "", GONE, GONE, GONE, GONE, GONE),
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0].name for row in TABLE])
def test_state_takes_what_the_table_says_and_each_event_leads_where_it_says(row) -> None:
    state, takes, written, closed, left, *after = row
    assert state.takes is takes
    assert state.is_connected == (takes is Takes.ALL)
    assert (state.is_written, state.is_closed, state.has_left) == (bool(written), bool(closed), bool(left))
    assert [state.after(event) for event in Event] == after


def test_table_has_every_state_and_its_columns_are_the_events() -> None:
    assert [row[0] for row in TABLE] == list(State)
    assert [event.name for event in Event] == ["ACCEPTED", "WELCOMED", "LOST", "CLOSED", "DONE"]


def test_nothing_is_taken_or_written_once_it_is_closed_and_no_event_opens_it_again() -> None:
    closed = [state for state in State if state.is_closed]
    for state in closed:
        assert state.takes is Takes.NOTHING
        assert not state.is_written
        assert all(state.after(event).is_closed for event in Event)


def test_table_of_the_design_page_is_that_of_the_code() -> None:
    page = (ROOT / "src/geminga/broker/connection/DESIGN.md").read_text(encoding="utf-8")
    lines = [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in page.splitlines() if line.startswith("|")
    ]
    rows = {name: cells for cells in lines if (name := cells[0].partition(":")[0]) in State.__members__}
    assert list(rows) == [state.name for state in State]
    for state in State:
        _, takes, written, *after = rows[state.name]
        assert (takes == "nothing") == (state.takes is Takes.NOTHING)
        assert (takes in ("all commands", "what is left")) == (state.takes is Takes.ALL)
        assert (written == "yes") == state.is_written
        assert [name or state.name for name in after] == [state.after(event).name for event in Event]
