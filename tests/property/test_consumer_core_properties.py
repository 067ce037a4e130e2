"""The consumer's trackers against plain models: dicts, lists and sets, in virtual time."""

from __future__ import annotations

import sys
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import geminga.client as gc
from geminga.client.consumer_rules.ack_grouping import AckGrouping
from geminga.client.consumer_rules.batch_acker import BatchAcker
from geminga.client.consumer_rules.chunk_assembly import Chunk, ChunkAssembly
from geminga.client.consumer_rules.entry_bits import EntryBits
from geminga.client.consumer_rules.negative_acks import NegativeAcks, precision_ms
from geminga.client.consumer_rules.prefetch import FlowControl, PrefetchBudget, PrefetchQueue
from geminga.client.consumer_rules.redelivery_backoff import growing_delay_ms
from geminga.client.consumer_rules.start_position import StartPosition
from geminga.client.consumer_rules.unacked_tracker import UnackedTracker

ENTRIES = st.tuples(st.integers(1, 3), st.integers(0, 8))
BATCH = 5


class AckGroupingMachine(RuleBasedStateMachine):
    """What the broker knows after every flush, against what was acknowledged; each entry is a batch of five."""

    def __init__(self) -> None:
        super().__init__()
        self.grouping = AckGrouping(100, 1000)
        self.ackers: dict[tuple[int, int], BatchAcker] = {}
        #: Messages acknowledged here, and those the broker heard of.
        self.wanted: set[tuple[int, int, int]] = set()
        self.known: set[tuple[int, int, int]] = set()

    def _all(self):
        return {(ledger, entry, index) for ledger in range(1, 4) for entry in range(9) for index in range(BATCH)}

    @rule(entry=ENTRIES, index=st.integers(0, BATCH - 1))
    def acknowledge(self, entry, index) -> None:
        acker = self.ackers.setdefault(entry, BatchAcker(BATCH))
        self.wanted.add((*entry, index))
        if acker.acknowledge(index):
            self.grouping.add(entry)
        else:
            self.grouping.add_partial(entry, acker)

    @rule(entry=ENTRIES, index=st.integers(0, BATCH - 1))
    def acknowledge_cumulative(self, entry, index) -> None:
        acker = self.ackers.setdefault(entry, BatchAcker(BATCH))
        self.wanted |= {m for m in self._all() if m <= (*entry, index)}
        for other, earlier in self.ackers.items():
            if other < entry:
                earlier.acknowledge_all()
        self.grouping.add_cumulative(entry, None if acker.acknowledge_cumulative(index) else acker)

    @rule(is_lost=st.booleans())
    def flush(self, is_lost) -> None:
        group = self.grouping.flush()
        if group is None:
            return
        if is_lost:
            self.grouping.restore(group)
            return
        if group.cumulative is not None:
            entry, words = group.cumulative
            self.known |= {m for m in self._all() if m[:2] < entry}
            self._know(entry, words)
        for entry, words in group.individual:
            self._know(entry, words)
        assert self.grouping.pending_count == 0
        assert self.known >= self.wanted

    def _know(self, entry, words) -> None:
        for index in range(BATCH):
            if words is None or not words[0] >> index & 1:
                self.known.add((*entry, index))

    @invariant()
    def nothing_is_known_that_was_not_acknowledged(self) -> None:
        self.grouping.check_invariants()
        assert self.known <= self.wanted
        for entry in {m[:2] for m in self._all()}:
            if self.grouping.is_pending(entry):
                assert {(*entry, index) for index in range(BATCH)} <= self.wanted


TestAckGrouping = AckGroupingMachine.TestCase
TestAckGrouping.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@given(st.integers(1, 200), st.integers(0, 199), st.lists(st.tuples(st.booleans(), st.integers(0, 199))))
def test_batch_acker_is_a_set(size, in_a_row, steps) -> None:
    acker = BatchAcker(size)
    model = set(range(size))
    for index in range(in_a_row % size):
        model.discard(index)
        assert not acker.acknowledge(index)
        assert (acker.remaining, acker.is_complete) == (len(model), False)
        assert acker.is_acknowledged(index)
        assert not acker.is_acknowledged(index + 1)
    for is_cumulative, index in steps:
        index %= size
        if is_cumulative:
            model -= set(range(index + 1))
            assert acker.acknowledge_cumulative(index) == (not model)
        else:
            model.discard(index)
            assert acker.acknowledge(index) == (not model)
        assert (acker.remaining, acker.is_complete) == (len(model), not model)
    assert acker.unacknowledged() == sorted(model)
    assert acker.remaining == len(model)
    words = acker.words()
    if words is None:
        assert not model
    else:
        assert [i for i in range(len(words) * 64) if words[i // 64] >> i % 64 & 1] == sorted(model)
        assert BatchAcker.from_words(words, size).unacknowledged() == sorted(model)


@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.sampled_from(["acknowledge", "cumulative", "deliver"]), st.integers(0, 199)), max_size=30),
    st.data(),
)
def test_batch_acker_says_nothing_of_what_was_not_delivered(size, steps, data) -> None:
    acker = BatchAcker(size)
    acknowledged: set[int] = set()
    delivered = set(range(size))
    for what, at in steps:
        index = at % size
        if what == "deliver":
            delivered = data.draw(st.sets(st.integers(0, size - 1)))
            acker.withhold([sum(1 << i - 64 * word for i in delivered if i // 64 == word) for word in range(4)])
        elif what == "cumulative":
            acknowledged |= set(range(index + 1))
            assert acker.acknowledge_cumulative(index) == (not delivered - acknowledged)
        elif index in delivered:
            acknowledged.add(index)
            assert acker.acknowledge(index) == (not delivered - acknowledged)
    words = acker.words() or ()
    unsaid = {i for i in range(len(words) * 64) if words[i // 64] >> i % 64 & 1}
    assert unsaid == set(range(size)) - acknowledged, "the entry is whole only if all of it was acknowledged here"
    assert set(acker.unacknowledged()) == delivered - acknowledged


@given(st.integers(1, 200), st.lists(st.integers(0, 199), max_size=40) | st.integers(0, 199).map(range), st.data())
def test_batch_acker_takes_many_as_it_takes_one_by_one(size, acknowledged, data) -> None:
    many, single = BatchAcker(size), BatchAcker(size)
    for acker in (many, single):
        for index in acknowledged:
            acker.acknowledge(index % size)
    first = data.draw(st.integers(0, size - 1))
    run = list(range(first, data.draw(st.integers(first, size - 1)) + 1))
    indexes = data.draw(st.sampled_from([run, run[::-1], run[::2], [first, first]]))
    is_last = many.acknowledge_many(indexes)
    assert is_last == [single.acknowledge(index) for index in indexes][-1]
    # Words first would bring the count up to date.
    assert (many.remaining, many.words()) == (single.remaining, single.words())


@given(
    st.integers(0, 5000),
    st.lists(st.tuples(st.integers(0, 700), ENTRIES, st.integers(0, 6), st.booleans()), max_size=60),
    st.booleans(),
)
def test_negative_acks_are_due_never_early_and_at_most_a_bucket_late(delay_ms, steps, with_backoff) -> None:
    backoff = gc.MultiplierRedeliveryBackoff(100, 3000) if with_backoff else None
    nacks = NegativeAcks(delay_ms, backoff)
    width = precision_ms(100 if with_backoff else delay_ms)
    now = 0
    model: dict[tuple[int, int], int] = {}
    for advance, entry, redeliveries, is_discarded in steps:
        now += advance
        for key in nacks.due(now):
            assert now >= model.pop(key)
        assert all(now < due + width for due in model.values())
        if is_discarded:
            assert nacks.discard(entry) == (entry in model)
            model.pop(entry, None)
        else:
            wait = delay_ms if backoff is None else backoff.next(redeliveries)
            assert nacks.add(entry, now, redeliveries) == (entry not in model)
            model.setdefault(entry, now + wait)
        nacks.check_invariants()
    assert nacks.count == len(model)
    assert sorted(nacks.due(now + 100_000)) == sorted(model)
    assert nacks.next_due_ms is None


@given(st.lists(st.tuples(st.integers(0, 5000) | st.integers(0, (1 << 64) - 1), st.booleans())))
def test_bits_of_entries_are_a_plain_set(steps) -> None:
    bits, model = EntryBits(), set()
    for entry_id, is_added in steps:
        assert (entry_id in bits) == (entry_id in model)
        if is_added:
            bits.add(entry_id)
            model.add(entry_id)
        elif entry_id in model:
            bits.remove(entry_id)
            model.remove(entry_id)
        else:
            bits.discard(entry_id)
            with pytest.raises(KeyError):
                bits.remove(entry_id)
        assert (len(bits), bool(bits)) == (len(model), bool(model))
    assert list(bits) == sorted(model)
    assert list(EntryBits(model)) == sorted(model)


@pytest.mark.slow
@pytest.mark.parametrize("is_scattered", [False, True])
def test_a_million_negative_acks_fit_into_40_megabytes(is_scattered) -> None:
    """17 a millisecond over 60 s: ledger after ledger of 50,000 entries, or anywhere in 200 ledgers."""
    nacks = NegativeAcks(60_000)
    place = 1
    for number in range(1_000_000):
        place = (place * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        entry = (place >> 40) % 200, (place >> 20) % 65521
        nacks.add(entry if is_scattered else (number // 50_000, number * 7919 % 50_000), number / 17)
    assert nacks.count > 950_000
    ids = [*nacks._pending.values(), *(ids for bucket in nacks._buckets.values() for ids in bucket.values())]
    size = sum(sys.getsizeof(one) + (0 if isinstance(one, array) else one.size_bytes) for one in ids)
    size += sum(sys.getsizeof(bucket) for bucket in [nacks._buckets, nacks._pending, *nacks._buckets.values()])
    assert size < 40_000_000


class UnackedMachine(RuleBasedStateMachine):
    """Tick by tick against a dict of deadlines."""

    TIMEOUT = 10
    TICK = 3

    def __init__(self) -> None:
        super().__init__()
        self.tracker = UnackedTracker(self.TIMEOUT, self.TICK)
        self.added: dict[tuple[int, int], int] = {}
        self.ticks = 0

    @rule(entry=ENTRIES)
    def receive(self, entry) -> None:
        assert self.tracker.add(entry) == (entry not in self.added)
        self.added.setdefault(entry, self.ticks)

    @rule(entry=ENTRIES)
    def acknowledge(self, entry) -> None:
        assert self.tracker.remove(entry) == (self.added.pop(entry, None) is not None)

    @rule(entry=ENTRIES)
    def acknowledge_cumulative(self, entry) -> None:
        gone = [key for key in self.added if key <= entry]
        assert self.tracker.remove_up_to(entry) == len(gone)
        for key in gone:
            del self.added[key]

    @rule()
    def tick(self) -> None:
        self.ticks += 1
        expired = self.tracker.tick()
        assert expired == sorted(expired)
        for entry in expired:
            waited = (self.ticks - self.added.pop(entry)) * self.TICK
            assert self.TIMEOUT < waited <= self.TIMEOUT + 2 * self.TICK

    @invariant()
    def slots_are_constant_and_nothing_is_overdue(self) -> None:
        self.tracker.check_invariants()
        assert self.tracker.slot_count == 5
        assert len(self.tracker) == len(self.added)
        assert all((self.ticks - since) * self.TICK < self.TIMEOUT + 2 * self.TICK for since in self.added.values())


TestUnacked = UnackedMachine.TestCase
TestUnacked.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.tuples(ENTRIES, st.integers(0, 8)), max_size=30), st.integers(1, 30))
def test_unacked_tracker_with_backoff_waits_as_long_as_it_says(received, ticks) -> None:
    backoff = gc.MultiplierRedeliveryBackoff(2, 40)
    tracker = UnackedTracker(10, 3, backoff)
    due: dict[tuple[int, int], int] = {}
    for tick in range(ticks + 20):
        for entry in tracker.tick():
            assert tick + 1 > due.pop(entry)
        if tick < len(received):
            entry, redeliveries = received[tick]
            if tracker.add(entry, redeliveries):
                due[entry] = tick + 1 + -(-backoff.next(redeliveries) // 3)
        tracker.check_invariants()
        assert all(tick <= deadline + 1 for deadline in due.values())


class Entry:
    """An entry as the queue sees it."""

    def __init__(self, count: int, size_bytes: int) -> None:
        self.order = range(count)
        self.size_bytes = size_bytes


class PrefetchMachine(RuleBasedStateMachine):
    """Permits and the queue together: the broker never owes more than the capacity, and never starves."""

    CAPACITY = 10
    BYTES_MAX = 0
    #: Whether it has a part of what all consumers may prefetch.
    SHARED = False

    def __init__(self) -> None:
        super().__init__()
        self.queue: PrefetchQueue[Entry] = PrefetchQueue()
        self.budget = PrefetchBudget(12 * self.SHARED)
        self.flow = FlowControl(self.CAPACITY, self.BYTES_MAX, self.budget if self.SHARED else None)
        self.permits = self.flow.restart()
        self.model: list[tuple[Entry, int]] = []

    @rule(count=st.integers(1, 4), size=st.integers(0, 9))
    def arrive(self, count, size) -> None:
        if self.permits <= 0:
            return
        self.permits -= count
        entry = Entry(count, size)
        self.queue.append(entry)
        self.model += [(entry, index) for index in range(count)]

    @rule()
    def receive(self) -> None:
        if self.queue.at >= self.queue.end and not self.queue.advance():
            assert not self.model
            return
        entry = self.queue.entry
        assert entry is not None
        assert (entry, entry.order[self.queue.at]) == self.model.pop(0)
        self.queue.at += 1
        self.permits += self.flow.received()

    @rule(count_max=st.integers(1, 3))
    def run_on(self, count_max) -> None:
        if self.queue.at >= self.queue.stop:
            assert 0 <= self.queue.run_on(count_max) <= count_max

    @rule(kept=st.integers(0, 1))
    def drop(self, kept) -> None:
        gone = {id(entry) for entry, _ in self.model if entry.size_bytes % 2 == kept}
        for _, count in self.queue.drop(lambda entry: id(entry) in gone):
            self.permits += self.flow.received(count)
        self.model = [(entry, index) for entry, index in self.model if id(entry) not in gone]

    @rule(is_paused=st.booleans())
    def pause(self, is_paused) -> None:
        self.flow.is_paused = is_paused
        if not is_paused:
            self.permits += self.flow.take()

    @rule()
    def reconnect(self) -> None:
        self.queue.drop(lambda _: True)
        self.model = []
        self.permits = self.flow.restart()

    @rule()
    def close(self) -> None:
        self.queue.close()
        assert (self.queue.entry, self.queue.advance()) == (None, False)
        self.model = []
        self.permits = self.flow.restart()

    @invariant()
    def permits_balance(self) -> None:
        self.queue.check_invariants()
        assert self.queue.total_count == len(self.model)
        # An entry counts whole until its last message is received.
        assert self.queue.total_bytes == sum({id(entry): entry.size_bytes for entry, _ in self.model}.values())
        assert self.permits + self.flow.owed + len(self.model) == self.flow.capacity
        if not self.flow.is_paused and not self.model:
            assert self.permits > 0, "nothing here and nothing asked for"


class FittingPrefetchMachine(PrefetchMachine):
    """The same where bytes say how many messages wait: ``came`` of the consumer's permits, as the client calls it."""

    BYTES_MAX = 12

    @rule(count=st.integers(1, 4), size=st.integers(0, 9))
    def arrive(self, count, size) -> None:
        if self.permits <= 0:
            return
        super().arrive(count, size)
        self.flow.fit(count, size)
        if self.flow.owed >= self.flow.threshold:
            self.permits += self.flow.take()
        assert self.flow.capacity == min(10, max(1, 12 * count // max(1, size)))

    @invariant()
    def no_more_is_asked_for_than_fits(self) -> None:
        if self.flow.owed >= 0:
            assert max(0, self.permits) + len(self.model) <= self.flow.capacity + 3  # the rest of one batch


class SharedPrefetchMachine(PrefetchMachine):
    """The same where topics that come and go share the bytes; some of what comes says how large messages are."""

    SHARED = True

    @rule(count=st.integers(1, 4), size=st.integers(0, 9))
    def arrive(self, count, size) -> None:
        if self.permits <= 0:
            return
        super().arrive(count, size)
        if self.flow.is_measured:
            self.flow.fit(count, size)
            if self.flow.owed >= self.flow.threshold:
                self.permits += self.flow.take()
            assert self.flow.capacity <= max(1, self.budget.share_bytes * count // max(1, size))

    @rule(topics=st.integers(0, 3))
    def others_come_and_go(self, topics) -> None:
        self.budget.topics = topics


TestSharedPrefetch = SharedPrefetchMachine.TestCase
TestSharedPrefetch.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPrefetch = PrefetchMachine.TestCase
TestPrefetch.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFittingPrefetch = FittingPrefetchMachine.TestCase
TestFittingPrefetch.settings = TestPrefetch.settings


@given(st.data())
def test_chunks_come_together_whatever_lies_between_them(data) -> None:
    counts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    pending = {
        f"m{number}": [b"%d.%d" % (number, part) for part in range(count)] for number, count in enumerate(counts)
    }
    assembly = ChunkAssembly(len(counts))
    position = 0
    left = {uuid: list(enumerate(parts)) for uuid, parts in pending.items()}
    while left:
        uuid = data.draw(st.sampled_from(sorted(left)))
        part, payload = left[uuid].pop(0)
        if not left[uuid]:
            del left[uuid]
        parts = pending[uuid]
        size = sum(map(len, parts))
        result = assembly.add(Chunk(uuid, part, len(parts), size, payload, (1, position)), 0)
        assembly.check_invariants()
        position += 1
        assert not result.discarded
        assert result.payload == (b"".join(parts) if part == len(parts) - 1 else None)
    assert len(assembly) == 0


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=6))
def test_chunks_sent_again_after_losses_give_the_message_and_need_nothing_of_what_was_stored_twice(
    count, losses
) -> None:
    """What a producer sends over one connection after the other: each begins anew at a chunk that was sent before."""
    parts = [b"%d" % part for part in range(count)]
    sent = 0
    stored: list[int] = []
    for begin, end in [*losses, (5, 5)]:
        first = min(begin, sent)
        sent = min(max(end, sent), count)
        stored += range(first, sent)
    assembly = ChunkAssembly()
    wholes: list[list[tuple[int, int]]] = []
    repeated: list[tuple[int, int]] = []
    for position, part in enumerate(stored):
        size = sum(map(len, parts))
        result = assembly.add(Chunk("m", part, len(parts), size, parts[part], (1, position)), 0)
        assembly.check_invariants()
        assert not result.discarded
        assert not result.is_stray
        repeated += result.repeated
        if result.payload is not None:
            assert result.payload == b"".join(parts)
            wholes.append(list(result.entries))
    assert wholes
    assert sorted([entry for whole in wholes for entry in whole] + repeated) == [(1, at) for at in range(len(stored))]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 40)), max_size=40))
def test_chunks_in_any_order_never_give_a_wrong_payload_and_are_all_accounted_for(steps) -> None:
    assembly = ChunkAssembly(2, 100)
    now = 0
    for position, (uuid, part, advance) in enumerate(steps):
        now += advance
        assembly.expire(now)
        result = assembly.add(Chunk(uuid, part, 4, 8, b"%s%d" % (uuid.encode(), part), (1, position)), now)
        assembly.check_invariants()
        assert result.payload in (None, b"".join(b"%s%d" % (uuid.encode(), n) for n in range(4)))


@given(ENTRIES, st.integers(-1, 3), st.booleans(), ENTRIES, st.integers(-1, 3))
def test_start_position_delivers_what_is_behind_it(start, start_index, is_inclusive, entry, size) -> None:
    first = StartPosition(*start, start_index, is_inclusive).first_index(*entry, is_batch=size >= 0)
    for index in range(size) if size >= 0 else [-1]:
        wanted = entry > start
        if entry == start:
            at = index if size >= 0 else 0
            edge = start_index if size >= 0 and start_index >= 0 else None
            wanted = is_inclusive if edge is None else at >= edge if is_inclusive else at > edge
        assert (first is not None and max(index, 0) >= first) == wanted


@given(st.integers(1, 1000), st.floats(1, 10), st.integers(0, 2000))
def test_redelivery_backoff_grows_to_its_limit(minimum, multiplier, count) -> None:
    backoff = gc.MultiplierRedeliveryBackoff(minimum, 60_000, multiplier)
    assert minimum <= backoff.next(count) <= backoff.next(count + 1) <= 60_000
    assert backoff.next(0) == minimum
    assert backoff.next(count) == growing_delay_ms(count, minimum, 60_000, multiplier)
