"""The table of states: what follows on what, and what is taken."""

from __future__ import annotations

import pytest

from geminga.proxy.core.states import Milestone, State, Taking

#: All that changes something; every other pair changes nothing.
TABLE = {
    (State.NEW, Milestone.ACCEPTED): State.GREETING,
    (State.GREETING, Milestone.KNOWN): State.ANSWERING,
    (State.GREETING, Milestone.KNOWN_FOR_BROKER): State.REACHING,
    (State.REACHING, Milestone.REACHED): State.RELAYING,
    **{(state, Milestone.ENDED): State.OVER for state in State},
}


@pytest.mark.parametrize("state", State)
def test_each_event_leads_where_the_table_says(state: State) -> None:
    for event in Milestone:
        assert state.after(event) is TABLE.get((state, event), state), event


def test_nothing_is_taken_but_what_a_state_is_for() -> None:
    taken = {state: state.takes for state in State if state.takes is not Taking.NOTHING}
    assert taken == {
        State.GREETING: Taking.HANDSHAKE,
        State.ANSWERING: Taking.REQUESTS,
        State.RELAYING: Taking.BYTES,
    }
