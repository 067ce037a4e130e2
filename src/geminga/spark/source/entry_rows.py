"""The messages of some entries as columns of numbers: where each lies in the joined bytes, and what it says.

Batches are read all at once (:mod:`.batch_columns`); those that can not be read so, message by message. Which messages
of an entry belong to a range, and which of them compaction removed, is sorted out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geminga.client import EntryBatch, ReadError
from geminga.spark.source.batch_columns import PAD_BYTES, BatchColumns, Bools, Longs, read_batches
from geminga.spark.source.single_metadata import signed, single_fields
from geminga.wire.pulsar.batches.batch_layout import HAS_KEY, IS_COMPACTED_OUT, BatchFormatError


class Piece(NamedTuple):
    """Messages of one entry: those from index ``first`` up to and without ``last`` that compaction left."""

    entry: EntryBatch
    first: int = 0
    #: None: all of them.
    last: int | None = None


def block_of(entry: EntryBatch) -> bytearray | None:
    """The block that the entry's bytes are a view of; None: they are its own."""
    data: object = entry.data
    if isinstance(data, memoryview) and isinstance(data.obj, bytearray):
        return data.obj
    return None


class EntryRows:
    """The messages of some pieces, in order."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        """Raises ReadError if an entry is not the batch it should be."""
        self.pieces = pieces
        batches, singles = _Batches(), _Singles()
        #: Where each entry begins in :attr:`data`.
        self._bases: list[int] = []
        #: The entries' bytes: the block that they lie in, or else end to end.
        self.data: bytes | memoryview = b""
        if not self._in_block(batches):
            self._joined(batches, singles)
        row = len(singles.rows) + sum(batches.counts)
        sizes = np.array([piece.entry.batch_size if piece.entry.is_batch else 1 for piece in pieces], np.int64)
        columns = self._read(batches, singles, sizes)
        #: Of each message the number of its piece, and its index in the batch.
        self.piece_of = np.repeat(np.arange(len(pieces)), sizes)
        self.index = np.arange(row) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept = self._kept(columns)
        if kept is not None:
            columns = columns.take(kept)
            self.piece_of, self.index = self.piece_of[kept], self.index[kept]
            sizes = np.bincount(self.piece_of, minlength=len(pieces))
        self.columns = columns
        #: Messages of each piece.
        self.counts: Longs = sizes
        self.count = len(self.index)

    def _in_block(self, batches: _Batches) -> bool:
        """Whether the entries are batches that lie in one block as they came: then nothing is copied."""
        block = block_of(self.pieces[0].entry)
        if block is None or not all(one.entry.is_batch and block_of(one.entry) is block for one in self.pieces):
            return False
        places: list[int] = [pa.py_buffer(one.entry.data).address for one in self.pieces]
        low = places[0] - pa.py_buffer(block).address
        high = places[-1] - places[0] + low + len(self.pieces[-1].entry.data) + PAD_BYTES
        if high > len(block):
            return False
        self.data = memoryview(block)[low:high]
        for number, ((entry, _, _), place) in enumerate(zip(self.pieces, places, strict=True)):
            base = place - places[0]
            self._bases.append(base)
            batches.add(number, base + entry.payload_start, base + len(entry.data), entry.batch_size)
        return True

    def _joined(self, batches: _Batches, singles: _Singles) -> None:
        parts: list[bytes] = []
        size = row = 0
        for number, (entry, _, _) in enumerate(self.pieces):
            self._bases.append(size)
            if entry.is_batch:
                parts.append(entry.data)
                batches.add(number, size + entry.payload_start, size + len(entry.data), entry.batch_size)
                size += len(entry.data)
                row += entry.batch_size
            else:
                size = singles.add(entry, row, parts, size)
                row += 1
        parts.append(bytes(PAD_BYTES))
        self.data = b"".join(parts)

    def _read(self, batches: _Batches, singles: _Singles, sizes: Longs) -> BatchColumns:
        data = np.frombuffer(self.data, np.uint8)
        if not batches.numbers:
            return singles.columns()
        bounds = (np.array(column, np.int64) for column in (batches.starts, batches.ends, batches.counts))
        columns, is_read = read_batches(data, *bounds)
        if singles.rows:
            whole = BatchColumns.empty(len(singles.rows) + len(columns.flags))
            rows = np.ones(len(whole.flags), np.bool_)
            rows[singles.rows] = False
            whole.put(rows, columns)
            whole.put(singles.rows, singles.columns())
            columns = whole
        if not is_read.all():
            first_rows = np.cumsum(sizes) - sizes
            for number in np.array(batches.numbers)[~is_read].tolist():
                self._read_one_by_one(number, int(first_rows[number]), columns)
        return columns

    def _read_one_by_one(self, number: int, row: int, columns: BatchColumns) -> None:
        entry = self.pieces[number].entry
        try:
            entry.lay_out()
        except BatchFormatError as error:
            where = f"{entry.topic_name}: entry {entry.ledger_id}:{entry.entry_id}"
            raise ReadError(f"{where} can not be read: broken ({error})") from error
        rows = slice(row, row + entry.batch_size)
        base = self._bases[number]
        starts, ends = entry.metadata_bounds
        columns.metadata_starts[rows] = np.array(starts, np.int64) + base
        columns.metadata_ends[rows] = np.array(ends, np.int64) + base
        columns.payload_ends[rows] = np.array(entry.payload_bounds[1], np.int64) + base
        flags = np.frombuffer(entry.flags, np.uint8)
        columns.flags[rows] = flags
        keys = entry.key_bounds
        for target, found in zip((columns.key_starts, columns.key_ends), keys or (starts, starts), strict=True):
            # Without a key: where the metadata begin, as places ascend.
            target[rows] = base + np.where(flags & HAS_KEY, np.array(found, np.int64), np.array(starts, np.int64))
        data = np.frombuffer(self.data, np.uint8)
        fields = single_fields(data, columns.metadata_starts[rows], columns.metadata_ends[rows])
        columns.event_times_ms[rows], columns.sequence_ids[rows], columns.has_properties[rows] = fields

    def _kept(self, columns: BatchColumns) -> Bools | None:
        """Which messages belong to their piece; None: all."""
        kept: Bools | None = None
        is_gone = (columns.flags & IS_COMPACTED_OUT) != 0
        if is_gone.any():
            kept = ~is_gone
        for number, (_, first, last) in enumerate(self.pieces):
            if not first and last is None:
                continue
            rows = self.piece_of == number
            indexes = self.index[rows]
            fits = indexes >= first
            if last is not None:
                fits &= indexes < last
            kept = np.ones(len(self.index), np.bool_) if kept is None else kept
            kept[rows] &= fits
        return kept


class _Batches:
    """Where the batches among some entries lie."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.counts: list[int] = []

    def add(self, number: int, start: int, end: int, count: int) -> None:
        self.numbers.append(number)
        self.starts.append(start)
        self.ends.append(end)
        self.counts.append(count)


class _Singles:
    """The entries that are one message, whose metadata are the entry's."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._places: list[tuple[int, int, int, int]] = []
        self._flags: list[int] = []
        self._own: list[tuple[int, int, bool]] = []

    def add(self, entry: EntryBatch, row: int, parts: list[bytes], size: int) -> int:
        """How many bytes there are with it."""
        flags = entry.flags[0]
        key = entry.key_as_sent(0) if flags & HAS_KEY else b""
        start = size + len(key)
        end = start + len(entry.data)
        parts += (key, entry.data)
        metadata = entry.metadata
        self.rows.append(row)
        self._places.append((start + entry.payload_start, end, size, start))
        self._flags.append(flags)
        time = signed(metadata.event_time) if metadata.HasField("event_time") else -1
        self._own.append((time, signed(metadata.sequence_id), bool(metadata.properties)))
        return end

    def columns(self) -> BatchColumns:
        """Of all of them."""
        starts, ends, key_starts, key_ends = np.array(self._places, np.int64).reshape(-1, 4).T
        times, sequence_ids, has_properties = zip(*self._own, strict=True) if self._own else ((), (), ())
        return BatchColumns(
            starts,
            starts,
            ends,
            key_starts,
            key_ends,
            np.array(self._flags, np.uint8),
            np.array(times, np.int64),
            np.array(sequence_ids, np.int64),
            np.array(has_properties, np.bool_),
        )
