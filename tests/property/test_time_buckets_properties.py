"""The time-bucket index against the heap: every operation in any order, nothing lost, the bounds of each mode."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pyroaring import BitMap

from geminga.broker.core.delayed_chunks import CHUNK_MIN, Column, chunk_of
from geminga.broker.core.delayed_heap import DelayedHeap
from geminga.broker.core.delayed_marks import FIRST_MARK
from geminga.broker.core.delayed_snapshot import encode, load
from geminga.broker.core.packed_positions import (
    BUCKET_SHIFT,
    ENTRY_BITS,
    ENTRY_MASK,
    LEDGER_MASK,
    LEDGERS_MAX,
    SLOT_BITS,
    PackedPositions,
)
from geminga.broker.core.time_buckets import TimeBuckets, precision_bits
from geminga.model import Position
from geminga.model.errors import CorruptionError
from geminga.runtime import SystemRng

BASE = 1_700_000_000_000
#: A day: with small buckets it has more slots than a chunk can name.
SPREAD_MAX = 86_400_000


class AgainstTheHeap(RuleBasedStateMachine):
    """One reader: what comes due, and when."""

    @initialize(
        tick_ms=st.sampled_from([1, 100, 1000, 1024, 60_000]),
        is_strict=st.booleans(),
        chunk_min=st.sampled_from([1, 30, CHUNK_MIN]),
    )
    def start(self, tick_ms: int, is_strict: bool, chunk_min: int) -> None:
        self.chunk_min = chunk_min
        self.index = TimeBuckets(precision_bits(tick_ms), is_strict=is_strict, chunk_min=chunk_min)
        self.heap = DelayedHeap()
        self.width = 1 << self.index.bits
        self.now = BASE
        self.waiting: dict[Position, int] = {}
        #: The time each message asks for, which never changes, even where it was discarded in the meantime.
        self.deliver_at: dict[Position, int] = {}
        self.ledger_id, self.entry_id = 1, 0

    def _add(self, position: Position, deliver_at: int) -> None:
        deliver_at = self.deliver_at.setdefault(position, deliver_at)
        assert self.index.add(*position, self.index.due_time(deliver_at)) is (position not in self.waiting)
        if position not in self.waiting:
            self.waiting[position] = deliver_at
            self.heap.add(*position, deliver_at)

    @rule(count=st.integers(1, 200), delay=st.integers(0, 200_000), step=st.sampled_from([0, 1, 7, 900]))
    def add_in_a_row(self, count: int, delay: int, step: int) -> None:
        for _ in range(count):
            self._add(Position(self.ledger_id, self.entry_id), self.now + delay)
            self.entry_id += 1
            delay += step

    @rule(count=st.integers(1, 300), delays=st.lists(st.integers(0, 20_000), min_size=2, max_size=4))
    def add_in_turn(self, count: int, delays: list[int]) -> None:
        for i in range(count):
            self._add(Position(self.ledger_id, self.entry_id), self.now + delays[i % len(delays)])
            self.entry_id += 1

    @rule(
        count=st.sampled_from([2, 100, 1500]),
        seed=st.integers(0, 1000),
        spread=st.sampled_from([2000, 300_000, SPREAD_MAX]),
    )
    def add_at_random(self, count: int, seed: int, spread: int) -> None:
        draw = SystemRng(seed)
        for _ in range(count):
            self._add(Position(self.ledger_id, self.entry_id), self.now + draw.below(spread))
            self.entry_id += 1

    @rule(ledgers=st.integers(0, 1), entries=st.integers(1, 70_000))
    def leave_a_gap(self, ledgers: int, entries: int) -> None:
        self.ledger_id += ledgers
        self.entry_id = 0 if ledgers else self.entry_id + entries

    @rule(data=st.data(), delay=st.integers(0, 200_000))
    def add_behind(self, data: st.DataObject, delay: int) -> None:
        """A reader that went back: an entry that waits already, one passed over, taken or discarded."""
        ledger_id = data.draw(st.integers(1, self.ledger_id))
        highest = 50 if ledger_id < self.ledger_id else min(50, self.entry_id - 1)
        if highest < 0:
            return
        position = Position(ledger_id, data.draw(st.integers(0, highest)))
        self._add(position, self.now + delay)

    @rule(step=st.sampled_from([0, 1, 600, 5000, 400_000]), count_max=st.sampled_from([1, 3, 50, 10_000]))
    def time_passes(self, step: int, count_max: int) -> None:
        self.now += step
        due = self.index.due(self.now, count_max)
        assert len(set(due)) == len(due) <= count_max
        assert len(due) == count_max or len(self.index) == len(self.waiting) - len(due)
        buckets = []
        for position in due:
            deliver_at = self.waiting.pop(position)
            buckets.append((self.index.bucket_of(deliver_at), *position))
            if self.index.is_strict:
                assert deliver_at <= self.now
            else:
                assert deliver_at - self.width < self.now
        assert buckets == sorted(buckets)
        if len(due) < count_max:
            for deliver_at in self.waiting.values():
                assert deliver_at + (self.width - 1 if self.index.is_strict else 0) > self.now
            next_due = self.index.next_due(FIRST_MARK, self.now)
            assert (next_due is None) == (not self.waiting)
            assert next_due is None or self.now < next_due <= min(self.waiting.values()) + self.width - 1

    @rule(steps=st.integers(1, 30))
    def purge(self, steps: int) -> None:
        for _ in range(steps):
            self.index.purge_step()

    @rule(data=st.data())
    def discard_through(self, data: st.DataObject) -> None:
        ledger_id = data.draw(st.integers(1, self.ledger_id))
        position = Position(ledger_id, data.draw(st.integers(-1, 300)))
        gone = [known for known in self.waiting if known <= position]
        assert self.index.discard_through(position) == len(gone)
        for known in gone:
            del self.waiting[known]

    @rule()
    def written_and_read_back(self) -> None:
        """What was discarded is in no record, also where buckets still name it."""
        again = TimeBuckets(self.index.bits, is_strict=self.index.is_strict, chunk_min=self.chunk_min)
        for record in encode(self.index):
            assert load(record, again, -1)
        self.index = again

    @invariant()
    def same_members(self) -> None:
        if not hasattr(self, "index"):
            return
        self.index.check_invariants()
        assert len(self.index) == len(self.waiting)
        for position in list(self.waiting)[:20]:
            assert self.index.contains(*position)
        assert not self.index.contains(self.ledger_id, self.entry_id)

    def teardown(self) -> None:
        if not hasattr(self, "index"):
            return
        self.now += SPREAD_MAX + 1_000_000
        due = set(self.index.due(self.now, 10_000_000))
        assert due == set(self.waiting)
        # The heap, which rounds nothing and forgets nothing, has the same and what was taken or discarded before.
        assert due <= set(self.heap.due(self.now, 10_000_000))
        assert len(self.index) == 0
        self.index.check_invariants()


AgainstTheHeap.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_time_buckets_any_operations_give_what_the_heap_gives = AgainstTheHeap.TestCase


class ManyReaders(RuleBasedStateMachine):
    """Readers with marks of their own: each is given everything once, whatever the others took."""

    @initialize(bits=st.integers(0, 12), chunk_min=st.sampled_from([1, 20, CHUNK_MIN]))
    def start(self, bits: int, chunk_min: int) -> None:
        self.index = TimeBuckets(bits, is_strict=False, chunk_min=chunk_min)
        self.now = BASE
        self.entry_id = 0
        self.marks = [FIRST_MARK] * 3
        self.given: list[list[Position]] = [[], [], []]
        self.added: dict[Position, int] = {}

    @rule(delays=st.lists(st.integers(5000, 100_000), max_size=100), ledger=st.integers(0, 1))
    def add(self, delays: list[int], ledger: int) -> None:
        for delay in delays:
            position = Position(1 + ledger, self.entry_id)
            assert self.index.add(*position, self.now + delay)
            self.added[position] = self.now + delay
            self.entry_id += 1

    @rule(reader=st.integers(0, 2), count_max=st.sampled_from([1, 7, 1000]))
    def take(self, reader: int, count_max: int) -> None:
        through = self.now >> self.index.bits
        given = set(self.given[reader])
        wanted = [p for p, time in self.added.items() if time >> self.index.bits <= through and p not in given]
        groups, mark = self.index.take(self.marks[reader], through, count_max)
        assert mark >= self.marks[reader]
        taken = [Position(ledger_id, entry_id) for ledger_id, ids in groups for entry_id in ids]
        assert self.index.count_between(self.marks[reader], mark) == len(taken) <= count_max
        assert len(taken) == min(len(wanted), count_max)
        self.given[reader] += taken
        self.marks[reader] = mark

    @rule()
    def release(self) -> None:
        self.index.release(min(self.marks))
        self.index.check_invariants()
        assert len(self.index) == len(self.added) - len(set.intersection(*map(set, self.given)))

    @rule(step=st.sampled_from([1, 500, 30_000]))
    def time_passes(self, step: int) -> None:
        self.now += step

    def teardown(self) -> None:
        if not hasattr(self, "index"):
            return
        self.now += 1_000_000
        for reader in range(3):
            self.take(reader, 1_000_000)
            assert sorted(self.given[reader]) == sorted(self.added)
        self.index.release(min(self.marks))
        assert len(self.index) == 0


ManyReaders.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_time_buckets_many_readers_are_each_given_everything_once = ManyReaders.TestCase


def test_packed_positions_made_bitmaps_name_the_same():
    packed = PackedPositions()
    for entry_id in range(0, 20_000, 2):
        packed.singles.append((entry_id & 3) << 56 | 1 << 32 | entry_id)
    packed.compact()
    assert packed.bitmaps
    assert not packed.singles
    parts = packed.split()
    assert {bucket: part.seal([7, 9])[0][0] for bucket, part in parts.items()} == {0: 9, 2: 9}
    assert list(parts[2].groups[0][1]) == list(range(2, 20_000, 4))


@given(
    first=st.integers(0, ENTRY_MASK),
    number=st.integers(0, LEDGERS_MAX - 1),
    slot=st.integers(0, 1 << 18),
    buckets=st.lists(st.integers(0, 1 << 24), min_size=1, max_size=300),
    data=st.data(),
)
def test_chunk_gives_what_the_column_had_that_was_not_taken(first, number, slot, buckets, data):
    column = Column()
    column.restart(first)
    column.extend([(slot << SLOT_BITS) + bucket for bucket in buckets][: column.end - first])
    assert not column.look(-1)
    column.holes = data.draw(st.lists(st.integers(0, len(column) - 1), unique=True))
    expected = {entry_id: bucket for bucket, entry_id in column.entries()}
    assert len(expected) == len(column) - len(column.holes)
    chunk = chunk_of(column, number)
    if chunk is None:
        few = 2 * len(set(column[::64])) < len(column[::64])
        assert few or min(column) >> 24 != max(column) >> 24
        return
    assert chunk.slots == sorted({bucket >> SLOT_BITS for bucket in expected.values()})
    assert chunk.entry_ids() == BitMap(expected)
    given_ = {}
    for slot in data.draw(st.permutations(chunk.slots)):
        if data.draw(st.booleans()):
            chunk.sort()
        packed = PackedPositions()
        assert chunk.copy_to(slot, packed)
        chunk.give_to(slot, PackedPositions())
        assert not chunk.copy_to(slot, packed)
        for item in packed.singles:
            assert item >> ENTRY_BITS & LEDGER_MASK == number
            given_[item & ENTRY_MASK] = slot << SLOT_BITS | item >> BUCKET_SHIFT
    assert chunk.is_empty
    assert given_ == expected


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 100_000), st.integers(0, 90_000)), max_size=200),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 1),
    st.integers(0, 60_000),
)
def test_delayed_snapshot_read_back_waits_for_the_same_times(added, is_strict, coarser, twice, passed):
    index = TimeBuckets(9, is_strict=is_strict)
    for ledger_id, entry_id, delay in added:
        index.add(ledger_id, entry_id, index.due_time(BASE + delay))
    records = list(encode(index))
    assert bool(records) == bool(added)
    again = TimeBuckets(9 + coarser, is_strict=is_strict)
    now = BASE + passed
    for record in records * (1 + twice):
        assert load(record, again, now)
        again.check_invariants()
    index.due(now, 1_000_000)
    assert len(again) == len(index)
    for step in range(0, 100_000, 512):
        # Where the buckets are the same, each entry comes at the same moment; otherwise never after it in the loose
        # mode, never before it in the strict one.
        due, same = set(again.due(now + step, 1_000_000)), set(index.due(now + step, 1_000_000))
        assert due == same or coarser
    assert len(again) == len(index) == 0


@given(st.lists(st.integers(0, 90_000), min_size=1, max_size=300), st.data())
def test_delayed_snapshot_cut_or_damaged_is_told_or_harmless(delays, data):
    index = TimeBuckets(9, is_strict=False)
    for entry_id, delay in enumerate(delays):
        index.add(7, entry_id, BASE + delay)
    record = bytearray(next(iter(encode(index))))
    cut = data.draw(st.integers(0, len(record) - 1))
    with pytest.raises(CorruptionError):
        load(bytes(record[:cut]), TimeBuckets(9, is_strict=False), BASE)
    with pytest.raises(CorruptionError):
        load(bytes(record) + b"\0", TimeBuckets(9, is_strict=False), BASE)
    record[data.draw(st.integers(0, len(record) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    again = TimeBuckets(9, is_strict=False)
    with suppress(CorruptionError):
        load(bytes(record), again, BASE)
    again.check_invariants()
