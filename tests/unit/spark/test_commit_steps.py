"""The steps of a commit one by one: what is claimed, decided, ended and aborted in which order, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from itertools import count
from typing import TypeVar

import pytest

from geminga.model.txn_id import TxnId
from geminga.spark.sink_rules import commit_steps as steps
from geminga.spark.sink_rules import decisions
from geminga.spark.sink_rules.commit_steps import (
    Append,
    CommitRequest,
    Decided,
    End,
    LostBatch,
    TaskTransaction,
    TxnOutcome,
    until_ms,
)
from geminga.spark.sink_rules.decisions import (
    Claim,
    CommitLog,
    Ended,
    Kept,
    Prepared,
    SinkState,
    TaskBegun,
    decode,
    encode,
)
from geminga.spark.sink_rules.errors import (
    DecisionLostError,
    LogLostError,
    SecondWriteError,
    ShutOutError,
    SinkError,
    SupersededError,
)

R = TypeVar("R")
SINK = "sink"
TIMEOUT_MS = 1000
NOW_MS = 10_000


def txn(number: int) -> TxnId:
    return TxnId(0, number)


def request(batch: int, *numbers: int, claim: str = "mine", opened_ms: int = NOW_MS, **more) -> CommitRequest:
    tasks = tuple(TaskTransaction(txn(number), opened_ms, TIMEOUT_MS) for number in numbers)
    return CommitRequest(SINK, batch, claim, tasks, **more)


def begun(number: int, batch: int = 0) -> TaskBegun:
    return TaskBegun(SINK, batch, txn(number), 0, 0, NOW_MS + TIMEOUT_MS)


class Carried:
    """Carries steps out: records go to the state, ends are answered."""

    def __init__(self, *records: decisions.Record) -> None:
        self.state = SinkState()
        self._places = count()
        for record in records:
            self.take(record)
        self.done: list[Append | End] = []
        self.outcomes: Mapping[TxnId, TxnOutcome] = {}
        #: Runs before a record is stored: what another driver stores first.
        self.before: Callable[[decisions.Record], None] = lambda record: None

    def take(self, record: decisions.Record) -> None:
        self.state.take(record, (0, next(self._places)))

    def run(self, generator: Generator[Append | End, Mapping[TxnId, TxnOutcome] | None, R]) -> R:
        answer = None
        try:
            while True:
                step = generator.send(answer)
                self.done.append(step)
                answer = None
                if isinstance(step, Append):
                    self.before(step.record)
                    self.take(step.record)
                elif step.commit:
                    answer = {each: self.outcomes.get(each, TxnOutcome.COMMITTED) for each in step.txn_ids}
        except StopIteration as ended:
            return ended.value

    def commit(self, given: CommitRequest, now_ms: int = NOW_MS) -> Decided:
        return self.run(steps.commit_steps(self.state, given, lambda: now_ms))

    def ends(self, *, commit: bool) -> list[TxnId]:
        return [each for step in self.done if isinstance(step, End) and step.commit is commit for each in step.txn_ids]


def test_nothing_is_committed_before_its_decision_is_stored_under_a_claim() -> None:
    world = Carried(begun(1), begun(2))
    assert world.commit(request(0, 1, 2)) is Decided.NOW
    claim, decision, end, ended = world.done
    assert claim == Append(Claim(SINK, "mine"))
    assert isinstance(decision, Append)
    assert isinstance(decision.record, Prepared)
    assert decision.record.txn_ids == (txn(1), txn(2))
    assert end == End((txn(1), txn(2)), commit=True)
    assert ended == Append(Ended(SINK, 0, "mine"))
    assert world.state.committed == 0


def test_a_decision_holds_until_the_first_of_its_transactions_may_time_out_by_any_clock() -> None:
    assert until_ms(NOW_MS, TIMEOUT_MS) == NOW_MS + TIMEOUT_MS - TIMEOUT_MS // steps.CLOCKS_PART
    world = Carried()
    tasks = (TaskTransaction(txn(1), NOW_MS, TIMEOUT_MS), TaskTransaction(txn(2), NOW_MS - 100, TIMEOUT_MS))
    world.commit(CommitRequest(SINK, 0, "mine", tasks))
    assert world.state.last is not None
    assert world.state.last.until_ms == until_ms(NOW_MS - 100, TIMEOUT_MS)


def test_what_was_decided_before_a_death_comes_true_and_the_replay_is_aborted() -> None:
    decided = Prepared(SINK, 0, "older", (txn(1),), NOW_MS + 500)
    world = Carried(begun(1), Claim(SINK, "older"), decided, begun(2), begun(3))
    assert world.commit(request(0, 2)) is Decided.BEFORE
    assert world.ends(commit=True) == [txn(1)]
    assert set(world.ends(commit=False)) == {txn(2), txn(3)}
    assert world.state.committed == 0


def test_strays_of_a_batch_and_those_before_are_aborted_and_the_next_ones_are_not() -> None:
    world = Carried(begun(1), begun(2), begun(3, batch=1))
    world.commit(request(0, 1))
    assert world.ends(commit=False) == [txn(2)]
    assert list(world.state.tasks) == [txn(3)]


def test_a_driver_whose_place_another_one_took_is_shut_out_and_aborts_its_own() -> None:
    world = Carried(begun(1))

    def before(record: decisions.Record) -> None:
        if isinstance(record, Prepared):
            world.take(Claim(SINK, "another's"))

    world.before = before
    with pytest.raises(ShutOutError):
        world.commit(request(0, 1))
    assert world.ends(commit=True) == []
    assert world.ends(commit=False) == [txn(1)]


def test_an_abort_claims_first_and_leaves_what_a_decision_names() -> None:
    world = Carried(Claim(SINK, "older"))

    def before(record: decisions.Record) -> None:
        # The decision that was under way arrives just before the claim that would have shut it out.
        world.take(Prepared(SINK, 0, "older", (txn(1),), NOW_MS))

    world.before = before
    assert world.run(steps.abort_steps(world.state, SINK, "mine", [txn(1), txn(2)])) == 1
    assert world.done == [Append(Claim(SINK, "mine")), End((txn(2),), commit=False)]
    assert Carried().run(steps.abort_steps(SinkState(), SINK, "mine", [])) == 0


def test_what_was_just_committed_is_not_aborted() -> None:
    world = Carried()
    world.commit(request(0, 1))
    assert world.run(steps.abort_steps(world.state, SINK, "next", [txn(1)])) == 0


def test_transactions_past_half_of_their_time_are_not_decided_on() -> None:
    world = Carried()
    with pytest.raises(SinkError, match="more than half of its 1000 ms"):
        world.commit(request(0, 1), now_ms=NOW_MS + 501)
    assert world.ends(commit=False) == [txn(1)]
    assert world.state.prepared is None
    assert Carried().commit(request(0, 1), now_ms=NOW_MS + 500) is Decided.NOW


def test_a_decision_has_no_more_transactions_than_a_message_holds(monkeypatch) -> None:
    monkeypatch.setattr(steps, "TXNS_MAX", 2)
    with pytest.raises(SinkError, match="3 tasks with rows: 2 at most"):
        Carried().commit(request(0, 1, 2, 3))
    assert Carried().commit(request(0, 1, 2)) is Decided.NOW


def test_a_log_that_lost_the_batch_before_stops_a_query_that_counts_its_batches() -> None:
    with pytest.raises(LogLostError, match="none of its batches"):
        Carried().commit(request(3, 1, is_consecutive=True))
    assert Carried().commit(request(3, 1, is_consecutive=True, resume_batch=3)) is Decided.NOW
    assert Carried().commit(request(3, 1)) is Decided.NOW, "versions of an application may leave some out"
    world = Carried()
    for batch in range(2):
        world.commit(request(batch, batch, is_consecutive=True))
    assert world.state.committed == 1


@pytest.mark.parametrize(
    ("outcome", "now_ms", "is_known"),
    [
        (TxnOutcome.UNKNOWN, NOW_MS + 400, True),
        # Its coordinator may have aborted it, and forgotten that.
        (TxnOutcome.UNKNOWN, NOW_MS + 500, False),
        (TxnOutcome.ABORTED, NOW_MS + 400, False),
    ],
)
def test_a_transaction_that_nobody_knows_is_committed_as_long_as_no_time_out_was(outcome, now_ms, is_known) -> None:
    decided = Prepared(SINK, 0, "older", (txn(1), txn(2)), NOW_MS + 500)
    world = Carried(Claim(SINK, "older"), decided)
    world.outcomes = {txn(1): outcome}
    if is_known:
        assert world.commit(request(0, 3), now_ms) is Decided.BEFORE
        return
    with pytest.raises(DecisionLostError, match=r"lostBatch=redo:0"):
        world.commit(request(0, 3), now_ms)
    assert world.state.prepared == decided, "the decision stands until somebody says what is to be"


def test_a_batch_of_which_nothing_came_true_is_written_by_the_replay_and_told_to_who_decided_it() -> None:
    decided = Prepared(SINK, 0, "older", (txn(1),), NOW_MS + 500)
    world = Carried(Claim(SINK, "older"), decided)
    world.outcomes = {txn(1): TxnOutcome.ABORTED}
    assert world.commit(request(0, 2)) is Decided.NOW
    assert Append(Ended(SINK, 0, "older", is_void=True)) in world.done
    assert world.ends(commit=True) == [txn(1), txn(2)]
    again = Carried()
    again.outcomes = {txn(1): TxnOutcome.ABORTED}
    with pytest.raises(DecisionLostError, match="None of its rows"):
        again.commit(request(0, 1))


@pytest.mark.parametrize(
    ("said", "decided"), [(LostBatch.REDO, Decided.NOW), (LostBatch.SKIP, Decided.BEFORE)], ids=["redo", "skip"]
)
def test_what_a_person_says_of_a_lost_batch_is_done_for_that_batch(said: LostBatch, decided: Decided) -> None:
    def world() -> Carried:
        made = Carried(Claim(SINK, "older"), Prepared(SINK, 5, "older", (txn(1), txn(2)), NOW_MS + 500))
        made.outcomes = {txn(1): TxnOutcome.ABORTED}
        return made

    one = world()
    assert one.commit(request(5, 3, lost=(said, 5))) is decided
    assert one.state.committed == 5
    assert (txn(3) in one.ends(commit=True)) is (said is LostBatch.REDO)
    with pytest.raises(DecisionLostError):
        world().commit(request(5, 3, lost=(said, 4)))


def test_an_older_batch_and_another_write_of_the_same_one_are_refused() -> None:
    world = Carried()
    world.commit(request(1, 1, run="run", topic="topic"))
    with pytest.raises(SupersededError, match="batch 1 is committed already"):
        world.commit(request(0, 2, run="other", topic="topic"))
    with pytest.raises(SecondWriteError):
        world.commit(request(1, 3, run="run", topic="topic"))
    with pytest.raises(SecondWriteError):
        world.commit(request(1, 4, run="other", topic="another"))
    assert world.commit(request(1, 5, run="other", topic="topic")) is Decided.BEFORE
    assert set(world.ends(commit=False)) == {txn(2), txn(3), txn(4), txn(5)}


def test_a_batch_without_rows_is_decided_and_nothing_else() -> None:
    world = Carried()
    assert world.commit(request(0)) is Decided.NOW
    assert world.ends(commit=True) == []
    assert (world.state.committed, world.state.prepared) == (0, None)
    assert world.commit(request(1, 1)) is Decided.NOW


# ---- what a log says


def test_of_records_those_count_that_the_newest_claim_covers_and_the_first_of_them() -> None:
    first = Prepared(SINK, 0, "b", (txn(2),), 0)
    world = Carried(
        Claim(SINK, "a"),
        Claim(SINK, "b"),
        Prepared(SINK, 0, "a", (txn(1),), 0),
        first,
        Prepared(SINK, 0, "b", (txn(3),), 0),
        Ended(SINK, 0, "a"),
        Ended(SINK, 1, "b"),
    )
    assert world.state.prepared == first
    world.take(Ended(SINK, 0, "b"))
    assert (world.state.committed, world.state.prepared) == (0, None)
    world.take(Prepared(SINK, 0, "b", (txn(4),), 0))
    assert world.state.prepared is None, "it is committed already"


def test_a_decision_that_is_void_leaves_its_batch_free() -> None:
    world = Carried(Claim(SINK, "a"), Prepared(SINK, 0, "a", (txn(1),), 0), Ended(SINK, 0, "a", is_void=True))
    assert (world.state.committed, world.state.prepared) == (-1, None)


def test_tasks_are_remembered_within_a_limit_and_other_sinks_are_passed_over(monkeypatch) -> None:
    monkeypatch.setattr(decisions, "TASKS_MAX", 2)
    log = CommitLog(SINK)
    for number in range(3):
        log.take(SINK, encode(begun(number)), (0, number))
    assert len(log.state.tasks) == 2
    log.take("other", encode(Claim("other", "c")), (0, 3))
    log.take("other", b'{"v":2,"kind":"new","sink":"other"}', (0, 4))
    assert (log.records, log.since_kept, log.state.claim) == (5, 5, "")


def test_what_is_kept_says_nothing_new_to_who_knows_later_things_and_all_to_others() -> None:
    kept = Kept(SINK, (0, 1), "a", 3, "run", "topic")
    for later in (Claim(SINK, "b"), Prepared(SINK, 4, "a", (txn(1),), 0)):
        world = Carried(Claim(SINK, "a"), Claim(SINK, "a"), later)
        world.take(kept)
        assert world.state.committed == -1
    new = Carried(kept)
    assert (new.state.claim, new.state.committed) == ("a", 3)
    assert new.state.last is not None
    assert (new.state.last.run, new.state.last.topic) == ("run", "topic")


@pytest.mark.parametrize(("at", "counts"), [((0, 0), False), ((0, 1), True), ((0, 2), True)])
def test_what_is_kept_counts_if_it_knows_the_last_decision(at: tuple[int, int], counts: bool) -> None:
    decision = Prepared(SINK, 3, "a", (txn(1),), 0)
    state = decisions.SinkState()
    state.take(Claim(SINK, "a"), (0, 0))
    state.take(decision, (0, 1))
    assert state.take(Kept(SINK, at, "a", 2, "run", "topic", decision), (0, 9)) is counts
    assert (state.committed, state.prepared) == (2 if counts else -1, decision)


def test_clocks_that_can_not_be_are_not_believed() -> None:
    ahead = Carried()
    with pytest.raises(SinkError, match="101 ms ahead"):
        ahead.commit(request(0, 1, opened_ms=NOW_MS + 101))
    assert Carried().commit(request(0, 1, opened_ms=NOW_MS + 100)) is Decided.NOW
    decided = Prepared(SINK, 0, "older", (txn(1),), NOW_MS + 400, decided_ms=NOW_MS)
    for now_ms, is_known in ((NOW_MS - 100, True), (NOW_MS - 101, False), (NOW_MS + 399, True), (NOW_MS + 400, False)):
        world = Carried(Claim(SINK, "older"), decided)
        world.outcomes = {txn(1): TxnOutcome.UNKNOWN}
        if is_known:
            assert world.commit(request(0, 3, opened_ms=now_ms), now_ms) is Decided.BEFORE
        else:
            with pytest.raises(DecisionLostError):
                world.commit(request(0, 3, opened_ms=now_ms), now_ms)


def test_an_older_run_and_another_query_are_refused() -> None:
    world = Carried()
    world.commit(request(0, 1, claim="a", run="one", query="q"))
    with pytest.raises(SecondWriteError, match="by another query"):
        world.commit(request(0, 2, claim="b", run="two", query="other"))
    assert world.commit(request(1, 3, claim="c", run="one", query="q")) is Decided.NOW
    assert world.commit(request(2, 4, claim="d", run="three", query="q")) is Decided.NOW
    with pytest.raises(ShutOutError, match="was copied"):
        world.commit(request(3, 5, claim="e", run="one", query="q"))
    assert txn(5) in world.ends(commit=False)


def test_a_record_of_a_newer_version_is_an_error_though_it_looks_the_same() -> None:
    with pytest.raises(SinkError, match="can not read"):
        decode(encode(Claim(SINK, "c")).replace(b'"v":1', b'"v":2'))
