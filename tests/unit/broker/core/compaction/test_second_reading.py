"""The second reading keeps what the first one found, without parsing what the first one parsed."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.compaction import entry_counts
from geminga.broker.core.compaction.entry_counts import EntryCounts
from geminga.broker.core.compaction.newest import NewestMessages
from geminga.broker.core.compaction.second_reading import SecondReading
from geminga.managed_ledger.shared.entry import Entry
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch, single_message_head
from geminga.wire.pulsar.compacted import decode_compacted
from geminga.wire.pulsar.metadata import encode_entry, split_entry

Messages = list[tuple[str, bytes]]


def entry_of(messages: Messages, *, is_batch: bool) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if not is_batch:
        ((metadata.partition_key, payload),) = messages
        return encode_entry(metadata, payload)
    metadata.num_messages_in_batch = len(messages)
    return encode_entry(
        metadata,
        b"".join(
            single_message_head(len(value), index, partition_key=key) + value
            for index, (key, value) in enumerate(messages)
        ),
    )


def messages_in(entry: bytes) -> Messages:
    metadata, start = split_entry(entry)
    assert metadata is not None
    if not metadata.HasField("num_messages_in_batch"):
        return [(metadata.partition_key, entry[start:])]
    found = decode_batch(entry[start:], metadata.num_messages_in_batch)
    return [(one.partition_key, value) for one, value in found if not one.compacted_out]


_MESSAGES = st.lists(st.tuples(st.sampled_from("abcde"), st.binary(max_size=3)), min_size=1, max_size=4)
_ENTRIES = st.lists(st.tuples(_MESSAGES, st.booleans(), st.booleans()), max_size=12)


@given(_ENTRIES, st.lists(st.integers(0, 12), max_size=4), st.sampled_from([0, 1, 3, 1000]))
def test_what_is_kept_is_the_newest_of_each_key(
    given_: list[tuple[Messages, bool, bool]], cuts: list[int], runs: int
) -> None:
    log = [(messages if is_batch else messages[:1], is_batch, is_hidden) for messages, is_batch, is_hidden in given_]
    model: dict[str, bytes] = {}
    for messages, _, is_hidden in log:
        for key, value in [] if is_hidden else messages:
            model.pop(key, None)
            if value:
                model[key] = value
    entries = [entry_of(messages, is_batch=is_batch) for messages, is_batch, _ in log]
    hidden = [is_hidden for *_, is_hidden in log]
    newest = NewestMessages(keeps_null_keys=False, bytes_max=1 << 20, new_spill=lambda: pytest.fail("it is small"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry_counts, "RUNS_MAX", runs)
        for _ in newest.take([None if gone else entry for gone, entry in zip(hidden, entries, strict=True)]):
            pass
    for _ in newest.settle():
        pass
    reading = SecondReading(newest)
    stored = [Entry(1, number, entry) for number, entry in enumerate(entries)]
    kept: list[bytes] = []
    for start, end in pairwise(sorted({0, len(entries), *(min(cut, len(entries)) for cut in cuts)})):
        steps = reading.kept_of(stored[start:end], lambda entry: hidden[entry.position.entry_id])
        while True:
            try:
                next(steps)
            except StopIteration as over:
                kept += over.value
                break
    found_ = [decode_compacted(one) for one in kept]
    assert [message for one in found_ for message in messages_in(one.entry)] == list(model.items())
    assert [one.position for one in found_] == sorted({one.position for one in found_})


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=20), st.sampled_from([0, 2, 100]))
def test_counts_are_read_as_they_were_added_up_to_a_limit(added: list[tuple[int, int]], runs: int) -> None:
    counts = EntryCounts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry_counts, "RUNS_MAX", runs)
        for count, entries in added:
            counts.add(count, entries)
    wanted = [count for count, entries in added for _ in range(entries)]
    reader = counts.read()
    found: list[int | None] = []
    for step in [1, 2, *([7] * 10)]:
        taken = [(count, alike) for count, alike in reader.take(step)]
        assert sum(alike for _, alike in taken) == step
        found += [count for count, alike in taken for _ in range(alike)]
    known = [count for count in found if count is not None]
    assert known == wanted[: len(known)]
    assert found[len(known) :] == [None] * (len(found) - len(known))
    assert sum(1 for _ in groupby(known)) <= runs
    if runs == 100:
        assert len(known) == len(wanted)
