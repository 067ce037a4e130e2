"""The client's core of a transaction against a plain account of it, whatever comes in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geminga.client.rules import transaction as module
from geminga.client.rules.transaction import (
    AFTER,
    Answer,
    NotOpen,
    TooManyTargets,
    TransactionCore,
    TransactionState,
)
from geminga.model.txn_id import TxnId

State = TransactionState
DEADLINE_S = 100.0
TARGETS = [("a",), ("b",), ("a", "sub")]


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        #: Questions to the coordinator, as they were asked.
        self.asked: list[tuple[str, ...]] = []
        self.core = TransactionCore(TxnId(1, 2), DEADLINE_S, self.asked.append, self.ask_ahead)
        #: Questions that went ahead -> the way; each is under way until it is answered.
        self.ahead: dict[tuple[str, ...], str] = {}
        self.now_s = 0.0
        #: The oracle: facts, no states.
        self.under_way = 0
        self.failed = False
        self.ended_with: bool | None = None
        self.flushed = 0
        self.gatherers = 0
        self.final: State | None = None
        self.open_questions: dict[tuple[str, ...], list[list[object]]] = {}
        self.known: set[tuple[str, ...]] = set()
        self.questions = 0
        self.idle: list[bool] = []
        self.outcomes: list[bool] = []
        self.core.when_over(self.outcomes.append)

    @property
    def is_open(self) -> bool:
        return self.ended_with is None and self.now_s < DEADLINE_S

    @rule(seconds=st.sampled_from([0.0, 1.0, 30.0, 60.0]))
    def time_goes_on(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def begin(self) -> None:
        if not self.is_open:
            with pytest.raises(NotOpen, match=r"\(1,2\) is not open"):
                self.core.begin(self.now_s)
        else:
            self.core.begin(self.now_s)
            self.under_way += 1

    @precondition(lambda self: self.under_way)
    @rule()
    def join(self) -> None:
        self.core.join()
        self.under_way += 1

    @precondition(lambda self: self.under_way > len(self.ahead))
    @rule(error=st.sampled_from([None, None, None, ValueError("x")]))
    def settle(self, error: Exception | None) -> None:
        before = len(self.idle)
        waits = self.ended_with is not None and self.final is None and self.waits
        self.core.settle(error)
        self.under_way -= 1
        self.failed |= error is not None
        if waits and not self.under_way:
            assert len(self.idle) == before + 1
            self.waits = False

    waits = False

    @precondition(lambda self: self.is_open)
    @rule()
    def gather(self) -> None:
        def flush() -> None:
            self.flushed += 1

        self.core.flush_at_end(flush)
        self.gatherers += 1

    @rule(where=st.sampled_from(TARGETS))
    def want(self, where: tuple[str, ...]) -> None:
        heard: list[object] = []
        is_known = self.core.want(where, heard.append)
        assert is_known == (where in self.known)
        if not is_known:
            if where not in self.open_questions:
                self.questions += 1
            self.open_questions.setdefault(where, []).append(heard)
        assert len(self.asked) == self.questions, "one question for each target at a time"

    def ask_ahead(self, target: tuple[str, ...], way: object) -> bool:
        if way == "elsewhere":
            return False
        self.asked.append(target)
        self.ahead[target] = str(way)
        return True

    @rule(where=st.sampled_from(TARGETS), way=st.sampled_from(["one", "other", "elsewhere"]))
    def want_ahead(self, where: tuple[str, ...], way: str) -> None:
        heard: list[object] = []
        is_first = where not in self.open_questions and where not in self.known
        goes = self.core.want_ahead(where, way, heard.append)
        assert goes == (way != "elsewhere" and (is_first or self.ahead.get(where) == way))
        if goes:
            self.questions += is_first
            self.under_way += is_first
            self.open_questions.setdefault(where, []).append(heard)
        assert len(self.asked) == self.questions, "one question for each target at a time"

    @precondition(lambda self: self.open_questions)
    @rule(error=st.sampled_from([None, ValueError("refused")]), data=st.data())
    def coordinator_answers(self, error: Exception | None, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(sorted(self.open_questions)))
        waiting = self.open_questions.pop(target)
        was_ahead = self.ahead.pop(target, None) is not None
        waits = self.ended_with is not None and self.final is None and self.waits
        before = len(self.idle)
        self.core.registered(target, error)
        if was_ahead:
            self.under_way -= 1
            self.failed |= error is not None
            if waits and not self.under_way:
                assert len(self.idle) == before + 1
                self.waits = False
        assert waiting == [[error]] * len(waiting), "each hears once"
        if error is None:
            self.known.add(target)

    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        may = self.is_open or (self.ended_with is commit and self.final is None and not self.has_turned)
        may = may or (not commit and self.has_turned and self.final is None)
        try:
            self.core.end(self.now_s, commit=commit)
        except NotOpen:
            assert not may
        else:
            assert may
            if self.ended_with is None:
                self.ended_with = commit
            assert self.flushed == self.gatherers, "what is gathered leaves with the end"
            self.waits = not self.core.when_idle(lambda: self.idle.append(True))
            assert self.waits == bool(self.under_way)

    has_turned = False

    @precondition(lambda self: self.ended_with is not None and self.final is None)
    @rule(answer=st.sampled_from(Answer))
    def coordinator_ends(self, answer: Answer) -> None:
        commit = self.core.decide()
        assert commit == (self.ended_with and not self.has_turned and not self.failed and not self.under_way)
        self.has_turned |= bool(self.ended_with) and not commit
        state = self.core.answered(answer)
        if answer is Answer.DONE:
            assert state is (State.COMMITTED if commit else State.ABORTED)
        elif answer is Answer.REFUSED:
            assert state is State.ERROR
        elif answer is Answer.FORGOTTEN:
            assert state is (State.ERROR if commit else State.ABORTED)
        else:
            assert state is (State.COMMITTING if commit else State.ABORTING)
        if answer is not Answer.LOST:
            self.final = state
            assert self.outcomes == [state is State.COMMITTED]

    @precondition(lambda self: self.now_s >= DEADLINE_S)
    @rule()
    def the_deadline_comes(self) -> None:
        before = list(self.outcomes)
        self.core.time_is_over()
        assert self.outcomes == ([False] if self.ended_with is None else before)

    @rule()
    def hear_late(self) -> None:
        heard: list[bool] = []
        self.core.when_over(heard.append)
        assert heard == self.outcomes
        assert self.core.is_over == bool(heard)

    @invariant()
    def the_state_follows_from_the_facts(self) -> None:
        state = self.core.state(self.now_s)
        if self.final is not None:
            assert state is self.final
        elif self.ended_with is None:
            assert state is (State.OPEN if self.now_s < DEADLINE_S else State.TIMED_OUT)
        else:
            assert state is (State.COMMITTING if self.ended_with and not self.has_turned else State.ABORTING)
        assert self.core.pending == self.under_way


TestTransaction = TransactionMachine.TestCase


@given(st.sampled_from(sorted(AFTER, key=str)))
def test_only_a_commit_that_was_done_leads_to_committed(case: tuple[State, Answer]) -> None:
    assert (AFTER[case] is State.COMMITTED) == (case == (State.COMMITTING, Answer.DONE))


def test_the_limit_of_targets_holds_for_those_that_are_asked_for_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TARGETS_MAX", 2)
    core = TransactionCore(TxnId(1, 2), DEADLINE_S, lambda _: None, lambda target, way: True)
    assert core.want_ahead(("a",), "way", lambda _: None)
    core.registered(("a",), None)
    assert core.want_ahead(("b",), "way", lambda _: None)
    assert not core.want_ahead(("c",), "way", lambda _: None)
    with pytest.raises(TooManyTargets):
        core.want(("c",), lambda _: None)
    assert core.want(("a",), lambda _: None)
