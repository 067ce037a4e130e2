"""Auto-recovery's cores against enumeration: what lacks copies, who gets what, what metadata become, when to look."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.placement import Placement
from geminga.model.errors import BadVersionError, NotEnoughBookiesError, StorageError
from geminga.replication.core.audit import AuditSchedule
from geminga.replication.core.copying import (
    DurableCopies,
    expected_of,
    missing_entries,
    shares_of,
    sources_of,
    whole_batches,
)
from geminga.replication.core.fragments import (
    LostReplicas,
    SettledFragment,
    as_it_is_now,
    bookies_of,
    each_alone,
    is_tail_lost,
    lost_bookies,
    lost_replicas,
    settled_fragments,
)
from geminga.replication.core.pacing import BACKOFF_DOUBLINGS, FAILED_LEDGERS_MAX, ByteRate, FailedLedgers
from geminga.replication.core.replacing import choose_targets, replace_bookies
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata, LedgerState

NAMES = tuple(f"b{i}" for i in range(8))


@st.composite
def ledgers(draw):
    """A ledger in any state, on some of eight bookies."""
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    firsts = [0, *sorted(draw(st.sets(st.integers(1, 30), max_size=3)))]
    fragments = tuple(LedgerFragment(first, tuple(draw(st.permutations(NAMES))[:size])) for first in firsts)
    metadata = LedgerMetadata(size, write, draw(st.integers(1, write)), fragments)
    state = draw(st.sampled_from(LedgerState))
    if state is LedgerState.CLOSED:
        # Never below what a later fragment proves.
        return metadata.closed(last_entry_id=draw(st.integers(firsts[-1] - 1, firsts[-1] + 9)), length_bytes=1)
    return metadata.with_state(state)


def choose(lost, metadata, writable, below):
    quorum = metadata.write_quorum
    return choose_targets(lost, writable, write_quorum=quorum, placement=Placement(), below=below)


def distribution_of(metadata):
    return Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)


# ---- fragments


@given(ledgers(), st.sets(st.sampled_from(NAMES)))
def test_every_settled_entry_is_in_one_fragment_and_no_other(metadata, registered):
    fragments = list(settled_fragments(metadata))
    end = metadata.last_entry_id + 1 if metadata.is_closed else metadata.last_fragment.first_entry_id
    assert [entry_id for fragment in fragments for entry_id in fragment.entry_ids] == list(range(end))
    expected = metadata.fragments if metadata.is_closed else metadata.fragments[:-1]
    assert [(fragment.first_entry_id, fragment.ensemble) for fragment in fragments] == list(expected)


@given(ledgers(), st.sets(st.sampled_from(NAMES)))
def test_what_is_lost_is_what_is_not_registered(metadata, registered):
    lost = lost_replicas(metadata, registered)
    found = {(one.fragment.first_entry_id, one.fragment.ensemble[index]) for one in lost for index in one.indexes}
    settled = {(f.first_entry_id, name) for f in settled_fragments(metadata) for name in f.ensemble}
    assert found == {(first, name) for first, name in settled if name not in registered}
    assert all(one.indexes for one in lost)
    tail = not metadata.is_closed and bool(set(metadata.last_fragment.ensemble) - registered)
    assert is_tail_lost(metadata, registered) == tail
    assert bool(lost_bookies(metadata, registered)) == (bool(lost) or tail)
    assert set(lost_bookies(metadata, registered)) == bookies_of(metadata) - registered


# ---- copying


@given(ledgers(), st.data())
def test_a_bookie_gets_exactly_what_its_index_holds(metadata, data):
    distribution = distribution_of(metadata)
    for fragment in settled_fragments(metadata):
        indexes = data.draw(st.sets(st.integers(0, metadata.ensemble_size - 1), min_size=1))
        targets = {index: f"new{index}" for index in indexes}
        got: dict[str, list[int]] = {}
        for batch in whole_batches(fragment.entry_ids, data.draw(st.integers(1, 7))):
            for name, share in shares_of(distribution, batch, targets).items():
                assert share
                got.setdefault(name, []).extend(share)
        for index, name in targets.items():
            held = [entry_id for entry_id in fragment.entry_ids if index in distribution.write_set(entry_id)]
            assert got.get(name, []) == held
        for name in fragment.ensemble:
            runs = expected_of(metadata, [fragment], name)
            index = fragment.ensemble.index(name)
            assert [list(run) for run in runs] == [[e for e in fragment.entry_ids if distribution.holds(index, e)]]


@given(ledgers(), st.integers(0, 40), st.sets(st.integers(0, 4)), st.sets(st.sampled_from(NAMES)))
def test_everybody_who_may_have_an_entry_is_asked_and_the_living_first(metadata, entry_id, targets, live):
    fragment = SettledFragment(range(100), metadata.fragments[0].ensemble)
    distribution = distribution_of(metadata)
    sources = sources_of(distribution, fragment, entry_id, targets, live)
    assert set(sources) == {fragment.ensemble[index] for index in distribution.write_set(entry_id)}
    assert len(sources) == metadata.write_quorum
    states = [name in live for name in sources]
    assert states == sorted(states, reverse=True)
    whole = [name for name in sources if name in live and fragment.ensemble.index(name) not in targets]
    assert list(sources[: len(whole)]) == whole


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_missing_is_what_is_expected_and_not_listed(expected, listed):
    runs: list[range] = []
    for entry_id in sorted(listed):
        if runs and runs[-1].stop == entry_id:
            runs[-1] = range(runs[-1].start, entry_id + 1)
        else:
            runs.append(range(entry_id, entry_id + 1))
    assert missing_entries(sorted(expected), runs) == sorted(expected - listed)


@given(
    st.dictionaries(st.sampled_from("abc"), st.sets(st.integers(0, 5), min_size=1), min_size=1),
    st.lists(st.tuples(st.sampled_from("abcd"), st.sets(st.integers(0, 7)), st.booleans()), max_size=30),
)
def test_copies_are_durable_when_each_bookie_has_said_so_of_each_entry(shares, answers):
    copies = DurableCopies(shares)
    told = {name: set() for name in shares}
    failed = False
    for name, entry_ids, is_good in answers:
        if name in shares:
            outstanding = shares[name] - told[name]
            if is_good:
                told[name] |= entry_ids
            elif outstanding & entry_ids:
                failed = True
        copies.answer(name, sorted(entry_ids), None if is_good else StorageError("no"))
        assert (copies.error is not None) == failed
        assert copies.is_done == (failed or all(shares[name] <= told[name] for name in shares))


# ---- metadata


@given(ledgers(), st.sets(st.sampled_from(NAMES)), st.randoms(use_true_random=False))
def test_replacing_changes_only_the_lost_ones_and_twice_is_once(metadata, registered, random):
    distribution = distribution_of(metadata)
    for lost in lost_replicas(metadata, registered):
        spare = [name for name in sorted(registered) if name not in lost.fragment.ensemble]
        if len(spare) < len(lost.indexes):
            with pytest.raises(NotEnoughBookiesError):
                choose(lost, metadata, sorted(registered), random.randrange)
            continue
        targets = choose(lost, metadata, sorted(registered), random.randrange)
        assert set(targets) == set(lost.indexes)
        changed = replace_bookies(metadata, lost.fragment, targets)
        assert replace_bookies(changed, lost.fragment, targets) == changed
        changed.check_invariants()
        assert changed.with_fragments(metadata.fragments) == metadata
        for before, after in zip(metadata.fragments, changed.fragments, strict=True):
            assert before.first_entry_id == after.first_entry_id
            if before.first_entry_id != lost.fragment.first_entry_id:
                assert before == after
                continue
            assert len(set(after.ensemble)) == distribution.ensemble_size
            for index, (old, new) in enumerate(zip(before.ensemble, after.ensemble, strict=True)):
                assert new == targets.get(index, old)
        assert not [one for one in lost_replicas(changed, registered) if one.fragment[0] == lost.fragment[0]]


CLOSED = LedgerMetadata(3, 2, 2, (LedgerFragment(0, ("b0", "b1", "b2")), LedgerFragment(5, ("b0", "b3", "b2")))).closed(
    last_entry_id=9, length_bytes=10
)
FIRST = SettledFragment(range(5), ("b0", "b1", "b2"))


@pytest.mark.parametrize(
    "found",
    [
        # Another worker put another one there; ours is there at another place; the fragment has another end.
        CLOSED.with_fragments((LedgerFragment(0, ("b0", "b7", "b2")), CLOSED.fragments[1])),
        CLOSED.with_fragments((LedgerFragment(0, ("b4", "b1", "b2")), CLOSED.fragments[1])),
        CLOSED.with_fragments((CLOSED.fragments[0], LedgerFragment(6, ("b0", "b3", "b2")))),
        CLOSED.with_fragments(CLOSED.fragments[:1]),
        CLOSED.with_fragments(CLOSED.fragments[:1]).with_state(LedgerState.OPEN),
    ],
)
def test_a_fragment_that_is_another_by_now_is_left_alone(found):
    with pytest.raises(BadVersionError):
        replace_bookies(found, FIRST, {1: "b4"})


def test_a_fragment_that_others_changed_elsewhere_is_changed():
    found = CLOSED.with_fragments((LedgerFragment(0, ("b5", "b1", "b2")), CLOSED.fragments[1]))
    assert replace_bookies(found, FIRST, {1: "b4"}).fragments[0].ensemble == ("b5", "b4", "b2")


@pytest.mark.parametrize(
    ("found", "is_there"),
    [
        (CLOSED, {0, 1}),
        (CLOSED.with_fragments((LedgerFragment(0, ("b0", "b7", "b2")), CLOSED.fragments[1])), {0}),
        (CLOSED.with_fragments((CLOSED.fragments[0], LedgerFragment(6, ("b0", "b3", "b2")))), set()),
        (CLOSED.with_fragments(CLOSED.fragments[:1]).with_state(LedgerState.OPEN), set()),
    ],
)
def test_replicas_one_by_one_are_those_that_nobody_replaced(found, is_there):
    alone = [as_it_is_now(one, found) for one in each_alone(LostReplicas(FIRST, (0, 1)))]
    there = [one for one in alone if one is not None]
    assert [one.indexes for one in there] == [(index,) for index in sorted(is_there)]
    assert all(one.fragment.ensemble == found.fragments[0].ensemble for one in there)


def test_copies_of_a_bookie_spread_over_all_the_others():
    lost = LostReplicas(SettledFragment(range(10), ("b0", "b1", "b2")), (1,))
    placement = Placement()
    chosen = [
        choose_targets(lost, NAMES, write_quorum=2, placement=placement, below=lambda bound: bound - 1)[1]
        for _ in range(50)
    ]
    counts = Counter(chosen)
    assert set(counts) == {"b3", "b4", "b5", "b6", "b7"}
    assert min(counts.values()) >= 5


# ---- pace


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 3)), max_size=20), st.integers(1, 500))
def test_never_more_bytes_than_the_rate_allows(takes, rate):
    limit = ByteRate(rate)
    now, total = 0.0, 0
    for size, pause in takes:
        now += pause
        total += size
        now += limit.take(size, now)
        assert total <= rate * now + 1e-6


def test_no_rate_is_no_wait():
    assert ByteRate(-1).take(1 << 40, 0.0) == 0


def test_a_ledger_that_fails_rests_longer_each_time_up_to_the_longest():
    failed = FailedLedgers(320)
    assert [failed.failed(1) for _ in range(BACKOFF_DOUBLINGS + 3)] == [10, 20, 40, 80, 160, 320, 320, 320]
    assert (failed.failures(1), failed.failures(2)) == (BACKOFF_DOUBLINGS + 3, 0)
    assert failed.failed(2) == 10
    failed.restored(1)
    assert failed.failed(1) == 10
    for ledger_id in range(3, 3 + FAILED_LEDGERS_MAX):
        failed.failed(ledger_id)
    assert failed.failed(1) == 10


# ---- when to look


def audit(delay_s: float = 30, interval_s: float = 1000) -> AuditSchedule:
    schedule = AuditSchedule(0, delay_s=delay_s, interval_s=interval_s)
    schedule.registered({"a", "b", "c"}, 0, delay_s=delay_s)
    assert schedule.wait_s(0) == delay_s
    schedule.looked(delay_s)
    return schedule


def test_one_that_is_back_in_time_brings_no_look():
    schedule = audit()
    schedule.registered({"a", "b"}, 100, delay_s=30)
    assert schedule.wait_s(101) == 29
    schedule.registered({"a", "b"}, 110, delay_s=30)
    assert schedule.wait_s(110) == 20
    schedule.registered({"a", "b", "c"}, 120, delay_s=30)
    assert schedule.wait_s(120) == 910
    assert (schedule.delayed, schedule.cancelled) == (1, 1)


def test_one_that_stays_away_is_looked_after_once():
    schedule = audit()
    schedule.registered({"a", "b"}, 100, delay_s=30)
    assert schedule.wait_s(130) == 0
    schedule.looked(131)
    schedule.registered({"a", "b"}, 140, delay_s=30)
    assert schedule.wait_s(140) == 991
    # The next one is alone: it is waited for.
    schedule.registered({"a"}, 150, delay_s=30)
    assert schedule.wait_s(150) == 30


def test_two_that_are_away_are_not_waited_for():
    schedule = audit()
    schedule.registered({"a", "b"}, 100, delay_s=30)
    schedule.registered({"a"}, 110, delay_s=30)
    assert schedule.wait_s(110) == 0
    # One back is not both.
    schedule.registered({"a", "b"}, 111, delay_s=30)
    assert schedule.wait_s(111) == 0


def test_without_a_delay_nobody_is_waited_for():
    schedule = audit(delay_s=0)
    schedule.registered({"a", "b"}, 100, delay_s=0)
    assert schedule.wait_s(100) == 0


def test_a_changed_delay_counts_from_now():
    schedule = audit()
    schedule.delay_changed(50, delay_s=5)
    assert schedule.wait_s(50) == 980
    schedule.registered({"a", "b"}, 100, delay_s=30)
    schedule.delay_changed(110, delay_s=50)
    assert schedule.wait_s(110) == 50
    schedule.delay_changed(111, delay_s=0)
    assert schedule.wait_s(111) == 0


def test_without_an_interval_there_is_a_first_look_and_then_none():
    schedule = audit(interval_s=0)
    assert schedule.wait_s(100) is None


def test_a_look_that_is_asked_for_comes_at_once_whoever_is_there():
    schedule = audit(interval_s=0)
    schedule.registered({"a", "b"}, 100, delay_s=30)
    schedule.asked(105)
    schedule.registered({"a", "b", "c"}, 105, delay_s=30)
    assert schedule.wait_s(105) == 0
    schedule.looked(106)
    assert schedule.wait_s(106) is None
