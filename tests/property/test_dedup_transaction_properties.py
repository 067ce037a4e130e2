"""Deduplication of messages in transactions against the log itself: nothing counts twice, nothing is lost.

The oracle knows for each message of the log whether its transaction is open, committed or aborted, and nothing else.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geminga.broker.core.dedup import Deduplication, Verdict
from geminga.model.txn_id import TxnId
from support.house.examples import many

NAMES = ("a", "b")
IDS = 12


class Entry(NamedTuple):
    name: str
    first: int
    last: int
    txn_id: TxnId | None


class End(NamedTuple):
    txn_id: TxnId
    is_committed: bool


class Snapshot(NamedTuple):
    #: How much of the log needs no replay.
    length: int
    persisted: dict[str, int]
    free: dict[str, list[tuple[int, int]]]


class DedupTransactionMachine(RuleBasedStateMachine):
    """Producers send, resend and skip, in transactions and without, that end either way; writes may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.dedup = Deduplication()
        self.log: list[Entry | End] = []
        self.writing: deque[Entry] = deque()
        self.numbers = 0
        self.open: list[TxnId] = []
        self.saved = Snapshot(0, {}, {})

    # ---- the oracle

    def copies(self, name: str, number: int) -> list[TxnId | None]:
        """Where the number is stored and may count: None is for good, else the open transaction."""
        ends = {each.txn_id: each.is_committed for each in self.log if isinstance(each, End)}
        found: list[TxnId | None] = []
        for each in self.log:
            if isinstance(each, Entry) and each.name == name and each.first <= number <= each.last:
                if each.txn_id is None or ends.get(each.txn_id, False):
                    found.append(None)
                elif each.txn_id not in ends:
                    found.append(each.txn_id)
        return found

    def is_coming(self, name: str, number: int) -> bool:
        return any(each.name == name and each.first <= number <= each.last for each in self.writing)

    def was_stored(self, name: str, number: int) -> bool:
        return any(
            isinstance(each, Entry) and each.name == name and each.first <= number <= each.last for each in self.log
        )

    # ---- what happens

    @rule(choice=st.data())
    def begin(self, choice: st.DataObject) -> None:
        del choice
        if len(self.open) < 3:
            self.open.append(TxnId(0, self.numbers))
            self.numbers += 1

    @rule(name=st.sampled_from(NAMES), first=st.integers(0, IDS), size=st.integers(1, 3), which=st.integers(0, 3))
    def publish(self, name: str, first: int, size: int, which: int) -> None:
        self.send(name, first, first + size - 1, which)

    @rule(name=st.sampled_from(NAMES), size=st.integers(1, 3), which=st.integers(0, 3))
    def publish_next(self, name: str, size: int, which: int) -> None:
        stored = [each.last for each in (*self.log, *self.writing) if isinstance(each, Entry) and each.name == name]
        first = max(stored, default=-1) + 1
        if first <= IDS:
            self.send(name, first, first + size - 1, which)

    def send(self, name: str, first: int, last: int, which: int) -> None:
        txn_id = self.open[which] if which < len(self.open) else None
        self.dedup.connected(name)
        verdict = self.dedup.published(name, first, last, txn_id)
        numbers = range(first, last + 1)
        if verdict is Verdict.ACCEPTED:
            for number in numbers:
                assert not self.copies(name, number), "stored twice"
                assert not self.is_coming(name, number), "stored twice, if both are"
            self.writing.append(Entry(name, first, last, txn_id))
        elif verdict is Verdict.DUPLICATE:
            for number in numbers:
                if self.was_stored(name, number):
                    assert self.copies(name, number) in ([None], [txn_id]), "a receipt for what does not count"
        elif verdict is Verdict.HELD:
            assert self.open
        elif verdict is Verdict.UNKNOWN:
            assert self.dedup.is_settling or self.writing
        else:
            assert any(self.copies(name, number) for number in numbers) or first < last

    @precondition(lambda self: self.writing and not self.dedup.is_settling)
    @rule()
    def complete(self) -> None:
        self.store(self.writing.popleft())

    def store(self, entry: Entry) -> None:
        self.log.append(entry)
        self.take(self.dedup, entry)

    @staticmethod
    def take(dedup: Deduplication, each: Entry | End) -> None:
        if isinstance(each, End):
            dedup.transaction_ended(each.txn_id, is_committed=each.is_committed)
        elif each.txn_id is not None or each.name in dedup.runs:
            dedup.stored_in(each.name, each.first, each.last, each.txn_id)
        else:
            dedup.stored(each.name, each.last)

    @precondition(lambda self: self.open and not self.dedup.is_settling)
    @rule(which=st.integers(0, 2), is_committed=st.booleans())
    def end(self, which: int, is_committed: bool) -> None:
        txn_id = self.open[which % len(self.open)]
        # The marker comes behind what is being stored of it.
        while any(each.txn_id == txn_id for each in self.writing):
            self.complete()
        self.open.remove(txn_id)
        self.log.append(End(txn_id, is_committed))
        self.take(self.dedup, self.log[-1])

    @precondition(lambda self: self.writing and not self.dedup.is_settling)
    @rule(stored=st.integers(0, 3))
    def fail(self, stored: int) -> None:
        self.dedup.begin_settling()
        found = [self.writing.popleft() for _ in range(min(stored, len(self.writing)))]
        self.writing.clear()
        for entry in found:
            self.store(entry)
        self.dedup.settled()

    @rule()
    def save(self) -> None:
        """As the shell does: the numbers now, and a position that is not behind the first open transaction."""
        firsts = (index for index, each in enumerate(self.log) if isinstance(each, Entry) and each.txn_id in self.open)
        self.saved = Snapshot(next(firsts, len(self.log)), dict(self.dedup.snapshot(100)), self.dedup.runs.free())

    def restored(self) -> Deduplication:
        dedup = Deduplication()
        for name, last in self.saved.persisted.items():
            dedup.stored(name, last)
        dedup.runs.restored(self.saved.free)
        for each in self.log[self.saved.length :]:
            self.take(dedup, each)
        return dedup

    @precondition(lambda self: not self.writing and not self.dedup.is_settling)
    @rule()
    def restart(self) -> None:
        self.dedup = self.restored()

    # ---- what is always so

    @invariant()
    def all_is_judged_right(self) -> None:
        self.dedup.check_invariants()
        if self.writing or self.dedup.is_settling:
            return
        for dedup in (self.dedup, self.restored()):
            for name in NAMES:
                for number in range(IDS + 3):
                    copies = self.copies(name, number)
                    assert len(copies) <= 1, "counts twice"
                    pushed = dedup.last_sequence_id(name)
                    verdict = Verdict.ACCEPTED if number > pushed else dedup.judged(name, number, number, None)
                    if copies == [None]:
                        assert verdict is Verdict.DUPLICATE, f"{name} {number} is stored for good"
                    elif copies:
                        assert verdict is Verdict.HELD, f"{name} {number} is of an open transaction"
                        assert dedup.judged(name, number, number, copies[0]) is Verdict.DUPLICATE
                    elif self.was_stored(name, number):
                        assert verdict is Verdict.ACCEPTED, f"{name} {number} was aborted"

    @invariant()
    def runs_are_apart(self) -> None:
        for name in NAMES:
            runs = self.dedup.runs.within(name, 0, 1 << 62)
            assert all(before.last < after.first for before, after in pairwise(runs))
            assert all(run.first <= run.last for run in runs)


TestDedupTransactions = DedupTransactionMachine.TestCase
TestDedupTransactions.settings = settings(max_examples=many(150), stateful_step_count=40, deadline=None)
