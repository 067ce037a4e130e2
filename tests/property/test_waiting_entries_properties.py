"""Entries that wait, by ledger, against a plain set of positions."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyroaring import BitMap

from geminga.broker.core.delayed.waiting_entries import WaitingEntries, absent_count
from geminga.managed_ledger.rules.acked_entries import first_absent
from geminga.model import Position
from support.house.examples import many

LEDGERS = st.integers(1, 3)
ENTRIES = st.integers(0, 120)


class AgainstASet(RuleBasedStateMachine):
    """Adds, removals and looks in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = WaitingEntries()
        self.oracle: set[Position] = set()

    @rule(ledger_id=LEDGERS, entry_id=ENTRIES)
    def add(self, ledger_id: int, entry_id: int) -> None:
        assert self.waiting.add(ledger_id, entry_id) is (Position(ledger_id, entry_id) not in self.oracle)
        self.oracle.add(Position(ledger_id, entry_id))

    @rule(ledger_id=LEDGERS, count=st.integers(1, 60))
    def add_range(self, ledger_id: int, count: int) -> None:
        first = max((known.entry_id + 1 for known in self.oracle if known.ledger_id == ledger_id), default=0)
        self.waiting.add_range(ledger_id, first, first + count)
        self.oracle.update(Position(ledger_id, first + i) for i in range(count))

    @rule(ledger_id=LEDGERS, ids=st.sets(ENTRIES, max_size=40))
    def add_new(self, ledger_id: int, ids: set[int]) -> None:
        new = self.waiting.add_new(ledger_id, BitMap(ids))
        assert {Position(ledger_id, entry_id) for entry_id in new} == {
            Position(ledger_id, i) for i in ids
        } - self.oracle
        self.oracle.update(Position(ledger_id, entry_id) for entry_id in ids)

    @rule(ledger_id=LEDGERS, ids=st.sets(ENTRIES, min_size=1, max_size=40), as_list=st.booleans())
    def remove(self, ledger_id: int, ids: set[int], as_list: bool) -> None:
        self.waiting.remove([(ledger_id, sorted(ids) if as_list else BitMap(ids))])
        self.oracle -= {Position(ledger_id, entry_id) for entry_id in ids}

    @rule(ledger_id=LEDGERS, entry_id=st.integers(-1, 130))
    def remove_through(self, ledger_id: int, entry_id: int) -> None:
        gone = {known for known in self.oracle if known <= Position(ledger_id, entry_id)}
        assert self.waiting.remove_through(Position(ledger_id, entry_id)) == len(gone)
        self.oracle -= gone

    @rule(ledger_id=LEDGERS, entry_id=st.integers(-1, 130))
    def look(self, ledger_id: int, entry_id: int) -> None:
        position = Position(ledger_id, entry_id)
        assert self.waiting.contains(*position) is (position in self.oracle)
        assert self.waiting.count_before(position) == sum(known < position for known in self.oracle)
        absent = entry_id
        while Position(ledger_id, absent) in self.oracle:
            absent += 1
        members = self.waiting.members(ledger_id, 0, 100_000)
        assert set(members) == {known.entry_id for known in self.oracle if known.ledger_id == ledger_id}
        assert set(self.waiting.members(ledger_id, 30, 60)) == set(members) & set(range(30, 60))
        assert entry_id < 0 or first_absent(members, entry_id) == absent
        ahead = absent_count(members, entry_id, 50)
        assert 1 <= ahead <= 50
        if ahead < 50 and entry_id >= 0:
            # A long run of waiting ones begins there.
            assert all(Position(ledger_id, entry_id + ahead + i) in self.oracle for i in range(2))

    @invariant()
    def same_count(self) -> None:
        self.waiting.check_invariants()
        assert self.waiting.count == len(self.oracle)


AgainstASet.TestCase.settings = settings(max_examples=many(100), stateful_step_count=30, deadline=None)
test_waiting_entries_are_those_of_a_plain_set = AgainstASet.TestCase
