"""What of a topic may be read, against a plain reading of its log; the same after recovery from any snapshot."""

from __future__ import annotations

import time
from random import Random  # noqa: TID251  (seeded)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import NotAllowedError
from geminga.model.position import EARLIEST, Position
from geminga.model.txn_id import TxnId
from geminga.transaction.core import buffer
from geminga.transaction.core.buffer import TransactionBufferState
from geminga.transaction.core.segments import Segment, SegmentedSnapshot, SegmentIndex, whole

#: (what, transaction)
Event = tuple[str, TxnId | None]


def at(index: int) -> Position:
    """Ledgers of five entries."""
    return Position(index // 5, index % 5)


def a_log(random: Random) -> list[Event]:
    """Messages of open transactions and of none, and ends, which come once or twice; nothing comes after an end."""
    log: list[Event] = []
    alive: list[TxnId] = []
    ended: list[TxnId] = []
    for number in range(random.randrange(1, 40)):
        choice = random.random()
        if choice < 0.25:
            alive.append(TxnId(random.randrange(2), number))
        if choice < 0.4 and alive:
            txn_id = alive.pop(random.randrange(len(alive)))
            log.append((random.choice(("commit", "abort")), txn_id))
            ended.append(txn_id)
        elif choice < 0.45 and log and log[-1][0] in ("commit", "abort"):
            log.append(log[-1])
        elif choice < 0.75 and alive:
            log.append(("message", random.choice(alive)))
        else:
            log.append(("message", None))
    return log


def tell(state: TransactionBufferState, event: Event, position: Position) -> None:
    what, txn_id = event
    if txn_id is None:
        return
    if what == "message":
        state.stored(txn_id, position)
    elif what == "commit":
        state.committed(txn_id)
    else:
        state.was_aborted(txn_id, position)


def delivered(log: list[Event]) -> tuple[int, set[int]]:
    """By the plainest rules: how many entries may be read, and which of those are given to consumers."""
    ends = {txn_id: what for what, txn_id in log if what != "message"}
    held = [
        i for i, (what, txn_id) in enumerate(log) if what == "message" and txn_id is not None and txn_id not in ends
    ]
    limit = held[0] if held else len(log)
    shown = {i for i, (what, t) in enumerate(log) if what == "message" and (t is None or ends.get(t) == "commit")}
    return limit, {i for i in shown if i < limit}


def seen(state: TransactionBufferState, log: list[Event]) -> tuple[int, set[int]]:
    first = state.first_held
    limit = len(log) if first is None else first.ledger_id * 5 + first.entry_id
    shown = {
        i
        for i, (what, txn_id) in enumerate(log[:limit])
        if what == "message" and (txn_id is None or not state.hides(txn_id, at(i)))
    }
    return limit, shown


@given(st.integers(0, 1 << 32))
def test_readers_see_what_is_committed_and_nothing_else(seed: int) -> None:
    random = Random(seed)
    log = a_log(random)
    state = TransactionBufferState()
    snapshots: list[tuple[int, dict[TxnId, Position]]] = []
    for index, event in enumerate(log):
        tell(state, event, at(index))
        assert seen(state, log[: index + 1]) == delivered(log[: index + 1])
        limit, _ = delivered(log[: index + 1])
        snapshots.append((limit, {txn_id: each.marker for txn_id, each in state.aborted.items()}))
    for limit, aborts in random.sample(snapshots, min(5, len(snapshots))):
        recovered = TransactionBufferState()
        for txn_id, marker in aborts.items():
            recovered.restored(txn_id, marker)
        for index in range(limit, len(log)):
            tell(recovered, log[index], at(index))
        assert seen(recovered, log) == delivered(log)


@given(st.integers(0, 1 << 32), st.integers(1, 4))
def test_recovery_from_segments_shows_the_same(seed: int, capacity: int) -> None:
    """As Pulsar writes them: every ``capacity`` aborted ones are a segment with the position of the last marker."""
    random = Random(seed)
    log = a_log(random)
    segments: dict[Position, Segment] = {}
    places: list[SegmentIndex] = []
    loose: list[TxnId] = []
    aborted: set[TxnId] = set()
    taken: list[SegmentedSnapshot] = []
    for index, (what, txn_id) in enumerate(log):
        if what == "abort" and txn_id is not None and txn_id not in aborted:
            aborted.add(txn_id)
            loose.append(txn_id)
        if len(loose) == capacity:
            place = SegmentIndex(len(places), at(index), Position(99, len(places)))
            segments[place.position] = Segment("t", place.sequence_id, at(index), tuple(loose))
            places.append(place)
            loose = []
        limit, _ = delivered(log[: index + 1])
        before = at(limit - 1) if limit else EARLIEST
        taken.append(SegmentedSnapshot("t", before, tuple(places), tuple(loose)))
    for snapshot in random.sample(taken, min(5, len(taken))):
        found = whole(snapshot, segments)
        assert found.position == snapshot.position
        recovered = TransactionBufferState()
        for txn_id, marker in found.aborts:
            recovered.restored(txn_id, marker)
        for index, event in enumerate(log):
            if at(index) > snapshot.position:
                tell(recovered, event, at(index))
        assert seen(recovered, log) == delivered(log)


@given(st.integers(0, 1 << 32), st.integers(0, 8))
def test_what_is_trimmed_is_forgotten_and_nothing_else(seed: int, first_ledger_id: int) -> None:
    log = a_log(Random(seed))
    state = TransactionBufferState()
    for index, event in enumerate(log):
        tell(state, event, at(index))
    before = {txn_id: each.marker.ledger_id for txn_id, each in state.aborted.items()}
    count = state.trimmed(first_ledger_id)
    assert {*state.aborted} == {txn_id for txn_id, ledger_id in before.items() if ledger_id >= first_ledger_id}
    assert count == len(before) - len(state.aborted)


def test_what_comes_after_the_end_is_refused_and_hides_nothing_that_was_committed() -> None:
    state = TransactionBufferState()
    txn_id = TxnId(1, 3)
    state.check_may_publish(txn_id)
    state.stored(txn_id, Position(0, 0))
    state.committed(txn_id)
    with pytest.raises(NotAllowedError, match="has been ended"):
        state.check_may_publish(txn_id)
    # After a restart nobody remembers; the low watermark ends what came late, and only that.
    late = TransactionBufferState()
    late.stored(txn_id, Position(0, 5))
    assert late.low_watermark(1, 2) == []
    assert late.low_watermark(0, 9) == []
    assert late.low_watermark(1, 3) == [txn_id]
    late.was_aborted(txn_id, Position(0, 7))
    assert late.first_held is None
    assert late.hides(txn_id, Position(0, 5))
    assert not late.hides(txn_id, Position(0, 0))
    with pytest.raises(NotAllowedError):
        late.check_may_publish(TxnId(1, 1))
    late.check_may_publish(TxnId(1, 4))


def test_ended_ones_are_remembered_up_to_the_watermark_and_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "ENDED_MAX", 3)
    state = TransactionBufferState()
    for number in range(5):
        state.committed(TxnId(0, number))
    state.check_may_publish(TxnId(0, 1))
    for number in (2, 3, 4):
        with pytest.raises(NotAllowedError):
            state.check_may_publish(TxnId(0, number))
    assert state.low_watermark(0, 4) == []
    with pytest.raises(NotAllowedError):
        state.check_may_publish(TxnId(0, 1))
    assert state.low_watermark(0, 2) == []
    assert state.low_watermarks == {0: 4}


def test_aborted_transactions_of_ledgers_that_are_gone_are_forgotten() -> None:
    state = TransactionBufferState()
    for number, index in enumerate((0, 7)):
        state.stored(TxnId(0, number), at(index))
        state.was_aborted(TxnId(0, number), at(index + 1))
    assert state.trimmed(1) == 1
    assert list(state.aborted) == [TxnId(0, 1)]
    assert state.hides(TxnId(0, 1), at(7))
    assert state.trimmed(1) == 0


@given(st.integers(0, 1 << 32))
def test_what_is_over_is_refused_whatever_the_watermarks_did_meanwhile(seed: int) -> None:
    random = Random(seed)
    state, ended, marks = TransactionBufferState(), set[TxnId](), {0: -1, 1: -1}
    opened: dict[TxnId, None] = {}
    for index in range(random.randrange(1, 60)):
        txn_id = TxnId(random.randrange(2), random.randrange(12))
        is_over = txn_id in ended or txn_id.number <= marks[txn_id.coordinator]
        choice = random.random()
        if choice < 0.3 and (not is_over or choice < 0.05):  # late ones, admitted before it was over, too
            state.stored(txn_id, at(index))
            opened[txn_id] = None
        elif choice < 0.6:
            state.committed(txn_id)
            opened.pop(txn_id, None)
            ended.add(txn_id)
        elif choice < 0.7:
            marks[txn_id.coordinator] = max(marks[txn_id.coordinator], txn_id.number)
            strays = state.low_watermark(txn_id.coordinator, txn_id.number)
            mark = marks[txn_id.coordinator]
            assert sorted(strays) == sorted(
                e for e in opened if e.coordinator == txn_id.coordinator and e.number <= mark
            )
        for each in [TxnId(c, n) for c in range(2) for n in range(12)]:
            if each in ended or each.number <= marks[each.coordinator]:
                with pytest.raises(NotAllowedError):
                    state.check_may_publish(each)
            else:
                state.check_may_publish(each)


def test_one_transaction_that_stays_open_makes_the_ends_of_others_no_dearer() -> None:
    """Its coordinator's watermark stays, and what ended above it is remembered: not looked at with each end."""
    state = TransactionBufferState()
    for number in range(50_000):
        state.committed(TxnId(0, number))
    started = time.process_time()
    for number in range(2_000):
        assert state.low_watermark(1, number) == []
    assert time.process_time() - started < 1.0
    assert state.low_watermark(0, 49_999) == []
    state.check_may_publish(TxnId(0, 50_000))


def test_a_message_of_one_that_a_snapshot_calls_aborted_holds_nobody_back() -> None:
    """A snapshot tells of the marker, and what lies before it is read again: no other end is coming."""
    state, txn_id = TransactionBufferState(), TxnId(0, 1)
    state.restored(txn_id, at(9))
    state.stored(txn_id, at(4))
    assert state.hides(txn_id, at(4))
    assert state.first_held is None
    state.stored(txn_id, at(10))
    assert state.first_held == at(10)
