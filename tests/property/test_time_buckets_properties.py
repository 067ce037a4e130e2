"""The time-bucket index against the heap: every operation in any order, nothing lost, the bounds of each mode."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from geminga.broker.core.delayed.chunks import ChunkSizes
from geminga.broker.core.delayed.marks import FIRST_MARK
from geminga.broker.core.delayed.packed_positions import PackedPositions
from geminga.broker.core.delayed.snapshot import encode, load
from geminga.broker.core.delayed.time_buckets import TimeBuckets, precision_bits
from geminga.broker.core.delayed.waiting_entries import GAP_MIN
from geminga.model import Position
from geminga.model.errors import CorruptionError
from geminga.runtime import SystemRng
from support.house.examples import FEW
from support.worlds.delayed_heap import DelayedHeap

BASE = 1_700_000_000_000
#: A day: with small buckets it has more slots than a chunk can name.
SPREAD_MAX = 86_400_000
#: So small that there are many chunks and units, and as they are.
SIZES = st.sampled_from([ChunkSizes(), ChunkSizes(40, 1, 7), ChunkSizes(300, 10, 60), ChunkSizes(5, 2, 1)])


class AgainstTheHeap(RuleBasedStateMachine):
    """One reader: what comes due, and when."""

    @initialize(
        tick_ms=st.sampled_from([1, 100, 1000, 1024, 60_000]),
        is_strict=st.booleans(),
        sizes=SIZES,
    )
    def start(self, tick_ms: int, is_strict: bool, sizes: ChunkSizes) -> None:
        self.sizes = sizes
        self.index = TimeBuckets(precision_bits(tick_ms), is_strict=is_strict, sizes=sizes)
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

    @rule(
        count=st.integers(1, 200),
        every=st.integers(2, 20),
        delays=st.lists(st.integers(0, 200_000), min_size=1, max_size=3),
        step=st.sampled_from([-40, 0, 1, 300]),
        ledgers=st.sampled_from([0, 0, 0, 7]),
    )
    def add_every_so_many(self, count: int, every: int, delays: list[int], step: int, ledgers: int) -> None:
        """Others lie between them that are not delayed; times rise, fall or are constants by turns."""
        for i in range(count):
            if ledgers and i % ledgers == 0:
                self.ledger_id += 1
            delay = max(0, delays[i % len(delays)] + i * step)
            self._add(Position(self.ledger_id, self.entry_id + i % 3), self.now + delay)
            self.entry_id += every + 2

    @rule(data=st.data(), count=st.integers(1, 100), delay=st.integers(0, 200_000))
    def add_out_of_order(self, data: st.DataObject, count: int, delay: int) -> None:
        """What a reader before the others, or a replay, comes upon: gaps are filled, most waits already."""
        first = data.draw(st.integers(0, max(0, self.entry_id - count)))
        ids = range(first, min(self.entry_id, first + count))
        for entry_id in data.draw(st.sampled_from([ids, ids[::-1], ids[::2], ids[::3] or ids])):
            self._add(Position(self.ledger_id, entry_id), self.now + delay)

    @rule(data=st.data(), count_max=st.sampled_from([1, 30, 500]))
    def look(self, data: st.DataObject, count_max: int) -> None:
        ledger_id = data.draw(st.integers(0, self.ledger_id + 1))
        entry_id = data.draw(st.integers(0, self.entry_id + 20))
        position = Position(ledger_id, entry_id)
        ids = {known.entry_id for known in self.waiting if known.ledger_id == ledger_id}
        assert self.index.contains(*position) is (entry_id in ids)
        assert self.index.count_before(position) == sum(known < position for known in self.waiting)
        absent = next(at for at in count(entry_id) if at not in ids)
        assert self.index.first_absent(*position) == absent
        ahead = self.index.absent_count(ledger_id, entry_id, count_max)
        long_run = next((at for at in sorted(ids) if at >= entry_id and ids.issuperset(range(at, at + GAP_MIN))), None)
        if long_run is None:
            assert ahead == count_max
        else:
            assert ahead == max(1, min(count_max, long_run - entry_id))

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
            self.index.slots.purge_step()

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
        again = TimeBuckets(self.index.bits, is_strict=self.index.is_strict, sizes=self.sizes)
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


AgainstTheHeap.TestCase.settings = settings(max_examples=FEW, stateful_step_count=25, deadline=None)
test_time_buckets_any_operations_give_what_the_heap_gives = AgainstTheHeap.TestCase


class ManyReaders(RuleBasedStateMachine):
    """Readers with marks of their own: each is given everything once, whatever the others took."""

    @initialize(bits=st.integers(0, 12), sizes=SIZES)
    def start(self, bits: int, sizes: ChunkSizes) -> None:
        self.index = TimeBuckets(bits, is_strict=False, sizes=sizes)
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


ManyReaders.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
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
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 100_000), st.integers(0, 90_000)), max_size=200),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 1),
    st.integers(0, 60_000),
    SIZES,
)
def test_delayed_snapshot_read_back_waits_for_the_same_times(added, is_strict, coarser, twice, passed, sizes):
    index = TimeBuckets(9, is_strict=is_strict, sizes=sizes)
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
    index = TimeBuckets(9, is_strict=False, sizes=data.draw(SIZES))
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
