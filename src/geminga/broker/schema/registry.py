"""The schemas of topics: find, add if they fit, check, delete.

A schema id is ``tenant/namespace/encoded-topic``, without domain and partition: all partitions share their topic's
schemas. Changes of one topic's schemas take turns within the process; against other brokers they are compared and
set, and a lost race starts over with what the winner stored. Versions count from 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from geminga.broker.schema.core.compatibility import (
    identity_of,
    is_same_schema,
    obstacles,
    obstacles_for_consumer,
)
from geminga.broker.schema.core.identities import Identities
from geminga.broker.schema.core.storage_format import IndexEntry, Locator, StoredSchema, hash_of, live_versions
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.core.validity import why_invalid
from geminga.broker.schema.operations import DELETE, GET, PUT, SchemaOperations
from geminga.broker.schema.store import SchemaStore
from geminga.model.errors import (
    BadVersionError,
    CorruptionError,
    IncompatibleSchemaError,
    InvalidSchemaError,
    MetadataError,
    StorageError,
)
from geminga.model.topic_name import TopicName
from geminga.runtime import KeyedLocks, again, carried_out, next_turn
from geminga.runtime.ports import Clock, Threads
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType

#: Races lost to other brokers before giving up; each lost one means that a version was added.
ATTEMPTS_MAX: Final = 16
#: Versions that a schema is compared with in one turn of the loop, at most.
COMPARED_PER_TURN: Final = 10
#: Bytes of definitions that are read on the loop's thread: 4 ms of work.
READ_HERE_BYTES_MAX: Final = 16 * 1024
#: Bytes of two definitions that are compared there: unions of records multiply.
COMPARED_HERE_BYTES_MAX: Final = 2 * 1024
#: The thread for what is longer.
LANE: Final = "schemas"

T = TypeVar("T")


def schema_id_of(name: TopicName) -> str:
    """Under what a topic's schemas are kept."""
    whole = name.partitioned_topic
    return f"{whole.namespace}/{whole.encoded_local_name}"


class DefinitionWork:
    """Reading and comparing definitions, which clients write: what may take long is done on a thread, one at a time.

    A definition of 16 MB, which REST takes, is three seconds of work; comparing it can take half a second more.
    Whoever waits for the thread, waits here, where it can be called off.
    """

    __slots__ = ("_free", "_threads")

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._free = asyncio.Lock()

    async def do(self, work: Callable[[], T], *, read_bytes: int = 0, compared_bytes: int = 0) -> T:
        """What ``work`` gives, which reads or compares so much. Raises what it does, StorageError without a thread."""
        if read_bytes <= READ_HERE_BYTES_MAX and compared_bytes <= COMPARED_HERE_BYTES_MAX:
            return work()
        await self._free.acquire()
        return await carried_out(self._on_thread(work), name="schema definition")

    async def _on_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self._threads.call(LANE, work)
        except OSError as error:
            raise StorageError(f"the schema can not be looked at now: {error}") from error
        finally:
            self._free.release()


class SchemaRegistry:
    """See the module."""

    __slots__ = ("_clock", "_definitions", "_identities", "_store", "_turns", "operations")

    def __init__(self, clock: Clock, threads: Threads, store: SchemaStore) -> None:
        self._clock = clock
        self._definitions = DefinitionWork(threads)
        self._store = store
        self.operations = SchemaOperations(clock.monotonic)
        self._identities = Identities()
        #: By schema id.
        self._turns = KeyedLocks()

    # ---- find

    async def locator(self, schema_id: str) -> Locator | None:
        """Where the versions are; None if there never was one, or all were deleted for good."""
        return (await self._store.locate(schema_id)).locator

    async def latest(self, schema_id: str) -> StoredSchema | None:
        """The newest version; None if there is none or it was deleted."""
        with self.operations.timed(GET, schema_id):
            locator = await self.locator(schema_id)
            if locator is None or not locator.newest.hash:
                return None
            return await self._store.read(locator.newest)

    async def get(self, schema_id: str, version: int) -> StoredSchema | None:
        """That version, also if it was deleted since (``is_deleted`` tells the mark itself); None if there is none."""
        with self.operations.timed(GET, schema_id):
            locator = await self.locator(schema_id)
            for entry in locator.index if locator is not None else ():
                if entry.version == version:
                    return await self._store.read(entry)
            return None

    async def live_version(self, schema_id: str, version: int) -> StoredSchema | None:
        """That version; None if there is none, or it is from before the last deletion."""
        with self.operations.timed(GET, schema_id):
            for entry in _since_deletion(await self.locator(schema_id)):
                if entry.version == version:
                    found = await self._store.read(entry)
                    return None if found.is_deleted else found
            return None

    async def live(self, schema_id: str) -> Sequence[StoredSchema]:
        """All versions since the last deletion, oldest first."""
        with self.operations.timed(GET, schema_id):
            return await self._live(await self.locator(schema_id))

    async def has_schema(self, schema_id: str) -> bool:
        """Whether there is a version that is not deleted."""
        locator = await self.locator(schema_id)
        return locator is not None and bool(locator.newest.hash)

    async def find_version(self, schema_id: str, info: SchemaInfo) -> int | None:
        """The version that is this schema; None if there is none. Raises InvalidSchemaError."""
        await self._require_valid(info)
        return await self._version_of(info, await self.live(schema_id))

    async def version_by_hash(self, schema_id: str, definition: bytes) -> int | None:
        """The newest version that has this definition, as the locator says without any ledger; None: no version has.

        It says nothing of its type: for who knows that already. Raises CorruptionError, MetadataError.
        """
        digest = hash_of(SchemaInfo(schema_id, SchemaType.AVRO, definition))
        index = _since_deletion(await self.locator(schema_id))
        return next((entry.version for entry in reversed(index) if entry.hash == digest), None)

    async def definition(self, schema_id: str, version: int, own: bytes) -> bytes:
        """The definition of a version. If it can not be read, ``own``, which the caller writes with, where the locator
        says that it is that. Raises CorruptionError if there is no such version, StorageError."""
        try:
            stored = await self.get(schema_id, version)
        except MetadataError:
            raise
        except StorageError:
            if await self.version_by_hash(schema_id, own) != version:
                raise
            return own
        if stored is None:
            raise CorruptionError(f"its schema version {version} is not in the registry")
        return stored.info.schema

    # ---- add and check

    async def put_if_absent(
        self, schema_id: str, info: SchemaInfo, strategy: Strategy, *, may_add: bool = True, user: str = ""
    ) -> int:
        """The version of this schema, which is added if it is new and fits.

        Raises IncompatibleSchemaError, InvalidSchemaError, StorageError.
        """
        await self._require_valid(info)
        with self.operations.timed(PUT, schema_id):
            return await self._put_if_absent(schema_id, info, strategy, may_add, user)

    async def _put_if_absent(
        self, schema_id: str, info: SchemaInfo, strategy: Strategy, may_add: bool, user: str
    ) -> int:
        async with self._turns.of(schema_id):
            for _ in range(ATTEMPTS_MAX):
                found = await self._store.locate(schema_id)
                live, failure = await self._readable(found.locator)
                version = await self._version_of(info, live)
                if version is not None:
                    return version
                if failure is not None:
                    # It may be that one, or not fit it.
                    raise again(failure)
                if not may_add:
                    raise IncompatibleSchemaError("Schema not found and schema auto updating is disabled.")
                if live:
                    await self._compare(schema_id, info, live, partial(obstacles, strategy=strategy))
                version = _next_version(found.locator)
                stored = SchemaInfo(schema_id, info.type, info.schema, info.properties)
                schema = StoredSchema(version, stored, self._clock.wall_ms(), user)
                if await self._store.append(schema_id, schema, found):
                    return version
        raise BadVersionError(f"{schema_id}: lost {ATTEMPTS_MAX} races for a new schema version")

    async def check(self, schema_id: str, info: SchemaInfo, strategy: Strategy) -> None:
        """Raise IncompatibleSchemaError unless the schema could be added beside those there are."""
        await self._require_valid(info)
        live = await self.live(schema_id)
        if not live and strategy is not Strategy.ALWAYS_COMPATIBLE:
            raise IncompatibleSchemaError("Do not have existing schema.")
        await self._compare(schema_id, info, live, partial(obstacles, strategy=strategy))

    async def check_consumer(self, schema_id: str, info: SchemaInfo, strategy: Strategy) -> None:
        """Raise IncompatibleSchemaError unless a consumer with this schema can read the topic."""
        await self._require_valid(info)
        if strategy is Strategy.ALWAYS_COMPATIBLE:
            return
        live = await self.live(schema_id)
        if not live:
            raise IncompatibleSchemaError("Topic does not have schema to check")
        await self._compare(schema_id, info, live, partial(obstacles_for_consumer, strategy=strategy))

    # ---- delete

    async def mark_deleted(self, schema_id: str, *, user: str = "") -> int | None:
        """Add a version that says "no schema from here on"; its number, None if there is nothing to delete.

        Raises BadVersionError.
        """
        with self.operations.timed(DELETE, schema_id):
            return await self._mark_deleted(schema_id, user)

    async def _mark_deleted(self, schema_id: str, user: str) -> int | None:
        async with self._turns.of(schema_id):
            for _ in range(ATTEMPTS_MAX):
                found = await self._store.locate(schema_id)
                if found.locator is None:
                    return None
                version = _next_version(found.locator)
                info = SchemaInfo(schema_id, SchemaType.NONE)
                schema = StoredSchema(version, info, self._clock.wall_ms(), user, is_deleted=True)
                if await self._store.append(schema_id, schema, found):
                    return version
        raise BadVersionError(f"{schema_id}: lost {ATTEMPTS_MAX} races for a new schema version")

    async def delete(self, schema_id: str) -> bool:
        """Delete all versions for good, as with the topic; False if there were none."""
        with self.operations.timed(DELETE, schema_id):
            async with self._turns.of(schema_id):
                return await self._store.delete(schema_id)

    # ---- inside

    async def _require_valid(self, info: SchemaInfo) -> None:
        reason = await self._definitions.do(partial(why_invalid, info), read_bytes=len(info.schema))
        if reason:
            raise InvalidSchemaError(reason)

    async def _compare(
        self,
        schema_id: str,
        info: SchemaInfo,
        live: Sequence[StoredSchema],
        compare: Callable[[SchemaInfo, Sequence[SchemaInfo]], Iterator[str]],
    ) -> None:
        """``compare`` gives why the schema does not fit a version (empty: it does). Raises IncompatibleSchemaError."""
        existing = [schema.info for schema in live]
        size = len(info.schema) + max([len(old.schema) for old in existing], default=0)
        step = partial(_first_obstacle, compare(info, existing))
        while (reason := await self._definitions.do(step, compared_bytes=size)) == "":
            await next_turn()
        self.operations.compared(schema_id, is_compatible=not reason)
        if reason:
            raise IncompatibleSchemaError(reason)

    async def _identity_of(self, info: SchemaInfo) -> bytes | None:
        """Of a stored schema, from now on remembered."""
        identity = await self._definitions.do(partial(identity_of, info), read_bytes=len(info.schema))
        self._identities.keep(info, identity)
        return identity

    async def _version_of(self, info: SchemaInfo, live: Sequence[StoredSchema]) -> int | None:
        # Most producers bring exactly what is there: no definition is parsed for them.
        for schema in live:
            if (
                schema.info.type is info.type
                and schema.info.schema == info.schema
                and is_same_schema(info, schema.info)
            ):
                return schema.version
        alike = [schema for schema in live if schema.info.type is info.type]
        if not alike:
            return None
        identity = await self._definitions.do(partial(identity_of, info), read_bytes=len(info.schema))
        if identity is not None:
            for number, schema in enumerate(alike):
                if number and number % COMPARED_PER_TURN == 0:
                    await next_turn()
                try:
                    known = self._identities.of(schema.info)
                except KeyError:
                    known = await self._identity_of(schema.info)
                    await next_turn()
                if known == identity:
                    return schema.version
        return None

    async def _readable(self, locator: Locator | None) -> tuple[Sequence[StoredSchema], StorageError | None]:
        """Those versions since the last deletion that can be read, and why the others can not. Raises MetadataError."""
        found: list[StoredSchema] = []
        failure: StorageError | None = None
        for entry in _since_deletion(locator):
            try:
                found.append(await self._store.read(entry))
            except MetadataError:
                raise
            except StorageError as error:
                failure = again(error)
        return live_versions(found), failure

    async def _live(self, locator: Locator | None) -> Sequence[StoredSchema]:
        return live_versions([await self._store.read(entry) for entry in _since_deletion(locator)])


def _since_deletion(locator: Locator | None) -> Sequence[IndexEntry]:
    """An entry without a hash is the mark of a deletion: what is before needs no reading."""
    entries = locator.index if locator is not None else ()
    start = max((at + 1 for at, entry in enumerate(entries) if not entry.hash), default=0)
    return entries[start:]


def _next_version(locator: Locator | None) -> int:
    return locator.newest.version + 1 if locator is not None else 0


def _first_obstacle(found: Iterator[str]) -> str | None:
    """Of the next few versions; empty: none of them is any, None: there are no more."""
    reason = None
    for reason in islice(found, COMPARED_PER_TURN):
        if reason:
            break
    return reason
