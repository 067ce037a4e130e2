"""Lake files are written and read here, by blocking calls: see ``docs/formats/lake.md``.

Imports ``pyarrow``: loaded by who writes or reads them.
"""

from __future__ import annotations

import base64
import json
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from geminga.lake.arrow_rows import DICTIONARY_COLUMNS, REBUILD_COLUMNS, SCHEMA, STATISTICS_COLUMNS, table_of
from geminga.lake.core import names
from geminga.lake.core.rebuild import rebuild_entries
from geminga.lake.core.rows import MESSAGE, RowBuffer
from geminga.lake.store import LakeStore
from geminga.model import TopicName
from geminga.model.errors import CorruptionError, DiskIOError, MissingFileError, StorageError, invariant
from geminga.wire.bookkeeper.digest import DigestType

FORMAT_VERSION: Final = 1
#: A row group is ended by the entry that brings it to one of these.
GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
GROUP_ROWS_MAX: Final = 65_536
#: With what stands before the payloads, which may be far more than they are.
GROUP_HELD_BYTES_MAX: Final = 32 * 1024 * 1024
#: A longer footer, which is one with many definitions of schemas, is read with each row group: many files are open.
FOOTER_BYTES_KEPT_MAX: Final = 4 * 1024 * 1024
#: Of all files that are open, likewise: a view of compacted messages has all of its topic's.
FOOTERS_BYTES_KEPT_MAX: Final = 64 * 1024 * 1024
_COMPRESSION_LEVEL: Final = 1
_VERSION_KEY: Final = "geminga.lake.version"
_TOPIC: Final = "geminga.topic"
_LEDGER: Final = "geminga.ledger"
_OFFLOAD: Final = "geminga.offload"
_SCHEMAS: Final = "geminga.schemas"
_GROUPS: Final = "geminga.rowGroups"
_CONTENTS: Final = "geminga.contents"


class LedgerFacts(NamedTuple):
    """What a file says of its ledger."""

    topic: str
    ledger_id: int
    uid: str
    entries: int
    #: Payload bytes as stored on bookies.
    length_bytes: int
    created_ms: int
    closed_ms: int
    digest_type: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    custom_metadata: Mapping[str, bytes]


class SchemaFacts(NamedTuple):
    """A version of the topic's schema."""

    version: bytes
    type_name: str
    name: str
    schema: bytes
    properties: Mapping[str, str]
    timestamp_ms: int


class Contents(NamedTuple):
    """What a file holds, counted."""

    rows: int
    entries: int
    payload_bytes: int
    kinds: Mapping[str, int]
    first_publish_ms: int | None
    last_publish_ms: int | None
    #: Rows with properties; None: not counted.
    with_properties: int | None = None

    @property
    def messages(self) -> int:
        """Rows that are messages."""
        return self.kinds.get(MESSAGE, 0)


class LedgerFileWriter:
    """One ledger on its way into a file. Entries come in order; :meth:`finish` or :meth:`discard` is last."""

    def __init__(self, store: LakeStore, path: str, facts: LedgerFacts, *, started_ms: int, writer: str) -> None:
        """Raises OSError."""
        self._facts = facts
        self._offload = {"uid": facts.uid, "startedMs": started_ms, "writer": writer}
        self._rows = RowBuffer(facts.ledger_id, TopicName.parse(facts.topic).partition)
        self._next_entry = 0
        self._first_entries: list[int] = []
        self._group_rows: list[int] = []
        self._group_begins = 0
        self._payload_bytes = 0
        self._kinds: dict[str, int] = {}
        self._with_properties = 0
        self._first_publish_ms: int | None = None
        self._last_publish_ms: int | None = None
        self._stack = ExitStack()
        output = self._stack.enter_context(store.write(path))
        self._parquet = pq.ParquetWriter(
            output,
            SCHEMA,
            compression="zstd",
            compression_level=_COMPRESSION_LEVEL,
            use_dictionary=list(DICTIONARY_COLUMNS),
            write_statistics=list(STATISTICS_COLUMNS),
            write_page_checksum=True,
            store_schema=False,
            version="2.6",
        )

    @property
    def schema_versions(self) -> set[bytes]:
        """Those that entries so far name."""
        return self._rows.schema_versions

    def add(self, entries: Sequence[bytes], aborted: frozenset[int] = frozenset()) -> None:
        """The next entries; ``aborted``: ids of those whose transaction was aborted. Raises OSError, StorageError."""
        rows = self._rows
        for entry_id, entry in enumerate(entries, self._next_entry):
            rows.add(entry_id, entry, is_aborted=entry_id in aborted)
            is_full = rows.payload_bytes >= GROUP_BYTES_MAX or rows.row_count >= GROUP_ROWS_MAX
            if is_full or rows.held_bytes >= GROUP_HELD_BYTES_MAX:
                self._next_entry = entry_id + 1
                self._write_group()
        self._next_entry = self._next_entry if not entries else entry_id + 1

    def _write_group(self) -> None:
        self._payload_bytes += self._rows.payload_bytes
        taken = self._rows.take()
        if not taken.rows:
            return
        for kind in taken.of_message["kind"]:
            self._kinds[kind] = self._kinds.get(kind, 0) + 1
        self._with_properties += sum(map(bool, taken.of_message["properties"]))
        times = [time for time in taken.of_entry["publish_time"] if time is not None]
        if times:
            known = [time for time in (self._first_publish_ms, self._last_publish_ms) if time is not None]
            self._first_publish_ms, self._last_publish_ms = min([*times, *known]), max([*times, *known])
        begins, self._group_begins = self._group_begins, self._next_entry
        self._first_entries.append(begins)
        self._group_rows.append(taken.rows)
        try:
            self._parquet.write_table(table_of(taken, self._facts.ledger_id), row_group_size=taken.rows)
        except pa.ArrowException as error:
            where = f"ledger {self._facts.ledger_id}, entries {begins} to {self._next_entry - 1}"
            raise StorageError(f"{where} can not be laid out as rows: {error}") from error

    def finish(self, schemas: Sequence[SchemaFacts]) -> Contents:
        """The file is there, whole and durable. Raises OSError: then it is not, though part of it may be."""
        facts = self._facts
        invariant(
            self._next_entry == facts.entries, f"{facts.ledger_id}: {self._next_entry} of {facts.entries} entries"
        )
        self._write_group()
        contents = Contents(
            sum(self._group_rows),
            self._next_entry,
            self._payload_bytes,
            self._kinds,
            self._first_publish_ms,
            self._last_publish_ms,
            self._with_properties,
        )
        self._parquet.add_key_value_metadata(
            {
                _VERSION_KEY: str(FORMAT_VERSION),
                _TOPIC: facts.topic,
                _LEDGER: json.dumps(_ledger_document(facts)),
                _OFFLOAD: json.dumps(self._offload),
                _SCHEMAS: json.dumps([_schema_document(schema) for schema in schemas]),
                _GROUPS: json.dumps({"firstEntries": self._first_entries, "rows": self._group_rows}),
                _CONTENTS: json.dumps(_contents_document(contents)),
            }
        )
        with self._stack:
            self._parquet.close()
        return contents

    def discard(self) -> None:
        """Nothing is to be left of it, as far as that is possible now."""
        try:
            with self._stack:
                raise _Discarded
        except (_Discarded, OSError):
            pass


class _Discarded(Exception):
    """Leaves the context of a file that is not wanted."""


class _KeptFooters:
    """How much the footers of this process take that are kept; files are opened and let go on several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        #: What was given back and not subtracted yet: Python's collector may do that at any line, also under the lock.
        self._given_back: deque[int] = deque()

    @property
    def size_bytes(self) -> int:
        """Of those that are kept."""
        return self._taken - sum(self._given_back)

    def take(self, size_bytes: int) -> bool:
        """Whether there is room for one more."""
        with self._lock:
            while self._given_back:
                self._taken -= self._given_back.popleft()
            if size_bytes > FOOTER_BYTES_KEPT_MAX or self._taken + size_bytes > FOOTERS_BYTES_KEPT_MAX:
                return False
            self._taken += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """After :meth:`take`."""
        self._given_back.append(size_bytes)


_FOOTERS: Final = _KeptFooters()


class LedgerFileReader:
    """A file that is there: its footer, and its entries by row group."""

    def __init__(self, store: LakeStore, path: str) -> None:
        """Raises CorruptionError, DiskIOError, each naming the file."""
        self._store = store
        self._path = path
        self.where = f"{store.root}/{path}"
        #: None: there is no room to keep it.
        self._metadata: Any = None
        with _Reading(self), store.read(path) as source:
            # A copy of its own: what a file gave may be gone with the file.
            parquet = pq.ParquetFile(source)
            metadata = parquet.metadata
            self._take_footer(metadata, dict(metadata.metadata or {}))
            #: Whether it has the column ``message_id``: older files have not. Not by the footer's schema, which holds
            #: the footer: both would wait for the collector of cycles.
            self.has_message_ids = "message_id" in parquet.schema_arrow.names
            if _FOOTERS.take(metadata.serialized_size):
                weakref.finalize(self, _FOOTERS.give_back, metadata.serialized_size).atexit = False
                self._metadata = metadata

    def _take_footer(self, metadata: Any, found: Mapping[bytes, bytes]) -> None:  # noqa: ANN401 (of pyarrow)
        values = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in found.items()}
        version = values.get(_VERSION_KEY, "")
        if not version.isdigit():
            raise CorruptionError(f"no lake file: it has no {_VERSION_KEY}")
        if int(version) > FORMAT_VERSION:
            raise CorruptionError(f"format version {version}, newer than {FORMAT_VERSION}")
        ledger, offload, groups = (json.loads(values[key]) for key in (_LEDGER, _OFFLOAD, _GROUPS))
        self.facts = _facts_of(values[_TOPIC], ledger, str(offload["uid"]))
        self.contents = _contents_of(json.loads(values[_CONTENTS]))
        for one in json.loads(values[_SCHEMAS]):
            _schema_of(one)
        self._first_entries = [int(entry) for entry in groups["firstEntries"]]
        rows = [int(metadata.row_group(number).num_rows) for number in range(metadata.num_row_groups)]
        self._rows = rows
        named = names.parse_ledger_file(self._path.rpartition("/")[2])
        is_whole = (
            rows == groups["rows"]
            and self.contents.rows == sum(rows)
            and self.contents.entries == self.facts.entries
            and len(self._first_entries) == len(rows)
            and self._first_entries[:1] == ([0] if rows else [])
            and self._first_entries == sorted(set(self._first_entries))
            and named == (self.facts.ledger_id, self.facts.uid)
        )
        if not is_whole:
            raise CorruptionError("its footer does not say what is in it, or where it is")

    @property
    def group_count(self) -> int:
        """How many row groups it has."""
        return len(self._first_entries)

    def group_of(self, entry_id: int) -> int:
        """The row group that has an entry."""
        return bisect_right(self._first_entries, entry_id) - 1

    def entries_of(self, group: int) -> range:
        """Ids of a row group's entries."""
        behind = self._first_entries[group + 1] if group + 1 < self.group_count else self.facts.entries
        return range(self._first_entries[group], behind)

    def rows_of(self, group: int) -> int:
        """How many rows a row group has."""
        return self._rows[group]

    def naming(self) -> AbstractContextManager[None]:
        """Around what is made of it: damage that shows there becomes an error that names the file."""
        return _Reading(self)

    def read_group(self, group: int) -> list[bytes]:
        """A row group's entries, rebuilt. Raises CorruptionError, DiskIOError."""
        with _Reading(self), self._store.read(self._path) as source:
            parquet = pq.ParquetFile(source, metadata=self._metadata, page_checksum_verification=True)
            table = parquet.read_row_group(group, columns=list(REBUILD_COLUMNS), use_threads=False)
            columns = [table.column(name).to_pylist() for name in REBUILD_COLUMNS]
            found = rebuild_entries(*columns)
            if [entry_id for entry_id, _ in found] != list(self.entries_of(group)):
                raise CorruptionError(f"row group {group} has not the entries that the footer names")
            return [entry for _, entry in found]
        raise DiskIOError(self.where)  # not reached: the context raises

    def read_columns(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Columns of a row group as they are. Raises CorruptionError, DiskIOError."""
        with _Reading(self), self._store.read(self._path) as source:
            parquet = pq.ParquetFile(source, metadata=self._metadata, page_checksum_verification=True)
            return parquet.read_row_group(group, columns=list(columns), use_threads=False)
        raise DiskIOError(self.where)  # not reached: the context raises


class _Reading(AbstractContextManager[None]):
    """Whatever a damaged file makes of reading it becomes an error that names it."""

    __slots__ = ("_reader",)

    def __init__(self, reader: LedgerFileReader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> Literal[False]:
        where = self._reader.where
        match error:
            case None:
                return False
            case FileNotFoundError():
                # Not "no such ledger": what the list names was not deleted by us.
                raise MissingFileError(f"{where} is not there") from error
            case CorruptionError():
                if f"{error}".startswith(where):
                    return False
                raise CorruptionError(f"{where}: {error}") from error
            case OSError() if not _is_damage(error):
                raise DiskIOError(f"{where}: {error}") from error
            case OSError() | ValueError() | KeyError() | TypeError() | AttributeError() | IndexError() | MemoryError():
                raise CorruptionError(f"{where} is damaged: {error}") from error
            case pa.ArrowException() | OverflowError():
                raise CorruptionError(f"{where} is damaged: {error}") from error
        return False


def _is_damage(error: OSError) -> bool:
    """Whether it is about bytes, and not about getting them: Arrow tells both as OSError, only the latter by number."""
    text = str(error)
    return error.errno is None and "AWS Error" not in text and "HTTP" not in text and "curl" not in text.lower()


def _ledger_document(facts: LedgerFacts) -> dict[str, object]:
    return {
        "ledgerId": facts.ledger_id,
        "entries": facts.entries,
        "length": facts.length_bytes,
        "createdMs": facts.created_ms,
        "closedMs": facts.closed_ms,
        "digestType": facts.digest_type,
        "ensembleSize": facts.ensemble_size,
        "writeQuorum": facts.write_quorum,
        "ackQuorum": facts.ack_quorum,
        "customMetadata": {key: base64.b64encode(value).decode() for key, value in facts.custom_metadata.items()},
    }


def _facts_of(topic: str, document: Mapping[str, Any], uid: str) -> LedgerFacts:
    numbers = ("ledgerId", "entries", "length", "createdMs", "closedMs")
    ledger_id, entries, length, created, closed = (int(document[key]) for key in numbers)
    custom = {str(key): base64.b64decode(value) for key, value in document["customMetadata"].items()}
    ensemble, write, ack = (int(document[key]) for key in ("ensembleSize", "writeQuorum", "ackQuorum"))
    digest_type = str(document["digestType"])
    if digest_type not in DigestType.__members__:
        raise CorruptionError(f"{digest_type!r} is no type of digest")
    return LedgerFacts(
        topic,
        ledger_id,
        uid,
        entries,
        length,
        created,
        closed,
        digest_type,
        ensemble,
        write,
        ack,
        custom,
    )


def _schema_document(schema: SchemaFacts) -> dict[str, object]:
    return {
        "version": schema.version.hex(),
        "type": schema.type_name,
        "name": schema.name,
        "schema": base64.b64encode(schema.schema).decode(),
        "properties": dict(schema.properties),
        "timestampMs": schema.timestamp_ms,
    }


def _schema_of(document: Mapping[str, Any]) -> SchemaFacts:
    return SchemaFacts(
        bytes.fromhex(document["version"]),
        str(document["type"]),
        str(document["name"]),
        base64.b64decode(document["schema"]),
        dict(document["properties"]),
        int(document["timestampMs"]),
    )


def _contents_document(contents: Contents) -> dict[str, object]:
    return {
        "rows": contents.rows,
        "entries": contents.entries,
        "payloadBytes": contents.payload_bytes,
        "kinds": dict(contents.kinds),
        "firstPublishMs": contents.first_publish_ms,
        "lastPublishMs": contents.last_publish_ms,
        "withProperties": contents.with_properties,
    }


def _contents_of(document: Mapping[str, Any]) -> Contents:
    return Contents(
        int(document["rows"]),
        int(document["entries"]),
        int(document["payloadBytes"]),
        {str(kind): int(count) for kind, count in document["kinds"].items()},
        document["firstPublishMs"],
        document["lastPublishMs"],
        document.get("withProperties"),
    )
