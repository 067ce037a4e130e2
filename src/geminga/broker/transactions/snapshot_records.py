"""What the messages of the topics of snapshots hold: Avro records with the names, and the schemas, of Pulsar's classes.

Format: docs/formats/transactions.md. Decoding takes the schema that the record was written with, and raises
CorruptionError; what Pulsar wrote encodes to the same bytes again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from geminga.broker.policies.core.avro_types import AvroType, array, optional, record, written
from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.transaction.core.segments import SEGMENTS_MAX, Segment, SegmentedSnapshot, SegmentPlace
from geminga.transaction.ports import BufferSnapshot

if TYPE_CHECKING:
    from fastavro.types import Schema

_METADATA: Final = "org.apache.pulsar.broker.transaction.buffer.metadata"
_TEXT: Final = optional("string")


def _longs(*names: str) -> dict[str, AvroType]:
    return dict.fromkeys(names, "long")


def _definition(kind: AvroType) -> bytes:
    return json.dumps(written(kind), separators=(",", ":")).encode()


_IDS: Final = optional(array(record(f"{_METADATA}.v2.TxnIDData", _longs("mostSigBits", "leastSigBits"))))
_POSITION: Final = _longs("maxReadPositionLedgerId", "maxReadPositionEntryId")
_ABORTED: Final = record(
    f"{_METADATA}.AbortTxnMetadata", _longs("txnIdMostBits", "txnIdLeastBits", "ledgerId", "entryId")
)
_PLACE: Final = record(
    f"{_METADATA}.v2.TransactionBufferSnapshotIndex",
    _longs("sequenceID", "abortedMarkLedgerID", "abortedMarkEntryID", "segmentLedgerID", "segmentEntryID"),
)
_REST: Final = record(f"{_METADATA}.v2.TransactionBufferSnapshotIndexesMetadata", {**_POSITION, "aborts": _IDS})

#: A snapshot in one piece. The schemas are byte for byte those of Pulsar 4.2.4.
SNAPSHOT_SCHEMA: Final = _definition(
    record(
        f"{_METADATA}.TransactionBufferSnapshot",
        {"topicName": _TEXT, **_POSITION, "aborts": optional(array(_ABORTED))},
    )
)
#: A segment.
SEGMENT_SCHEMA: Final = _definition(
    record(
        f"{_METADATA}.v2.TransactionBufferSnapshotSegment",
        {
            "topicName": _TEXT,
            **_longs("sequenceId", "persistentPositionLedgerId", "persistentPositionEntryId"),
            "aborts": _IDS,
        },
    )
)
#: The index of a topic's segments.
INDEXES_SCHEMA: Final = _definition(
    record(
        f"{_METADATA}.v2.TransactionBufferSnapshotIndexes",
        {"topicName": _TEXT, "indexList": optional(array(_PLACE)), "snapshot": optional(_REST)},
    )
)


def parse_schema(definition: bytes) -> Schema:
    """An Avro schema, ready to read and write with; raises CorruptionError."""
    from fastavro import parse_schema as parse
    from fastavro.schema import SchemaParseException

    try:
        return parse(json.loads(definition))
    except (SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"the schema of transaction snapshots can not be read: {error}") from error


def encode_snapshot(topic: str, snapshot: BufferSnapshot) -> bytes:
    """A snapshot in one piece."""
    aborts = [
        {
            "txnIdMostBits": txn_id.coordinator,
            "txnIdLeastBits": txn_id.number,
            "ledgerId": marker.ledger_id,
            "entryId": marker.entry_id,
        }
        for txn_id, marker in snapshot.aborts
    ]
    return _encoded({"topicName": topic, **_position(snapshot.position), "aborts": aborts}, SNAPSHOT_SCHEMA)


def decode_snapshot(data: bytes, schema: Schema) -> tuple[str, BufferSnapshot]:
    """The topic and its snapshot."""
    found = _decoded(data, schema)
    try:
        aborts = tuple(
            (TxnId(_long(each["txnIdMostBits"]), _long(each["txnIdLeastBits"])), _pair(each, "ledgerId", "entryId"))
            for each in found["aborts"] or ()
        )
        return str(found["topicName"]), BufferSnapshot(_position_of(found), aborts)
    except (KeyError, TypeError) as error:
        raise _unlike(error) from error


def encode_segment(segment: Segment) -> bytes:
    """A segment."""
    place = {
        "sequenceId": segment.sequence_id,
        "persistentPositionLedgerId": segment.marker.ledger_id,
        "persistentPositionEntryId": segment.marker.entry_id,
    }
    return _encoded({"topicName": segment.topic, **place, "aborts": _ids(segment.aborts)}, SEGMENT_SCHEMA)


def decode_segment(data: bytes, schema: Schema) -> Segment:
    """A segment."""
    found = _decoded(data, schema)
    try:
        marker = _pair(found, "persistentPositionLedgerId", "persistentPositionEntryId")
        return Segment(str(found["topicName"]), _long(found["sequenceId"]), marker, _ids_of(found["aborts"]))
    except (KeyError, TypeError) as error:
        raise _unlike(error) from error


def encode_indexes(index: SegmentedSnapshot) -> bytes:
    """The index of a topic's segments."""
    places = [
        {
            "sequenceID": each.sequence_id,
            "abortedMarkLedgerID": each.marker.ledger_id,
            "abortedMarkEntryID": each.marker.entry_id,
            "segmentLedgerID": each.place.ledger_id,
            "segmentEntryID": each.place.entry_id,
        }
        for each in index.segments
    ]
    rest = {**_position(index.position), "aborts": _ids(index.aborts)}
    return _encoded({"topicName": index.topic, "indexList": places, "snapshot": rest}, INDEXES_SCHEMA)


def decode_indexes(data: bytes, schema: Schema) -> SegmentedSnapshot:
    """The index of a topic's segments."""
    found = _decoded(data, schema)
    try:
        places, rest = found["indexList"] or (), found["snapshot"]
        if len(places) > SEGMENTS_MAX:
            raise CorruptionError(f"it names {len(places)} segments; more than {SEGMENTS_MAX} are not read")
        segments = tuple(
            SegmentPlace(
                _long(each["sequenceID"]),
                _pair(each, "abortedMarkLedgerID", "abortedMarkEntryID"),
                _pair(each, "segmentLedgerID", "segmentEntryID"),
            )
            for each in places
        )
        return SegmentedSnapshot(str(found["topicName"]), _position_of(rest), segments, _ids_of(rest["aborts"]))
    except (KeyError, TypeError) as error:
        raise _unlike(error) from error


def _position(position: Position) -> dict[str, int]:
    return {"maxReadPositionLedgerId": position.ledger_id, "maxReadPositionEntryId": position.entry_id}


def _position_of(found: dict[str, Any]) -> Position:
    return _pair(found, "maxReadPositionLedgerId", "maxReadPositionEntryId")


def _pair(found: dict[str, Any], ledger: str, entry: str) -> Position:
    return Position(_long(found[ledger]), _long(found[entry]))


def _long(value: object) -> int:
    # The schema is the writer's: it may say anything of a field.
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value


def _ids(aborts: Iterable[TxnId]) -> list[dict[str, int]]:
    return [{"mostSigBits": each.coordinator, "leastSigBits": each.number} for each in aborts]


def _ids_of(found: list[dict[str, Any]] | None) -> tuple[TxnId, ...]:
    return tuple(TxnId(_long(each["mostSigBits"]), _long(each["leastSigBits"])) for each in found or ())


def _encoded(value: dict[str, Any], definition: bytes) -> bytes:
    from fastavro import schemaless_writer

    out = io.BytesIO()
    schemaless_writer(out, parse_schema(definition), value)
    return out.getvalue()


def _decoded(data: bytes, schema: Schema) -> dict[str, Any]:
    from fastavro import schemaless_reader

    try:
        found: object = schemaless_reader(io.BytesIO(data), schema, None)
    except (EOFError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        raise CorruptionError(f"a transaction snapshot can not be read: {error}") from error
    if not isinstance(found, dict):
        raise CorruptionError("a transaction snapshot is no record")
    return found


def _unlike(error: Exception) -> CorruptionError:
    return CorruptionError(f"a transaction snapshot is none: {error!r}")
