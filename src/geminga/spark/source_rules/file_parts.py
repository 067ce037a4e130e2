"""Which parts of a plan Spark reads from Parquet by itself, and with which conditions and columns. Pure.

Files are those of docs/formats/lake.md. Conditions and columns are SQL of Spark, made so that conditions on plain
columns reach Parquet's filters and that the JVM compiles the code of one stage: a method of more than 8,000 bytes is
interpreted, which is twenty times as slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from geminga.spark.rules import metadata_columns as names
from geminga.spark.source_rules.lake_plan import LakeRange, PlannedFile, Unit
from geminga.spark.source_rules.offsets import ReadPosition

#: Bytes of the varints of ledger and entry, and of index and size: more would be too much code, and no number of 64
#: bits takes two tags and two longer sizes.
NUMBER_BYTES_MAX: Final = 5
INDEX_BYTES_MAX: Final = 3
_LONG_BYTES: Final = 8
#: Columns of the files that are read, as Spark's DDL says them.
FILE_COLUMNS: Final = (
    "ledger bigint, entry bigint, batch_index int, batch_size int, kind string, publish_time timestamp, "
    "event_time timestamp, key binary, value binary, properties map<string,string>, producer_name string, "
    "sequence_id bigint, schema_version binary, message_id binary"
)
_SEVEN: Final = 7
_SEVEN_BITS: Final = 127


class FilePart(NamedTuple):
    """Messages [start, end) of one file."""

    topic: str
    ledger: PlannedFile
    start: ReadPosition
    end: ReadPosition

    @property
    def is_whole(self) -> bool:
        """Whether it is all messages of the ledger."""
        return self.start.entry_id <= 0 and not self.start.batch_index and self.end.entry_id >= self.ledger.entries


class Scan(NamedTuple):
    """Files of one topic that are read alike."""

    parts: tuple[FilePart, ...]
    #: Which rows; empty: all.
    condition: str


def file_parts(units: Iterable[Unit], ledgers: Mapping[str, PlannedFile]) -> tuple[list[FilePart], list[Unit]]:
    """The parts in files of ``ledgers`` (by path), in order, and all the other units."""
    parts: list[FilePart] = []
    rest: list[Unit] = []
    for unit in units:
        piece = unit.piece
        if not isinstance(piece, LakeRange) or piece.path not in ledgers:
            rest.append(unit)
        elif parts and parts[-1].ledger.path == piece.path:
            parts[-1] = parts[-1]._replace(end=piece.end)
        else:
            parts.append(FilePart(piece.topic, ledgers[piece.path], piece.start, piece.end))
    return parts, rest


def scans_of(parts: Sequence[FilePart], time_from_ms: int | None, time_to_ms: int | None) -> list[Scan]:
    """The parts of one topic in few scans: whole files together, those that hold other rows, too, with a condition."""
    in_time = []
    if time_from_ms is not None:
        in_time.append(f"publish_time >= timestamp_millis({time_from_ms})")
    if time_to_ms is not None:
        in_time.append(f"publish_time < timestamp_millis({time_to_ms})")
    whole: dict[_Alike, list[FilePart]] = {}
    for part in parts:
        if part.is_whole:
            whole.setdefault(_Alike.of(part.ledger), []).append(part)
    messages = ["kind = 'message'"]
    scans = [
        Scan(tuple(some), " AND ".join(in_time if alike.is_pure else messages + in_time))
        for alike, some in sorted(whole.items(), reverse=True)
    ]
    cut = [part for part in parts if not part.is_whole]
    scans += [Scan((part,), " AND ".join(messages + _within(part) + in_time)) for part in cut]
    return scans


class _Alike(NamedTuple):
    """Files of which this is the same have the same columns and conditions."""

    is_pure: bool
    has_ids: bool

    @classmethod
    def of(cls, ledger: PlannedFile) -> _Alike:
        return cls(ledger.is_pure, ledger.has_ids)


def _within(part: FilePart) -> list[str]:
    """The bounds; those on ``entry`` alone let Parquet pass over row groups."""
    (_, first, first_index), (_, last, last_index) = part.start, part.end
    index = "greatest(batch_index, 0)"
    found = [f"entry >= {first}", f"entry <= {last}" if last_index else f"entry < {last}"]
    if first_index:
        found.append(f"(entry > {first} OR {index} >= {first_index})")
    if last_index:
        found.append(f"(entry < {last} OR {index} < {last_index})")
    return found


# ---- columns


def id_bytes(parts: Sequence[FilePart]) -> tuple[int, int, int]:
    """Bytes that the varints of ledger, entry, and index or size of a batch have at most."""
    ledger = max(part.ledger.ledger_id for part in parts)
    entry = max(part.ledger.entries for part in parts)
    size = max(part.ledger.group_rows_max for part in parts)
    return varint_bytes(ledger), varint_bytes(entry), varint_bytes(size)


def is_id_short(parts: Sequence[FilePart]) -> bool:
    """Whether message ids can be made of these files' columns."""
    computed = [part for part in parts if not part.ledger.has_ids]
    if not computed:
        return True
    ledger, entry, size = id_bytes(computed)
    return max(ledger, entry) <= NUMBER_BYTES_MAX and size <= INDEX_BYTES_MAX


def varint_bytes(number: int) -> int:
    """Bytes of the number as a varint."""
    return max(1, -(-number.bit_length() // _SEVEN))


def column_of(name: str, topic: str, partition: int, parts: Sequence[FilePart]) -> str:
    """The source's column ``name`` as SQL over the columns of a scan. Null may be in each, as in the source's."""
    match name:
        case names.KEY:
            return "key"
        case names.TOPIC:
            return f"nullif({_text(topic)}, '')"
        case names.MESSAGE_ID if all(part.ledger.has_ids for part in parts):
            return "message_id"
        case names.MESSAGE_ID:
            return _message_id(partition, *id_bytes(parts))
        case names.PUBLISH_TIME:
            return "publish_time"
        case names.EVENT_TIME:
            return "event_time"
        case names.PROPERTIES if all(part.ledger.is_without_properties for part in parts):
            return "if(1 = 2, NULL, CAST(map() AS map<string,string>))"
        case names.PROPERTIES:
            return "properties"
        case names.PARTITION:
            return f"nullif({partition}, {partition + 1})"
        case names.REDELIVERY_COUNT:
            return "nullif(0, 1)"
        case names.PRODUCER_NAME:
            return "producer_name"
        case names.SEQUENCE_ID:
            return "if(sequence_id IS NULL, -1L, sequence_id)"
        case names.SCHEMA_VERSION:
            return "nullif(schema_version, X'')"
        case names.INVALID:
            return "nullif('', '')"
        case _:
            return "value"


def _text(text: str) -> str:
    """As a literal: in hexadecimal digits, so that no character means anything."""
    return f"decode(X'{text.encode().hex()}', 'UTF-8')"


def _message_id(partition: int, ledger: int, entry: int, size: int) -> str:
    """Fields 1, 2, 3, 4 and 6 of ``MessageIdData``, the last two of batches only; the varints of so many bytes.

    Numbers hold the bytes and become them by way of their hexadecimal digits, of which the first is no zero, or one
    that is missing: putting it together byte by byte takes three times as long.
    """
    entries = [_Bytes(8, "ledger", ledger), _Bytes(16, "entry", entry)]
    fits = ledger + entry + len(entries) <= _LONG_BYTES
    cells = [_cell(entries)] if fits else [_cell([one]) for one in entries]
    if partition >= 0:
        cells.append(f"X'18{_constant(partition)}'")
    of_batch = _cell([_Bytes(32, "bigint(batch_index)", size), _Bytes(48, "bigint(batch_size)", size)])
    cells.append(f"if(batch_index < 0, X'', {of_batch})")
    return f"concat({', '.join(cells)})"


class _Bytes(NamedTuple):
    """A tag, and a number whose varint has so many bytes at most."""

    tag: int
    number: str
    bytes_max: int

    @property
    def bits(self) -> str:
        """Bits of the varint."""
        found = str(8 * self.bytes_max)
        for count in range(self.bytes_max - 1, 0, -1):
            found = f"if({self.number} < {1 << _SEVEN * count}L, {8 * count}, {found})"
        return found

    @property
    def varint(self) -> str:
        """The varint as a number whose first byte is the varint's first."""
        found = self._of(self.bytes_max)
        for count in range(self.bytes_max - 1, 0, -1):
            found = f"if({self.number} < {1 << _SEVEN * count}L, {self._of(count)}, {found})"
        return found

    def _of(self, count: int) -> str:
        """The varint, if it has ``count`` bytes."""
        terms = []
        for place in range(count):
            rest = f"shiftright({self.number}, {_SEVEN * place})" if place else self.number
            more = f" | {_SEVEN_BITS + 1}L" if place + 1 < count else ""
            terms.append(f"shiftleft({rest} & {_SEVEN_BITS}L{more}, {8 * (count - 1 - place)})")
        return f"({' | '.join(terms)})"


def _cell(parts: Sequence[_Bytes]) -> str:
    found = "0L"
    for part in parts:
        found = f"(shiftleft(shiftleft({found}, 8) | {part.tag}L, {part.bits}) | {part.varint})"
    return f"unhex(hex({found}))"


def _constant(number: int) -> str:
    found = bytearray()
    while number > _SEVEN_BITS:
        found.append(number & _SEVEN_BITS | _SEVEN_BITS + 1)
        number >>= _SEVEN
    return bytes([*found, number]).hex()
