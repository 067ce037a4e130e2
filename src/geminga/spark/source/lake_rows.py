"""Messages of a row group of a lake file as the columns of the source: nothing is done per message in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geminga.model import TopicName
from geminga.spark.source.arrow import Longs, binary_array, id_suffixes
from geminga.wire.pulsar.varint import encode_varint

#: Messages of an entry, on average, from which on ids are made entry by entry.
LONG_BATCH: Final = 8
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
#: Bytes of a varint of 64 bits.
_VARINT_BYTES_MAX: Final = 10
_SEVEN: Final = np.uint64(7)
_LOW: Final = np.uint64(0x7F)
_MORE: Final = np.uint8(0x80)


class LakeRows:
    """See the module; ``RowColumns``."""

    def __init__(self, table: pa.Table, topic: str, ledger_id: int) -> None:
        """``table``: messages alone, with the columns that are asked for."""
        self._columns: dict[str, Any] = {
            name: _one(table.column(name)) for name in table.column_names if name != "kind"
        }
        self._topic = topic
        self._ledger_id = ledger_id
        self.count: int = table.num_rows
        self.size_bytes: int = table.nbytes

    def parts(self, count: int) -> Iterator[LakeRows]:
        """The same in about ``count`` pieces, without empty ones."""
        step = max(1, -(-self.count // count))
        for first in range(0, self.count, step):
            names = list(self._columns)
            arrays = [self._columns[name].slice(first, step) for name in names]
            yield LakeRows(pa.Table.from_arrays(arrays, names=names), self._topic, self._ledger_id)

    def version_runs(self) -> list[tuple[bytes, int]]:
        """See ``RowColumns``."""
        runs = pc.run_end_encode(pc.fill_null(self._columns["schema_version"], b""))
        ends = runs.run_ends.to_numpy()
        counts = np.diff(ends, prepend=0).tolist()
        return list(zip(runs.values.to_pylist(), counts, strict=True))

    def place_of(self, row: int) -> str:
        """See ``RowColumns``."""
        entry, index = (self._columns[name][row].as_py() for name in ("entry", "batch_index"))
        return f"{self._ledger_id}:{entry}:{max(index, 0)}"

    def value(self) -> pa.Array:
        """See ``RowColumns``."""
        return self._columns["value"]

    def key(self) -> pa.Array:
        """See ``RowColumns``."""
        return self._columns["key"]

    def publish_time(self) -> pa.Array:
        """See ``RowColumns``."""
        return self._columns["publish_time"].cast(_TIMESTAMP)

    def event_time(self) -> pa.Array:
        """See ``RowColumns``."""
        return self._columns["event_time"].cast(_TIMESTAMP)

    def producer_name(self) -> pa.Array:
        """See ``RowColumns``."""
        return self._columns["producer_name"]

    def sequence_id(self) -> pa.Array:
        """See ``RowColumns``."""
        return pc.fill_null(self._columns["sequence_id"], -1)

    def schema_version(self) -> pa.Array:
        """See ``RowColumns``; an empty version is none."""
        versions = self._columns["schema_version"]
        return pc.if_else(pc.equal(versions, b""), pa.scalar(None, pa.binary()), versions)

    def partition(self) -> pa.Array:
        """See ``RowColumns``."""
        return pa.repeat(pa.scalar(self._partition, pa.int32()), self.count)

    def redelivery_count(self) -> pa.Array:
        """See ``RowColumns``."""
        return pa.repeat(pa.scalar(0, pa.int32()), self.count)

    def properties(self, kind: pa.DataType) -> pa.Array:
        """See ``RowColumns``."""
        found = self._columns["properties"]
        return pa.MapArray.from_arrays(found.offsets, found.keys, found.items, type=kind)

    @property
    def _partition(self) -> int:
        return TopicName.parse(self._topic).partition

    def message_id(self) -> pa.Array:
        """See ``RowColumns``."""
        found = self._ids_of_long_batches()
        return self._ids_in_columns() if found is None else found

    def _ids_of_long_batches(self) -> pa.Array | None:
        """A prefix for each entry, ends that are remembered by batch size; None: that is not worth it, or wrong."""
        entry, index, size = (self._columns[name].to_numpy() for name in ("entry", "batch_index", "batch_size"))
        begins = np.flatnonzero(np.diff(entry, prepend=-1))
        if not self.count or len(begins) * LONG_BATCH > self.count or (index < 0).any():
            return None
        ends = np.append(begins[1:], self.count)
        if (index[ends - 1] - index[begins] != ends - begins - 1).any() or (index[ends - 1] >= size[begins]).any():
            return None  # some are missing: compacted out; or the numbers are none of a batch
        head = b"\x08" + encode_varint(self._ledger_id) + b"\x10"
        tail = b"" if self._partition < 0 else b"\x18" + encode_varint(self._partition)
        blobs: list[bytes] = []
        lengths: list[Longs] = []
        rows = zip(entry[begins].tolist(), index[begins].tolist(), size[begins].tolist(), strict=True)
        for (entry_id, first, batch_size), count in zip(rows, (ends - begins).tolist(), strict=True):
            suffixes, sizes = id_suffixes(batch_size)
            prefix = head + encode_varint(entry_id) + tail
            blobs.append(prefix.join((b"", *suffixes[first + 1 : first + 1 + count])))
            lengths.append(sizes[first : first + count] + len(prefix))
        return binary_array(b"".join(blobs), lengths)

    def _ids_in_columns(self) -> pa.Array:
        """Whatever the batches are."""
        entry, index, size = (
            self._columns[name].to_numpy().astype(np.uint64) for name in ("entry", "batch_index", "batch_size")
        )
        is_batch = self._columns["batch_index"].to_numpy() >= 0
        partition = b"" if self._partition < 0 else b"\x18" + encode_varint(self._partition)
        always = np.ones(self.count, np.bool_)
        cells: list[tuple[NDArray[np.uint8], NDArray[np.bool_]]] = [
            *_same(b"\x08" + encode_varint(self._ledger_id) + b"\x10", always),
            *_varint_cells(entry, always),
            *_same(partition, always),
            *_same(b"\x20", is_batch),
            *_varint_cells(index, is_batch),
            *_same(b"\x30", is_batch),
            *_varint_cells(size, is_batch),
        ]
        data = np.stack([cell for cell, _ in cells], axis=1)
        is_there = np.stack([there for _, there in cells], axis=1)
        offsets = np.zeros(self.count + 1, np.int32)
        np.cumsum(is_there.sum(axis=1), out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[is_there])]
        return pa.Array.from_buffers(pa.binary(), self.count, buffers)


def _one(column: pa.ChunkedArray) -> pa.Array:
    """As one array, without a copy where it is one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _same(data: bytes, there: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.bool_]]]:
    for byte in data:
        yield np.full(len(there), byte, np.uint8), there


def _varint_cells(
    numbers: NDArray[np.uint64], there: NDArray[np.bool_]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.bool_]]]:
    """Byte after byte of the numbers' varints, and where there is such a byte."""
    rest = np.where(there, numbers, np.uint64(0))
    for _ in range(_VARINT_BYTES_MAX):
        byte = (rest & _LOW).astype(np.uint8)
        rest = rest >> _SEVEN
        is_more = rest > 0
        yield np.where(is_more, byte | _MORE, byte), there
        there = there & is_more
        if not there.any():
            return
