"""Acknowledged ranges and batch ack sets, against plain sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from geminga.managed_ledger.rules.ack_ranges import AckRanges
from geminga.managed_ledger.rules.acked_entries import PART_BITS, PART_ENTRIES, AckedBitmap
from geminga.managed_ledger.rules.batch_acks import BatchAcks, bits_of_words, words_of_bits
from geminga.managed_ledger.rules.cursor import CROSSED, MOVED, CursorState, before
from geminga.managed_ledger.rules.plain_ranges import PlainRanges
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.errors import InvariantError
from geminga.model.position import EARLIEST, LATEST, Position

# Around the borders of parts, and small ones that make runs.
entry_ids = st.integers(0, 40) | st.integers(PART_ENTRIES - 5, PART_ENTRIES + 5) | st.integers(0, 5 * PART_ENTRIES)
kinds = st.sampled_from([AckedBitmap, PlainRanges])
holes = st.dictionaries(st.integers(0, 3), st.sets(entry_ids, min_size=1, max_size=60), max_size=3)


def ranges_of(sets):
    found = []
    for ledger_id in sorted(sets):
        for entry_id in sorted(sets[ledger_id]):
            if found and found[-1][0] == ledger_id and found[-1][2] + 1 == entry_id:
                found[-1][2] = entry_id
            else:
                found.append([ledger_id, entry_id, entry_id])
    return [tuple(item) for item in found]


def filled(sets, kind=AckedBitmap):
    acked = AckRanges(kind)
    for ledger_id, ids in sets.items():
        assert acked.add_many(ledger_id, sorted(ids)) == len(ids)
    return acked


@given(kinds, holes, st.integers(0, 3), st.integers(-1, 45) | entry_ids)
def test_what_is_behind_the_end_of_a_ledger_is_forgotten_there_alone(kind, sets, ledger_id, end):
    acked = filled(sets, kind)
    acked.discard_behind(ledger_id, end)
    acked.check_invariants()
    left = {each: {i for i in ids if each != ledger_id or i <= end} for each, ids in sets.items()}
    assert [tuple(item) for item in acked.ranges(1000)] == ranges_of(left)
    assert acked.count == sum(map(len, left.values()))


@given(kinds, holes, st.integers(0, 100))
def test_ranges_are_the_runs_of_the_set(kind, sets, limit):
    acked = filled(sets, kind)
    assert acked.range_count == len(ranges_of(sets))
    acked.check_invariants()
    assert acked.count == sum(map(len, sets.values()))
    assert [tuple(item) for item in acked.ranges(1000)] == ranges_of(sets)
    assert [tuple(item) for item in acked.ranges(limit)] == ranges_of(sets)[:limit]


@given(kinds, holes, st.integers(0, 3), entry_ids, st.integers(0, 30))
def test_lookups_are_those_of_the_set(kind, sets, ledger_id, entry_id, width):
    acked = filled(sets, kind)
    ids = sets.get(ledger_id, set())
    assert acked.contains(ledger_id, entry_id) == (entry_id in ids)
    expected = entry_id
    while expected in ids:
        expected += 1
    assert acked.first_clear(ledger_id, entry_id) == expected
    wanted = [i for i in range(entry_id, entry_id + width + 1) if i not in ids]
    assert list(acked.clear_ids(ledger_id, entry_id, entry_id + width)) == wanted


@given(kinds, st.integers(0, 200), st.integers(0, 70_000), st.integers(1, 200_000))
def test_first_clear_finds_the_end_of_long_runs(kind, first, length, probe):
    acked = AckRanges(kind)
    acked.add_range(7, first, first + length)
    expected = first + length + 1 if first <= probe <= first + length else probe
    assert acked.first_clear(7, probe) == expected


@given(kinds, holes, st.integers(0, 3), entry_ids)
def test_discard_through_keeps_what_is_behind(kind, sets, ledger_id, entry_id):
    acked = filled(sets, kind)
    acked.discard_through(ledger_id, entry_id)
    left = {key: {i for i in ids if (key, i) > (ledger_id, entry_id)} for key, ids in sets.items()}
    assert filled(sets, kind).count_behind(ledger_id, entry_id) == acked.count == sum(map(len, left.values()))
    assert filled(sets, kind).count_in(ledger_id) == len(sets.get(ledger_id, ()))
    assert filled(sets, kind).count_behind(ledger_id, -1) == sum(len(sets[key]) for key in sets if key >= ledger_id)
    assert [tuple(item) for item in acked.ranges(1000)] == ranges_of({key: ids for key, ids in left.items() if ids})
    acked.check_invariants()


@given(kinds, kinds, holes)
def test_parts_written_and_loaded_give_the_same_set(kind, other, sets):
    acked = filled(sets, kind)
    parts = list(acked.parts())
    assert parts == sorted({(key, i >> PART_BITS) for key, ids in sets.items() for i in ids})
    loaded = AckRanges(other)
    for ledger_id, part in parts:
        loaded.load_part(ledger_id, part, acked.part_bytes(ledger_id, part))
    assert loaded.ranges(10_000) == acked.ranges(10_000)
    assert loaded.count == acked.count


@given(kinds, holes, st.lists(st.tuples(entry_ids, st.integers(0, 70_000)), max_size=6))
def test_ranges_added_over_others_are_the_union(kind, sets, added):
    acked = filled(sets, kind)
    ids = set(sets.get(2, ()))
    for first, length in added:
        new = set(range(first, first + length)) - ids
        assert acked.add_range(2, first, first + length - 1) == len(new)
        ids |= new
    assert [tuple(item) for item in acked.ranges(1000) if item.ledger_id == 2] == ranges_of({2: ids} if ids else {})
    acked.check_invariants()


@given(kinds, holes)
def test_counts_stay_right_while_ledgers_are_put_away(kind, sets):
    acked = filled(sets, kind)
    count, ranges = acked.count, acked.range_count
    for ledger_id in sorted(sets):
        parts = {part: acked.part_bytes(ledger_id, part) for key, part in acked.parts() if key == ledger_id}
        before = acked.ranges(1000)
        acked.put_away(ledger_id)
        acked.check_invariants()
        away = acked.find_away(ledger_id)
        assert (away.entries, away.has_first) == (len(sets[ledger_id]), 0 in sets[ledger_id])
        assert (acked.count, acked.range_count, acked.away_ids) == (count, ranges, [ledger_id])
        with pytest.raises(InvariantError, match="put away"):
            acked.contains(ledger_id, 0)
        with pytest.raises(InvariantError, match="put away"):
            acked.add_many(ledger_id, [0])
        acked.begin_bringing_back(ledger_id)
        for part, data in parts.items():
            acked.load_part(ledger_id, part, data)
        acked.check_invariants()
        assert (acked.ranges(1000), acked.count) == (before, count)


@given(holes, st.integers(0, 3))
def test_ledgers_put_away_and_passed_are_forgotten(sets, ledger_id):
    acked = filled(sets)
    for known in sets:
        if known != ledger_id:
            acked.put_away(known)
    acked.discard_through(ledger_id, -1)
    acked.check_invariants()
    assert acked.count == sum(len(ids) for key, ids in sets.items() if key >= ledger_id)


@given(st.integers(0, (1 << 200) - 1))
def test_words_and_bits_are_inverse(bits):
    words = words_of_bits(bits)
    assert bits_of_words(words) == bits
    assert bits_of_words([*words, 0, 0]) == bits
    assert all(-(1 << 63) <= word < (1 << 63) for word in words)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 15)), max_size=30))
def test_batch_sets_merge_by_and(merges):
    batches, expected = BatchAcks(), {}
    for ledger_id, entry_id, bits in merges:
        key = (ledger_id, entry_id)
        left = expected.pop(key, bits) & bits
        assert batches.merge(ledger_id, entry_id, bits) == left
        if left:
            expected[key] = left
    assert [(item[0], item[1]) for item in batches] == sorted(expected)
    assert all(batches.get(*key) == bits for key, bits in expected.items())
    assert batches.count == len(expected)


class CursorAgainstSets(RuleBasedStateMachine):
    """Random acknowledgments over a growing, trimmed ledger list; the oracle is a set of indexes per entry."""

    @initialize(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=4), batch=st.integers(1, 70), kind=kinds)
    def start(self, sizes, batch, kind):
        self.batch = batch
        self.full = (1 << batch) - 1
        self.ledgers = LedgerList([LedgerInfo(2 * i, size, closed_ms=1) for i, size in enumerate(sizes)])
        self.state = CursorState(before(EARLIEST, self.ledgers), {}, kind)
        #: Readers stop here; and the log as they see it.
        self.limit = LATEST
        #: Unacknowledged indexes of every entry ever.
        self.unacked = dict.fromkeys(self.entries(), self.full)

    def entries(self):
        return [Position(i.ledger_id, e) for i in self.ledgers.infos for e in range(i.entries)]

    @property
    def readable(self):
        return self.ledgers if self.limit == LATEST else self.ledgers.cut(self.limit)

    def run(self, change):
        mark_before = self.state.mark_delete
        flags = change()
        assert bool(flags & MOVED) == (self.state.mark_delete != mark_before) or flags & CROSSED
        self.state.check_invariants()

    any_position = st.builds(Position, st.integers(-1, 12), st.integers(-1, 8))

    @rule(positions=st.lists(any_position, min_size=1, max_size=6))
    def acknowledge(self, positions):
        self.run(lambda: self.state.acknowledge(positions, None, self.readable))
        for position in positions:
            if position in self.unacked and position <= self.limit:
                self.unacked[position] = 0

    @rule(position=any_position, bits=st.integers(0, (1 << 70) - 1), other=st.none() | any_position)
    def acknowledge_indexes(self, position, bits, other):
        bits &= self.full
        positions = [position] if other is None or other == position else [position, other]
        sets = [list(words_of_bits(bits)), None][: len(positions)]
        self.run(lambda: self.state.acknowledge(positions, sets, self.readable))
        for item, left in zip(positions, (bits, 0), strict=False):
            if item in self.unacked and item <= self.limit:
                self.unacked[item] &= left

    @rule(position=any_position)
    def acknowledge_cumulative(self, position):
        self.run(lambda: self.state.acknowledge_cumulative(position, None, self.readable))
        for entry in self.unacked:
            if entry <= position and entry <= self.limit:
                self.unacked[entry] = 0

    @rule(position=any_position, bits=st.integers(1, (1 << 70) - 1))
    def acknowledge_cumulative_inside_a_batch(self, position, bits):
        bits &= self.full
        if position not in self.unacked or not bits or position > self.limit:
            return
        self.run(lambda: self.state.acknowledge_cumulative(position, words_of_bits(bits), self.readable))
        for entry in self.unacked:
            if entry < position:
                self.unacked[entry] = 0
        self.unacked[position] &= bits

    @rule(count=st.integers(1, 4))
    def grow(self, count):
        last = self.ledgers.last
        for entry_id in range(last.entries, last.entries + count):
            self.unacked[Position(last.ledger_id, entry_id)] = self.full
        last.entries += count
        self.state.advance(self.readable)

    @rule(position=any_position | st.just(LATEST))
    def limit_reads(self, position):
        self.limit = position
        self.run(lambda: self.state.advance(self.readable))

    @precondition(lambda self: len(self.ledgers) < 6)
    @rule()
    def roll(self):
        self.ledgers.append(LedgerInfo(self.ledgers.last.ledger_id + 2))

    @rule()
    def trim(self):
        going = [i.ledger_id for i in self.ledgers.infos[:-1] if self.state.mark_delete >= (i.ledger_id, i.entries - 1)]
        self.ledgers.remove(going)

    @rule(position=any_position | st.sampled_from([EARLIEST, LATEST]))
    def reset(self, position):
        self.state.reset(position, self.readable)
        for entry in self.entries():
            self.unacked[entry] = 0 if entry < position and entry <= self.limit else self.full

    @rule(count=st.integers(0, 5))
    def skip(self, count):
        target = self.state.skipping(count, self.readable)
        left = [entry for entry in self.entries() if self.unacked[entry] and entry <= self.limit]
        self.run(lambda: self.state.acknowledge_cumulative(target, None, self.readable))
        for entry in left[:count]:
            self.unacked[entry] = 0

    @invariant()
    def agrees_with_the_sets(self):
        if not hasattr(self, "state"):
            return
        entries = self.entries()
        unacked = [entry for entry in entries if self.unacked[entry]]
        for entry in entries:
            assert self.state.is_acknowledged(entry) == (not self.unacked[entry])
            partly = self.unacked[entry] not in (0, self.full)
            words = self.state.ack_set(entry)
            assert (words is not None and bits_of_words(words) == self.unacked[entry]) if partly else True
        assert self.state.backlog(self.ledgers) == len(unacked)
        readable = [entry for entry in unacked if entry <= self.limit]
        assert self.state.backlog(self.readable, is_cut=self.limit != LATEST) == len(readable)
        # Mark-delete is as far as it can be: the readable entry behind it is not acknowledged.
        following = self.ledgers.next_position(self.state.mark_delete)
        assert following not in entries or following > self.limit or self.unacked[following]
        assert (not unacked) or self.state.mark_delete < unacked[0]


TestCursorAgainstSets = CursorAgainstSets.TestCase
