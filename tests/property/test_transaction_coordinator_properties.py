"""The coordinator's state against a plain reading of its log, with records that are lost, cut off and trimmed."""

from __future__ import annotations

from random import Random  # noqa: TID251  (seeded)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import (
    GemingaError,
    InvalidTxnStatusError,
    NotAllowedError,
    TooManyRequestsError,
    TransactionNotFoundError,
)
from geminga.model.position import Position
from geminga.model.txn_id import Standing, TxnId, TxnStatus, TxnSubscription
from geminga.transaction.core import coordinator
from geminga.transaction.core.coordinator import PARTICIPANTS_MAX, CoordinatorState
from geminga.wire.pulsar.transaction_log import LogOp, TransactionRecord

Log = list[tuple[Position, TransactionRecord]]


class Oracle:
    """What a log says, read by the plainest rules."""

    def __init__(self, log: Log) -> None:
        self.status: dict[int, TxnStatus] = {}
        self.touched: dict[int, set[object]] = {}
        for _, record in log:
            number = record.txn_id.number
            if record.op is LogOp.NEW:
                self.status.setdefault(number, TxnStatus.OPEN)
                self.touched.setdefault(number, set())
            elif number in self.status and record.op is LogOp.UPDATE:
                if self.status[number] == record.expected_status:
                    assert record.new_status is not None
                    self.status[number] = record.new_status
            elif number in self.status and not self.status[number].is_over:
                self.touched[number].update(record.partitions, record.subscriptions)

    @property
    def alive(self) -> dict[int, tuple[TxnStatus, set[object]]]:
        return {n: (status, self.touched[n]) for n, status in self.status.items() if not status.is_over}


def alive(state: CoordinatorState) -> dict[int, tuple[TxnStatus, set[object]]]:
    return {n: (each.status, {*each.partitions, *each.subscriptions}) for n, each in state.open.items()}


@given(st.integers(0, 1 << 32))
def test_state_is_what_the_log_says_through_crashes(seed: int) -> None:
    random = Random(seed)
    state, log, given_ids, entry = CoordinatorState(5), [], set[int](), 0
    property_max = -1
    #: Beginnings, and that all have heard: nobody waits for these, they are stored with what comes next, or lost.
    later: list[TransactionRecord] = []
    for _ in range(random.randrange(10, 80)):
        if random.random() < 0.06:  # a crash; the ledger's property was written with what was known when it closed
            property_max = max(property_max, state.last_number)
            state = CoordinatorState(5, last_number=property_max)
            later.clear()
            for position, record in log:
                state.read_again(record, position)
        record = _anything(random, state)
        if record is None:
            continue
        if record.op is LogOp.NEW:
            assert record.txn_id.number not in given_ids, "an id was given twice"
            given_ids.add(record.txn_id.number)
        is_end = record.new_status is not None and record.new_status.is_over
        if (record.op is LogOp.NEW or is_end) and random.random() < 0.5:
            later.append(record)
            continue
        for each in (*later, record):
            position = Position(1, entry)
            entry += 1
            log.append((position, each))
            over = state.stored(each, position)
            if over is not None and random.random() < 0.7:
                gone = set(over.positions)
                assert gone == {where for where, other in log if other.txn_id == over.txn_id}
                log = [kept for kept in log if kept[0] not in gone]
        later.clear()
        told = Oracle(log).alive
        assert alive(state) == {number: each for number, each in told.items() if number not in state.heard}
        assert {told[number][0].is_ending for number in state.heard} <= {True}
        unfinished = [number for number in told if number not in state.heard]
        assert state.low_watermark == (min(unfinished) - 1 if unfinished else state.last_number)


def _anything(random: Random, state: CoordinatorState) -> TransactionRecord | None:
    txn_id = TxnId(5, random.randrange(state.last_number + 2))
    choice = random.randrange(6)
    try:
        if choice == 0 or not state.open:
            return state.begin(random.randrange(1, 100), random.randrange(1000))
        if choice == 1:
            return state.add_partitions(txn_id, [f"p{random.randrange(4)}"], 1)
        if choice == 2:
            return state.add_subscriptions(txn_id, [TxnSubscription("t", f"s{random.randrange(4)}")], 1)
        if choice == 3:
            return state.finish(txn_id, 1)
        return state.end(txn_id, commit=random.random() < 0.5, now_ms=1)
    except (InvalidTxnStatusError, TransactionNotFoundError):
        return None


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=30), st.integers(1, 4))
def test_each_open_transaction_times_out_once_and_not_before(begun: list[tuple[int, bool]], at_a_time: int) -> None:
    state = CoordinatorState(0)
    for number, (timeout_ms, is_ended) in enumerate(begun):
        state.stored(state.begin(timeout_ms, number), Position(0, number))
        if is_ended:
            ended = state.end(TxnId(0, number), commit=True, now_ms=number)
            assert ended is not None
            state.stored(ended, Position(1, number))
    expected = sorted((number + t, number) for number, (t, is_ended) in enumerate(begun) if not is_ended)
    heard: list[tuple[int, int]] = []
    for now_ms in range(90):
        deadline = state.next_deadline_ms
        left = expected[len(heard) :]
        assert deadline == (left[0][0] if left else None)
        while found := state.due(now_ms, at_a_time):
            assert len(found) <= at_a_time
            heard += [(state.open[each.number].deadline_ms, each.number) for each in found]
            assert all(each_ms <= now_ms for each_ms, _ in heard)
        assert [each for each in expected if each[0] <= now_ms] == heard
    assert state.timed_out == len(expected)


def test_a_topic_stands_as_it_will_once_its_record_is_stored() -> None:
    state = CoordinatorState(1)
    state.stored(state.begin(10, 0), Position(0, 0))
    txn_id, subscription = TxnId(1, 0), TxnSubscription("t", "s")
    assert state.standing(txn_id, "p") is Standing.UNTOLD
    added = [state.add_partitions(txn_id, ["p"], 1), state.add_partitions(txn_id, ["p", "q"], 1)]
    added.append(state.add_subscriptions(txn_id, [subscription], 1))
    for number, record in enumerate(added, start=1):
        assert {state.standing(txn_id, each) for each in ("p", "q", subscription)} == {Standing.TAKING}
        assert state.standing(txn_id, "other") is Standing.UNTOLD
        assert record is not None
        state.stored(record, Position(0, number))
    late = state.add_partitions(txn_id, ["late"], 1)
    end = state.end(txn_id, commit=True, now_ms=1)
    assert {state.standing(txn_id, each) for each in ("p", "late")} == {Standing.ENDING}, "its record is behind"
    for number, record in enumerate((late, end), start=10):
        assert record is not None
        state.stored(record, Position(0, number))
    assert list(state.find(txn_id).partitions) == ["p", "q", "late"]


def test_of_two_ends_that_race_the_first_wins() -> None:
    state = CoordinatorState(1)
    state.stored(state.begin(10, 0), Position(0, 0))
    txn_id = TxnId(1, 0)
    first = state.end(txn_id, commit=True, now_ms=1)
    assert first is not None
    assert state.end(txn_id, commit=True, now_ms=1) is None  # the client lost its connection, and asks again
    for refused in (
        lambda: state.end(txn_id, commit=False, now_ms=1),
        lambda: state.add_partitions(txn_id, ["p"], 1),
    ):
        with pytest.raises(InvalidTxnStatusError, match="COMMITTING"):
            refused()
    state.stored(first, Position(0, 1))
    assert state.end(txn_id, commit=True, now_ms=2) is None  # the client lost the answer
    with pytest.raises(InvalidTxnStatusError):
        state.end(txn_id, commit=False, now_ms=2)
    last = state.finish(txn_id, 3)
    assert last is not None
    assert state.finish(txn_id, 3) is None
    assert state.stored(last, Position(0, 2)) is not None
    assert state.end(txn_id, commit=True, now_ms=4) is None  # lost again
    with pytest.raises(InvalidTxnStatusError, match="COMMITTED"):
        state.end(txn_id, commit=False, now_ms=4)


def test_outcomes_are_told_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "OUTCOMES_MAX", 2)
    state = CoordinatorState(1)
    for number in range(3):
        state.stored(state.begin(10, 0), Position(0, number))
        for record in (lambda n: state.end(TxnId(1, n), commit=True, now_ms=1), lambda n: state.finish(TxnId(1, n), 1)):
            made = record(number)
            assert made is not None
            state.stored(made, Position(1, number))
    with pytest.raises(TransactionNotFoundError):
        state.end(TxnId(1, 0), commit=True, now_ms=4)
    assert [state.end(TxnId(1, number), commit=True, now_ms=4) for number in (1, 2)] == [None, None]


def test_of_two_ends_in_a_log_the_first_counts() -> None:
    """Pulsar's broker may write both: it looks at the status before it writes, and again after."""
    state = CoordinatorState(1)
    state.stored(state.begin(10, 0), Position(0, 0))
    commit = state.end(TxnId(1, 0), commit=True, now_ms=1)
    assert commit is not None
    state.stored(commit, Position(0, 1))
    state.stored(commit._replace(new_status=TxnStatus.ABORTING), Position(0, 2))
    assert state.find(TxnId(1, 0)).status is TxnStatus.COMMITTING


def test_limits_are_told() -> None:
    state = CoordinatorState(1, active_max=1)
    state.stored(state.begin(10, 0), Position(0, 0))
    with pytest.raises(TooManyRequestsError, match="as many as it may have"):
        state.begin(10, 0)
    assert state.last_number == 0
    with pytest.raises(NotAllowedError, match=str(PARTICIPANTS_MAX)):
        state.add_partitions(TxnId(1, 0), map(str, range(PARTICIPANTS_MAX + 1)), 0)


def test_one_whose_time_is_up_is_named_once() -> None:
    state = CoordinatorState(1)
    state.stored(state.begin(10, 0), Position(0, 0))
    assert state.due(9, 5) == []
    assert state.due(10, 5) == [TxnId(1, 0)]
    assert state.due(99, 5) == []
    assert state.timed_out == 1


def test_a_replay_takes_numbers_from_every_record() -> None:
    state = CoordinatorState(1, last_number=4)
    record = state.begin(1, 0)._replace(txn_id=TxnId(1, 2), max_number=11)
    fresh = CoordinatorState(1, last_number=4)
    fresh.read_again(record, Position(0, 0))
    assert fresh.begin(1, 0).txn_id == TxnId(1, 12)
    with pytest.raises(GemingaError):
        fresh.find(TxnId(2, 2))


@given(st.integers(0, 1 << 32))
def test_what_clients_make_a_coordinator_remember_is_counted_and_bounded_however_they_hurry(seed: int) -> None:
    """Any number of records under way at a time; the oracle counts what is asked for and what is there by hand."""
    random = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in (
            ("PARTICIPANTS_MAX", 6),
            ("PARTICIPANTS_CHARACTERS_MAX", 40),
            ("OPEN_CHARACTERS_MAX", 200),
            ("TRANSACTION_CHARACTERS", 20),
        ):
            patch.setattr(coordinator, name, limit)
        state = CoordinatorState(1, active_max=random.choice([0, 3]))
        coming: list[TransactionRecord] = []
        log: Log = []
        for step in range(random.randrange(5, 60)):
            number = random.randrange(state.last_number + 2)
            names = ["x" * random.randrange(12) + str(random.randrange(9)) for _ in range(random.randrange(4))]
            try:
                match random.randrange(6):
                    case 0:
                        coming.append(state.begin(10, 0))
                    case 1:
                        coming += filter(None, [state.add_partitions(TxnId(1, number), names, 0)])
                    case 2:
                        added = [TxnSubscription(each, "s") for each in names]
                        coming += filter(None, [state.add_subscriptions(TxnId(1, number), added, 0)])
                    case 3:
                        coming += filter(None, [state.end(TxnId(1, number), commit=True, now_ms=0)])
                    case 4:
                        for each in state.ending:
                            coming += filter(None, [state.finish(each.txn_id, 0)])
                    case _:
                        for record in coming:
                            log.append((Position(0, step), record))
                            state.stored(record, Position(0, step))
                        coming = []
            except GemingaError:
                pass
            asked = {number: [] for number in state.open}
            for record in coming:
                if record.op is not LogOp.NEW and record.txn_id.number in asked:
                    asked[record.txn_id.number] += [*record.partitions, *map("".join, record.subscriptions)]
            there = {
                number: [*each.partitions, *map("".join, each.subscriptions)] for number, each in state.open.items()
            }
            total = 20 * len(there)
            for number, held in there.items():
                assert len(held) + len(asked[number]) <= 6
                characters = sum(map(len, held)) + sum(map(len, asked[number]))
                assert characters <= 40
                total += characters
            assert state.characters == total <= 200
            assert state.active == len(there)
            assert not state.active_max or state.active <= state.active_max
        again = CoordinatorState(1)
        for position, record in log:
            again.read_again(record, position)
        for record in coming:
            state.stored(record, Position(1, 0))
            again.stored(record, Position(1, 0))
        assert again.characters == state.characters
