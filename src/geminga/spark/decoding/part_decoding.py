"""From payloads to columns, by one version of a schema: primitives, records (AVRO, JSON, protobuf), pairs.

A part is a payload, or the key or the value of a pair. Null stays null. A payload that does not fit its schema raises
:class:`RowError` with its row, so that the caller can say where it is.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from pyspark.sql.types import DataType, StructField, StructType

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.spark.decoding.avro_types import is_record, spark_type
from geminga.spark.decoding.avro_values import as_it_is, avro_converter, json_converter, load_json
from geminga.spark.decoding.exact import arrow_array, exact_array, shown
from geminga.spark.decoding.json_columns import JsonColumns
from geminga.spark.decoding.protobuf_types import descriptor_of, message_reader, message_type
from geminga.spark.rules.columns import arrow_schema
from geminga.spark.source_rules.errors import SchemaError
from geminga.wire.avro_exact import DefaultError, parsed_exactly

#: Fixed-width primitives: numpy's name of the bytes as they travel.
_WIDTHS: Final = {
    SchemaType.BOOLEAN: ">u1",
    SchemaType.INT8: ">i1",
    SchemaType.INT16: ">i2",
    SchemaType.INT32: ">i4",
    SchemaType.INT64: ">i8",
    SchemaType.FLOAT: ">f4",
    SchemaType.DOUBLE: ">f8",
    SchemaType.DATE: ">i8",
    SchemaType.TIME: ">i8",
    SchemaType.TIMESTAMP: ">i8",
    SchemaType.LOCAL_DATE: ">i8",
    SchemaType.LOCAL_TIME: ">i8",
    SchemaType.INSTANT: ">i8,>i4",
    SchemaType.LOCAL_DATE_TIME: ">i8,>i8",
}
_BYTES: Final = (SchemaType.BYTES, SchemaType.NONE)
_PROTOBUF: Final = (SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE)
_DAY_MS: Final = 86_400_000
_DAY_US: Final = 86_400_000_000
_DAY_NS: Final = _DAY_US * 1000
_INT32_MAX: Final = (1 << 31) - 1
_MICROS_MAX: Final = (1 << 63) - 1
#: The largest number of each kind of which a column can hold the time; of the first field where there are two, whose
#: second one may add some more.
_TIMES_MAX: Final = {
    SchemaType.DATE: _INT32_MAX * _DAY_MS,
    SchemaType.LOCAL_DATE: _INT32_MAX,
    SchemaType.TIMESTAMP: _MICROS_MAX // 1000,
    SchemaType.INSTANT: _MICROS_MAX // 1_000_000 - 4,
    SchemaType.LOCAL_DATE_TIME: _MICROS_MAX // _DAY_US - 1,
    SchemaType.LOCAL_TIME: _DAY_NS - 1,
}
_UTC_US: Final = pa.timestamp("us", tz="UTC")

#: What decoders and converters raise for a payload that does not fit.
_MISFITS: Final = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    EOFError,
    AttributeError,
    OverflowError,
    RecursionError,
    DecodeError,
)


class RowError(SchemaError):
    """Payloads do not fit their schema."""

    def __init__(self, misfits: Mapping[int, str]) -> None:
        """``misfits``: which of those that were given, and what is wrong with each; at least one."""
        #: The first of them.
        self.row = min(misfits)
        super().__init__(misfits[self.row])
        self.misfits = misfits


class PartDecoder(Protocol):
    """Decodes parts written with one version of a schema."""

    #: Whether its fields are columns of their own.
    is_record: bool

    def fields(self, values: pa.Array, wanted: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
        """Columns of a record by name, null for what it does not have; raises SchemaError."""
        ...

    def whole(self, values: pa.Array, wanted: pa.DataType) -> pa.Array:
        """One column, a struct of a record; raises SchemaError."""
        ...


def part_of(writer: SchemaInfo, reader: SchemaInfo, *, are_bytes_text: bool = False) -> PartDecoder:
    """For what was written with ``writer``, to be read as ``reader``; raises SchemaError.

    ``are_bytes_text``: those of JSON, which are base64 else.
    """
    if writer.type in _BYTES or writer.type is SchemaType.STRING or writer.type in _WIDTHS:
        return _Primitive(writer.type)
    if writer.type is SchemaType.JSON:
        definition = json.loads(writer.schema)
        convert = json_converter(definition, are_bytes_text=are_bytes_text)
        return _Decoded(lambda payload: convert(load_json(payload)), is_record(definition), JsonColumns(definition))
    if writer.type is SchemaType.AVRO:
        return _avro(writer, reader if reader.type is SchemaType.AVRO else writer)
    if writer.type in _PROTOBUF:
        return _Decoded(message_reader(writer), True, kind=message_type(descriptor_of(writer)))
    raise SchemaError(f"{writer.type.name} schemas have no columns in Spark; use schemaMode=raw")


def _avro(writer: SchemaInfo, reader: SchemaInfo) -> PartDecoder:
    import fastavro  # of the extra avro

    written = json.loads(writer.schema)
    wanted = json.loads(reader.schema) if reader.schema != writer.schema else None
    convert = avro_converter(written if wanted is None else wanted)
    try:
        parsed = parsed_exactly(fastavro, written, "" if wanted is None else reader.schema.decode(errors="replace"))
        resolved = None if wanted is None else parsed_exactly(fastavro, wanted)
    except DefaultError as error:
        raise SchemaError(str(error)) from None
    # Only what tells the records of a union apart needs their names.
    names: dict[str, Any] = (
        {} if convert is as_it_is else {"return_record_name": True, "return_record_name_override": True}
    )

    def decode(payload: bytes) -> object:
        buffer = io.BytesIO(payload)
        value: object = fastavro.schemaless_reader(buffer, parsed, resolved, **names)
        left = len(payload) - buffer.tell()
        if left:  # written with another schema, most likely
            raise ValueError(f"{left} bytes of {len(payload)} are left behind the value")
        return value if convert is as_it_is else convert(value)

    read_as = written if wanted is None else wanted
    return _Decoded(decode, is_record(read_as), kind=spark_type(read_as))


class _Decoded:
    """Payloads decoded one by one, or all at once where Arrow can."""

    def __init__(
        self,
        decode: Callable[[bytes], Any],
        is_record: bool,
        columns: JsonColumns | None = None,
        kind: DataType | None = None,
    ) -> None:
        """``kind``: what Spark makes of the decoded values, where the decoder sees to it that they are of it."""
        self._decode = decode
        self.is_record = is_record
        self._columns = columns
        whole = None if kind is None else arrow_schema(StructType([StructField("value", kind)])).field(0).type
        #: The types of columns that hold whatever is decoded for them; of the whole under the empty name.
        self._natural = {"": whole}
        if is_record and whole is not None:
            self._natural |= {field.name: field.type for field in whole.fields}

    def fields(self, values: pa.Array, wanted: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
        """See :class:`PartDecoder`."""
        if self._columns is not None and (found := self._read_together(self._columns, values, wanted)) is not None:
            return found
        decoded = self._decoded(values)
        columns: dict[str, pa.Array] = {}
        misfits: dict[int, str] = {}
        for name, kind in wanted.items():
            column = [None if one is None else one.get(name) for one in decoded]
            columns[name], those = self._array(column, kind, name)
            misfits = {**{row: f"{name}: {text}" for row, text in those.items()}, **misfits}
        _check(misfits)
        return columns

    def _array(self, values: list[Any], kind: pa.DataType, name: str) -> tuple[pa.Array, dict[int, str]]:
        if kind != self._natural.get(name):
            return exact_array(values, kind)
        misfits: dict[int, str] = {}
        return arrow_array(values, kind, misfits), misfits

    @staticmethod
    def _read_together(
        columns: JsonColumns, values: pa.Array, wanted: Mapping[str, pa.DataType]
    ) -> dict[str, pa.Array] | None:
        if not values.null_count:
            return columns.read(values, wanted)
        found = columns.read(values.drop_null(), wanted)
        if found is None:
            return None
        is_null = np.asarray(values.is_null())
        rows = pa.array(np.cumsum(~is_null) - 1, mask=is_null)
        return {name: column.take(rows) for name, column in found.items()}

    def whole(self, values: pa.Array, wanted: pa.DataType) -> pa.Array:
        """See :class:`PartDecoder`."""
        if not self.is_record or not pa.types.is_struct(wanted):
            found, misfits = self._array(self._decoded(values), wanted, "")
            _check(misfits)
            return found
        fields = list(wanted.fields)
        columns = self.fields(values, {field.name: field.type for field in fields})
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays([columns[field.name] for field in fields], fields=fields, mask=mask)

    def _decoded(self, values: pa.Array) -> list[Any]:
        found: list[Any] = []
        misfits: dict[int, str] = {}
        decode = self._decode
        for payload in values.to_pylist():
            try:
                found.append(None if payload is None else decode(payload))
            except _MISFITS as error:
                misfits[len(found)] = str(error) or type(error).__name__
                found.append(None)
        _check(misfits)
        return found


def _check(misfits: Mapping[int, str]) -> None:
    """Raise RowError if there are any."""
    if misfits:
        raise RowError({row: f"does not fit its schema: {text}" for row, text in misfits.items()})


class _Primitive:
    is_record = False

    def __init__(self, kind: SchemaType) -> None:
        self._kind = kind

    def fields(self, values: pa.Array, wanted: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
        """There are none."""
        raise SchemaError(f"{self._kind.name} values have one column, value, not {list(wanted)}")

    def whole(self, values: pa.Array, wanted: pa.DataType) -> pa.Array:
        """See :class:`PartDecoder`."""
        if self._kind in _WIDTHS:
            values = _fixed_width(values, self._kind)
        elif self._kind is SchemaType.STRING:
            values = _cast(values, pa.string(), "STRING")
        return _cast(values, wanted, self._kind.name)


def _cast(values: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """What comes back as it was if it is cast back; raises RowError for others."""
    if values.type == wanted:
        return values
    try:
        made = values.cast(wanted)
        back = made.cast(values.type)
    except pa.ArrowException:
        return _cast_each(values, wanted, name)
    is_same = pa.compute.equal(values, back)
    if pa.types.is_floating(values.type):
        is_same = pa.compute.or_kleene(is_same, pa.compute.is_nan(values))
    if pa.compute.all(pa.compute.fill_null(is_same, True)).as_py():
        return made
    return _cast_each(values, wanted, name)


def _cast_each(values: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    misfits: dict[int, str] = {}
    found: list[pa.Array] = []
    for row in range(len(values)):
        one = values.slice(row, 1)
        try:
            made = one.cast(wanted)
            if one.null_count or made.cast(values.type).equals(one) or _is_nan(one):
                found.append(made)
                continue
        except pa.ArrowException:
            pass
        misfits[row] = f"the {name} {shown(one[0].as_py())} is not exactly a {wanted}"
    _check(misfits)
    return pa.concat_arrays(found)


def _is_nan(one: pa.Array) -> bool:
    return pa.types.is_floating(one.type) and math.isnan(one[0].as_py())


def _fixed_width(values: pa.Array, kind: SchemaType) -> pa.Array:
    """Numbers of binary values; raises RowError for another width, and for a time that has no column."""
    layout = np.dtype(_WIDTHS[kind])
    is_null = np.asarray(values.is_null())
    kept = values.drop_null()
    numbers = np.zeros(len(values), layout.newbyteorder("="))
    if len(kept):
        offsets = np.frombuffer(kept.buffers()[1], np.int32)[kept.offset : kept.offset + len(kept) + 1]
        widths = np.diff(offsets)
        if (widths != layout.itemsize).any():
            rows = np.flatnonzero(~is_null)[widths != layout.itemsize].tolist()
            _check({row: f"{len(values[row].as_py())} bytes, expected {layout.itemsize}" for row in rows})
        numbers[~is_null] = np.frombuffer(kept.buffers()[2], layout, len(kept), offsets[0])
    if kind in _TIMES_MAX:
        _check_times(numbers, kind)
    mask = is_null if is_null.any() else None
    if kind is SchemaType.BOOLEAN:
        return pa.array(numbers != 0, mask=mask)
    if kind is SchemaType.TIMESTAMP:
        return pa.array(numbers * 1000, mask=mask).cast(_UTC_US)
    if kind is SchemaType.INSTANT:
        return pa.array(numbers["f0"] * 1_000_000 + numbers["f1"] // 1000, mask=mask).cast(_UTC_US)
    if kind is SchemaType.LOCAL_DATE_TIME:
        return pa.array(numbers["f0"] * _DAY_US + numbers["f1"] // 1000, mask=mask).cast(pa.timestamp("us"))
    if kind in (SchemaType.TIME, SchemaType.LOCAL_TIME):
        # Java's Time has the milliseconds of a moment: as clients do, of its day.
        nanos: NDArray[np.int64] = numbers % _DAY_MS * 1_000_000 if kind is SchemaType.TIME else numbers
        return pa.array(nanos, mask=mask).cast(pa.time64("ns"))
    if kind is SchemaType.DATE:
        numbers = numbers // _DAY_MS
    if kind in (SchemaType.DATE, SchemaType.LOCAL_DATE):
        return pa.array(numbers.astype(np.int32), mask=mask).cast(pa.date32())
    return pa.array(numbers, mask=mask)


def _check_times(numbers: NDArray[Any], kind: SchemaType) -> None:
    """What is multiplied, or cut to fewer bits, beyond these bounds becomes another time."""
    first = numbers if numbers.dtype.names is None else numbers["f0"]
    is_beyond = (first > _TIMES_MAX[kind]) | (first < -_TIMES_MAX[kind])
    if kind is SchemaType.LOCAL_DATE_TIME:
        is_beyond |= (numbers["f1"] < 0) | (numbers["f1"] >= _DAY_NS)
    elif kind is SchemaType.LOCAL_TIME:
        is_beyond |= first < 0
    _check(
        {
            row: f"a {kind.name} of {numbers[row]}, which no column can hold"
            for row in np.flatnonzero(is_beyond).tolist()
        }
    )


def split_pairs(payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Keys and values of INLINE pairs: each a size of 4 bytes (-1: null) and its bytes. Raises RowError."""
    count = len(payloads)
    if not count or payloads.null_count == count:
        return pa.nulls(count, pa.binary()), pa.nulls(count, pa.binary())
    is_null = np.asarray(payloads.is_null())
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + count + 1]
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    data = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)
    fits = is_null | (ends - starts >= 8)
    key_sizes = _sizes(data, starts, fits & ~is_null)
    key_starts = starts + 4
    key_ends = key_starts + np.maximum(key_sizes, 0)
    fits &= is_null | ((key_sizes >= -1) & (key_ends + 4 <= ends))
    value_sizes = _sizes(data, key_ends, fits & ~is_null)
    value_starts = key_ends + 4
    fits &= is_null | ((value_sizes >= -1) & (value_starts + np.maximum(value_sizes, 0) == ends))
    if not fits.all():
        text = "is no pair of a key and a value, each with its size in front"
        raise RowError(dict.fromkeys(np.flatnonzero(~fits).tolist(), text))
    keys = _part(payloads, np.where(is_null, starts, key_starts), np.where(is_null, starts, key_ends))
    values = _part(payloads, np.where(is_null, starts, value_starts), np.where(is_null, starts, ends))
    return keys.take(_rows(is_null | (key_sizes < 0))), values.take(_rows(is_null | (value_sizes < 0)))


def _sizes(data: NDArray[np.uint8], at: NDArray[np.int64], which: NDArray[np.bool_]) -> NDArray[np.int64]:
    found = np.full(len(at), -1, np.int64)
    quads = data[at[which][:, None] + np.arange(4)]
    found[which] = np.ascontiguousarray(quads).view(">i4").ravel()
    return found


def _part(payloads: pa.Array, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> pa.Array:
    """Every other element of the spans between the places is a part."""
    spans = np.empty(2 * len(starts), np.int32)
    spans[0::2], spans[1::2] = starts, ends
    return pa.Array.from_buffers(pa.binary(), len(spans) - 1, [None, pa.py_buffer(spans), payloads.buffers()[2]])


def _rows(is_null: NDArray[np.bool_]) -> pa.Array:
    return pa.array(np.arange(0, 2 * len(is_null), 2, dtype=np.int32), mask=is_null)
