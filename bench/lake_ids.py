"""What the lake's bench says of message ids: a sink of Spark that looks at each, and the check of what it found.

The first 8 bytes of a value are its number, counted from 0 by the one producer: ids and numbers ascend together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

Longs = npt.NDArray[np.int64]

NUMBER_BYTES = 8
#: First id, last id (each ledger, entry, batch index), number of the first row, rows.
Run = tuple[int, ...]


class IdSink(DataSource):
    """``bench_ids``: one run for each ledger of an Arrow batch, to the file of the option ``file``."""

    @classmethod
    def name(cls) -> str:
        """For ``format``."""
        return "bench_ids"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """See :class:`_IdWriter`."""
        return _IdWriter(self.options["file"])


@dataclass
class _Runs(WriterCommitMessage):
    runs: list[Run]


class _IdWriter(DataSourceArrowWriter):
    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In a worker."""
        return _Runs([run for batch in iterator if batch.num_rows for run in runs_of(batch)])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver."""
        runs = [run for message in messages if isinstance(message, _Runs) for run in message.runs]
        Path(self._path).write_text(json.dumps(runs))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left."""


def runs_of(batch: Any) -> list[Run]:
    """Where the ids of a batch begin and end, run by run: rows of one ledger whose numbers follow each other.

    A task of files may begin another file, or another part of one, within a batch. ValueError unless ids ascend with
    their numbers.
    """
    ids = np.stack(ids_of(batch.column("__messageId")), axis=1)
    numbers = numbers_of(batch.column("value"))
    is_next = (np.diff(ids[:, 0]) == 0) & (np.diff(numbers) == 1)
    order = np.lexsort((ids[:, 2], ids[:, 1], ids[:, 0]))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    if not (np.diff(ranks)[is_next] == 1).all() or not (np.diff(ids, axis=0) != 0).any(axis=1).all():
        raise ValueError(f"rows from number {numbers[0]} on: ids or numbers do not follow each other")
    begins = [0, *(np.flatnonzero(~is_next) + 1).tolist()]
    bounds = zip(begins, [*begins[1:], len(ids)], strict=True)
    return [(*ids[at].tolist(), *ids[end - 1].tolist(), int(numbers[at]), end - at) for at, end in bounds]


def numbers_of(column: Any) -> Longs:
    """The number in front of each value."""
    offsets, data = _offsets(column), np.frombuffer(column.buffers()[2], np.uint8)
    starts = offsets[:-1].astype(np.int64)
    found = np.zeros(len(starts), np.int64)
    for byte in range(NUMBER_BYTES):
        found = found << 8 | data[starts + byte]
    return found


def ids_of(column: Any) -> tuple[Longs, Longs, Longs]:
    """Ledger, entry and batch index of serialized message ids; -1 where there is no batch index.

    Protobuf fields 1, 2 and 4 of ``MessageIdData``, all of them varints; the others are passed over.
    """
    offsets, data = _offsets(column), np.frombuffer(column.buffers()[2], np.uint8)
    at, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    fields = {number: np.full(len(at), -1, np.int64) for number in (1, 2, 4)}
    while (left := at < ends).any():
        tag = np.where(left, data[np.minimum(at, len(data) - 1)], 0)
        if (tag[left] & 7).any():
            raise ValueError("a message id has a field that is no varint")
        at = at + left
        value, shift, is_more = np.zeros(len(at), np.int64), 0, left
        while is_more.any():
            byte = np.where(is_more, data[np.minimum(at, len(data) - 1)], 0).astype(np.int64)
            value |= (byte & 0x7F) << shift
            at, shift, is_more = at + is_more, shift + 7, byte >= 0x80
        for field, found in fields.items():
            np.copyto(found, value, where=left & (tag >> 3 == field))
    return fields[1], fields[2], fields[4]


def _offsets(column: Any) -> npt.NDArray[np.int32]:
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def check_runs(runs: list[Run], count: int) -> dict[int, int]:
    """Rows of each ledger.

    Raises ValueError unless the runs, one behind the other by message id, have every number once: no gap, no overlap.
    """
    behind, last = 0, (-1, -1, -2)
    ledgers: dict[int, int] = {}
    for run in sorted(tuple(run) for run in runs):
        first_id, last_id, first, rows = run[:3], (run[3], run[4], run[5]), run[6], run[7]
        if first_id <= last or first != behind:
            raise ValueError(f"number {behind} is expected behind {last}, {first} of {first_id} came")
        behind, last = first + rows, last_id
        ledgers[first_id[0]] = ledgers.get(first_id[0], 0) + rows
    if behind != count:
        raise ValueError(f"{behind} rows, expected {count}")
    return ledgers
