"""The metadata store of a standalone: an SQLite file, group commit, reads beside it.

Two threads: one commits, one reads (a read does not wait for an fsync). All writes queued while a commit runs go
into the next transaction; each has its own result and is answered after the commit. One process is one session.
Format and failure rules: ``docs/formats/metadata-sqlite.md``.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from geminga.metadata.core.faults import MetadataFaults, WriteFault
from geminga.metadata.core.tree import NO_SESSION, check_path, check_value
from geminga.metadata.core.wal import find_wal_damage
from geminga.metadata.ports import Node, Notification, PutResult, SessionEvent, Unsubscribe
from geminga.metadata.sqlite_tree import SqliteTree
from geminga.metadata.watches import Watches
from geminga.model.errors import (
    CorruptionError,
    DataDirectoryError,
    DiskFullError,
    MetadataError,
    MetadataUnavailableError,
    SessionExpiredError,
    StorageError,
    UnknownOutcomeError,
)
from geminga.runtime import delay
from geminga.runtime.ports import Disk, Runtime

if TYPE_CHECKING:
    from geminga.metadata.core.copying import SourceNode

T = TypeVar("T")

#: Writes waiting for a commit before new ones are refused.
QUEUED_WRITES_MAX: Final = 100_000
#: Writes in one transaction.
GROUP_WRITES_MAX: Final = 1_000
#: Value bytes in one transaction, unless its first write alone is larger.
GROUP_BYTES_MAX: Final = 16 * 1024 * 1024

_WRITE_LANE: Final = "metadata-write"
_READ_LANE: Final = "metadata-read"

#: What one write does to the tree within a transaction: its result and the notifications.
_Change: TypeAlias = Callable[[SqliteTree], tuple[PutResult | None, list[Notification]]]
_Outcome: TypeAlias = PutResult | StorageError | None


class _Write:
    """A queued write; ``outcome`` is filled in on the writing thread."""

    __slots__ = ("change", "notifications", "outcome", "reply", "size_bytes")

    def __init__(self, change: _Change, size_bytes: int, reply: asyncio.Future[PutResult | None]) -> None:
        self.change = change
        self.size_bytes = size_bytes
        self.reply = reply
        self.outcome: _Outcome = None
        self.notifications: list[Notification] = []


class SqliteMetadataStore:
    """Implements ``metadata.ports.MetadataStore``; made by :meth:`open`."""

    __slots__ = (
        "_is_closed",
        "_is_committing",
        "_queue",
        "_reader",
        "_runtime",
        "_session",
        "_threads",
        "_tree",
        "_watches",
        "faults",
    )

    def __init__(self, runtime: Runtime, tree: SqliteTree, reader: SqliteTree, faults: MetadataFaults) -> None:
        self._runtime = runtime
        self._threads = runtime.threads
        self._tree = tree
        self._reader = reader
        #: The misbehaviour switches; may be changed at any time.
        self.faults = faults
        self._session = tree.session
        self._watches = Watches(faults, runtime.rng.random)
        self._queue: deque[_Write] = deque()
        self._is_committing = False
        self._is_closed = False

    @classmethod
    async def open(cls, runtime: Runtime, path: str, faults: MetadataFaults | None = None) -> SqliteMetadataStore:
        """Open or create the file; the session before ends. Raises DataDirectoryError, CorruptionError.

        The whole file is checked first, and so is the log that a crash left.

        The caller holds the lock of the directory: two processes on one file are not told apart here.
        """
        now_ms = runtime.clock.wall_ms()

        def open_writer() -> SqliteTree:
            tree = SqliteTree(path)
            try:
                tree.create_schema(now_ms)
                tree.verify()
                tree.begin()
                tree.mark_format()
                tree.start_session()
                tree.commit()
            except sqlite3.Error as error:
                tree.close()
                raise _error_of(error, path) from error
            except StorageError:
                tree.close()
                raise
            return tree

        await _check_log(runtime.disk, path)
        tree = await runtime.threads.call(_WRITE_LANE, open_writer)
        reader = await runtime.threads.call(_READ_LANE, lambda: SqliteTree(path, read_only=True))
        await runtime.disk.sync_dir(path.rpartition("/")[0] or ".")
        return cls(runtime, tree, reader, faults if faults is not None else MetadataFaults())

    @property
    def session(self) -> int:
        """The present session's id."""
        return self._session

    # ---- reads

    async def get(self, path: str) -> Node | None:
        """See ``MetadataStore.get``; CorruptionError if the stored node is damaged."""
        check_path(path)
        session = self._session
        return await self._read(lambda reader: reader.get(path, session))

    async def exists(self, path: str) -> bool:
        """See ``MetadataStore.exists``."""
        check_path(path)
        return await self._read(lambda reader: reader.exists(path))

    async def children(self, path: str) -> list[str]:
        """See ``MetadataStore.children``."""
        check_path(path)
        return await self._read(lambda reader: reader.children(path))

    async def nodes_after(self, path: str, limit: int) -> Sequence[SourceNode]:
        """See ``metadata.copying.Source``."""
        return await self._read(lambda reader: reader.nodes_after(path, limit))

    async def next_sequence(self, path: str) -> int:
        """See ``MetadataStore.next_sequence``."""
        check_path(path)
        return await self._read(lambda reader: reader.next_sequence(path))

    async def sync(self) -> None:
        """See ``MetadataStore.sync``: a read sees every commit that was answered."""
        self._check_usable()
        await self._delay()

    async def _read(self, read: Callable[[SqliteTree], T]) -> T:
        self._check_usable()
        reader = self._reader

        def on_thread() -> T:
            try:
                return read(reader)
            except sqlite3.Error as error:
                raise _error_of(error, reader.path) from error

        await self._delay()
        return await self._threads.call(_READ_LANE, on_thread)

    # ---- writes

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> PutResult:
        """See ``MetadataStore.put``."""
        check_path(path)
        check_value(path, value)
        value = bytes(value)
        session, now_ms = self._session, self._runtime.clock.wall_ms()

        def change(tree: SqliteTree) -> tuple[PutResult, list[Notification]]:
            return tree.put(
                path,
                value,
                expected_version=expected_version,
                session=session,
                now_ms=now_ms,
                ephemeral=ephemeral,
                sequential=sequential,
            )

        result = await self._write(f"put {path}", change, len(value))
        if result is None:
            raise MetadataError(f"put {path}: no result")
        return result

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """See ``MetadataStore.delete``."""
        check_path(path)
        session = self._session
        await self._write(
            f"delete {path}",
            lambda tree: (None, tree.delete(path, expected_version=expected_version, session=session)),
            0,
        )

    async def _write(self, what: str, change: _Change, size_bytes: int) -> PutResult | None:
        self._check_usable()
        await self._delay()
        fault = self.faults.write_fault(self._runtime.rng.random)
        if fault is WriteFault.UNKNOWN_BEFORE:
            raise UnknownOutcomeError(f"{what}: told to lose the request")
        result = await self._enqueue(change, size_bytes)
        await self._delay()
        if fault is WriteFault.UNKNOWN_AFTER:
            raise UnknownOutcomeError(f"{what}: told to lose the reply")
        return result

    def _enqueue(self, change: _Change, size_bytes: int) -> asyncio.Future[PutResult | None]:
        if len(self._queue) >= QUEUED_WRITES_MAX:
            raise MetadataUnavailableError(f"{QUEUED_WRITES_MAX} metadata writes are waiting")
        reply: asyncio.Future[PutResult | None] = asyncio.get_running_loop().create_future()
        self._queue.append(_Write(change, size_bytes, reply))
        self._commit_next()
        return reply

    def _commit_next(self) -> None:
        """Start the next transaction with everything that waits, unless one is running."""
        if self._is_committing or not self._queue:
            return
        group: list[_Write] = []
        size_bytes = 0
        while self._queue and len(group) < GROUP_WRITES_MAX:
            size_bytes += self._queue[0].size_bytes
            if group and size_bytes > GROUP_BYTES_MAX:
                break
            group.append(self._queue.popleft())
        self._is_committing = True
        fatal: list[BaseException] = []
        self._threads.submit(
            _WRITE_LANE,
            lambda: _commit_group(self._tree, group, fatal),
            lambda error: self._on_committed(group, error or (fatal[0] if fatal else None)),
        )

    def _on_committed(self, group: list[_Write], fatal: BaseException | None) -> None:
        self._is_committing = False
        for write in group:
            if write.reply.done():
                continue
            if isinstance(write.outcome, StorageError):
                write.reply.set_exception(write.outcome)
            elif fatal is not None:
                write.reply.set_exception(UnknownOutcomeError(f"metadata commit failed: {fatal}"))
            else:
                write.reply.set_result(write.outcome)
        for write in group:
            if not isinstance(write.outcome, StorageError):
                self._watches.notify(write.notifications)
        if fatal is None:
            self._commit_next()
            return
        # What the file holds now is not known: nothing more is written to it.
        self._is_closed = True
        for write in self._queue:
            if not write.reply.done():
                write.reply.set_exception(MetadataUnavailableError(f"the metadata store failed: {fatal}"))
        self._queue.clear()
        self._runtime.on_fatal("metadata store", fatal)

    # ---- listeners and the session

    def watch_node(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_node``."""
        return self._watches.add_node(path, callback)

    def watch_children(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_children``."""
        return self._watches.add_children(path, callback)

    def on_session_event(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        """See ``MetadataStore.on_session_event``."""
        return self._watches.add_session_listener(callback)

    def expire_session(self, outage_ms: int = 0) -> None:
        """Misbehave: the session expires now; a new one is up (RECONNECTED) ``outage_ms`` after the file knows.

        Until then every call raises SessionExpiredError, and so do the writes that were queued.
        """
        if self._is_closed or self._session == NO_SESSION:
            return
        self._session = NO_SESSION
        self._watches.notify_session(SessionEvent.EXPIRED)
        reply = self._enqueue(lambda tree: (None, tree.start_session()), 0)

        def reconnect() -> None:
            if not self._is_closed:
                self._session = self._tree.session
                self._watches.notify_session(SessionEvent.RECONNECTED)

        def on_ended(ended: asyncio.Future[PutResult | None]) -> None:
            if not ended.cancelled() and ended.exception() is None:
                asyncio.get_running_loop().call_later(outage_ms / 1000.0, reconnect)

        reply.add_done_callback(on_ended)

    async def close(self) -> None:
        """See ``MetadataStore.close``; what is queued is committed first. Closing twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watches.clear()
        await self._enqueue(lambda tree: (None, tree.end_session(tree.session)), 0)
        await self._threads.call(_READ_LANE, self._reader.close)
        await self._threads.call(_WRITE_LANE, self._tree.close)

    # ---- inside

    def _check_usable(self) -> None:
        if self._is_closed:
            raise MetadataUnavailableError("the metadata store is closed")
        if self._session == NO_SESSION:
            raise SessionExpiredError("the metadata session is over")

    async def _delay(self) -> None:
        if self.faults.delay_ms_max:
            await delay(self.faults.delay_ms(self._runtime.rng.random))


async def _check_log(disk: Disk, path: str) -> None:
    """Raise CorruptionError if a crash left a log of which SQLite would drop more than a torn end."""
    log = f"{path}-wal"
    try:
        offset = find_wal_damage(await disk.read_file(log))
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataDirectoryError(f"{log} can not be read: {error}") from error
    if offset is not None:
        raise CorruptionError(f"{log} at offset {offset}: the log is damaged, committed changes are behind it")


def _commit_group(tree: SqliteTree, group: list[_Write], fatal: list[BaseException]) -> None:
    """On the writing thread: one transaction for the whole group; each write's outcome is left in it."""
    try:
        tree.begin()
        for write in group:
            try:
                write.outcome, write.notifications = write.change(tree)
            except (MetadataError, CorruptionError) as error:
                write.outcome = error
    except sqlite3.Error as error:
        _fail_group(tree, group, _error_of(error, tree.path), fatal)
        return
    try:
        tree.commit()
    except sqlite3.Error as error:
        unknown = UnknownOutcomeError(f"{tree.path}: commit failed: {error}")
        if not isinstance(_error_of(error, tree.path), DiskFullError):
            fatal.append(unknown)
        _fail_group(tree, group, unknown, fatal)


def _fail_group(tree: SqliteTree, group: list[_Write], failure: StorageError, fatal: list[BaseException]) -> None:
    """Nothing of the group was (knowingly) committed: whatever each was to be told stood on the others."""
    for write in group:
        write.outcome = failure
        write.notifications = []
    try:
        tree.roll_back()
    except sqlite3.Error as error:
        fatal.append(_error_of(error, tree.path))


def _error_of(error: sqlite3.Error, path: str) -> StorageError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return DiskFullError(f"{path}: {error}")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptionError(f"{path}: {error}")
    return MetadataError(f"{path}: {error}")
