"""The source's pure parts against oracles: offsets and their text, plans, permits, metadata read in columns."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.client.consumer_rules.entry_window import EntryWindow
from geminga.client.consumer_rules.look_back import EARLIEST, start_before
from geminga.spark.source.single_metadata import single_fields
from geminga.spark.source_rules.offsets import (
    BEGINNING,
    Division,
    OffsetError,
    ReadPosition,
    StreamOffset,
    parse_positions,
)
from geminga.spark.source_rules.planner import (
    ENTRIES_PER_TASK_MIN,
    TopicRange,
    divide,
    entries_before,
    plan,
    ranges_of,
)
from geminga.wire._generated import pulsar_api_pb2 as pb

positions = st.builds(ReadPosition, st.integers(0, 4), st.integers(0, 3000), st.integers(0, 3))
topics = st.text("abc", min_size=1, max_size=2).map(lambda name: f"persistent://p/n/{name}")
offsets = st.builds(
    StreamOffset,
    topics=st.dictionaries(topics, positions),
    tasks_max=st.integers(1, 9),
    cuts=st.dictionaries(topics, st.lists(positions, min_size=1, max_size=4).map(tuple)),
    starts=st.dictionaries(topics, positions),
    divisions=st.dictionaries(topics, st.builds(Division, st.integers(0, 9000), st.lists(positions).map(tuple))),
)
symbolic = st.builds(StreamOffset, init=st.one_of(st.sampled_from(["latest", "earliest"]), st.integers(0, 1 << 42)))


@given(st.one_of(offsets, symbolic))
def test_offset_text_survives_the_way_through_json(offset):
    text = offset.to_json()
    again = StreamOffset.from_dict(json.loads(text))
    assert again == offset
    assert again.to_json() == text


@given(offsets, st.randoms())
def test_offset_text_does_not_depend_on_the_order_topics_came_in(offset, random):
    shuffled = list(offset.topics.items())
    random.shuffle(shuffled)
    other = replace(
        offset,
        topics=dict(shuffled),
        cuts=dict(reversed(offset.cuts.items())),
        divisions=dict(reversed(offset.divisions.items())),
    )
    assert other.to_json() == offset.to_json()
    assert list(offset.to_dict()) == sorted(offset.to_dict())


@given(st.lists(positions))
def test_read_positions_sort_as_messages_do(found):
    by_text = sorted((ReadPosition.parse(str(one)) for one in found), key=tuple)
    assert by_text == sorted(found)
    assert all(one > BEGINNING for one in found)


@pytest.mark.parametrize("text", ["", "1", "1:2:3:4", "a:b:c", "1:2:-1", "latest", None, 7])
def test_position_that_is_none_is_refused_by_name(text):
    with pytest.raises(OffsetError, match="expected ledger:entry:batchIndex"):
        ReadPosition.parse(text)


def test_offset_of_another_version_is_refused():
    with pytest.raises(OffsetError, match="version 2"):
        StreamOffset.from_dict({"v": 2, "t": {}})


def test_positions_are_read_from_an_offset_and_from_a_plain_object():
    offset = StreamOffset(topics={"t": ReadPosition(1, 2, 3)}, tasks_max=4)
    assert parse_positions(offset.to_json()) == {"t": ReadPosition(1, 2, 3)}
    assert parse_positions('{"t": "1:2", "u": "earliest"}') == {"t": ReadPosition(1, 2, 0), "u": BEGINNING}


@given(st.dictionaries(topics, positions), offsets)
def test_plan_has_every_position_of_a_batch_in_exactly_one_task(begins, end):
    start = StreamOffset(topics=begins)
    wanted = {one.topic: one for one in ranges_of(start, end)}
    # A topic that was made anew begins where the end says.
    first = {topic: end.starts.get(topic, begins.get(topic, BEGINNING)) for topic in end.topics}
    assert {topic: one.start for topic, one in wanted.items()} == {
        topic: first[topic] for topic, at in end.topics.items() if first[topic] < at
    }
    tasks = plan(start, end)
    pieces = sorted(piece for task in tasks for piece in task)
    assert all(task for task in tasks)
    for topic, whole in wanted.items():
        own = [piece for piece in pieces if piece.topic == topic]
        # Each begins where the one before it ends: no gap, nothing twice.
        assert [piece.start for piece in own] == [whole.start, *(piece.end for piece in own[:-1])]
        assert own[-1].end == whole.end
        assert all(piece.start < piece.end for piece in own)
        assert [piece.is_first for piece in own] == [True] + [False] * (len(own) - 1)
    assert {piece.topic for piece in pieces} == set(wanted)


@given(st.dictionaries(topics, positions), offsets)
def test_plan_is_a_function_of_the_offsets_and_keeps_to_the_number_of_tasks(begins, end):
    start = StreamOffset(topics=begins)
    tasks = plan(start, end)
    assert tasks == plan(StreamOffset.from_dict(start.to_dict()), StreamOffset.from_dict(json.loads(end.to_json())))
    if not end.cuts:
        assert len(tasks) <= end.tasks_max


def entries_of(piece: TopicRange, lengths: dict[int, int]) -> int:
    """Of a piece, ledger by ledger."""
    found = 0
    for ledger_id, entries in lengths.items():
        if piece.start.ledger_id <= ledger_id <= piece.end.ledger_id:
            first = max(0, piece.start.entry_id) if ledger_id == piece.start.ledger_id else 0
            behind = min(entries, piece.end.entry_id) if ledger_id == piece.end.ledger_id else entries
            found += max(0, behind - first)
    return found


@given(
    st.dictionaries(st.integers(3, 30), st.integers(1, 400), min_size=2, max_size=8),
    st.integers(0, 399),
    st.integers(1, 9),
    st.booleans(),
)
def test_range_over_several_ledgers_is_divided_evenly(lengths, first, tasks_max, is_from_beginning):
    ids = sorted(lengths)
    begin = BEGINNING if is_from_beginning else ReadPosition(ids[0], min(first, lengths[ids[0]]))
    end = StreamOffset(topics={"t": ReadPosition(ids[-1], lengths[ids[-1]])}, tasks_max=tasks_max)
    start = StreamOffset(topics={"t": begin})
    # The broker tells the closed ledgers, and those that were closed meanwhile.
    told = {"t": [(ledger_id, lengths[ledger_id]) for ledger_id in ids[:-1]] + [(ids[-1] + 1, 7)]}
    divided = replace(end, divisions=divide(ranges_of(start, end), told, tasks_max))
    tasks = plan(start, divided)
    total = entries_of(TopicRange("t", begin, end.topics["t"]), lengths)
    assert divided.divisions["t"].entries == total
    assert len(tasks) == max(1, min(tasks_max, total // ENTRIES_PER_TASK_MIN))
    sizes = [sum(entries_of(piece, lengths) for piece in task) for task in tasks]
    assert sum(sizes) == total
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 9), st.lists(st.integers(100, 3000), min_size=1, max_size=5))
def test_ranges_over_several_ledgers_share_tasks_with_others(tasks_max, sizes):
    start = StreamOffset(topics={"big": ReadPosition(3, 0)} | {f"s{i}": ReadPosition(9, 0) for i in range(len(sizes))})
    ends = {"big": ReadPosition(5, 2000)} | {f"s{i}": ReadPosition(9, size) for i, size in enumerate(sizes)}
    end = StreamOffset(topics=ends, tasks_max=tasks_max)
    divisions = divide(ranges_of(start, end), {"big": [(3, 4000), (4, 2000)]}, tasks_max)
    assert set(divisions) == {"big"}
    tasks = plan(start, replace(end, divisions=divisions))
    assert len(tasks) <= tasks_max
    # A piece has up to one and a half times what a task would have if all were the same; the heaviest are dealt first.
    lengths = {3: 4000, 4: 2000, 5: 2000, 9: 3000}
    weights = [sum(entries_of(piece, lengths) for piece in task) for task in tasks]
    assert sum(weights) == 8000 + sum(sizes)
    assert max(weights) <= 2.5 * -(-sum(weights) // tasks_max)


@given(offsets)
def test_plan_of_a_batch_that_begins_at_latest_is_empty(end):
    assert plan(StreamOffset(init="latest"), end) == []


def test_plan_splits_a_large_range_and_packs_small_ones():
    end = StreamOffset(
        topics={"big": ReadPosition(7, 4000)} | {f"s{i}": ReadPosition(8, 1) for i in range(9)}, tasks_max=4
    )
    start = StreamOffset(topics={"big": ReadPosition(7, 0)} | {f"s{i}": ReadPosition(8, 0) for i in range(9)})
    tasks = plan(start, end)
    assert len(tasks) == 4
    assert sum(len(task) for task in tasks) == 13
    weights = [sum(piece.weight for piece in task) for task in tasks]
    assert max(weights) - min(weights) < 20


@given(
    st.integers(1, 1 << 20),
    st.integers(1, 5000),
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 1 << 16)), max_size=60),
)
def test_window_never_asks_for_more_than_fits_and_never_stalls(bytes_max, permits_max, entries):
    window = EntryWindow(bytes_max, permits_max)
    granted = window.grant()
    assert 0 < granted <= permits_max
    for messages, size in entries:
        window.arrived(messages, size)
        window.taken(messages, size)
        more = window.grant()
        assert window.expected + window.waiting <= max(window.capacity, window.expected)
        assert more == 0 or window.expected <= window.capacity
        # Everything was taken: either something is on its way, or something was asked for.
        assert window.expected > 0


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 1 << 16)), max_size=60), st.integers(0, 60))
def test_window_with_an_end_asks_for_little_more_than_what_is_left_and_for_something(entries, beyond):
    window = EntryWindow(1 << 30)
    left = len(entries) + beyond
    window.grant(left)
    for messages, size in entries:
        left -= 1
        window.arrived(messages, size)
        window.taken(messages, size)
        window.grant(left)
        assert window.expected > 0
    if entries and not beyond:
        assert window.expected <= max(16, len(entries) * 100)


def test_window_without_permits_asks_for_nothing():
    assert EntryWindow(1 << 20, 0).grant() == 0


@given(st.integers(0, 5), st.integers(0, 2000), st.integers(-1, 5), st.integers(-1, 2000))
def test_look_back_always_gets_further_back_and_ends_at_the_beginning(ledger_id, entry_id, at_ledger, at_entry):
    started_at = (at_ledger, at_entry) if at_ledger >= 0 else EARLIEST
    steps = []
    while (step := start_before((ledger_id, entry_id), started_at)) is not None:
        assert step < started_at
        steps.append(step)
        started_at = step
    assert len(steps) <= 3
    assert started_at == EARLIEST


fields = st.fixed_dictionaries(
    {"payload_size": st.integers(0, 1 << 20)},
    optional={
        "event_time": st.integers(0, 1 << 60),
        "sequence_id": st.integers(0, 1 << 62),
        "partition_key": st.sampled_from(["", "k", "key"]),
        "null_value": st.booleans(),
        "properties": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["", "x"]), min_size=1),
        "ordering_key": st.binary(max_size=3),
    },
)


def _metadata(values):
    values = dict(values)
    properties = values.pop("properties", {})
    message = pb.SingleMessageMetadata(**values)
    for key, value in properties.items():
        message.properties.add(key=key, value=value)
    return message


@given(st.lists(st.tuples(fields, st.integers(1, 20)), min_size=1, max_size=8), st.randoms())
def test_single_metadata_in_columns_says_what_the_parser_says(kinds, random):
    messages = [_metadata(values) for values, count in kinds for _ in range(count)]
    random.shuffle(messages)
    data = bytearray(b"\xff\xff")
    starts, ends = [], []
    for message in messages:
        starts.append(len(data))
        data += message.SerializeToString()
        ends.append(len(data))
        data += b"\x80"
    found = single_fields(np.frombuffer(bytes(data), np.uint8), np.array(starts), np.array(ends))
    for index, message in enumerate(messages):
        assert found.event_times_ms[index] == (message.event_time if message.HasField("event_time") else -1)
        assert found.sequence_ids[index] == (message.sequence_id if message.HasField("sequence_id") else -1)
        assert found.has_properties[index] == bool(message.properties)


def test_first_batch_of_a_query_begins_where_its_start_says():
    end = StreamOffset({"a": ReadPosition(5, 0), "b": ReadPosition(5, 0)}, 1, starts={"a": ReadPosition(3, 4)})

    def begins(init):
        return {found.topic: found.start for found in ranges_of(StreamOffset(init=init), end)}

    # A topic that came later is read from its beginning.
    assert begins(1_700_000_000_000) == {"a": ReadPosition(3, 4), "b": BEGINNING}
    assert begins("earliest") == {"a": ReadPosition(3, 4), "b": BEGINNING}
    assert begins("latest") == {}


def test_weight_of_a_range_counts_an_entry_of_which_only_a_part_is_read():
    weights = [TopicRange("t", ReadPosition(1, 2), ReadPosition(1, 12, index)).weight for index in (0, 1)]
    assert weights == [10, 11]


@pytest.mark.parametrize(
    "start", [StreamOffset(init="earliest"), StreamOffset(init=7), StreamOffset({"t": ReadPosition(1, 2)})]
)
def test_batch_that_ends_where_it_begins_is_empty_whatever_its_offset_lacks(start):
    assert plan(start, start) == []


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(0, 9), st.integers(0, 70))
def test_position_some_entries_before_another_goes_over_ledgers_and_ends_at_the_first(lengths, last, entries):
    ledgers = [(10 * number, length) for number, length in enumerate(lengths)]
    end = ReadPosition(10 * len(lengths), last)
    places = [
        ReadPosition(ledger_id, entry) for ledger_id, length in [*ledgers, (end[0], last)] for entry in range(length)
    ]
    found = entries_before(end, ledgers, entries)
    expected = min(entries, len(places))
    assert [place for place in places if found <= place] == places[len(places) - expected :]
