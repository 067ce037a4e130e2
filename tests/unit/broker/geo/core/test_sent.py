"""How far a topic is copied: in any order of what is sent, passed over and answered, nothing is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.geo.core.sent import Sent
from geminga.model.errors import InvariantError
from geminga.model.position import Position


@given(st.lists(st.sampled_from(["send", "pass over", "answer"]), max_size=40))
def test_all_before_what_is_done_is_answered_or_passed_over(steps: list[str]) -> None:
    sent = Sent()
    kinds: list[str] = []
    done = -1
    for step in steps:
        waiting = [index for index, kind in enumerate(kinds) if kind == "on its way"]
        if step == "answer":
            if not waiting:
                continue
            kinds[waiting[0]] = "answered"
            found: Position | None = sent.answered()
        else:
            position = Position(1, len(kinds))
            if step == "send":
                kinds.append("on its way")
                sent.add(position, 10, published_ms=len(kinds) - 1)
                found = None
            else:
                kinds.append("passed over")
                found = sent.passed_over(position)
        waiting = [index for index, kind in enumerate(kinds) if kind == "on its way"]
        expected = (waiting[0] if waiting else len(kinds)) - 1
        assert (found is not None) == (expected > done)
        if found is not None:
            done = found.entry_id
        assert done == expected
        assert (sent.entries, sent.bytes) == (len(waiting), 10 * len(waiting))
        assert sent.oldest_ms == (waiting[0] if waiting else None)


def test_an_answer_for_nothing_is_an_error() -> None:
    with pytest.raises(InvariantError, match="nothing that was sent"):
        Sent().answered()
