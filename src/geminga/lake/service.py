"""The lake as the loop sees it: every blocking call goes to a lane, row groups that were read are kept for a while.

One for each process, made when the first topic is offloaded or read from there. How much runs at a time is bounded by
the lanes: those of offloads and restores, and of each root those of reads and one for small files. A root that hangs
keeps nobody else's reads, trimming and deletions waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from geminga.lake.core import names
from geminga.lake.core.manifest import Manifest, decode_manifest, encode_manifest
from geminga.lake.core.rebuild import is_same
from geminga.lake.group_cache import GroupCache
from geminga.lake.offload_lanes import OffloadLanes
from geminga.lake.ownership import Owner, claim, read_owner
from geminga.lake.store import LakeStore, StoredFile
from geminga.model.errors import (
    ConfigurationError,
    CorruptionError,
    DiskFullError,
    DiskIOError,
    LedgerClosedError,
    StorageError,
)
from geminga.runtime import Runtime, get_logger

if TYPE_CHECKING:
    from geminga.lake.parquet import Contents, LedgerFacts, LedgerFileReader, LedgerFileWriter, SchemaFacts

T = TypeVar("T")
#: Opens the store of a driver with these properties; blocks. Raises OSError, ConfigurationError.
OpenStore = Callable[[str, Mapping[str, str]], LakeStore]
#: Which cluster this is. Raises StorageError.
FindOwner = Callable[[], Awaitable[Owner]]
#: Which root: a driver and its properties, sorted.
_RootKey = tuple[str, tuple[tuple[str, str], ...]]

#: Roots with lanes of their own; of more, which policies may name, several share theirs.
ROOTS_APART_MAX: Final = 8
#: Roots that stay open, each with its file system; the one that was asked for longest ago is opened again when it is.
ROOTS_MAX: Final = 256
#: Manifests that are older than the newest and deleted at once.
_OLD_MANIFESTS_MAX: Final = 1000

_log = get_logger(__name__)


class StopSignal:
    """Ends waiting, wherever it is waited: what a thread does meanwhile comes to its end unheard."""

    __slots__ = ("_waiting", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        """From now on every wait ends with LedgerClosedError."""
        self.is_set = True
        for future in tuple(self._waiting):
            if not future.done():
                future.set_exception(_stopped())

    async def wait(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """Call ``begin(done)`` and wait until ``done`` is called. Raises LedgerClosedError."""
        if self.is_set:
            raise _stopped()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            begin(partial(_done, future))
            await future
        finally:
            self._waiting.discard(future)
            del future  # see runtime's value_of


def _released(work: Callable[[], T]) -> Callable[[], T]:
    """``work``, after which what Arrow keeps for its thread goes back: tens of MiB would stay with each lane."""

    def run() -> T:
        try:
            return work()
        finally:
            from pyarrow import default_memory_pool  # with the first file

            default_memory_pool().release_unused()

    return run


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _stopped() -> LedgerClosedError:
    return LedgerClosedError("the topic is being closed, it is not offloaded further")


class RootLanes:
    """Where the calls of a root are carried out."""

    __slots__ = ("_next_reader", "_reads", "small")

    def __init__(self, number: int, readers: int) -> None:
        """``number``: of the root, from 0 in the order in which they were opened."""
        place = number % ROOTS_APART_MAX
        self.small = f"lake-files-{place}"
        self._reads = [f"lake-read-{place}-{reader}" for reader in range(readers)]
        self._next_reader = 0

    def read(self) -> str:
        """The lane of the next read."""
        self._next_reader = (self._next_reader + 1) % len(self._reads)
        return self._reads[self._next_reader]


class Root:
    """A root that was opened."""

    __slots__ = ("_is_ours", "_lake", "_lanes", "_store", "driver", "properties")

    def __init__(
        self, lake: Lake, lanes: RootLanes, store: LakeStore, driver: str, properties: Mapping[str, str]
    ) -> None:
        self._is_ours = False
        self._lake = lake
        self._lanes = lanes
        self._store = store
        self.driver = driver
        self.properties = properties

    @property
    def where(self) -> str:
        """Its address."""
        return self._store.root

    async def claim(self) -> None:
        """Before anything is written: the root is this cluster's. Raises StorageError: it is another's."""
        if not self._is_ours:
            owner, now_ms = await self._lake.find_owner(), self._lake.wall_ms()
            await self._lake.call(self._lanes.small, lambda: claim(self._store, owner, now_ms))
            self._is_ours = True

    async def begin(
        self, directory: str, facts: LedgerFacts, *, started_ms: int, writer: str, lane: str, stop: StopSignal
    ) -> FileInWork:
        """Begin a ledger's file. Raises StorageError."""
        store = self._store
        path = f"{directory}/{names.ledger_file(facts.ledger_id, facts.uid)}"

        def make() -> LedgerFileWriter:
            from geminga.lake.parquet import LedgerFileWriter

            return LedgerFileWriter(store, path, facts, started_ms=started_ms, writer=writer)

        return FileInWork(self._lake, store, path, await self._lake.call(lane, make, stop), lane, stop)

    async def open(self, directory: str, ledger_id: int, uid: str, stop: StopSignal | None = None) -> LakeFile:
        """A ledger's file that is there. Raises StorageError, which names it."""
        store = self._store
        path = f"{directory}/{names.ledger_file(ledger_id, uid)}"

        def make() -> LedgerFileReader:
            from geminga.lake.parquet import LedgerFileReader

            return LedgerFileReader(store, path)

        return LakeFile(self._lake, self._lanes, await self._lake.call(self._lanes.read(), make, stop))

    async def delete(self, directory: str, ledger_id: int, uid: str) -> None:
        """Delete a ledger's file and what may be left of a part of it. Raises StorageError."""
        path = f"{directory}/{names.ledger_file(ledger_id, uid)}"
        self._lake.groups.forget(uid)
        await self._lake.call(self._lanes.small, lambda: self._store.delete(path))

    async def list(self, directory: str) -> list[StoredFile]:
        """What is in a topic's directory. Raises StorageError."""
        return await self._lake.call(self._lanes.small, lambda: self._store.list(directory))

    async def directories(self, directory: str) -> Sequence[str]:
        """Names of what is below: of tenants, namespaces, topics. Raises StorageError."""
        return await self._lake.call(self._lanes.small, lambda: self._store.directories(directory))

    async def size_bytes(self, directory: str, ledger_id: int, uid: str) -> int:
        """Of a ledger's file. Raises StorageError."""
        path = f"{directory}/{names.ledger_file(ledger_id, uid)}"
        return await self._lake.call(self._lanes.small, lambda: self._store.size_bytes(path))

    async def read_manifest(self, directory: str) -> Manifest | None:
        """The manifest that counts; None: there is none, or it can not be read. Raises StorageError."""
        return await self._lake.call(self._lanes.small, lambda: _read_manifest(self._store, directory))

    async def write_manifest(self, directory: str, manifest: Manifest) -> None:
        """Write it, and delete the older ones. Raises StorageError."""
        await self.claim()
        await self._lake.call(self._lanes.small, lambda: _write_manifest(self._store, directory, manifest))

    async def forget(self, directory: str, uid: str) -> None:
        """A file is about to go: the manifest does not name it any more. Raises StorageError."""
        await self._lake.call(self._lanes.small, lambda: _forget(self._store, directory, uid))

    async def is_marked(self) -> bool:
        """Whether some cluster's mark is there: the directory of a mount that is away has none. Raises StorageError."""
        return await self._lake.call(self._lanes.small, lambda: read_owner(self._store)) is not None

    async def delete_topic(self, directory: str, created_ms: int) -> None:
        """Delete the manifests of a topic that was made then, or before, and the directory if nothing else is in it.

        Raises StorageError. Nothing is deleted in a root of another cluster, whose manifests they may be.
        """
        owner = await self._lake.find_owner()

        def delete() -> None:
            found = read_owner(self._store)
            if found is None or found.installation == owner.installation:
                _delete_topic(self._store, directory, created_ms)

        await self._lake.call(self._lanes.small, delete)


class FileInWork:
    """A file on its way; see ``LedgerFileWriter``. One call at a time."""

    __slots__ = ("_lake", "_lane", "_path", "_stop", "_store", "_writer")

    def __init__(
        self, lake: Lake, store: LakeStore, path: str, writer: LedgerFileWriter, lane: str, stop: StopSignal
    ) -> None:
        self._lake = lake
        self._store = store
        self._path = path
        self._writer = writer
        self._lane = lane
        self._stop = stop

    @property
    def schema_versions(self) -> set[bytes]:
        """Those that entries so far name."""
        return self._writer.schema_versions

    async def add(self, entries: Sequence[bytes], aborted: frozenset[int]) -> None:
        """The next entries. Raises StorageError."""
        await self._lake.call(self._lane, lambda: self._writer.add(entries, aborted), self._stop)

    async def finish(self, schemas: Sequence[SchemaFacts]) -> Contents:
        """The file is there. Raises StorageError."""
        return await self._lake.call(self._lane, _released(lambda: self._writer.finish(schemas)), self._stop)

    def discard(self) -> None:
        """Nothing is to be left of it, finished or not; does not wait, and may fail unheard."""
        store, path, writer = self._store, self._path, self._writer

        def leave() -> None:
            writer.discard()
            store.delete(path)

        def left(error: BaseException | None) -> None:
            if error is not None:
                _log.warning("%s/%s was not deleted, the next look at the topic does: %s", store.root, path, error)

        self._lake.submit(self._lane, _released(leave), left)


class LakeFile:
    """A file that is there; see ``LedgerFileReader``."""

    __slots__ = ("_lake", "_lanes", "_reader", "contents", "facts", "where")

    def __init__(self, lake: Lake, lanes: RootLanes, reader: LedgerFileReader) -> None:
        self._lake = lake
        self._lanes = lanes
        self._reader = reader
        self.where = reader.where
        self.facts = reader.facts
        self.contents = reader.contents

    def group_of(self, entry_id: int) -> int:
        """The row group that has an entry."""
        return self._reader.group_of(entry_id)

    def entries_of(self, group: int) -> range:
        """Ids of a row group's entries."""
        return self._reader.entries_of(group)

    @property
    def group_count(self) -> int:
        """How many row groups it has."""
        return self._reader.group_count

    def kept(self, group: int) -> Sequence[bytes] | None:
        """A row group's entries, if they are in memory."""
        return self._lake.groups.get(self.facts.uid, group)

    async def group(self, group: int, stop: StopSignal | None = None) -> Sequence[bytes]:
        """A row group's entries. Raises StorageError, which names the file."""
        reader, lake, lane = self._reader, self._lake, self._lanes.read
        return await lake.groups.load(
            self.facts.uid, group, lambda: lake.call(lane(), _released(lambda: reader.read_group(group)), stop)
        )

    async def ask(self, work: Callable[[LedgerFileReader], T]) -> T:
        """What ``work``, which blocks, makes of the file. Raises StorageError, which names it."""
        reader = self._reader

        def ask() -> T:
            with reader.naming():
                return work(reader)
            raise CorruptionError(reader.where)  # not reached: the context raises

        return await self._lake.call(self._lanes.read(), _released(ask))

    async def made(self, tag: str, group: int, work: Callable[[LedgerFileReader], Sequence[bytes]]) -> Sequence[bytes]:
        """What ``work`` makes of a row group, kept in memory as row groups are, by ``tag``. Raises StorageError."""
        return await self._lake.groups.load(f"{self.facts.uid}{tag}", group, lambda: self.ask(work))

    async def compare(self, group: int, stored: Sequence[bytes], stop: StopSignal) -> None:
        """Whether a row group has these entries, read from the file now. Raises CorruptionError, StorageError."""
        reader = self._reader

        def compare() -> None:
            rebuilt = reader.read_group(group)
            first = reader.entries_of(group).start
            for entry_id, (one, other) in enumerate(zip(stored, rebuilt, strict=True), first):
                if not is_same(one, other):
                    raise CorruptionError(f"{reader.where}: entry {entry_id} is not what the bookies have")

        await self._lake.call(self._lanes.read(), _released(compare), stop)


class Lake:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        open_store: OpenStore,
        find_owner: FindOwner,
        *,
        offloads_max: int,
        readers: int,
        cache_bytes: int,
    ) -> None:
        self.find_owner = find_owner
        self._runtime = runtime
        self._open_store = open_store
        #: The last that were asked for: those that are open, and lanes of some that could not be, too.
        self._roots: dict[_RootKey, Root] = {}
        self._lanes_of: dict[_RootKey, RootLanes] = {}
        self._lanes_given = 0
        self._offloads = OffloadLanes([f"lake-offload-{number}" for number in range(offloads_max)])
        self._readers = readers
        self.groups = GroupCache(cache_bytes)

    def wall_ms(self) -> int:
        """Now, ms since the epoch."""
        return self._runtime.clock.wall_ms()

    # ---- lanes

    async def take_lane(self, root: Root) -> str:
        """A lane for an offload, when one is free; given back by :meth:`give_lane`."""
        return await self._offloads.take(root, len(self._roots))

    def give_lane(self, root: Root, lane: str) -> None:
        """After :meth:`take_lane`."""
        self._offloads.give(root, lane, len(self._roots))

    async def call(self, lane: str, function: Callable[[], T], stop: StopSignal | None = None) -> T:
        """Run a blocking function on a lane; its OSError becomes a StorageError. LedgerClosedError if stopped."""
        signal = stop if stop is not None else StopSignal()
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            results.append(function())

        def begin(done: Callable[[], None]) -> None:
            def ended(error: BaseException | None) -> None:
                if error is not None:
                    errors.append(error)
                done()

            self.submit(lane, run, ended)

        await signal.wait(begin)
        if errors:
            raise _as_storage_error(errors.pop())
        return results[0]

    def submit(self, lane: str, function: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run a blocking function on a lane."""
        self._runtime.threads.submit(lane, function, done)

    # ---- roots

    async def root(self, driver: str, properties: Mapping[str, str]) -> Root:
        """The root of a driver with these properties. Raises StorageError."""
        key = (driver, tuple(sorted(properties.items())))
        found = self._roots.get(key)
        if found is None:
            lanes = self._lanes(key)
            store = await self.call(lanes.small, lambda: self._open_store(driver, properties))
            found = self._roots.get(key) or Root(self, lanes, store, driver, properties)
        _keep(self._roots, key, found)
        return found

    def _lanes(self, key: _RootKey) -> RootLanes:
        """The same each time that it is tried: one that can not be opened holds no other lanes up."""
        lanes = self._lanes_of.get(key)
        if lanes is None:
            lanes = RootLanes(self._lanes_given, self._readers)
            self._lanes_given += 1
        _keep(self._lanes_of, key, lanes)
        return lanes


def _keep(kept: dict[_RootKey, T], key: _RootKey, value: T) -> None:
    """As the last one that was asked for."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > ROOTS_MAX:
        del kept[next(iter(kept))]


def _as_storage_error(error: BaseException) -> BaseException:
    if isinstance(error, StorageError):
        return error
    if isinstance(error, ImportError):
        return DiskIOError(f"the lake needs pyarrow, which is not there: pip install 'geminga[lake]' ({error})")
    if isinstance(error, ConfigurationError):
        return DiskIOError(str(error))
    if isinstance(error, OSError):
        return DiskFullError(f"the lake is full: {error}") if _is_full(error) else DiskIOError(f"the lake: {error}")
    return error


def _is_full(error: OSError) -> bool:
    return error.errno in (28, 122)  # ENOSPC, EDQUOT


def _read_manifest(store: LakeStore, directory: str) -> Manifest | None:
    found = _manifests(store, directory)
    if not found:
        return None
    path = f"{directory}/{names.MANIFESTS}/{names.manifest_file(found[-1])}"
    try:
        return decode_manifest(store.read_bytes(path), f"{store.root}/{path}")
    except (CorruptionError, FileNotFoundError) as error:
        _log.warning("a manifest is written anew: %s", error)
        return None


def _manifests(store: LakeStore, directory: str) -> list[names.ManifestName]:
    listed = (names.parse_manifest_file(file.name) for file in store.list(f"{directory}/{names.MANIFESTS}"))
    return sorted(name for name in listed if name is not None)


def _write_manifest(store: LakeStore, directory: str, manifest: Manifest) -> None:
    name = names.ManifestName(manifest.created_ms, manifest.list_version)
    base = f"{directory}/{names.MANIFESTS}"
    store.write_bytes(f"{base}/{names.manifest_file(name)}", encode_manifest(manifest))
    try:
        for older in [found for found in _manifests(store, directory) if found < name][:_OLD_MANIFESTS_MAX]:
            store.delete(f"{base}/{names.manifest_file(older)}")
    except OSError as error:  # they mean nothing
        _log.warning("%s/%s: older manifests stay: %s", store.root, base, error)


def _forget(store: LakeStore, directory: str, uid: str) -> None:
    found = _read_manifest(store, directory)
    if found is not None and any(one.uid == uid for one in found.ledgers):
        name = names.ManifestName(found.created_ms, found.list_version)
        kept = found._replace(ledgers=tuple(one for one in found.ledgers if one.uid != uid))
        if not kept.ledgers:
            # The topic may be deleted without another file of its own: nobody would come for it then.
            _delete_topic(store, directory, found.created_ms)
            return
        store.write_bytes(f"{directory}/{names.MANIFESTS}/{names.manifest_file(name)}", encode_manifest(kept))


def _delete_topic(store: LakeStore, directory: str, created_ms: int) -> None:
    base = f"{directory}/{names.MANIFESTS}"
    for name in _manifests(store, directory):
        if name.created_ms <= created_ms:
            store.delete(f"{base}/{names.manifest_file(name)}")
    store.remove_directory(base)
    store.remove_directory(directory)
