"""Ids of a row group's messages, made entry by entry and in columns, are those of every client."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pytest

from geminga.client import MessageId
from geminga.spark.source.lake_rows import LONG_BATCH, LakeRows

TOPIC = "persistent://a/b/c"


def rows_of(ids: list[tuple[int, int, int]], topic: str = TOPIC, ledger_id: int = 300) -> LakeRows:
    entry, index, size = zip(*ids, strict=True)
    columns = [pa.array(entry, pa.int64()), pa.array(index, pa.int32()), pa.array(size, pa.int32())]
    return LakeRows(pa.Table.from_arrays(columns, names=["entry", "batch_index", "batch_size"]), topic, ledger_id)


def batch(entry_id: int, size: int) -> list[tuple[int, int, int]]:
    return [(entry_id, index, size) for index in range(size)]


LONG = [one for entry_id, size in enumerate((1, 200, 3, 130, 9)) for one in batch(127 + entry_id, size)]
#: Rows, and whether they are made entry by entry.
CASES = {
    "long batches": (LONG, True),
    "begins and ends within a batch": (LONG[5:-4], True),
    "compacted out": ([one for one in LONG if one[1] != 50], False),
    "one by one": ([(entry_id, -1, 0) for entry_id in range(300)], False),
    "both": ([*LONG, (500, -1, 0)], False),
    "short batches": ([one for entry_id in range(99) for one in batch(entry_id, LONG_BATCH - 1)], False),
    "beyond its batch": ([(1, index, 9) for index in range(10)], False),
}


@pytest.mark.parametrize("topic", [TOPIC, f"{TOPIC}-partition-300"])
@pytest.mark.parametrize("case", CASES)
def test_ids_are_those_of_every_client(case, topic):
    ids, is_by_entry = CASES[case]
    rows = rows_of(ids, topic)
    assert (rows._ids_of_long_batches() is not None) == is_by_entry
    found = rows.message_id()
    found.validate(full=True)
    for part in rows.parts(4):
        part.message_id().validate(full=True)
    assert [one for part in rows.parts(4) for one in part.message_id().to_pylist()] == found.to_pylist()
    partition = 300 if topic != TOPIC else -1
    for (entry_id, index, size), data in zip(ids, found.to_pylist(), strict=True):
        one = MessageId.deserialize(data)
        assert (one.ledger_id(), one.entry_id(), one.batch_index(), one.partition()) == (
            300,
            entry_id,
            index,
            partition,
        )
        assert one.serialize() == data or index >= size > 0
    assert len(list(groupby(ids))) == len(ids)
