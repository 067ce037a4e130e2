"""Keys of a row group, and some of its entries: for who looks which messages are the newest of their keys.

Columns are read, and no value becomes an object of Python's but those of entries that are asked for. By blocking calls.
Imports ``pyarrow``: loaded by who reads lake files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from geminga.lake.arrow_rows import REBUILD_COLUMNS
from geminga.lake.core.rebuild import rebuild_entries
from geminga.lake.core.rows import ABORTED, COMPACTED, MARKER, MESSAGE, EntryRun, KeyRows, UndividedEntry, sent_keys
from geminga.lake.parquet import LedgerFileReader
from geminga.model.errors import CorruptionError

_PLACES: Final = ("entry", "kind")
_KEYS: Final = (*_PLACES, "batch_index", "key", "key_is_base64", "value", "value_is_null")
_HEADS: Final = ("entry_head", "message_head")
_TIMES: Final = ("publish_time", "broker_time")
#: Kinds of entries that no reader of the topic gets.
HIDDEN: Final = frozenset((MARKER, ABORTED))


def read_keys(reader: LedgerFileReader, group: int, *, with_times: bool = False) -> KeyRows:
    """Of a whole row group. Raises CorruptionError, DiskIOError."""
    table = reader.read_columns(group, (*_KEYS, *(_TIMES if with_times else ())))
    kind = table.column("kind")
    is_message = pc.is_in(kind, value_set=pa.array((MESSAGE, COMPACTED)))
    stored: Sequence[UndividedEntry] = ()
    if not pc.all(is_message, min_count=0).as_py():
        stored = _stored(reader, group, table, is_message)
        table = table.filter(is_message)
    is_empty = pc.or_(table.column("value_is_null"), pc.equal(pc.binary_length(table.column("value")), 0))
    return KeyRows(
        _keys(reader, group, table, is_message),
        _bytes(pc.fill_null(is_empty, True)),
        _bytes(pc.equal(table.column("kind"), COMPACTED)),
        stored,
        _times(table) if with_times else (),
    )


def read_runs(reader: LedgerFileReader, group: int) -> tuple[Sequence[EntryRun], Sequence[UndividedEntry]]:
    """How many messages each entry of a row group has, in order. Raises CorruptionError, DiskIOError."""
    table = reader.read_columns(group, _PLACES)
    is_message = pc.is_in(table.column("kind"), value_set=pa.array((MESSAGE, COMPACTED)))
    stored: Sequence[UndividedEntry] = ()
    if not pc.all(is_message, min_count=0).as_py():
        stored = _stored(reader, group, table, is_message)
    whole = {one.entry_id for one in stored}
    runs = pc.run_end_encode(_one(table.column("entry")))
    entry_ids, ends = runs.values.to_pylist(), runs.run_ends.to_pylist()
    found: list[EntryRun] = []
    before = 0
    for entry_id, end in zip(entry_ids, ends, strict=True):
        found.append(EntryRun(entry_id, 0 if entry_id in whole else end - before))
        before = end
    return found, stored


def read_entries(reader: LedgerFileReader, group: int, entry_ids: Collection[int]) -> list[tuple[int, bytes]]:
    """Some entries of a row group, rebuilt, in order. Raises CorruptionError, DiskIOError."""
    table = reader.read_columns(group, REBUILD_COLUMNS)
    if len(entry_ids) < len(reader.entries_of(group)):
        table = table.filter(pc.is_in(table.column("entry"), value_set=pa.array(sorted(entry_ids), pa.int64())))
    found = rebuild_entries(*(table.column(name).to_pylist() for name in REBUILD_COLUMNS))
    if len(found) != len(entry_ids):
        raise CorruptionError(f"row group {group} has {len(found)} of {len(entry_ids)} entries")
    return found


def _stored(reader: LedgerFileReader, group: int, table: pa.Table, is_message: pa.ChunkedArray) -> list[UndividedEntry]:
    """The entries that are no rows of messages, and how many of those come before each."""
    raw = reader.read_columns(group, ("raw",)).column("raw").filter(pc.invert(is_message)).to_pylist()
    others = table.filter(pc.invert(is_message)).select(_PLACES)
    places = pc.indices_nonzero(pc.invert(is_message)).to_pylist()
    found: list[UndividedEntry] = []
    for number, (place, entry_id, kind, entry) in enumerate(
        zip(places, others.column("entry").to_pylist(), others.column("kind").to_pylist(), raw, strict=True)
    ):
        if kind not in HIDDEN and entry is None:
            raise CorruptionError(f"entry {entry_id} is {kind} and has not its bytes")
        found.append(UndividedEntry(place - number, entry_id, None if kind in HIDDEN else entry))
    return found


def _keys(reader: LedgerFileReader, group: int, table: pa.Table, is_message: pa.ChunkedArray) -> list[bytes | None]:
    keys: list[bytes | None] = table.column("key").to_pylist()
    is_base64 = table.column("key_is_base64")
    if not pc.any(is_base64, min_count=0).as_py():
        return keys
    # A column of keys has those that travelled as base64 decoded, and does not say whether they were base64 at all.
    heads = reader.read_columns(group, _HEADS).filter(is_message)
    which = pc.indices_nonzero(is_base64).to_pylist()
    single, batched = (heads.column(name).take(which).to_pylist() for name in _HEADS)
    for row, key in zip(which, sent_keys(single, batched), strict=True):
        keys[row] = key
    return keys


def _times(table: pa.Table) -> list[int]:
    published, noted = (table.column(name).cast(pa.int64()) for name in _TIMES)
    times: list[int] = pc.fill_null(pc.coalesce(pc.if_else(pc.equal(noted, 0), None, noted), published), 0).to_pylist()
    return times


def _bytes(flags: pa.Array) -> bytes:
    data: bytes = pc.cast(_one(flags), pa.uint8()).to_numpy(zero_copy_only=False).tobytes()
    return data


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
