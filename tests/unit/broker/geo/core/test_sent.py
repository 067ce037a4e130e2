"""How far a topic is copied: in any order of what is sent, passed over and answered, nothing is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.geo.core.sent import Sent
from geminga.model.errors import InvariantError
from geminga.model.position import Position


@given(st.lists(st.sampled_from(["send", "pass over", "answer", "answer all"]), max_size=40))
def test_all_before_what_is_done_is_answered_or_passed_over(steps: list[str]) -> None:
    sent = Sent()
    kinds: list[str] = []
    done = -1
    for step in steps:
        waiting = [index for index, kind in enumerate(kinds) if kind == "on its way"]
        if step.startswith("answer"):
            if not waiting:
                continue
            count = 1 if step == "answer" else len(waiting)
            for index in waiting[:count]:
                kinds[index] = "answered"
            answered = sent.answered(count)
            assert (answered.messages, answered.size_bytes) == (2 * count, 10 * count)
            found: Position | None = answered.position
        else:
            position = Position(1, len(kinds))
            if step == "send":
                kinds.append("on its way")
                sent.add(position, 10, published_ms=len(kinds) - 1, messages=2)
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


def test_answers_that_come_together_go_past_what_lies_between() -> None:
    sent = Sent()
    for entry_id in range(5):
        if entry_id in (1, 3):
            assert sent.passed_over(Position(1, entry_id)) is None
        else:
            sent.add(Position(1, entry_id), 10)
    assert sent.answered(2) == (Position(1, 3), 2, 20)
    assert sent.answered(1) == (Position(1, 4), 1, 10)


def test_an_answer_for_nothing_is_an_error() -> None:
    with pytest.raises(InvariantError, match="1 answers for 0 that were sent"):
        Sent().answered()


def test_more_answers_than_were_sent_are_an_error() -> None:
    sent = Sent()
    sent.add(Position(1, 1), 10)
    with pytest.raises(InvariantError, match="2 answers for 1 that were sent"):
        sent.answered(2)
