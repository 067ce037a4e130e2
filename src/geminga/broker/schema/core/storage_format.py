"""What is stored of schemas, as bytes: see docs/formats/schema-registry.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire._generated import schema_storage_pb2 as pb
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType

#: Stored types are those of the wire plus one.
_TYPE_OFFSET: Final = 1
#: Versions whose index entries are kept ready, of all topics; some 300 bytes each.
INDEX_ENTRIES_KEPT: Final = 4096


class IndexEntry(NamedTuple):
    """One version and where it is."""

    version: int
    position: Position
    #: SHA-256 of the definition, empty for the mark of a deletion.
    hash: bytes


@dataclass(frozen=True, slots=True)
class Locator:
    """A topic's versions, oldest first; never empty."""

    index: tuple[IndexEntry, ...]

    @property
    def newest(self) -> IndexEntry:
        """The newest version."""
        return self.index[-1]


class StoredSchema(NamedTuple):
    """One version of a topic's schema; ``info`` of the mark of a deletion has type NONE."""

    version: int
    info: SchemaInfo
    timestamp_ms: int
    user: str = ""
    is_deleted: bool = False


def hash_of(info: SchemaInfo) -> bytes:
    """What the index keeps of a definition."""
    return sha256(info.schema).digest()


def live_versions(schemas: Sequence[StoredSchema]) -> Sequence[StoredSchema]:
    """Those that came after the newest deletion."""
    for at in range(len(schemas) - 1, -1, -1):
        if schemas[at].is_deleted:
            return schemas[at + 1 :]
    return schemas


def encode_locator(locator: Locator) -> bytes:
    """The metadata node's value."""
    index = [_index_entry(entry) for entry in locator.index]
    return pb.SchemaLocator(info=index[-1], index=index).SerializeToString()


def decode_locator(data: bytes, path: str) -> Locator:
    """From the node's value. Raises CorruptionError."""
    try:
        stored = pb.SchemaLocator.FromString(data)
    except DecodeError as error:
        raise CorruptionError(f"{path} holds no schema locator: {error}") from error
    index = tuple(
        IndexEntry(entry.version, Position(entry.position.ledgerId, entry.position.entryId), entry.hash)
        for entry in (stored.index or [stored.info])
    )
    if index[-1].version != stored.info.version:
        raise CorruptionError(f"{path}: newest version {stored.info.version}, the index ends at {index[-1].version}")
    return Locator(index)


def encode_entry(schema_id: str, schema: StoredSchema, index: Sequence[IndexEntry]) -> bytes:
    """The ledger entry of a schema; ``index``: the versions before it."""
    info = pb.SchemaInfo(
        schema_id=schema_id,
        user=schema.user,
        type=int(schema.info.type) + _TYPE_OFFSET,
        schema=schema.info.schema,
        timestamp=schema.timestamp_ms,
        deleted=schema.is_deleted,
        props=[
            pb.SchemaInfo.KeyValuePair(key=key, value=value) for key, value in sorted(schema.info.properties.items())
        ],
    )
    entries = [_index_entry(entry) for entry in index]
    return pb.SchemaEntry(schema_data=info.SerializeToString(), index=entries).SerializeToString()


def decode_entry(data: bytes, version: int, place: str) -> StoredSchema:
    """From the ledger entry. Raises CorruptionError."""
    try:
        info = pb.SchemaInfo.FromString(pb.SchemaEntry.FromString(data).schema_data)
        kind = SchemaType(info.type - _TYPE_OFFSET)
    except (DecodeError, ValueError) as error:
        raise CorruptionError(f"{place} holds no schema: {error}") from error
    properties = {pair.key: pair.value for pair in info.props}
    return StoredSchema(
        version, SchemaInfo(info.schema_id, kind, info.schema, properties), info.timestamp, info.user, info.deleted
    )


@lru_cache(INDEX_ENTRIES_KEPT)
def _index_entry(entry: IndexEntry) -> pb.IndexEntry:
    """To be copied, as whatever holds one does: each new version writes all that were before it again, twice."""
    position = pb.PositionInfo(ledgerId=entry.position.ledger_id, entryId=entry.position.entry_id)
    return pb.IndexEntry(version=entry.version, position=position, hash=entry.hash)
