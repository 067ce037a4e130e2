"""Delayed delivery of a topic against one heap per subscription: each entry once to each, within its bounds."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from geminga.broker.core.delayed.delivery import DelayReader, TopicDelays
from geminga.broker.core.delayed.time_buckets import precision_bits
from geminga.model import Position
from geminga.runtime import SystemRng
from support.house.examples import many
from support.house.weekly_sample import sampled
from support.worlds.delayed_heap import DelayedHeap

BASE = 1_700_000_000_000
TICKS = [100, 1000, 5000]


class Reader:
    """A subscription: reads the log in order; a heap of its own says what it must have been given."""

    def __init__(self, reader: DelayReader, tick_ms: int) -> None:
        self.reader = reader
        self.width = 1 << precision_bits(tick_ms)
        self.read = 0
        self.given: dict[Position, int] = {}
        self.heap = DelayedHeap()


class SharedIndex(RuleBasedStateMachine):
    """Subscriptions come, read, wait and go; the clock runs. One index serves them all."""

    @initialize(is_strict=st.booleans(), tick_ms=st.sampled_from(TICKS))
    def start(self, is_strict: bool, tick_ms: int) -> None:
        self.delays = TopicDelays(tick_ms=tick_ms, is_strict=is_strict)
        self.is_strict = is_strict
        self.now = BASE
        self.log: list[tuple[Position, int]] = []
        self.readers: list[Reader] = []
        #: The coarsest bucket that any entry may have been rounded to before a finer tick was asked for.
        self.width = 1 << precision_bits(tick_ms)

    @rule(tick_ms=st.sampled_from(TICKS))
    def join(self, tick_ms: int) -> None:
        if len(self.readers) < 4:
            self.width = max(self.width, 1 << precision_bits(tick_ms))
            self.readers.append(Reader(self.delays.attach(self.now, tick_ms), tick_ms))

    @rule(which=st.integers(0, 3))
    def leave(self, which: int) -> None:
        if which < len(self.readers):
            self.delays.detach(self.readers.pop(which).reader)

    @rule(delays=st.lists(st.sampled_from([0, 0, 300, 2000, 9000, 40_000]), max_size=30))
    def publish(self, delays: list[int]) -> None:
        for delay in delays:
            position = Position(1 + len(self.log) // 37, len(self.log) % 37)
            self.log.append((position, self.now + delay if delay else 0))

    @rule(which=st.integers(0, 3), count=st.integers(1, 40))
    def read(self, which: int, count: int) -> None:
        if which >= len(self.readers):
            return
        reader = self.readers[which]
        for position, deliver_at in self.log[reader.read : reader.read + count]:
            reader.read += 1
            if reader.reader.must_wait(position, deliver_at):
                reader.heap.add(*position, deliver_at)
            else:
                self._given(reader, position, deliver_at)

    @rule(which=st.integers(0, 3), count=st.integers(1, 30))
    def take(self, which: int, count: int) -> None:
        if which < len(self.readers):
            self._take(self.readers[which], count)

    @rule(tick_ms=st.sampled_from(TICKS))
    def restart(self, tick_ms: int) -> None:
        """Another broker takes the topic over, perhaps with another tick; subscriptions come back later."""
        self.width = max(self.width, 1 << precision_bits(tick_ms))
        records = list(self.delays.records())
        self.delays = TopicDelays(tick_ms=tick_ms, is_strict=self.is_strict)
        for record in records:
            self.delays.load(record, self.now)
        self.readers = []

    @rule(position=st.integers(0, 400))
    def everybody_skips(self, position: int) -> None:
        """What was skipped is discarded; whoever reads it again afterwards lets it wait again."""
        self.delays.discard_through(Position(1 + position // 37, position % 37))
        for reader in self.readers:
            self.delays.detach(reader.reader)
        self.readers = []

    @rule(step=st.sampled_from([1, 200, 3000, 20_000]))
    def time_passes(self, step: int) -> None:
        self.now += step

    @invariant()
    def bookkeeping(self) -> None:
        if hasattr(self, "delays"):
            self.delays.index.check_invariants()

    def teardown(self) -> None:
        if not hasattr(self, "delays"):
            return
        for reader in self.readers:
            for position, deliver_at in self.log[reader.read :]:
                reader.read += 1
                if not reader.reader.must_wait(position, deliver_at):
                    self._given(reader, position, deliver_at)
                else:
                    reader.heap.add(*position, deliver_at)
        self.now += 100_000
        for reader in self.readers:
            while self._take(reader, 1000):
                pass
            assert sorted(reader.given) == sorted(position for position, _ in self.log)
            assert reader.reader.next_due(self.now) is None
        if self.readers:
            assert len(self.delays) == 0

    def _take(self, reader: Reader, count: int) -> int:
        end = self.log[reader.read - 1][0] if reader.read else Position(0, 0)
        due = reader.reader.take(self.now, Position(end.ledger_id, end.entry_id + 1), count)
        assert len(due) <= count
        times = dict(self.log)
        for position in due:
            self._given(reader, position, times[position])
        if len(due) < count:
            # Everything that the heap has, bar what the strict mode may hold for one bucket more.
            late = reader.width if self.is_strict else 0
            assert set(reader.heap.due(self.now - late, 10_000)) <= set(reader.given)
        return len(due)

    def _given(self, reader: Reader, position: Position, deliver_at: int) -> None:
        assert position not in reader.given
        reader.given[position] = self.now
        early = 0 if self.is_strict else self.width - 1
        assert not deliver_at or self.now >= deliver_at - early


SharedIndex.TestCase.settings = settings(max_examples=many(100), stateful_step_count=40, deadline=None)
test_shared_delayed_index_gives_each_subscription_what_its_own_heap_would = SharedIndex.TestCase


@pytest.mark.parametrize("seed", sampled("delayed delivery properties", range(100), 35))
def test_what_was_taken_is_not_due_any_more(seed):
    """Else a timer for what is due would ring again and again; readers of larger buckets are ahead of the clock."""
    rng = SystemRng(seed)
    ticks = [1, 10, 1000, 60_000]
    delays = TopicDelays(tick_ms=ticks[rng.below(4)], is_strict=rng.below(2) == 0)
    now = BASE + rng.below(1_000_000)
    readers = [delays.attach(now, ticks[rng.below(4)]) for _ in range(1 + rng.below(3))]
    entries = 0
    for _ in range(30):
        for _ in range(rng.below(4)):
            deliver_at = now + rng.below((3000, 200_000)[rng.below(2)])
            for reader in readers:
                reader.must_wait(Position(1, entries), deliver_at)
            entries += 1
        now += (0, 1, rng.below(2000), rng.below(100_000), -rng.below(900), -rng.below(5000))[rng.below(6)]
        for reader in readers:
            reader.take(now, Position(1, entries), 1000)
            due = reader.next_due(now)
            assert due is None or due > now
