"""What columns of lake files say of keys is what the entries say: the same messages are kept, and come out the same."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.broker.core.compaction.entry_messages import DELETES, IS_GONE, taken_apart
from geminga.broker.core.compaction.lake_messages import kept_of, messages_of, packed, take_rows
from geminga.broker.core.compaction.newest import NewestMessages
from geminga.broker.core.compaction.second_reading import SecondReading
from geminga.lake import parquet
from geminga.lake.core import names
from geminga.lake.core.rebuild import is_same
from geminga.lake.core.rows import ABORTED
from geminga.lake.key_rows import read_entries, read_keys, read_runs
from geminga.lake.parquet import LedgerFacts, LedgerFileReader, LedgerFileWriter
from geminga.model.position import Position
from geminga.wire.pulsar.compacted import decode_compacted
from support.house.examples import FEW
from support.stories.any_entries import entries
from support.worlds.lake_world import MemoryLakeStore

UID = "0123456789abcdef" * 2
T = TypeVar("T")


class Placed(NamedTuple):
    """An entry in its place."""

    position: Position
    data: bytes


def all_of(steps: Generator[None, None, T]) -> T:
    """What they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def newest(*, keeps_null_keys: bool, from_ms: int | None) -> NewestMessages:
    """Of few keys."""

    def no_spill() -> Any:
        pytest.fail("few keys fit into memory")

    return NewestMessages(
        keeps_null_keys=keeps_null_keys, bytes_max=1 << 20, new_spill=no_spill, tombstones_from_ms=from_ms
    )


def file_of(stored: Sequence[bytes], aborted: frozenset[int], group_rows: int) -> LedgerFileReader:
    """A file of ledger 7."""
    store = MemoryLakeStore()
    path = f"t/{names.ledger_file(7, UID)}"
    facts = LedgerFacts("persistent://a/b/c", 7, UID, len(stored), 1, 2, 3, "CRC32C", 3, 2, 2, {})
    with patch.object(parquet, "GROUP_ROWS_MAX", group_rows):
        writer = LedgerFileWriter(store, path, facts, started_ms=1, writer="test")
        writer.add(stored, aborted)
        writer.finish([])
    return LedgerFileReader(store, path)


@settings(max_examples=FEW)
@given(
    st.lists(entries(keys=st.sampled_from(["a", "b", "YQ==", ""])), min_size=1, max_size=12),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([None, None, 0, 1_700_000_000_000]),
)
def test_what_is_kept_of_a_file_is_what_is_kept_of_its_entries(found, group_rows, keeps_null_keys, from_ms) -> None:
    stored = [entry for entry, _ in found]
    aborted = frozenset(number for number, (_, kind) in enumerate(found) if kind == ABORTED)
    by_log, by_lake = (newest(keeps_null_keys=keeps_null_keys, from_ms=from_ms) for _ in range(2))
    all_of(by_log.take([None if number in aborted else entry for number, entry in enumerate(stored)]))
    all_of(by_log.settle())
    reader = file_of(stored, aborted, group_rows)
    numbers = [0]
    for group in range(reader.group_count):
        rows = read_keys(reader, group, with_times=from_ms is not None)
        all_of(take_rows(by_lake, rows, tombstones_from_ms=from_ms))
        numbers.append(by_lake.count)
    all_of(by_lake.settle())
    assert by_lake.count == by_log.count
    assert by_lake.kept.bits(0, by_log.count) == by_log.kept.bits(0, by_log.count)

    placed = [Placed(Position(7, number), entry) for number, entry in enumerate(stored)]
    records = all_of(SecondReading(by_log).kept_of(placed, lambda entry: entry.position.entry_id in aborted))
    wanted = [decode_compacted(record) for record in records]
    got = []
    for group in range(reader.group_count):
        bits = by_lake.kept.bits(numbers[group], numbers[group + 1] - numbers[group])
        kept = {one.entry_id: one for one in kept_of(*read_runs(reader, group), bits)}
        rebuilt = read_entries(reader, group, kept)
        got += [(Position(7, entry_id), packed(entry, kept[entry_id])) for entry_id, entry in rebuilt]
    assert [position for position, _ in got] == [one.position for one in wanted]
    assert all(is_same(one.entry, entry) for one, (_, entry) in zip(wanted, got, strict=True))


@settings(max_examples=FEW)
@given(st.lists(entries(), min_size=1, max_size=8), st.integers(1, 9))
def test_keys_and_what_they_say_are_those_of_the_entries(found, group_rows) -> None:
    stored = [entry for entry, _ in found]
    aborted = frozenset(number for number, (_, kind) in enumerate(found) if kind == ABORTED)
    reader = file_of(stored, aborted, group_rows)

    def flat(messages: Any) -> list[tuple[bytes | None, int, bool]]:
        return [
            (key, flag & (DELETES | IS_GONE), one.is_whole)
            for one in messages
            if one is not None
            for key, flag in zip(one.keys, one.flags, strict=True)
        ]

    by_lake = [
        message
        for group in range(reader.group_count)
        for message in flat(messages_of(read_keys(reader, group, with_times=False)))
    ]
    visible = [None if number in aborted else entry for number, entry in enumerate(stored)]
    assert by_lake == flat(taken_apart(visible))
