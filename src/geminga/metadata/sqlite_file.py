"""An SQLite file of metadata as its sessions share it: group commit on one thread, reads on another.

Two threads: one commits, one reads (a read does not wait for an fsync). All writes queued while a commit runs go
into the next transaction; each has its own result and is answered after the commit. All reads that one turn of the
loop asks for, and those queued while others are read, go to the thread together: a way there and back costs several
times what SQLite takes.
Format and failure rules: ``docs/formats/metadata-sqlite.md``.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from geminga.metadata.core.known_nodes import KnownNodes
from geminga.metadata.ports import Node, Notification, PutResult
from geminga.metadata.sqlite_reserve import SqliteReserve, is_no_room
from geminga.metadata.sqlite_tree import SqliteTree
from geminga.metadata.watches import Watches
from geminga.model.errors import (
    CorruptionError,
    DataDirectoryError,
    DiskFullError,
    MetadataError,
    MetadataUnavailableError,
    StorageError,
    UnknownOutcomeError,
)
from geminga.runtime.local_file import remove_file
from geminga.runtime.ports import Disk, Runtime
from geminga.runtime.waiting import settle

if TYPE_CHECKING:
    from geminga.metadata.snapshot import SqliteSnapshot

T = TypeVar("T")
E = TypeVar("E", bound=StorageError)

#: Behind the name of the file: a copy of one moment, for a backup.
SNAPSHOT_SUFFIX: Final = "-snapshot"
#: Writes waiting for a commit before new ones are refused.
QUEUED_WRITES_MAX: Final = 100_000
#: Writes in one transaction.
GROUP_WRITES_MAX: Final = 1_000
#: Value bytes in one transaction, unless its first write alone is larger.
GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
#: Reads waiting for the thread before new ones are refused, and those that it carries out at once.
QUEUED_READS_MAX: Final = 100_000
GROUP_READS_MAX: Final = 256

_WRITE_LANE: Final = "metadata-write"
_READ_LANE: Final = "metadata-read"

#: What one write does to the tree within a transaction: its result and the notifications.
Change: TypeAlias = Callable[[SqliteTree], tuple[PutResult | None, list[Notification]]]
_Outcome: TypeAlias = PutResult | StorageError | None


class _Write:
    """A queued write; ``outcome`` is filled in on the writing thread."""

    __slots__ = ("change", "is_apart", "notifications", "outcome", "reply", "size_bytes")

    def __init__(self, change: Change, size_bytes: int, reply: asyncio.Future[PutResult | None]) -> None:
        self.change = change
        self.size_bytes = size_bytes
        self.reply = reply
        #: Carried out between two transactions, and in none.
        self.is_apart = False
        self.outcome: _Outcome = None
        self.notifications: list[Notification] = []


class _Read:
    """A queued read; ``found`` or ``error`` is filled in on the reading thread."""

    __slots__ = ("changes", "error", "found", "path", "read", "reply")

    def __init__(
        self, read: Callable[[SqliteTree], object], reply: asyncio.Future[Any], path: str = "", changes: int = 0
    ) -> None:
        self.read = read
        self.reply = reply
        #: Of the node that is found, and how many changes there were before; empty: it is no node.
        self.path = path
        self.changes = changes
        self.found: object = None
        self.error: StorageError | None = None


class SqliteFile:
    """Made by :meth:`open`, which begins the first session."""

    __slots__ = (
        "_is_closed",
        "_is_committing",
        "_is_reading",
        "_known",
        "_queue",
        "_reader",
        "_reads",
        "_tree",
        "_watches",
        "first_session",
        "runtime",
    )

    def __init__(self, runtime: Runtime, tree: SqliteTree, reader: SqliteTree) -> None:
        self.runtime = runtime
        self._tree = tree
        self._reader = reader
        self.first_session = tree.session
        #: Of each session.
        self._watches: list[Watches] = []
        self._queue: deque[_Write] = deque()
        self._is_committing = False
        self._reads: deque[_Read] = deque()
        #: Reads are on the thread, or go there in this turn of the loop.
        self._is_reading = False
        self._known = KnownNodes()
        self._is_closed = False

    @classmethod
    async def open(cls, runtime: Runtime, path: str) -> SqliteFile:
        """Open or create the file; the sessions before end. Raises DataDirectoryError, CorruptionError.

        The whole file is checked first, and so is the log that a crash left.

        The caller holds the lock of the directory: two processes on one file are not told apart here.
        """
        now_ms = runtime.clock.wall_ms()

        def open_writer() -> SqliteTree:
            remove_file(f"{path}{SNAPSHOT_SUFFIX}")  # of a backup that was killed
            reserve = SqliteReserve(path)
            try:
                tree = opened()
            except StorageError as error:
                if not is_no_room(error.__cause__) or not reserve.give_up():
                    raise
                tree = opened()
            tree.reserve = reserve
            reserve.make()
            return tree

        def opened() -> SqliteTree:
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
        return cls(runtime, tree, reader)

    @property
    def is_closed(self) -> bool:
        """Nothing is read or written any more."""
        return self._is_closed

    def attach(self, watches: Watches) -> None:
        """Tell a session of changes."""
        self._watches.append(watches)

    def detach(self, watches: Watches) -> None:
        """The session is over; once is enough."""
        if watches in self._watches:
            self._watches.remove(watches)

    def read(self, read: Callable[[SqliteTree], T]) -> asyncio.Future[T]:
        """What ``read`` finds; on the reading thread. Raises MetadataUnavailableError, and what ``read`` raises."""
        reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue_read(_Read(read, reply))
        return reply

    async def node(self, path: str, session: int) -> Node | None:
        """The node as ``session`` sees it, at once where it is known. Raises as :meth:`read`, CorruptionError."""
        known = self._known.find(path)
        if known is not None:
            return known.node
        reply: asyncio.Future[Node | None] = asyncio.get_running_loop().create_future()
        self._queue_read(_Read(lambda reader: reader.get(path, session), reply, path, self._known.changes))
        return await reply

    def _queue_read(self, read: _Read) -> None:
        if len(self._reads) >= QUEUED_READS_MAX:
            raise MetadataUnavailableError(f"{QUEUED_READS_MAX} metadata reads are waiting")
        self._reads.append(read)
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._read_next)

    def _read_next(self) -> None:
        """Take what waits to the thread, as much as goes at once."""
        group = [self._reads.popleft() for _ in range(min(len(self._reads), GROUP_READS_MAX))]
        self._is_reading = bool(group)
        if group:
            self.runtime.threads.submit(
                _READ_LANE, lambda: _read_group(self._reader, group), lambda error: self._on_read(group, error)
            )

    def _on_read(self, group: list[_Read], failure: BaseException | None) -> None:
        """``failure``: the thread could not be had, or one read is wrong."""
        for each in group:
            if each.path and each.error is None and failure is None:
                self._known.keep(each.path, cast("Node | None", each.found), each.changes)
            settle(each.reply, each.found, each.error or failure)
        self._read_next()

    async def open_session(self) -> int:
        """Begin a session beside those there are."""
        made: list[int] = []

        def change(tree: SqliteTree) -> tuple[None, list[Notification]]:
            made.append(tree.open_session())
            return None, []

        await self.write(change, 0)
        return made[-1]

    async def end_session(self, session: int) -> None:
        """End one: its ephemeral nodes go."""
        await self.write(lambda tree: (None, tree.end_session(session)), 0)

    async def close(self) -> None:
        """Close the file; no write may be under way. Reads that were asked for are answered first."""
        self._is_closed = True
        await self.read(lambda _: None)
        await self.runtime.threads.call(_READ_LANE, self._reader.close)
        await self.runtime.threads.call(_WRITE_LANE, self._tree.close)

    def write(self, change: Change, size_bytes: int) -> asyncio.Future[PutResult | None]:
        """Queue a change of so many bytes; what it gave, once it is durable. Raises MetadataUnavailableError."""
        return self._queue_write(change, size_bytes)

    def _queue_write(
        self, change: Change, size_bytes: int, *, is_apart: bool = False
    ) -> asyncio.Future[PutResult | None]:
        if len(self._queue) >= QUEUED_WRITES_MAX:
            raise MetadataUnavailableError(f"{QUEUED_WRITES_MAX} metadata writes are waiting")
        reply: asyncio.Future[PutResult | None] = asyncio.get_running_loop().create_future()
        write = _Write(change, size_bytes, reply)
        write.is_apart = is_apart
        self._queue.append(write)
        self._commit_next()
        return reply

    def snapshot(self) -> SqliteSnapshot:
        """All writes that were asked for before this call, and no other. Raises MetadataUnavailableError."""
        from geminga.metadata.snapshot import SqliteSnapshot  # few processes make one

        snapshot = SqliteSnapshot(self._tree.path, f"{self._tree.path}{SNAPSHOT_SUFFIX}")

        def look(_: SqliteTree) -> tuple[None, list[Notification]]:
            snapshot.open()
            return None, []

        snapshot.opened = self._queue_write(look, 0, is_apart=True)
        return snapshot

    def _commit_next(self) -> None:
        """Start the next transaction with everything that waits, unless one is running."""
        if self._is_committing or not self._queue:
            return
        group: list[_Write] = []
        size_bytes = 0
        while self._queue and len(group) < GROUP_WRITES_MAX:
            size_bytes += self._queue[0].size_bytes
            if group and (size_bytes > GROUP_BYTES_MAX or self._queue[0].is_apart):
                break
            group.append(self._queue.popleft())
            if group[-1].is_apart:
                break
        self._is_committing = True
        fatal: list[BaseException] = []
        self.runtime.threads.submit(
            _WRITE_LANE,
            lambda: _commit_group(self._tree, group, fatal),
            lambda error: self._on_committed(group, error or (fatal[0] if fatal else None)),
        )

    def _on_committed(self, group: list[_Write], fatal: BaseException | None) -> None:
        self._is_committing = False
        # Before anybody is told: who was answered reads what was written.
        self._forget_what_changed(group, fatal)
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
            if not isinstance(write.outcome, StorageError) and write.notifications:
                for watches in self._watches:
                    watches.notify(write.notifications)
        if fatal is None:
            self._commit_next()
            return
        # What the file holds now is not known: nothing more is written to it.
        self._is_closed = True
        for write in self._queue:
            if not write.reply.done():
                write.reply.set_exception(MetadataUnavailableError(f"the metadata store failed: {fatal}"))
        self._queue.clear()
        self.runtime.on_fatal("metadata store", fatal)

    def _forget_what_changed(self, group: list[_Write], fatal: BaseException | None) -> None:
        # One that was refused, or rolled back, has changed nothing.
        if fatal is not None or any(isinstance(write.outcome, UnknownOutcomeError) for write in group):
            self._known.forget_all()
            return
        for write in group:
            self._known.forget(write.notifications)


async def _check_log(disk: Disk, path: str) -> None:
    """Raise CorruptionError if a crash left a log of which SQLite would drop more than a torn end."""
    log = f"{path}-wal"
    try:
        data = await disk.read_file(log)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataDirectoryError(f"{log} can not be read: {error}") from error
    from geminga.metadata.core.wal import find_wal_damage  # only a crash leaves a log

    offset = find_wal_damage(data)
    if offset is not None:
        raise CorruptionError(f"{log} at offset {offset}: the log is damaged, committed changes are behind it")


def _read_group(tree: SqliteTree, group: list[_Read]) -> None:
    """On the reading thread: each read by itself, what went wrong with one is told to it alone."""
    for each in group:
        try:
            each.found = each.read(tree)
        except sqlite3.Error as error:
            each.error = _error_of(error, tree.path)
        except StorageError as error:
            each.error = _alone(error)


def _commit_group(tree: SqliteTree, group: list[_Write], fatal: list[BaseException]) -> None:
    """On the writing thread: one transaction for the whole group; each write's outcome is left in it."""
    if group[0].is_apart:
        try:
            group[0].change(tree)
        except sqlite3.Error as error:
            group[0].outcome = _error_of(error, tree.path)
        return
    failure = _commit_once(tree, group, fatal)
    if is_no_room(failure) and not fatal and tree.make_room():
        failure = _commit_once(tree, group, fatal)
    if failure is None and tree.reserve is not None:
        tree.reserve.make()


def _commit_once(tree: SqliteTree, group: list[_Write], fatal: list[BaseException]) -> sqlite3.Error | None:
    """What went wrong with the transaction; each write has its outcome by then."""
    try:
        tree.begin()
        for write in group:
            try:
                write.outcome, write.notifications = write.change(tree)
            except (MetadataError, CorruptionError) as error:
                write.outcome = _alone(error)
    except sqlite3.Error as error:
        _fail_group(tree, group, _error_of(error, tree.path), fatal)
        return error
    try:
        tree.commit()
    except sqlite3.Error as error:
        unknown = UnknownOutcomeError(f"{tree.path}: commit failed: {error}")
        if not isinstance(_error_of(error, tree.path), DiskFullError):
            fatal.append(unknown)
        _fail_group(tree, group, unknown, fatal)
        return error
    return None


def _fail_group(tree: SqliteTree, group: list[_Write], failure: StorageError, fatal: list[BaseException]) -> None:
    """Nothing of the group was (knowingly) committed: whatever each was to be told stood on the others."""
    for write in group:
        write.outcome = failure
        write.notifications = []
    try:
        tree.roll_back()
    except sqlite3.Error as error:
        fatal.append(_error_of(error, tree.path))


def _alone(error: E) -> E:
    """Without the frames of this thread: they hold what gets the error, with all the others of the group."""
    return error.with_traceback(None)


def _error_of(error: sqlite3.Error, path: str) -> StorageError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return DiskFullError(f"{path}: {error}")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptionError(f"{path}: {error}")
    return MetadataError(f"{path}: {error}")
