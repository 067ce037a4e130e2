"""What Apache's broker reads of a cursor's entry: nothing that is not acknowledged, all of it within the limits."""

from __future__ import annotations

import struct
from functools import partial

from hypothesis import example, given, settings
from hypothesis import strategies as st

from geminga.managed_ledger.rules.acked_entries import PART_ENTRIES, AckedBitmap
from geminga.managed_ledger.rules.batch_acks import words_of_bits
from geminga.managed_ledger.rules.bit_words import bits_of_part, part_count, part_of_words, range_count, words_of_parts
from geminga.managed_ledger.rules.cursor import CursorState
from geminga.managed_ledger.rules.cursor_format import plan_write, recovery, state_of_record
from geminga.managed_ledger.rules.plain_ranges import PlainRanges
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.managed_ledger.rules.pulsar_fields import PulsarLimits, pulsar_fields
from geminga.model.position import Position
from geminga.wire._generated import managed_ledger_pb2 as pb
from geminga.wire.managed_ledger import decode_position_info, encode_position

IDS = (3, 4, 9)
LEDGERS = LedgerList([LedgerInfo(ledger_id, 2 * PART_ENTRIES, closed_ms=1) for ledger_id in IDS])
WIDE = PulsarLimits(1 << 20, 1 << 20)

#: Runs of a part: few ids, many, long runs, and the part's ends.
runs = st.lists(
    st.tuples(
        st.integers(0, PART_ENTRIES - 1) | st.sampled_from([0, 63, 64, PART_ENTRIES - 1]),
        st.integers(1, 3) | st.integers(1, PART_ENTRIES),
        st.sampled_from([1, 1, 2, 7]),
    ),
    max_size=12,
)


def ids_of(drawn):
    return {i for first, length, step in drawn for i in range(first, min(first + length, PART_ENTRIES), step)}


@settings(max_examples=40)
@given(runs, st.integers(0, 3))
# As many ids as a container has one by one, and one more.
@example([(0, 8191, 2)], 0)
@example([(0, 8193, 2)], 1)
def test_a_part_becomes_a_bit_set_and_a_part_again(drawn, part):
    ids = ids_of(drawn)
    entries = AckedBitmap()
    entries.add_many([part * PART_ENTRIES + i for i in ids] or [])
    data = entries.part_bytes(part)
    bits = bits_of_part(data)
    assert bits == sum(1 << i for i in ids)
    assert range_count(bits) == len([i for i in ids if i - 1 not in ids])
    if not ids:
        assert data == b""
        return
    words = words_of_parts([(part, bits)])
    assert int.from_bytes(struct.pack(f"<{len(words)}q", *words), "little") == bits << part * PART_ENTRIES
    assert words[-1] != 0
    assert part_count(words) == part + 1
    for number in range(part + 2):
        again = AckedBitmap()
        found = part_of_words(words, number)
        assert bool(found) == (number == part)
        if found:
            again.load_part(number, found)
            assert again.part_bytes(part) == data


steps = st.one_of(
    st.tuples(st.just("one"), st.sampled_from(IDS), st.integers(0, 2 * PART_ENTRIES - 1)),
    st.tuples(st.just("dense"), st.sampled_from(IDS), st.integers(0, 2 * PART_ENTRIES - 700)),
    st.tuples(st.just("run"), st.sampled_from(IDS), st.integers(0, PART_ENTRIES)),
    st.tuples(st.just("batch"), st.sampled_from(IDS), st.integers(0, 400)),
    st.tuples(st.just("cumulative"), st.sampled_from(IDS), st.integers(0, 300)),
)


def apply(state, kind, ledger_id, entry_id):
    if kind == "cumulative":
        state.acknowledge_cumulative(Position(ledger_id, entry_id), None, LEDGERS)
    elif kind == "batch":
        bits = (1 << 130) - 1 - (1 << entry_id % 130)
        state.acknowledge([Position(ledger_id, entry_id)], [words_of_bits(bits)], LEDGERS)
    else:
        count, step = {"one": (1, 1), "dense": (600, 2), "run": (5000, 1)}[kind]
        ids = range(entry_id, entry_id + count, step)
        state.acknowledge([Position(ledger_id, i) for i in ids], None, LEDGERS)


def holes_of(state):
    return [tuple(item) for item in state.acked.ranges(1 << 20)]


def apache_reads(entry):
    """The last entry of a cursor ledger, by the rules of Apache's class: bit sets only where there are no ranges."""
    known = pb.PositionInfo.FromString(entry)
    known.ClearField("marker")
    known.ClearField("segment")
    if known.individualDeletedMessages:
        known.ClearField("individualDeletedMessageRanges")
    return state_of_record(decode_position_info(known.SerializeToString()), LEDGERS)


def written(state, limits, refs=None, log=None):
    log = [] if log is None else log
    plan = plan_write(state, refs or {}, partial(pulsar_fields, limits))
    refs = plan.refs(len(log))
    log += plan.segments
    log.append(plan.marker(refs))
    return refs, log


def run(steps_of, log):
    try:
        first, last = next(steps_of)
        while True:
            first, last = steps_of.send(log[first : last + 1])
    except StopIteration as stop:
        return stop.value


@given(st.lists(steps, max_size=14), st.booleans(), st.sampled_from([AckedBitmap, PlainRanges]))
def test_within_the_limits_apache_reads_what_we_do(story, may_be_words, make):
    state = CursorState(Position(3, -1), {"a": 7}, make)
    for step in story:
        apply(state, *step)
    _, log = written(state, WIDE._replace(may_be_words=may_be_words))
    theirs, ours = apache_reads(log[-1]), run(recovery(len(log) - 1, LEDGERS), log).state
    for found in (theirs, ours):
        assert (found.mark_delete, holes_of(found), [*found.batches], found.properties) == (
            state.mark_delete,
            holes_of(state),
            [*state.batches],
            {"a": 7},
        )


@given(st.lists(steps, max_size=14), st.integers(0, 900), st.integers(0, 5), st.booleans())
def test_beyond_the_limits_apache_reads_the_oldest(story, ranges, batches, may_be_words):
    state = CursorState(Position(3, -1))
    for step in story:
        apply(state, *step)
    fields = pulsar_fields(PulsarLimits(ranges, batches, may_be_words), state)
    assert not (fields.ranges and fields.bit_sets)
    assert [batch[:2] for batch in fields.batches] == [item[:2] for item in state.batches][:batches]
    whole = holes_of(state)
    if fields.bit_sets:
        entry = pb.PositionInfo(ledgerId=state.mark_delete[0], entryId=state.mark_delete[1])
        for ledger_id, words in fields.bit_sets.items():
            entry.individualDeletedMessageRanges.add(key=ledger_id, values=words)
        found = holes_of(apache_reads(entry.SerializeToString()))
        # Whole parts: the last run may end where its part does.
        assert min(ranges, len(whole)) <= len(found) <= len(whole)
        assert found[:-1] == whole[: len(found) - 1]
        assert found[-1][:2] == whole[len(found) - 1][:2]
        assert found[-1][2] <= whole[len(found) - 1][2]
    else:
        assert len(fields.ranges) == min(ranges, len(whole))
        assert [(lower[0], lower[1] + 1, upper[1]) for lower, upper in fields.ranges] == whole[: len(fields.ranges)]


@given(st.lists(steps, min_size=2, max_size=10), st.lists(steps, min_size=1, max_size=3))
def test_cut_off_between_segments_and_marker_apache_finds_the_holes_all_the_same(story, more):
    state = CursorState(Position(3, -1))
    for step in [("dense", 9, 40), *story]:
        apply(state, *step)
    refs, log = written(state, WIDE)
    state.clean()
    for step in more:
        apply(state, *step)
    before = len(log)
    written(state, WIDE, refs, log)
    for entry in log[before:]:
        found = apache_reads(entry)
        assert (found.mark_delete, holes_of(found)) == (state.mark_delete, holes_of(state))


@given(st.lists(steps, max_size=8), st.lists(steps, max_size=8), st.booleans())
def test_an_entry_of_apaches_behind_our_segments_is_the_state(story, theirs, as_words):
    ours, state = CursorState(Position(3, -1)), CursorState(Position(3, -1), {"theirs": 1})
    for step in [("dense", 9, 40), *story]:
        apply(ours, *step)
    _, log = written(ours, WIDE)
    for step in theirs:
        apply(state, *step)
    fields = pulsar_fields(WIDE._replace(may_be_words=as_words), state)
    log.append(encode_position(state.mark_delete, properties=state.properties, **fields._asdict()))
    found = run(recovery(len(log) - 1, LEDGERS), log).state
    assert (found.mark_delete, holes_of(found), [*found.batches], found.properties) == (
        state.mark_delete,
        holes_of(state),
        [*state.batches],
        {"theirs": 1},
    )


def test_pulsars_fields_leave_room_for_the_marker_or_stay_out():
    """Batches of 1,000 messages, more than fit: the oldest that do. No entry is more than bookies take."""
    ledgers = LedgerList([LedgerInfo(1, 60_000, closed_ms=1)])
    state = CursorState(Position(1, -1))
    words = words_of_bits((1 << 8000) - 1)
    state.acknowledge([Position(1, i) for i in range(1, 9_001)], [words] * 9_000, ledgers)
    plan = plan_write(state, {}, partial(pulsar_fields, PulsarLimits()))
    marker = plan.marker(plan.refs(0))
    assert 2 << 20 < len(marker) < 5 << 20
    assert all(len(entry) < 2 << 20 for entry in plan.segments)
    assert 0 < len(pb.PositionInfo.FromString(marker).batchedEntryDeletionIndexInfo) < 9_000
    # A marker that is nearly full itself has Pulsar's position only.
    refs = {(1, part): (part,) for part in range(300_000)}
    marker = plan.marker(refs)
    assert not pb.PositionInfo.FromString(marker).batchedEntryDeletionIndexInfo
    assert len(pb.PositionInfo.FromString(marker).marker.segments) == 300_000


def test_many_holes_are_bit_sets_and_no_more_parts_than_the_limit_asks_for():
    """Pulsar counts ranges; what takes less room as bit sets is written so, unless the setting forbids it."""
    state = CursorState(Position(3, -1))
    for ledger_id in IDS:
        apply(state, "dense", ledger_id, 1)
    holes = holes_of(state)
    assert len(holes) == 300 * len(IDS)
    asked = {ranges: pulsar_fields(PulsarLimits(ranges), state) for ranges in (300, 301, 900)}
    assert [sorted(fields.bit_sets) for fields in asked.values()] == [[3], [3, 4], [3, 4, 9]]
    assert not any(fields.ranges for fields in asked.values())
    plain = pulsar_fields(PulsarLimits(300, may_be_words=False), state)
    assert (plain.bit_sets, len(plain.ranges)) == ({}, 300)
