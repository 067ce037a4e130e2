"""Schemas in the metadata store and in ledgers, as Pulsar keeps them: see docs/formats/schema-registry.md.

Each version is one entry in a ledger of its own; the locator, a metadata node per topic, says which. A new version is
on stable storage, in a closed ledger, before the locator names it by compare-and-set: a crash in between leaves a
ledger that nobody names (``orphan_ledgers``), never a version that can not be read. Deletion goes the other way
round: the locator first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from geminga.bookkeeper import BookKeeper
from geminga.bookkeeper.ledger_store import LedgerStore
from geminga.broker.schema import crash_points
from geminga.broker.schema.core.storage_format import (
    IndexEntry,
    Locator,
    StoredSchema,
    decode_entry,
    decode_locator,
    encode_entry,
    encode_locator,
    hash_of,
)
from geminga.metadata import cas
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore
from geminga.model.errors import (
    BadVersionError,
    CorruptionError,
    NoSuchLedgerError,
    NotAllowedError,
    StorageError,
    UnknownOutcomeError,
)
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from geminga.model.position import Position
from geminga.runtime import again, crash_point, get_logger

#: The locators are below, one per topic: ``/schemas/{tenant}/{namespace}/{topic}``.
ROOT: Final = "/schemas"
#: Custom metadata of a schema's ledger (Pulsar's names).
META_COMPONENT: Final = "component"
META_SCHEMA_ID: Final = "pulsar/schemaId"
#: Bytes of definitions kept in memory; entries never change, so they are never stale.
CACHE_BYTES_MAX: Final = 16 * 1024 * 1024
#: What an entry costs in memory beside its definition, bytes; rounded up.
CACHE_ENTRY_BYTES: Final = 1024
#: Writes of a locator repeated at once after an unknown outcome that turned out not to have happened.
UNKNOWN_ATTEMPTS_MAX: Final = 8
#: Races lost to added versions before a deletion gives up.
DELETE_ATTEMPTS_MAX: Final = 16

_log = get_logger(__name__)


class SchemaQuorums(NamedTuple):
    """How many bookies hold a schema."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int


class Located(NamedTuple):
    """A locator and the version of its node."""

    locator: Locator | None
    node_version: int


class SchemaLedger(NamedTuple):
    """A ledger that holds a version."""

    ledger_id: int
    entries: int
    size_bytes: int


class SchemaStore:
    """See the module."""

    __slots__ = ("_bookkeeper", "_cache", "_cache_bytes", "_metadata", "_quorums", "_written")

    def __init__(self, metadata: MetadataStore, bookkeeper: BookKeeper, quorums: SchemaQuorums) -> None:
        self._metadata = metadata
        self._bookkeeper = bookkeeper
        self._quorums = quorums
        #: Entries read or written, the longest unused first.
        self._cache: dict[Position, StoredSchema] = {}
        self._cache_bytes = 0
        #: The locator that was written last, beside its value: who adds a version after the other finds it read.
        self._written: tuple[bytes, Locator | None] = (b"", None)

    # ---- read

    async def locate(self, schema_id: str) -> Located:
        """The topic's versions; raises CorruptionError, MetadataError."""
        path = path_of(schema_id)
        node = await self._metadata.get(path)
        # A node without a value is the parent of others below: topics may have slashes in their names.
        if node is None or not node.value:
            return Located(None, MUST_NOT_EXIST if node is None else node.stat.version)
        value, written = self._written
        locator = written if written is not None and node.value == value else decode_locator(node.value, path)
        return Located(locator, node.stat.version)

    async def read(self, entry: IndexEntry) -> StoredSchema:
        """One version; raises StorageError (NoSuchLedgerError: it was deleted meanwhile)."""
        position = entry.position
        known = self._cache.pop(position, None)
        if known is not None:
            self._cache[position] = known
            return known
        handle = await self._bookkeeper.open_ledger(position.ledger_id)
        payloads = await handle.read_entries(position.entry_id, position.entry_id)
        place = f"ledger {position.ledger_id} entry {position.entry_id}"
        schema = decode_entry(payloads[0], entry.version, place)
        if entry.hash and entry.hash != hash_of(schema.info):
            raise CorruptionError(f"{place} is not the schema that the locator names: another hash")
        self._remember(position, schema)
        return schema

    async def ledgers(self, schema_id: str) -> Sequence[SchemaLedger]:
        """The ledgers that hold the topic's versions, oldest first; those deleted meanwhile are left out."""
        locator = (await self.locate(schema_id)).locator
        ledgers = LedgerStore(self._metadata)
        found = []
        for entry in locator.index if locator is not None else ():
            ledger_id = entry.position.ledger_id
            try:
                metadata = (await ledgers.read(ledger_id)).metadata
            except NoSuchLedgerError:
                continue
            found.append(SchemaLedger(ledger_id, metadata.last_entry_id + 1, metadata.length_bytes))
        return found

    # ---- write

    async def append(self, schema_id: str, schema: StoredSchema, known: Located) -> bool:
        """Store the version that follows ``known``; False if the locator changed since, then nothing is stored.

        Raises StorageError; after UnknownOutcomeError nobody knows whether the version exists.
        """
        index = known.locator.index if known.locator is not None else ()
        position = await self._write_entry(schema_id, encode_entry(schema_id, schema, index))
        entry = IndexEntry(schema.version, position, b"" if schema.is_deleted else hash_of(schema.info))
        locator = Locator((*index, entry))
        value = encode_locator(locator)
        if len(value) > METADATA_VALUE_BYTES_MAX:
            await self._delete_ledger(position.ledger_id)
            raise NotAllowedError(f"{schema_id} has {len(index)} schema versions; there is no room for more")
        if not await self._name(schema_id, value, position, known.node_version):
            await self._delete_ledger(position.ledger_id)
            return False
        crash_point(crash_points.LOCATOR_WRITTEN)
        self._written = value, locator
        self._remember(position, schema)
        return True

    async def delete(self, schema_id: str) -> bool:
        """Delete all versions; False if there were none. Raises MetadataError."""
        path = path_of(schema_id)
        for _ in range(DELETE_ATTEMPTS_MAX):
            node = await self._metadata.get(path)
            if node is None or not node.value:
                return False
            locator = decode_locator(node.value, path)
            try:
                await cas.remove_read(self._metadata, path, node)
            except BadVersionError:
                # A version was added meanwhile: it goes too, with its ledger.
                continue
            crash_point(crash_points.LOCATOR_DELETED)
            for entry in locator.index:
                self._forget(entry.position)
                await self._delete_ledger(entry.position.ledger_id)
            crash_point(crash_points.LEDGERS_DELETED)
            return True
        raise BadVersionError(f"{path} kept changing while it was to be deleted")

    async def _write_entry(self, schema_id: str, data: bytes) -> Position:
        quorums = self._quorums
        handle = await self._bookkeeper.create_ledger(
            ensemble_size=quorums.ensemble_size,
            write_quorum=quorums.write_quorum,
            ack_quorum=quorums.ack_quorum,
            custom_metadata={
                "application": b"pulsar",
                META_COMPONENT: b"schema",
                META_SCHEMA_ID: schema_id.encode(),
            },
            # Whatever is configured: with any other Pulsar's own brokers can not open it.
            password=b"",
        )
        crash_point(crash_points.LEDGER_CREATED)
        written: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()

        def done(_first: int, _count: int, error: StorageError | None) -> None:
            if not written.done():
                written.set_result(error)

        entry_id = handle.append([data], done)
        error = await written
        if error is not None:
            await self._delete_ledger(handle.ledger_id)
            raise again(error)
        crash_point(crash_points.ENTRY_WRITTEN)
        await handle.close()
        crash_point(crash_points.LEDGER_CLOSED)
        return Position(handle.ledger_id, entry_id)

    async def _name(self, schema_id: str, value: bytes, position: Position, node_version: int) -> bool:
        path = path_of(schema_id)
        is_unsure = False
        for _ in range(UNKNOWN_ATTEMPTS_MAX):
            try:
                await self._metadata.put(path, value, expected_version=node_version)
                return True
            except BadVersionError:
                # Perhaps it was our own write, unanswered before. No other locator names our ledger.
                return is_unsure and _names(await self.locate(schema_id), position)
            except UnknownOutcomeError:
                is_unsure = True
                if _names(await self.locate(schema_id), position):
                    return True
        raise UnknownOutcomeError(f"{path}: {UNKNOWN_ATTEMPTS_MAX} writes in a row without an answer")

    async def _delete_ledger(self, ledger_id: int) -> None:
        try:
            await self._bookkeeper.delete_ledger(ledger_id)
        except StorageError as error:
            _log.warning("schema ledger %d was not deleted: %s", ledger_id, error)

    # ---- cache

    def _remember(self, position: Position, schema: StoredSchema) -> None:
        # Many may have read it at once: it is there, and counted, once.
        self._forget(position)
        self._cache[position] = schema
        self._cache_bytes += _cost(schema)
        while self._cache_bytes > CACHE_BYTES_MAX:
            self._forget(next(iter(self._cache)))

    def _forget(self, position: Position) -> None:
        schema = self._cache.pop(position, None)
        if schema is not None:
            self._cache_bytes -= _cost(schema)


def path_of(schema_id: str) -> str:
    """The locator's node."""
    return f"{ROOT}/{schema_id}"


async def named_ledgers(metadata: MetadataStore) -> set[int]:
    """Ids of the ledgers that any locator names. Raises CorruptionError, MetadataError: nothing is known then."""
    found: set[int] = set()
    paths = [ROOT]
    while paths:
        path = paths.pop()
        node = await metadata.get(path)
        if node is not None and node.value:
            found.update(entry.position.ledger_id for entry in decode_locator(node.value, path).index)
        paths.extend(f"{path}/{name}" for name in await metadata.children(path))
    return found


def _names(found: Located, position: Position) -> bool:
    return found.locator is not None and any(entry.position == position for entry in found.locator.index)


def _cost(schema: StoredSchema) -> int:
    return CACHE_ENTRY_BYTES + len(schema.info.schema)
