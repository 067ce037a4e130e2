"""From messages to rows, as ``schemaMode`` says.

raw: payloads as they are. topic: by the schema each message was written with, as the topic's newest schema reads it.
fixed: by the schema each message was written with, columns by name; what a message does not have is null. A tombstone
has null in every column. A message that does not fit its schema fails the query and is named.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.model import TopicName
from geminga.runtime import get_logger
from geminga.spark.clients import Session, session_for
from geminga.spark.columns import VALUE, arrow_schema
from geminga.spark.core.metadata_columns import ALL_COLUMNS
from geminga.spark.core.options import SourceOptions
from geminga.spark.source.arrow import Rows, metadata_column, record_batch
from geminga.spark.source.avro_types import json_converter
from geminga.spark.source.entry_rows import Piece
from geminga.spark.source.errors import SchemaError
from geminga.spark.source.task_read import Decode
from geminga.spark.source.topic_schema import NO_SCHEMA, PRIMITIVES

_log = get_logger(__name__)

#: Payload -> a record's fields, or a value of its own.
DecodeOne = Callable[[bytes], Any]

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
    SchemaType.TIMESTAMP: ">i8",
    SchemaType.LOCAL_DATE: ">i8",
}
_DAY_MS: Final = 86_400_000
#: (topic, schema version) whose fields without a column were said by this process, and how many are.
_said_unseen: set[tuple[str, bytes]] = set()
SAID_MAX: Final = 1000


def decoder(options: SourceOptions, schema: StructType) -> Decode:
    """What makes rows of ``schema``."""
    arrow = arrow_schema(schema)
    if options.schema_mode != "raw":
        return SchemaDecoder(session_for(options.client), arrow, by_newest=options.schema_mode == "topic")

    def decode(pieces: Sequence[Piece], topic: str) -> pa.RecordBatch:
        return record_batch(pieces, topic, arrow)

    return decode


class SchemaDecoder:
    """Decodes payloads by the schemas of the registry, each fetched once."""

    def __init__(self, session: Session, arrow: pa.Schema, *, by_newest: bool) -> None:
        self._session = session
        self._arrow = arrow
        self._by_newest = by_newest
        self._value_names = [name for name in arrow.names if name not in ALL_COLUMNS]
        #: (topic, version) -> schema; the empty version is the newest.
        self._schemas: dict[tuple[str, bytes], SchemaInfo] = {}
        self._decoders: dict[tuple[str, bytes], DecodeOne] = {}

    def __call__(self, pieces: Sequence[Piece], topic: str) -> pa.RecordBatch:
        """The rows of some entries of a topic."""
        name = str(TopicName.parse(topic).partitioned_topic)
        rows = Rows(pieces)
        kinds = {self._schema(name, piece.entry.metadata.schema_version).type for piece in pieces}
        if len(kinds) == 1 and (kind := next(iter(kinds))) in PRIMITIVES:
            columns = {VALUE: self._primitive(rows.value(), kind, topic)}
        else:
            columns = self._records(rows, pieces, name)
        arrays = [
            columns[field.name] if field.name in columns else metadata_column(rows, field.name, topic, field.type)
            for field in self._arrow
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _schema(self, topic: str, version: bytes) -> SchemaInfo:
        found = self._schemas.get((topic, version))
        if found is None:
            versioned = self._session.run(lambda: self._session.client.get_schema(topic, version or None))
            if versioned is None and version:
                raise SchemaError(f"{topic}: the registry has no schema of version {version.hex()}")
            found = self._schemas[topic, version] = NO_SCHEMA if versioned is None else versioned.info
        return found

    # ---- primitives

    def _primitive(self, values: pa.Array, kind: SchemaType, topic: str) -> pa.Array:
        if self._value_names != [VALUE]:
            raise SchemaError(f"{topic}: {kind.name} values have one column, {VALUE}, not {self._value_names}")
        wanted = self._arrow.field(VALUE).type
        try:
            if kind in _WIDTHS:
                values = _fixed_width(values, kind)
            elif kind is SchemaType.STRING:
                values = values.cast(pa.string())
            return values.cast(wanted)
        except (pa.ArrowException, ValueError) as error:
            raise SchemaError(f"{topic}: {kind.name} values do not become {wanted}: {error}") from error

    # ---- records

    def _records(self, rows: Rows, pieces: Sequence[Piece], topic: str) -> dict[str, pa.Array]:
        payloads = rows.value().to_pylist()
        found: list[Any] = []
        for piece, count in zip(pieces, rows.counts.tolist(), strict=True):
            decode = self._decoder(topic, piece.entry.metadata.schema_version)
            for payload in payloads[len(found) : len(found) + count]:
                try:
                    found.append(None if payload is None else decode(payload))
                except (ValueError, KeyError, TypeError, IndexError, EOFError, AttributeError) as error:
                    at = f"{piece.entry.ledger_id}:{piece.entry.entry_id}"
                    raise SchemaError(f"{topic}: a message of entry {at} does not fit its schema: {error}") from error
        is_value = self._value_names == [VALUE] and not any(isinstance(value, dict) for value in found)
        columns = {}
        for name in self._value_names:
            listed = found if is_value else [None if value is None else value.get(name) for value in found]
            wanted = self._arrow.field(name).type
            try:
                columns[name] = pa.array(listed, wanted)
            except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
                raise SchemaError(f"{topic}: values of {name} do not become {wanted}: {error}") from error
        return columns

    def _decoder(self, topic: str, version: bytes) -> DecodeOne:
        decode = self._decoders.get((topic, version))
        if decode is None:
            writer = self._schema(topic, version)
            newest = self._schema(topic, b"") if self._by_newest else writer
            decode = self._decoders[topic, version] = _decode_one(writer, newest, topic)
            if self._by_newest:
                self._say_unseen(topic, version, writer)
        return decode

    def _say_unseen(self, topic: str, version: bytes, writer: SchemaInfo) -> None:
        """Spark fixes a query's columns when it starts: say which fields were added since and are left out."""
        if (topic, version) in _said_unseen or len(_said_unseen) >= SAID_MAX:
            return
        written = json.loads(writer.schema)
        fields = written.get("fields", ()) if isinstance(written, dict) else ()
        unseen = sorted({field["name"] for field in fields} - set(self._value_names))
        if unseen:
            _said_unseen.add((topic, version))
            _log.warning(
                "%s: messages of schema version %s have %s, which the query has no column for and leaves out. Spark "
                "fixes the columns when a query starts: start it again, with the same checkpoint, to have them",
                topic,
                int.from_bytes(version, "big"),
                ", ".join(unseen),
            )


def _decode_one(writer: SchemaInfo, reader: SchemaInfo, topic: str) -> DecodeOne:
    if writer.type is SchemaType.JSON:
        convert = json_converter(json.loads(writer.schema))
        return lambda payload: convert(json.loads(payload))
    if writer.type is not SchemaType.AVRO:
        raise SchemaError(f"{topic}: some messages have no AVRO or JSON schema and others have; use schemaMode=raw")
    import fastavro  # of the extra avro

    written = fastavro.parse_schema(json.loads(writer.schema))
    wanted = fastavro.parse_schema(json.loads(reader.schema)) if reader.schema != writer.schema else None

    def decode(payload: bytes) -> object:
        value: object = fastavro.schemaless_reader(io.BytesIO(payload), written, wanted)
        return value

    return decode


def _fixed_width(values: pa.Array, kind: SchemaType) -> pa.Array:
    """Numbers of binary values; raises ValueError if one has another width."""
    layout = np.dtype(_WIDTHS[kind])
    is_null = np.asarray(values.is_null())
    kept = values.drop_null()
    numbers = np.zeros(len(values), layout.newbyteorder("="))
    if len(kept):
        offsets = np.frombuffer(kept.buffers()[1], np.int32)[kept.offset : kept.offset + len(kept) + 1]
        widths = np.diff(offsets)
        if (widths != layout.itemsize).any():
            raise ValueError(f"a payload of {widths[widths != layout.itemsize][0]} bytes, expected {layout.itemsize}")
        numbers[~is_null] = np.frombuffer(kept.buffers()[2], layout, len(kept), offsets[0])
    mask = is_null if is_null.any() else None
    if kind is SchemaType.BOOLEAN:
        return pa.array(numbers != 0, mask=mask)
    if kind is SchemaType.TIMESTAMP:
        return pa.array(numbers * 1000, mask=mask).cast(pa.timestamp("us", tz="UTC"))
    if kind is SchemaType.DATE:
        numbers = numbers // _DAY_MS
    if kind in (SchemaType.DATE, SchemaType.LOCAL_DATE):
        return pa.array(numbers.astype(np.int32), mask=mask).cast(pa.date32())
    return pa.array(numbers, mask=mask)
