"""Arrow batches become columns of messages: buffers are read in bulk, each row's bytes are sliced once."""

from __future__ import annotations

from array import array
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from geminga.spark.decoding.exact import shown
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink.records import RecordEncoder
from geminga.spark.sink_rules.entries import encode_properties
from geminga.spark.sink_rules.message_columns import MessageColumns
from geminga.spark.sink_rules.row_order import sortable_double
from geminga.spark.sink_rules.sink_columns import SinkColumns, ValueKind
from geminga.spark.sink_rules.sink_options import full_topic


@dataclass(slots=True)
class SinkRows:
    """What one Arrow batch holds, or several of them."""

    messages: MessageColumns
    #: Full names; None: the option says where all go.
    topics: list[str] | None
    #: As given; None or below 0: the key decides.
    partitions: list[int | None] | None
    #: Columns that say the order, of values that compare.
    ordered_by: list[list[Any]]

    def take(self, indices: Sequence[int]) -> SinkRows:
        """The rows at ``indices``, in that order, without their topics; ``indices`` is not empty."""
        return SinkRows(
            self.messages.take(indices),
            None,
            None if self.partitions is None else [self.partitions[index] for index in indices],
            [[column[index] for index in indices] for column in self.ordered_by],
        )

    def extend(self, other: SinkRows) -> None:
        """Append the rows of ``other``, which has the same columns."""
        self.messages.extend(other.messages)
        if self.partitions is not None and other.partitions is not None:
            self.partitions += other.partitions
        for column, more in zip(self.ordered_by, other.ordered_by, strict=True):
            column += more


class RowReader:
    """Reads the batches of one task."""

    __slots__ = ("_columns", "_ordered_by", "_records", "_topics")

    def __init__(self, columns: SinkColumns, records: RecordEncoder | None, ordered_by: Sequence[str] = ()) -> None:
        """``records`` encodes what is not bytes already; ``ordered_by`` are columns that say the order of rows."""
        self._columns = columns
        self._ordered_by = ordered_by
        self._records = records
        #: As given -> full name; as many as the task's rows name.
        self._topics: dict[str, str] = {}

    def read(self, batch: pa.RecordBatch) -> SinkRows:
        """The rows of a batch; raises OptionError for a value that no message can have."""
        columns = self._columns
        keys = self._bytes_of(batch, columns.key)
        base64_keys = _base64_keys(keys) if keys and columns.is_key_binary else None
        if keys and not columns.is_key_binary:
            _check_text(columns.key, keys)
        messages = MessageColumns(
            payloads=self._payloads(batch),
            keys=keys,
            base64_keys=base64_keys,
            event_times_ms=_times(batch, columns.event_time, columns.is_event_time_micros),
            properties=self._properties(batch),
            ordering_keys=self._bytes_of(batch, columns.ordering_key),
            deliver_at_ms=_times(batch, columns.deliver_at, columns.is_deliver_at_micros),
            nullable=self._nullable(batch),
        )
        topics = self._topics_of(batch) if columns.topic else None
        partitions = _integers(batch.column(columns.partition)) if columns.partition else None
        return SinkRows(messages, topics, partitions, [order_values(batch.column(name)) for name in self._ordered_by])

    def _nullable(self, batch: pa.RecordBatch) -> frozenset[str]:
        """Names of the columns of messages that may hold null."""
        columns = self._columns
        names = {
            "keys": columns.key,
            "event_times_ms": columns.event_time,
            "ordering_keys": columns.ordering_key,
            "deliver_at_ms": columns.deliver_at,
        }
        if columns.value_kind is not ValueKind.COLUMNS:
            names["payloads"] = columns.values[0]
        return frozenset(name for name, column in names.items() if column and batch.column(column).null_count)

    def _payloads(self, batch: pa.RecordBatch) -> list[bytes | None]:
        columns = self._columns
        if columns.value_kind is ValueKind.BYTES:
            return slices(batch.column(columns.values[0]))
        assert self._records is not None
        try:
            if columns.value_kind is ValueKind.STRUCT:
                rows = batch.column(columns.values[0]).to_pylist(maps_as_pydicts="strict")
            else:
                rows = batch.select(list(columns.values)).to_pylist(maps_as_pydicts="strict")
        except (OverflowError, KeyError, ValueError):
            for name in columns.values:
                _check_values(name, batch.column(name))
            raise
        return self._records.encode(rows)

    @staticmethod
    def _bytes_of(batch: pa.RecordBatch, name: str) -> list[bytes | None] | None:
        return slices(batch.column(name)) if name else None

    def _topics_of(self, batch: pa.RecordBatch) -> list[str]:
        column = batch.column(self._columns.topic)
        if column.null_count:
            raise OptionError(f"{self._columns.topic} is null in a row, and the option topic is not given")
        encoded = column.dictionary_encode()
        _check_text(self._columns.topic, slices(encoded.dictionary))
        names = [self._full_topic(name) for name in encoded.dictionary.to_pylist()]
        return [names[index] for index in _numbers(encoded.indices.cast(pa.int64()))]

    def _full_topic(self, name: str) -> str:
        known = self._topics.get(name)
        if known is None:
            known = self._topics[name] = full_topic(name, f"{self._columns.topic} is {name!r}")
        return known

    def _properties(self, batch: pa.RecordBatch) -> list[bytes] | None:
        name = self._columns.properties
        if not name:
            return None
        column = batch.column(name)
        offsets = _numbers(column.offsets.cast(pa.int64()))
        first, last = (offsets[0], offsets[-1]) if len(column) else (0, 0)
        names = slices(column.keys.slice(first, last - first))
        values = slices(column.items.slice(first, last - first))
        if None in values:
            raise OptionError(f"{name} holds a null value in a row: properties are text by text")
        _check_text(name, names)
        _check_text(name, values)
        known: dict[tuple[bytes | None, ...], bytes] = {}  # of this batch: most rows are alike
        encoded = []
        for pairs in _rows_of_pairs(offsets, names, values):
            found = known.get(pairs)
            if found is None:
                half = len(pairs) // 2
                texts = cast("tuple[bytes, ...]", pairs)  # Arrow's maps have no null keys, and null values were refused
                if len(set(texts[:half])) < half:
                    raise OptionError(f"{name} holds a key twice in a row: {_shown_names(texts[:half])}")
                found = known[pairs] = encode_properties(list(zip(texts[:half], texts[half:], strict=True)))
            encoded.append(found)
        return encoded


def _shown_names(names: Sequence[bytes]) -> str:
    return ", ".join(sorted(name.decode() for name in names))


def _check_text(name: str, values: list[bytes | None]) -> None:
    """Raises OptionError where text, which Spark's casts make of any bytes, is none."""
    if _is_text(b"\0".join([value or b"" for value in values])):  # usually: all of them at once
        return
    wrong = next(value for value in values if value is not None and not _is_text(value))
    raise OptionError(f"column {name} holds text that is no UTF-8 in a row: {shown(wrong)}; use base64 or a binary")


def _check_values(name: str, column: pa.Array) -> None:
    """Raises OptionError for a value that Python has not: then no record can have it."""
    for value in column:
        try:
            value.as_py(maps_as_pydicts="strict")
        except OverflowError:
            raise OptionError(
                f"column {name} holds a date or time in a row that is not in the years 1 to 9999"
            ) from None
        except UnicodeDecodeError as error:
            raise OptionError(f"column {name} holds text that is no UTF-8 in a row: {error}") from None
        except (KeyError, ValueError) as error:
            raise OptionError(f"column {name} holds a value that no record has in a row: {error}") from None


def _base64_keys(keys: list[bytes | None]) -> list[bool] | None:
    """Which keys travel as base64: those that are no text. They are encoded in place; None: there is none.

    A key that is text has the same bytes for every client either way, and so it stays what it was: hashed to the same
    partition, compared as text by those who sent it as text.
    """
    if _is_text(b"\0".join([key or b"" for key in keys])):  # usually: all of them at once
        return None
    flags = [key is not None and not _is_text(key) for key in keys]
    for row, is_base64 in enumerate(flags):
        if is_base64:
            keys[row] = b64encode(keys[row] or b"")
    return flags


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _rows_of_pairs(
    offsets: Sequence[int], names: list[bytes | None], values: list[bytes | None]
) -> Iterable[tuple[bytes | None, ...]]:
    """The names and then the values of each row of a map; ``offsets`` begin anywhere."""
    rows = len(offsets) - 1
    if rows < 1:
        return []
    first, each = offsets[0], offsets[1] - offsets[0]
    if each and offsets == array("q", range(first, first + each * rows + 1, each)):
        # As many in each row, as in most tables: rows by columns.
        return zip(*(part[index::each] for part in (names, values) for index in range(each)), strict=True)
    return [
        (*names[start - first : end - first], *values[start - first : end - first]) for start, end in pairwise(offsets)
    ]


def slices(column: pa.Array) -> list[bytes | None]:
    """The values of a column of bytes or text (in UTF-8)."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        code = "i"
    elif pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        code = "q"
    else:
        column = column.cast(pa.large_binary())
        code = "q"
    count = len(column)
    if not count:
        return []
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = array(code)
    width = offsets.itemsize
    offsets.frombytes(memoryview(offsets_buffer)[column.offset * width : (column.offset + count + 1) * width])
    start, end = offsets[0], offsets[-1]
    data = b"" if data_buffer is None else bytes(memoryview(data_buffer)[start:end])
    values: list[bytes | None] = [data[a - start : b - start] for a, b in pairwise(offsets)]
    if column.null_count:
        for row in _numbers(pc.indices_nonzero(column.is_null()).cast(pa.int64())):
            values[row] = None
    return values


def order_values(column: pa.Array) -> list[Any]:
    """Values that compare as Spark compares those of the column, and None."""
    kind = column.type
    if pa.types.is_floating(kind):
        return [sortable_double(value) for value in column.to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return slices(column)
    if pa.types.is_date32(kind):
        return _integers(column.cast(pa.int32()))  # Python has no dates beyond the years 1 to 9999
    if pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind)):
        return _integers(column)
    values: list[Any] = column.to_pylist()
    return values


def _integers(column: pa.Array) -> list[int | None]:
    """The values of a column of whole numbers or timestamps (microseconds)."""
    column = column.cast(pa.int64())
    if column.null_count:
        values: list[int | None] = column.to_pylist()
        return values
    return list(_numbers(column))


def _numbers(column: pa.Array) -> Sequence[int]:
    values = array("q")
    if len(column):
        values.frombytes(memoryview(column.buffers()[1])[column.offset * 8 : (column.offset + len(column)) * 8])
    return values


def _times(batch: pa.RecordBatch, name: str, is_micros: bool) -> list[int | None] | None:
    """Milliseconds; of timestamps, which count microseconds, rounded down. Raises OptionError before 1970."""
    if not name:
        return None
    column = batch.column(name)
    if is_micros and not pa.types.is_int64(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz))
    values = _integers(column)
    if is_micros:
        values = [value if value is None else value // 1000 for value in values]
    known = [value for value in values if value is not None] if column.null_count else cast("list[int]", values)
    if known and min(known) < 0:
        raise OptionError(f"{name} is before 1970 in a row: a message can not carry that")
    return values
