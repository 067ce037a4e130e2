"""The ledger client's cores against enumeration: write sets, coverage, ack quorums, ensemble changes, recovery."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.bookkeeper.core.add_entry import AddQueue
from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.ensemble_change import change_ensemble, rebase_change
from geminga.bookkeeper.core.placement import Placement
from geminga.bookkeeper.core.reads import ReadVerdict, RecoveryRead, worst_error
from geminga.bookkeeper.core.recovery import (
    READ_FIRST,
    CloseLedger,
    FenceAndReadLac,
    LacQuorum,
    ReadForward,
    ToldEnd,
    WriteBack,
    WriteBackResult,
    recover_ledger,
)
from geminga.model.errors import (
    CorruptionError,
    DiskIOError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    StorageError,
    UnknownEntryError,
)
from geminga.wire.bookkeeper.digest import encode_entries, read_header
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata
from support.house.examples import many

#: The first of the bookies that are left.
CHANCE = {"placement": Placement(), "below": lambda n: 0}
CHOOSING = {"write_quorum": 3, **CHANCE}


@st.composite
def distributions(draw, size_max=5):
    size = draw(st.integers(1, size_max))
    write = draw(st.integers(1, size))
    return Distribution(size, write, draw(st.integers(1, write)))


# ---- distribution


@given(distributions(), st.integers(0, 50), st.integers(0, 20))
def test_shares_are_exactly_the_entries_of_the_write_sets(distribution, first, count):
    entry_ids = range(first, first + count)
    for index in range(distribution.ensemble_size):
        held = [e for e in entry_ids if index in distribution.write_set(e)]
        share = distribution.share(index, entry_ids)
        assert list(share) == held
        if distribution.is_uniform:
            assert share is entry_ids
        assert all(distribution.holds(index, e) == (e in held) for e in entry_ids)
        assert all((distribution.write_mask(e) >> index & 1) == (e in held) for e in entry_ids)


def quorum_possible(distribution, silent):
    """By enumeration: some write set has an ack quorum of silent bookies only."""
    return any(
        set(quorum) <= silent
        for start in range(distribution.ensemble_size)
        for quorum in combinations(distribution.write_set(start), distribution.ack_quorum)
    )


@given(distributions(), st.data())
def test_coverage_means_that_the_silent_ones_can_acknowledge_nothing(distribution, data):
    answered = data.draw(st.sets(st.integers(0, distribution.ensemble_size - 1)))
    silent = set(range(distribution.ensemble_size)) - answered
    assert distribution.is_covered(answered) == (not quorum_possible(distribution, silent))


# ---- adds in order, counted by enumeration


@settings(max_examples=many(200))
@given(distributions(4), st.lists(st.integers(1, 5), min_size=1, max_size=5), st.randoms())
def test_adds_complete_in_order_once_their_quorum_is_there(distribution, counts, random):
    queue = AddQueue(distribution)
    completed: list[tuple[int, int]] = []
    batches, sends, first = [], [], 0
    for count in counts:
        batch = queue.push(first, [b""] * count, 0, lambda f, c, e: None)
        batches.append(batch)
        for index in range(distribution.ensemble_size):
            share = list(distribution.share(index, range(first, first + count)))
            random.shuffle(share)
            while share:  # answered at once, or in groups of any entries
                size = len(share) if random.random() < 0.5 else random.randint(1, len(share))
                sends.append((batch, index, share[:size]))
                del share[:size]
        first += count
    random.shuffle(sends)
    acknowledged: set[tuple[int, int]] = set()
    for batch, index, entry_ids in sends:
        if random.random() < 0.1:
            continue
        if batch.first_entry_id in {f for f, _ in completed}:
            queue.acknowledge(batch, index, entry_ids)  # late, means nothing
            continue
        queue.acknowledge(batch, index, entry_ids)
        acknowledged |= {(entry, index) for entry in entry_ids}
        queue.check_invariants()
        while (done := queue.pop_completed()) is not None:
            completed.append((done.first_entry_id, done.count))
        expected = 0
        for batch_ in batches:
            entries = range(batch_.first_entry_id, batch_.first_entry_id + batch_.count)
            if not all(sum((e, i) in acknowledged for i in range(9)) >= distribution.ack_quorum for e in entries):
                break
            expected += 1
        assert completed == [(b.first_entry_id, b.count) for b in batches[:expected]]


@given(distributions(4), st.randoms())
def test_acknowledgments_of_a_replaced_bookie_do_not_count(distribution, random):
    queue = AddQueue(distribution)
    batch = queue.push(0, [b""] * 4, 0, lambda f, c, e: None)
    queue.is_changing_ensemble = True
    for index in range(distribution.ensemble_size):
        if share := distribution.share(index, range(4)):
            queue.acknowledge(batch, index, share)
    assert queue.pop_completed() is None
    gone = random.randrange(distribution.ensemble_size)
    assert queue.replaced([gone]) == [batch]
    queue.check_invariants()
    queue.is_changing_ensemble = False
    short = any(len(set(distribution.write_set(entry)) - {gone}) < distribution.ack_quorum for entry in range(4))
    assert (queue.pop_completed() is None) == short


@given(distributions(), st.integers(1, 7), st.randoms())
def test_batch_can_go_on_exactly_while_every_entry_finds_its_quorum_among_the_others(distribution, count, random):
    queue = AddQueue(distribution)
    batch = queue.push(3, [b""] * count, 0, lambda f, c, e: None)
    entry_ids = range(3, 3 + count)
    stored: set[tuple[int, int]] = set()
    failed: set[int] = set()
    for index in random.sample(range(distribution.ensemble_size), distribution.ensemble_size):
        share = distribution.share(index, entry_ids)
        if not share:
            continue
        drawn = random.random()
        if drawn < 0.5:
            queue.acknowledge(batch, index, share)
            stored |= {(entry_id, index) for entry_id in share}
        elif drawn < 0.8:  # some of it stored, the rest not
            part = share[: random.randrange(len(share))]
            if part:
                queue.acknowledge(batch, index, part)
                stored |= {(entry_id, index) for entry_id in part}
            queue.fail(batch, index)
            failed.add(index)
        can = all(
            sum((e, i) in stored or i not in failed for i in distribution.write_set(e)) >= distribution.ack_quorum
            for e in entry_ids
        )
        assert queue.can_reach(batch) == can
        assert queue.hopeless() == (bool(failed) and not can)


# ---- ensemble change


@given(
    st.integers(0, 30), st.sets(st.sampled_from("abcd"), min_size=1), st.lists(st.sampled_from("abcdefg"), unique=True)
)
def test_ensemble_change_keeps_what_is_confirmed_where_it_is(first, failed, available):
    fragments = (LedgerFragment(0, ("a", "b", "x")), LedgerFragment(10, ("a", "b", "c")))
    newcomers = set(available) - failed - set("abc")
    needed = failed & set("abc")
    if first < 10:
        return
    if len(newcomers) < len(needed):
        with pytest.raises(NotEnoughBookiesError):
            change_ensemble(fragments, first_entry_id=first, failed=failed, available=available, **CHOOSING)
        return
    change = change_ensemble(fragments, first_entry_id=first, failed=failed, available=available, **CHOOSING)
    for fragment in fragments:
        for entry in range(fragment.first_entry_id, first):
            assert holder(change.fragments, entry) == holder(fragments, entry)
    after = holder(change.fragments, first)
    assert not set(after) & failed
    assert [i for i in range(3) if after[i] != "abc"[i]] == list(change.replaced)
    firsts = [fragment.first_entry_id for fragment in change.fragments]
    assert firsts == sorted(set(firsts))


def holder(fragments, entry_id):
    return [fragment.ensemble for fragment in fragments if fragment.first_entry_id <= entry_id][-1]


# ---- reads


ANSWERS = st.sampled_from(
    [b"entry", NoSuchEntryError("x"), NoSuchLedgerError("x"), DiskIOError("x"), UnknownEntryError("x")]
)


@given(distributions(), st.integers(0, 9), st.data())
def test_entry_is_absent_only_if_it_can_not_have_been_acknowledged(distribution, entry_id, data):
    read = RecoveryRead(distribution, entry_id)
    write_set = distribution.write_set(entry_id)
    absent = 0
    for count, index in enumerate(data.draw(st.permutations(write_set)), 1):
        answer = data.draw(ANSWERS)
        verdict = read.answer(index, answer)
        absent += isinstance(answer, (NoSuchEntryError, NoSuchLedgerError))
        if read.entry is not None:
            assert verdict is ReadVerdict.FOUND
        elif len(write_set) - absent < distribution.ack_quorum:
            assert verdict is ReadVerdict.ABSENT
        else:
            assert verdict is (ReadVerdict.UNKNOWN if count == len(write_set) else ReadVerdict.UNDECIDED)


def test_worst_error_is_damage_before_io_before_absence():
    errors = [NoSuchEntryError("n"), UnknownEntryError("u"), DiskIOError("i"), CorruptionError("c")]
    assert [type(worst_error(errors[:n])) for n in (1, 2, 3, 4)] == [
        NoSuchEntryError,
        UnknownEntryError,
        DiskIOError,
        CorruptionError,
    ]


def test_lac_is_the_largest_once_covered_and_an_error_when_hopeless():
    quorum = LacQuorum(Distribution(3, 3, 2))
    assert quorum.answer(0, 5) is None
    assert quorum.answer(2, NoSuchLedgerError("x")) == 5
    hopeless = LacQuorum(Distribution(3, 3, 2))
    assert hopeless.answer(0, DiskIOError("x")) is None
    assert hopeless.answer(1, UnknownEntryError("x")) is None
    assert isinstance(hopeless.answer(2, 7), UnknownEntryError)


# ---- recovery: any interleaving of two recoverers and the old writer


class World:
    """Bookies as dicts, a metadata register with CAS, and the old writer's late adds."""

    def __init__(self, distribution, entries, stored):
        ensemble = tuple(f"b{i}" for i in range(distribution.ensemble_size))
        self.distribution = distribution
        self.ensemble = ensemble
        self.metadata = LedgerMetadata(*distribution, (LedgerFragment(0, ensemble),))
        self.entries = entries
        self.bookies: dict[str, dict[int, bytes]] = {name: {} for name in ensemble}
        self.fenced: set[str] = set()
        self.late = []
        #: (entry, bookie index) that the old writer was told of: what it counts towards the ack quorum.
        self.told: set[tuple[int, int]] = set()
        for entry_id, indexes in enumerate(stored):
            for index in distribution.write_set(entry_id):
                if index in indexes:
                    self.bookies[ensemble[index]][entry_id] = entries[entry_id]
                    self.told.add((entry_id, index))
                else:
                    self.late.append((index, entry_id))

    def acknowledged(self):
        """The last entry up to which the writer has told its client that all is stored."""
        last = -1
        for entry_id in range(len(self.entries)):
            copies = sum((entry_id, index) in self.told for index in self.distribution.write_set(entry_id))
            if copies < self.distribution.ack_quorum:
                break
            last = entry_id
        return last

    def late_add(self):
        """One delayed add of the old writer arrives; a fenced bookie refuses it."""
        index, entry_id = self.late.pop()
        if self.ensemble[index] not in self.fenced:
            self.bookies[self.ensemble[index]][entry_id] = self.entries[entry_id]
            self.told.add((entry_id, index))

    def carry_out(self, command, random):
        order = list(range(self.distribution.ensemble_size))
        random.shuffle(order)
        match command:
            case FenceAndReadLac(ensemble):
                quorum, newest = LacQuorum(self.distribution), -1
                for index in order:
                    self.fenced.add(ensemble[index])
                    held = self.bookies[ensemble[index]]
                    # Not always of the newest: an entry that was written back last may be what a bookie calls its last.
                    told = read_header(held[random.choice(sorted(held))]) if held else None
                    lac = told.last_add_confirmed if told else NoSuchLedgerError("x")
                    answer = quorum.answer(index, lac)
                    newest = max(newest, told.entry_id if told else -1)
                    if isinstance(answer, int):
                        return ToldEnd(answer, newest)
                raise AssertionError("every bookie answered")
            case ReadForward(fragments, first, count, acknowledged):
                found = []
                for entry_id in range(first, first + count):
                    read = RecoveryRead(self.distribution, entry_id, is_acknowledged=entry_id <= acknowledged)
                    for index in order:
                        if self.distribution.holds(index, entry_id):
                            self.fenced.add(self.ensemble[index])
                            entry = self.bookies[self.ensemble[index]].get(entry_id)
                            verdict = read.answer(index, entry if entry is not None else NoSuchEntryError("x"))
                            if verdict is not ReadVerdict.UNDECIDED:
                                break
                    if verdict is ReadVerdict.ABSENT:
                        break
                    found.append(read.entry)
                return tuple(found)
            case WriteBack(fragments, first, entries):
                for entry_id, entry in enumerate(entries, first):
                    for index in self.distribution.write_set(entry_id):
                        self.bookies[fragments[-1].ensemble[index]][entry_id] = entry
                return WriteBackResult(True, {}, ())
            case CloseLedger(fragments, last, length):
                if not self.metadata.is_closed:
                    self.metadata = self.metadata.with_fragments(fragments).closed(
                        last_entry_id=last, length_bytes=length
                    )
                return self.metadata


@settings(max_examples=many(300), deadline=None)
@given(distributions(4), st.data(), st.randoms())
def test_recoverers_agree_and_lose_nothing_acknowledged(distribution, data, random):
    count = data.draw(st.integers(0, 6))
    indexes = st.sets(st.integers(0, distribution.ensemble_size - 1))
    stored = [data.draw(indexes) for _ in range(count)]
    # Entries are sent in order: each header carries a LAC that the writer had when all before it were sent.
    entries, length = [], 0
    for entry_id in range(count):
        acknowledged = World(distribution, entries, stored[:entry_id]).acknowledged()
        entries += encode_entries(1, entry_id, data.draw(st.integers(-1, acknowledged)), length, [bytes(entry_id)])
        length += entry_id
    world = World(distribution, entries, stored)
    random.shuffle(world.late)
    batch_size = random.choice([1, 2, 100])
    recoverers = [recover_ledger(world.metadata, batch_size=batch_size, **CHANCE) for _ in "ab"]
    replies = [None, None]
    results = [None, None]
    while None in results:
        if world.late and random.random() < 0.3:
            world.late_add()
            continue
        turn = random.choice([i for i in (0, 1) if results[i] is None])
        try:
            replies[turn] = world.carry_out(recoverers[turn].send(replies[turn]), random)
        except StopIteration as end:
            results[turn] = end.value
    assert results[0] == results[1] == world.metadata
    while world.late:
        world.late_add()
    last = world.metadata.last_entry_id
    assert last >= world.acknowledged()
    assert world.metadata.length_bytes == sum(range(last + 1))
    for entry_id in range(last + 1):
        copies = sum(entry_id in world.bookies[world.ensemble[i]] for i in distribution.write_set(entry_id))
        assert copies >= distribution.ack_quorum


def test_recovery_never_ends_below_the_last_fragment():
    """B2: an ensemble change at entry 3 proves that 0 to 2 were acknowledged, whatever the LAC says."""
    entries = encode_entries(1, 0, -1, 0, [b"x"] * 3)
    metadata = LedgerMetadata(1, 1, 1, (LedgerFragment(0, ("a",)), LedgerFragment(3, ("b",))))
    recovery = recover_ledger(metadata, batch_size=10, **CHANCE)
    assert next(recovery) == FenceAndReadLac(("b",))
    assert recovery.send(ToldEnd(-1, -1)) == ReadForward(metadata.fragments, 2, 2, 2)
    close = recovery.send((entries[2],))
    assert close == CloseLedger(metadata.fragments, 2, 3)


def test_recovery_asks_for_few_entries_that_are_not_there():
    """Each is asked for by itself, of each bookie: a topic that was idle has none behind the one after its LAC."""
    entries = encode_entries(1, 0, -1, 0, [b"x"] * 40)
    metadata = LedgerMetadata(1, 1, 1, (LedgerFragment(0, ("a",)),))

    def reads(lac, batch_size, newest=39):
        recovery = recover_ledger(metadata, batch_size=batch_size, **CHANCE)
        next(recovery)
        command, asked = recovery.send(ToldEnd(lac, newest)), []
        while isinstance(command, ReadForward | WriteBack):
            if isinstance(command, WriteBack):
                command = recovery.send(WriteBackResult(True, {}, ()))
                continue
            asked.append((command.first_entry_id, command.count))
            found = entries[command.first_entry_id : command.first_entry_id + command.count]
            command = recovery.send(tuple(found))
        assert command == CloseLedger(metadata.fragments, 39, 40)
        return asked

    assert reads(38, 100) == [(38, READ_FIRST)]
    assert reads(39, 100) == [(39, 2)]
    # None that told of an end need have the newest.
    assert reads(38, 100, newest=3) == [(38, 2), (40, 4)]
    assert reads(39, 100, newest=-1) == [(39, 2)]
    assert reads(0, 10) == [(0, 3), (3, 6), (9, 10), (19, 10), (29, 10), (39, 10)]
    assert reads(38, 1) == [(38, 1), (39, 1), (40, 1)]


@pytest.mark.parametrize("told", [-1, 0])
def test_recovery_of_a_ledger_with_an_entry_or_none_asks_for_one_that_is_not_there(told):
    metadata = LedgerMetadata(1, 1, 1, (LedgerFragment(0, ("a",)),))
    recovery = recover_ledger(metadata, batch_size=100, **CHANCE)
    next(recovery)
    assert recovery.send(ToldEnd(-1, told)) == ReadForward(metadata.fragments, 0, told + 2, -1)


def test_missing_acknowledged_entry_is_damage_not_the_end():
    metadata = LedgerMetadata(1, 1, 1, (LedgerFragment(0, ("a",)),))
    recovery = recover_ledger(metadata, batch_size=10, **CHANCE)
    next(recovery)
    recovery.send(ToldEnd(5, 5))
    with pytest.raises(CorruptionError, match="entry 5"):
        recovery.send(())


def start_of_write_back():
    metadata = LedgerMetadata(2, 2, 1, (LedgerFragment(0, ("a", "b")),))
    recovery = recover_ledger(metadata, batch_size=10, **CHANCE)
    next(recovery)
    recovery.send(ToldEnd(-1, 0))
    command = recovery.send(tuple(encode_entries(1, 0, -1, 0, [b"x"])))
    assert isinstance(command, WriteBack)
    return recovery, command


def test_write_back_moves_to_another_bookie_while_there_is_one():
    recovery, command = start_of_write_back()
    again = recovery.send(WriteBackResult(True, {"b": DiskIOError("x")}, ("a", "c")))
    assert isinstance(again, WriteBack)
    assert again.fragments == (LedgerFragment(0, ("a", "c")),)
    assert again.entries == command.entries
    close = recovery.send(WriteBackResult(True, {}, ("a", "c")))
    assert close == CloseLedger(again.fragments, 0, 1)


def test_write_back_without_spare_bookies_is_content_with_the_ack_quorum():
    recovery, command = start_of_write_back()
    close = recovery.send(WriteBackResult(True, {"b": DiskIOError("x")}, ("a", "b")))
    assert close == CloseLedger(command.fragments, 0, 1)


def test_write_back_below_the_ack_quorum_fails_the_recovery():
    recovery, _ = start_of_write_back()
    failed: dict[str, StorageError] = {"a": DiskIOError("x"), "b": DiskIOError("x")}
    with pytest.raises(NotEnoughBookiesError):
        recovery.send(WriteBackResult(False, failed, ()))


@given(st.data())
def test_a_writers_change_keeps_what_others_did_to_finished_fragments(data):
    names = [f"b{i}" for i in range(9)]
    firsts = [0, *sorted(data.draw(st.sets(st.integers(1, 20), max_size=3)))]
    known = [LedgerFragment(first, tuple(data.draw(st.permutations(names))[:3])) for first in firsts]
    planned = change_ensemble(
        known,
        first_entry_id=firsts[-1] + data.draw(st.integers(0, 3)),
        failed={known[-1].ensemble[1]},
        available=names,
        **CHOOSING,
    ).fragments
    # A worker replaces one of the settled ones, before or after the change.
    moved = [fragment._replace(ensemble=("x", *fragment.ensemble[1:])) for fragment in known[:-1]]
    assert rebase_change(known, planned, known) == planned
    assert rebase_change(known, planned, planned) == planned
    rebased = rebase_change(known, planned, [*moved, known[-1]])
    assert rebased == (*moved, *planned[len(moved) :])
    assert rebase_change(known, planned, rebased) == rebased
    # Somebody else's last fragment, or another one before it.
    other = LedgerFragment(known[-1].first_entry_id + 9, ("x", "y", "z"))
    assert rebase_change(known, planned, [*known, other]) is None
    assert rebase_change(known, planned, [*known[:-1], known[-1]._replace(ensemble=("x", "y", "z"))]) is None
    if len(known) > 1:
        assert rebase_change(known, planned, known[1:]) is None
