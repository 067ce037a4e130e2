"""Deduplication against a replay of the log: nothing stored twice, nothing acknowledged that is not stored."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geminga.broker.core.dedup import Deduplication, Verdict
from support.house.examples import many

NAMES = ("a", "b")


class DedupMachine(RuleBasedStateMachine):
    """Producers send, resend and skip; writes succeed in order, or all fail with any prefix stored."""

    def __init__(self) -> None:
        super().__init__()
        self.dedup = Deduplication()
        self.log: list[tuple[str, int, int]] = []
        self.writing: deque[tuple[str, int, int]] = deque()
        self.now_ms = 0
        self.gone_ms: dict[str, int] = {}

    def replay(self) -> dict[str, int]:
        highest: dict[str, int] = {}
        for name, _, last in self.log:
            highest[name] = max(highest.get(name, -1), last)
        return highest

    @rule(name=st.sampled_from(NAMES), sequence_id=st.integers(0, 30), size=st.integers(1, 3))
    def publish(self, name: str, sequence_id: int, size: int) -> None:
        self.come(name)  # Only a producer that is connected publishes.
        highest = sequence_id + size - 1
        verdict = self.dedup.published(name, sequence_id, highest)
        stored = self.replay().get(name, -1)
        pushed = max([last for who, _, last in self.writing if who == name], default=-1)
        if self.dedup.is_settling:
            assert verdict is Verdict.UNKNOWN
        elif verdict is Verdict.DUPLICATE:
            assert highest <= stored
        elif verdict is Verdict.MIXED:
            assert sequence_id <= stored < highest
        elif verdict is Verdict.UNKNOWN:
            assert stored < sequence_id <= pushed
        else:
            assert sequence_id > max(stored, pushed)
            self.writing.append((name, sequence_id, highest))

    @precondition(lambda self: self.writing and not self.dedup.is_settling)
    @rule()
    def complete(self) -> None:
        entry = self.writing.popleft()
        self.log.append(entry)
        self.dedup.stored(entry[0], entry[2])

    @precondition(lambda self: self.writing)
    @rule(stored=st.integers(0, 5))
    def fail(self, stored: int) -> None:
        self.dedup.begin_settling()
        while self.writing:
            entry = self.writing.popleft()
            if stored > 0:
                self.log.append(entry)
                stored -= 1

    @precondition(lambda self: self.dedup.is_settling)
    @rule()
    def settle(self) -> None:
        for name, _, last in self.log:
            self.dedup.stored(name, last)
        self.dedup.settled()
        assert dict(self.dedup.persisted) == self.replay()

    @rule(name=st.sampled_from(NAMES))
    def come(self, name: str) -> None:
        self.dedup.connected(name)
        self.gone_ms.pop(name, None)

    @rule(name=st.sampled_from(NAMES), elapsed_ms=st.integers(0, 5))
    def go(self, name: str, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.dedup.gone(name, self.now_ms)
        self.gone_ms[name] = self.now_ms

    @precondition(lambda self: not self.writing and not self.dedup.is_settling)
    @rule(age_ms=st.integers(1, 10))
    def forget(self, age_ms: int) -> None:
        expected = {name for name in self.gone_ms if self.gone_ms[name] < self.now_ms - age_ms}
        known = set(self.dedup.persisted)
        self.dedup.forget_inactive(self.now_ms - age_ms)
        assert known - set(self.dedup.persisted) <= expected
        # A producer that is forgotten may begin again; for the model its log is another one.
        forgotten = known - set(self.dedup.persisted)
        self.log = [entry for entry in self.log if entry[0] not in forgotten]

    @rule(producers_max=st.integers(0, 3))
    def snapshot(self, producers_max: int) -> None:
        snapshot = self.dedup.snapshot(producers_max)
        here = {name: last for name, last in self.dedup.persisted.items() if name not in self.gone_ms}
        assert here.items() <= snapshot.items() <= self.dedup.persisted.items()
        assert len(snapshot) <= max(producers_max, len(here))
        assert len(snapshot) >= min(producers_max, len(self.dedup.persisted))

    @rule()
    def restart(self) -> None:
        if self.writing:
            return
        self.dedup = Deduplication()
        self.gone_ms.clear()
        for name, _, last in self.log:
            self.dedup.stored(name, last)

    @invariant()
    def nothing_is_stored_twice(self) -> None:
        self.dedup.check_invariants()
        for name in NAMES:
            firsts = [(first, last) for who, first, last in self.log if who == name]
            assert all(before[1] < after[0] for before, after in pairwise(firsts))


TestDedup = DedupMachine.TestCase
TestDedup.settings = settings(max_examples=many(150), stateful_step_count=40, deadline=None)
