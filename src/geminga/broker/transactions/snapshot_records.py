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
from geminga.transaction.core.segments import SEGMENTS_MAX, Segment, SegmentedSnapshot, SegmentIndex
from geminga.transaction.ports import BufferSnapshot
from geminga.wire.pulsar.varint import encode_varint

if TYPE_CHECKING:
    from fastavro.types import Schema

#: The second of the two kinds that an optional value has: it is there.
_SECOND: Final = b"\x02"
#: Of an Avro array: no block follows.
_NO_BLOCK: Final = b"\x00"
#: Bits before the last byte of the longest number.
_SHIFT_MAX: Final = 63

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


def snapshot_head(count: int) -> bytes:
    """How a snapshot in one piece begins; then come ``count`` aborted transactions and :func:`snapshot_tail`."""
    return _SECOND + _zigzag(count) if count else _SECOND


def encode_aborts(aborts: Iterable[tuple[TxnId, Position]]) -> bytes:
    """Some of the aborted transactions of a snapshot."""
    fields = ((entry, ledger, number, coordinator) for (coordinator, number), (ledger, entry) in aborts)
    return b"".join([_zigzag(value) for each in fields for value in each])


def snapshot_tail(topic: str, position: Position) -> bytes:
    """How it ends."""
    name = topic.encode()
    ledger, entry = position
    return b"".join((_NO_BLOCK, _zigzag(entry), _zigzag(ledger), _SECOND, _zigzag(len(name)), name))


def encode_snapshot(topic: str, snapshot: BufferSnapshot) -> bytes:
    """A snapshot in one piece."""
    head, tail = snapshot_head(len(snapshot.aborts)), snapshot_tail(topic, snapshot.position)
    return head + encode_aborts(snapshot.aborts) + tail


class SnapshotReader:
    """Reads what was written with :data:`SNAPSHOT_SCHEMA`, piece by piece. All of it raises CorruptionError."""

    __slots__ = ("_data", "_left", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data, self._offset = data, 0
        #: Aborted transactions that are left of the block at hand; 0: another one may follow, -1: none.
        self._left = 0 if self._is_there() else -1

    def some(self, most: int) -> list[tuple[TxnId, Position]]:
        """The next aborted transactions, and their markers; none: that was all."""
        found: list[tuple[TxnId, Position]] = []
        long = self._long
        while len(found) < most and self._left >= 0:
            if not self._left:
                self._next_block()
                continue
            self._left -= 1
            entry, ledger, number, coordinator = long(), long(), long(), long()
            found.append((TxnId(coordinator, number), Position(ledger, entry)))
        return found

    def rest(self) -> tuple[str, Position]:
        """Behind them: the topic, and the position."""
        entry, ledger = self._long(), self._long()
        return self._text() if self._is_there() else "None", Position(ledger, entry)

    def _next_block(self) -> None:
        self._left = self._long()
        if self._left < 0:
            self._left = -self._left
            self._long()  # bytes of the block
        elif not self._left:
            self._left = -1

    def _is_there(self) -> bool:
        which = self._long()
        if which not in (0, 1):
            raise CorruptionError(f"a transaction snapshot has the kind {which} where it has 0 or 1")
        return which == 1

    def _text(self) -> str:
        size = self._long()
        start = self._offset
        self._offset += size
        if size < 0 or self._offset > len(self._data):
            raise CorruptionError(f"a transaction snapshot has a name of {size} bytes")
        try:
            return self._data[start : self._offset].decode()
        except UnicodeDecodeError as error:
            raise CorruptionError("a transaction snapshot has a name that is no text") from error

    def _long(self) -> int:
        data, offset = self._data, self._offset
        value = shift = 0
        while True:
            if offset >= len(data) or shift > _SHIFT_MAX:
                raise CorruptionError("a transaction snapshot ends too early, or has a number of too many bytes")
            byte = data[offset]
            offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        self._offset = offset
        return (value >> 1) ^ -(value & 1)


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
            "segmentLedgerID": each.position.ledger_id,
            "segmentEntryID": each.position.entry_id,
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
            SegmentIndex(
                _long(each["sequenceID"]),
                _pair(each, "abortedMarkLedgerID", "abortedMarkEntryID"),
                _pair(each, "segmentLedgerID", "segmentEntryID"),
            )
            for each in places
        )
        return SegmentedSnapshot(str(found["topicName"]), _position_of(rest), segments, _ids_of(rest["aborts"]))
    except (KeyError, TypeError) as error:
        raise _unlike(error) from error


def _zigzag(value: int) -> bytes:
    return encode_varint((value << 1) ^ (value >> 63))


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
