"""Payloads by the schemas of the registry: ``schemaMode`` topic and fixed.

topic: by the schema each message was written with, as the topic's newest schema reads it. fixed: by the schema each
message was written with, columns by name; what a message does not have is null. A tombstone has null in every column. A
message that does not fit its schema fails the query and is named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute
from pyspark.sql.types import StructType

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.model import TopicName
from geminga.runtime import get_logger
from geminga.spark.decoding.part_decoding import PartDecoder, RowError, part_of, split_pairs
from geminga.spark.process.clients import ClientSession
from geminga.spark.rules.columns import KEY_PART, VALUE, arrow_schema
from geminga.spark.rules.metadata_columns import ALL_COLUMNS
from geminga.spark.source.arrow import RowColumns
from geminga.spark.source.misfits import Misfits
from geminga.spark.source.topic_schema import NO_SCHEMA, value_fields
from geminga.spark.source_rules.errors import SchemaError
from geminga.wire.pulsar.schema_info import SCHEMA_VERSION_BYTES, SEPARATED, key_value_parts

_log = get_logger(__name__)

#: (topic, schema version) whose fields without a column were said by this process, and how many are.
_said_unseen: set[tuple[str, bytes]] = set()
SAID_MAX: Final = 1000
#: Versions that a task remembers of its topics: messages name them as their senders like.
VERSIONS_MAX: Final = 1000
#: Bytes of one that an error shows.
_SHOWN_MAX: Final = 32
_UNKNOWN: Final = "which the registry has not"


#: (payloads, what gives the keys of their messages) -> columns.
DecodeColumns = Callable[[pa.Array, Callable[[], pa.Array]], dict[str, pa.Array]]


class PartsDecoder:
    """Decodes payloads by the schemas of the registry, each fetched once. Whose schema it has not does not fit."""

    def __init__(
        self,
        session: ClientSession,
        arrow: pa.Schema,
        misfits: Misfits,
        *,
        by_newest: bool,
        are_bytes_text: bool = False,
    ) -> None:
        self._session = session
        self._arrow = arrow
        self._policy = misfits
        self._by_newest = by_newest
        self._are_bytes_text = are_bytes_text
        self._wanted = {field.name: field.type for field in arrow if field.name not in ALL_COLUMNS}
        #: (topic, version) -> schema; the empty version is the newest.
        self._schemas: dict[tuple[str, bytes], SchemaInfo] = {}
        self._decoders: dict[tuple[str, bytes], DecodeColumns] = {}
        #: (topic, version) that the registry has not.
        self._unknown: set[tuple[str, bytes]] = set()

    def __call__(self, rows: RowColumns, topic: str) -> pa.RecordBatch:
        """The rows of some entries of a topic."""
        name = str(TopicName.parse(topic).partitioned_topic)
        misfits: dict[int, str] = {}
        columns = self._columns(rows, name, misfits)
        if misfits and not self._policy.are_kept:
            self._policy.refuse(rows, topic, misfits)
        return self._policy.batch(rows, topic, columns, self._arrow, misfits)

    def _columns(self, rows: RowColumns, topic: str, misfits: dict[int, str]) -> dict[str, pa.Array]:
        """Entries of one version behind each other are decoded together; what does not fit is null, and said."""
        values = rows.value()
        found: list[dict[str, pa.Array]] = []
        first = 0
        for version, count in rows.version_runs():
            keys = partial(_slice_of_keys, rows, first, count)
            try:
                decode = self._decoder(topic, version)
                if decode is None:
                    columns = {name: pa.nulls(count, kind) for name, kind in self._wanted.items()}
                    those = dict.fromkeys(range(count), f"names schema version {_shown(version)}, {_UNKNOWN}")
                else:
                    columns, those = _fitting(decode, values.slice(first, count), keys)
            except SchemaError as error:
                raise SchemaError(f"{topic}: {error}") from error
            found.append(columns)
            misfits.update({first + row: text for row, text in those.items()})
            first += count
        if len(found) == 1:
            return found[0]
        return {name: pa.concat_arrays([one[name] for one in found]) for name in self._wanted}

    def _schema(self, topic: str, version: bytes) -> SchemaInfo | None:
        """None: the registry has no such version."""
        found = self._schemas.get((topic, version))
        if found is None:
            versioned = self._session.run(lambda: self._session.client.get_schema(topic, version or None))
            if versioned is None and version:
                return None
            found = NO_SCHEMA if versioned is None else versioned.info
            if len(self._schemas) >= VERSIONS_MAX:
                self._schemas.clear()
            self._schemas[topic, version] = found
        return found

    def _decoder(self, topic: str, version: bytes) -> DecodeColumns | None:
        """None: the registry has no such version."""
        decode = self._decoders.get((topic, version))
        if decode is None:
            if (topic, version) in self._unknown or 0 < len(version) < SCHEMA_VERSION_BYTES:
                return None
            writer = self._schema(topic, version)
            if writer is None:
                if len(self._unknown) >= VERSIONS_MAX:
                    self._unknown.clear()
                self._unknown.add((topic, version))
                return None
            if not self._by_newest:
                self._check_names(topic, writer)
            newest = self._schema(topic, b"") if self._by_newest else writer
            assert newest is not None  # the newest is there, or there is none at all
            decode = decode_columns(writer, newest, self._wanted, are_bytes_text=self._are_bytes_text)
            if len(self._decoders) >= VERSIONS_MAX:
                self._decoders.clear()
            self._decoders[topic, version] = decode
            if self._by_newest:
                self._say_unseen(topic, version, writer)
        return decode

    def _check_names(self, topic: str, writer: SchemaInfo) -> None:
        """Raise SchemaError for a column whose name differs from a field's in case alone: it would be null throughout.

        One that the newest version has was given on purpose: this version is from before a field's name was changed.
        """
        found = dict(misspelt(self._wanted, _natural_types(writer, topic)))
        newest = self._schema(topic, b"") if found else None
        still = dict(misspelt(self._wanted, _natural_types(newest, topic))) if newest is not None else found
        for column, field in found.items():
            if column in still:
                raise SchemaError(
                    f"the column {column} is no field of its schema, {field} is: names have upper and lower case. "
                    "Give the column the field's name, and rename it behind the read"
                )

    def _say_unseen(self, topic: str, version: bytes, writer: SchemaInfo) -> None:
        """Spark fixes a query's columns when it starts: say which fields were added since and are left out."""
        if (topic, version) in _said_unseen or len(_said_unseen) >= SAID_MAX or not writer.type.is_avro_based:
            return
        written = json.loads(writer.schema)
        fields = written.get("fields", ()) if isinstance(written, dict) else ()
        unseen = sorted({field["name"] for field in fields} - set(self._wanted))
        if unseen:
            _said_unseen.add((topic, version))
            _log.warning(
                "%s: messages of schema version %s have %s, which the query has no column for and leaves out. Spark "
                "fixes the columns when a query starts: start it again, with the same checkpoint, to have them",
                topic,
                int.from_bytes(version, "big"),
                ", ".join(unseen),
            )


def misspelt(
    wanted: Mapping[str, pa.DataType], has: Mapping[str, pa.DataType], around: str = ""
) -> Iterator[tuple[str, str]]:
    """(column, field): columns that are no fields, but for upper and lower case; also inside of structs."""
    lowered = {name.lower(): name for name in has}
    for name, kind in wanted.items():
        if name in has:
            inner, other = _struct(kind), _struct(has[name])
            yield from misspelt(inner, other, f"{around}{name}.")
        elif name.lower() in lowered:
            yield f"{around}{name}", f"{around}{lowered[name.lower()]}"


def _struct(kind: pa.DataType) -> dict[str, pa.DataType]:
    """The fields of a struct, also of a list's items or a map's values; none of other types."""
    while pa.types.is_list(kind) or pa.types.is_map(kind):
        kind = kind.item_type if pa.types.is_map(kind) else kind.value_type
    return {field.name: field.type for field in kind.fields} if pa.types.is_struct(kind) else {}


def _natural_types(info: SchemaInfo, topic: str) -> dict[str, pa.DataType]:
    """The columns that ``schemaMode=topic`` has; none where a field has no type in Spark."""
    try:
        fields = value_fields(info, topic)
    except SchemaError:
        return {}
    return {field.name: field.type for field in arrow_schema(StructType(fields))}


def _shown(version: bytes) -> str:
    return version.hex() if len(version) <= _SHOWN_MAX else f"{version[:_SHOWN_MAX].hex()}... ({len(version)} bytes)"


def _fitting(
    decode: DecodeColumns, values: pa.Array, keys: Callable[[], pa.Array]
) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """Columns, in which rows that do not fit are null, and why they do not."""
    misfits: dict[int, str] = {}
    while True:
        fits = pa.array([row not in misfits for row in range(len(values))]) if misfits else None
        try:
            return decode(_only(values, fits), partial(_only_keys, keys, fits)), misfits
        except RowError as error:  # each time all that one step of decoding finds
            fresh = {row: text for row, text in error.misfits.items() if row not in misfits}
            if not fresh:
                raise
            misfits |= fresh


def _only(values: pa.Array, fits: pa.Array | None) -> pa.Array:
    return values if fits is None else pa.compute.if_else(fits, values, pa.scalar(None, values.type))


def _only_keys(keys: Callable[[], pa.Array], fits: pa.Array | None) -> pa.Array:
    return _only(keys(), fits)


def _slice_of_keys(rows: RowColumns, first: int, count: int) -> pa.Array:
    return rows.key().slice(first, count)


def decode_columns(
    writer: SchemaInfo, newest: SchemaInfo, wanted: Mapping[str, pa.DataType], *, are_bytes_text: bool = False
) -> DecodeColumns:
    """What makes the columns of messages written with ``writer``; raises SchemaError."""
    part_for = partial(part_of, are_bytes_text=are_bytes_text)
    if writer.type is SchemaType.KEY_VALUE:
        return _pairs(writer, newest, wanted, part_for)
    part = part_for(writer, newest)
    if part.is_record:
        return lambda values, _: part.fields(values, wanted)
    if list(wanted) != [VALUE]:
        names = list(wanted)
        raise SchemaError(f"{writer.type.name} values have one column, {VALUE}, not {names}; use schemaMode=raw")
    return lambda values, _: {VALUE: part.whole(values, wanted[VALUE])}


def _pairs(
    writer: SchemaInfo,
    newest: SchemaInfo,
    wanted: Mapping[str, pa.DataType],
    part_for: Callable[[SchemaInfo, SchemaInfo], PartDecoder],
) -> DecodeColumns:
    try:
        written = key_value_parts(writer)
        read = key_value_parts(newest) if newest.type is SchemaType.KEY_VALUE else written
    except ValueError as error:
        raise SchemaError(f"the KEY_VALUE schema can not be read: {error}") from error
    parts: dict[str, PartDecoder] = {
        KEY_PART: part_for(written.key, read.key),
        VALUE: part_for(written.value, read.value),
    }

    def decode(values: pa.Array, keys: Callable[[], pa.Array]) -> dict[str, pa.Array]:
        if written.encoding != SEPARATED:
            found = dict(zip(parts, split_pairs(values), strict=True))
        else:
            found = {VALUE: values, KEY_PART: keys() if KEY_PART in wanted else values}
        return {
            name: parts[name].whole(found[name], kind) if name in parts else pa.nulls(len(values), kind)
            for name, kind in wanted.items()
        }

    return decode
