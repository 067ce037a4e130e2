"""The metadata tree in an SQLite file: the blocking half, called on the store's own threads only.

The format is ``docs/formats/metadata-sqlite.md``. Semantics are those of ``core.tree``, whose checks it uses;
nothing of the tree is kept in memory. Writes are applied within a transaction that the caller opens and commits.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from geminga.metadata.core.tree import NO_SESSION, PutOutcome, check_expected_version, sequential_path, split_path
from geminga.metadata.ports import ChangeKind, Node, Notification, PutResult, Stat
from geminga.model.crc32c import crc32c
from geminga.model.errors import (
    BadVersionError,
    CorruptionError,
    DataDirectoryError,
    MetadataError,
    NodeNotEmptyError,
    NoSuchNodeError,
    SessionExpiredError,
)
from geminga.model.topic_name import encode_again
from geminga.runtime.local_file import create_private

if TYPE_CHECKING:
    from geminga.metadata.core.copying import SourceNode
    from geminga.metadata.sqlite_reserve import SqliteReserve

#: "GEMM": marks the file as ours.
APPLICATION_ID: Final = 0x47454D4D
#: 2: ledger ids are from sequential nodes. A program that knows 1 only would give out old ones again.
#: 3: names of topics are encoded as Pulsar's. A program that knows 2 only would not find some.
FORMAT_VERSION: Final = 3
#: Below these, names of topics are path elements.
NAMED_ROOTS: Final = ("/managed-ledgers/", "/admin/partitioned-topics/", "/schemas/", "/geminga/delayed-index/")
#: Pages each connection keeps, KiB.
CACHE_KIB: Final = 1024
#: The write-ahead log is cut back to this after a checkpoint, bytes.
WAL_BYTES_MAX: Final = 16 * 1024 * 1024

_SCHEMA: Final = (
    """CREATE TABLE node (
        parent TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
        created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL, session INTEGER NOT NULL,
        next_sequence INTEGER NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (parent, name)) WITHOUT ROWID""",
    "CREATE INDEX node_session ON node (session) WHERE session <> 0",
    "CREATE TABLE property (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO property VALUES ('session', 0)",
)
_COLUMNS: Final = "value, version, created_ms, modified_ms, session, next_sequence, crc"
_SELECT: Final = f"SELECT {_COLUMNS} FROM node WHERE parent = ? AND name = ?"
_NUMBERS: Final = struct.Struct(">qqqqq")

_Row: TypeAlias = tuple[bytes, int, int, int, int, int, int]


#: SQLite's name of what is no file.
IN_MEMORY: Final = ":memory:"


class SqliteTree:
    """One connection. Open one to write and, after it, others that only read."""

    __slots__ = ("_alive", "_connection", "path", "reserve", "session")

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self.path = path
        #: The newest session that was begun here; 0 on a connection that only reads.
        self.session = NO_SESSION
        #: Sessions that may write.
        self._alive: set[int] = set()
        #: Set by who writes.
        self.reserve: SqliteReserve | None = None
        try:
            if not read_only and path != IN_MEMORY:
                # SQLite would let others read it; its log and its index get the mode of the file.
                create_private(path)
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
            try:
                self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
                # No temporary files: they would need a descriptor in the middle of a transaction.
                self._connection.execute("PRAGMA temp_store = MEMORY")
                if read_only:
                    self._connection.execute("PRAGMA query_only = ON")
                else:
                    self._check_format()
                    self._connection.execute("PRAGMA journal_mode = WAL")
                    self._connection.execute("PRAGMA synchronous = FULL")
                    self._connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
                    # What a crash left goes into the file now: the next look at the log sees one life's frames only.
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except (sqlite3.Error, DataDirectoryError):
                self._connection.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise DataDirectoryError(f"metadata file {path} can not be opened: {error}") from error

    def _check_format(self) -> None:
        application_id = self._pragma("application_id")
        version = self._pragma("user_version")
        if application_id == 0 and version == 0 and not self._scalar("SELECT count(*) FROM sqlite_schema"):
            return
        if application_id != APPLICATION_ID:
            raise DataDirectoryError(f"{self.path} is no metadata file of Geminga (application id {application_id:#x})")
        if version > FORMAT_VERSION:
            raise DataDirectoryError(
                f"{self.path} has metadata format version {version}, this program knows {FORMAT_VERSION}: "
                "use a newer program"
            )

    def create_schema(self, now_ms: int) -> None:
        """Make the tables if the file is new. Raises sqlite3.Error."""
        if self._pragma("user_version"):
            return
        self.begin()
        for statement in _SCHEMA:
            self._connection.execute(statement)
        self._insert("/", "", b"", NO_SESSION, now_ms)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        self.commit()

    def verify(self) -> None:
        """Check the whole file: pages, and every node by its checksum. Raises CorruptionError, sqlite3.Error.

        A read finds a damaged value, but not a node whose damaged name keeps it from being found.
        """
        try:
            (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise CorruptionError(f"{self.path} is damaged: {found}")
            if self._connection.execute("SELECT typeof(value) FROM property WHERE key = 'session'").fetchall() != [
                ("integer",)
            ]:
                raise CorruptionError(f"{self.path} is damaged: it names no session")
            for parent, name, *row in self._connection.execute(f"SELECT parent, name, {_COLUMNS} FROM node"):
                path = parent if not name else parent + name if parent == "/" else f"{parent}/{name}"
                _check_row(self.path, path, tuple(row))
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) is None:  # text that is no UTF-8: told by the module itself
                raise CorruptionError(f"{self.path} is damaged: {error}") from error
            raise

    # ---- transactions

    def begin(self) -> None:
        """Open a write transaction."""
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit; afterwards everything since :meth:`begin` is durable."""
        self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        """Drop everything since :meth:`begin`; fine if SQLite did so already."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def make_room(self) -> bool:
        """On a full disk, outside a transaction: give up the reserve, and move the log into the file, so that its room
        is used again. False: it was in vain."""
        has_given_up = self.reserve is not None and self.reserve.give_up()
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error:
            return has_given_up
        return True

    def close(self) -> None:
        """Close the connection; the last one folds the log into the file."""
        self._connection.close()

    def mark_format(self) -> None:
        """From now on the file is this program's format's; within a transaction."""
        version = self._pragma("user_version")
        if version < 3:
            self._encode_names_again()
        if version != FORMAT_VERSION:
            self._connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _encode_names_again(self) -> None:
        differs = "instr(parent || name, '%20') OR instr(parent || name, '~')"
        rows = self._connection.execute(f"SELECT parent, name, {_COLUMNS} FROM node WHERE {differs}").fetchall()
        for parent, name, *row in rows:
            if not f"{parent}/".startswith(NAMED_ROOTS):
                continue
            new_parent, new_name = encode_again(parent), encode_again(name)
            crc = _crc(f"{new_parent}/{new_name}", *row[:-1])
            self._connection.execute(
                "UPDATE node SET parent = ?, name = ?, crc = ? WHERE parent = ? AND name = ?",
                (new_parent, new_name, crc, parent, name),
            )

    # ---- sessions

    def start_session(self) -> list[Notification]:
        """End all sessions there are and begin the next; within a transaction."""
        notifications = self.end_session(None)
        self.open_session()
        return notifications

    def open_session(self) -> int:
        """Begin a session beside those there are; its id. Within a transaction."""
        self._connection.execute("UPDATE property SET value = value + 1 WHERE key = 'session'")
        self.session = self._scalar("SELECT value FROM property WHERE key = 'session'")
        self._alive.add(self.session)
        return self.session

    def end_session(self, session: int | None) -> list[Notification]:
        """End a session (None: all) and delete its ephemeral nodes; within a transaction.

        If that is rolled back the session stays dead all the same, and its nodes are deleted by another call.
        """
        if session is None:
            self._alive.clear()
        else:
            self._alive.discard(session)
        rows = self._connection.execute(
            "SELECT parent, name FROM node WHERE session <> 0 AND (? IS NULL OR session = ?) ORDER BY parent, name",
            (session, session),
        ).fetchall()
        notifications: list[Notification] = []
        for parent, name in rows:
            notifications += self._remove(parent, name)
        return notifications

    # ---- reads

    def get(self, path: str, session: int) -> Node | None:
        """The node as ``session`` sees it; raises CorruptionError."""
        row = self._row(path)
        return None if row is None else Node(row[0], _stat(row, session))

    def exists(self, path: str) -> bool:
        """Whether the node exists."""
        return (
            self._connection.execute("SELECT 1 FROM node WHERE parent = ? AND name = ?", split_path(path)).fetchone()
            is not None
        )

    def children(self, path: str) -> list[str]:
        """Names of the direct children, sorted as Python sorts."""
        rows = self._connection.execute("SELECT name FROM node WHERE parent = ? AND name <> ''", (path,)).fetchall()
        return sorted(row[0] for row in rows)

    def nodes_after(self, path: str, limit: int) -> list[SourceNode]:
        """Persistent nodes behind ``path`` (empty: from the root on), by parent and name. Raises CorruptionError."""
        from geminga.metadata.core.copying import SourceNode  # no start needs it

        behind = split_path(path) if path else ("", "")
        rows = self._connection.execute(
            f"SELECT parent, name, {_COLUMNS} FROM node WHERE (parent, name) > (?, ?) AND session = 0 "
            "ORDER BY parent, name LIMIT ?",
            (*behind, limit),
        ).fetchall()
        nodes = []
        for parent, name, *row in rows:
            found = parent if not name else parent + name if parent == "/" else f"{parent}/{name}"
            _check_row(self.path, found, tuple(row))
            below = self._connection.execute(
                "SELECT name FROM node WHERE parent = ? AND name <> '' AND session = 0", (found,)
            ).fetchall()
            nodes.append(SourceNode(found, row[0], row[5], tuple(sorted(each for (each,) in below))))
        return nodes

    def next_sequence(self, path: str) -> int:
        """The counter of the next sequential child; raises CorruptionError."""
        row = self._row(path)
        return 0 if row is None else row[5]

    # ---- writes, within a transaction

    def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None,
        session: int,
        now_ms: int,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> PutOutcome:
        """See ``MetadataTree.put``; a MetadataError leaves the transaction as it was."""
        self._check_session(session)
        notifications: list[Notification] = []
        row = None
        if sequential:
            self._check_parents(path)
            path = sequential_path(path, self._take_sequence(path, now_ms, notifications))
            if self.exists(path):
                raise BadVersionError(f"{path} exists already")
        else:
            row = self._row(path)
            check_expected_version(path, expected_version, None if row is None else row[1])
        if row is None:
            self._check_parents(path)
            self._make_parents(path, now_ms, notifications)
            parent, name = split_path(path)
            owner = session if ephemeral else NO_SESSION
            self._insert(parent, name, value, owner, now_ms)
            notifications += _created(parent, path)
            stat = Stat(0, now_ms, now_ms, ephemeral, ephemeral)
        else:
            updated = (value, row[1] + 1, row[2], now_ms, row[4], row[5])
            self._update(path, *updated)
            notifications.append(Notification(ChangeKind.MODIFIED, path))
            stat = _stat((*updated, 0), session)
        return PutOutcome(PutResult(path, stat), notifications)

    def take_sequences(
        self, path: str, count: int, *, session: int, now_ms: int
    ) -> tuple[Sequence[int], list[Notification]]:
        """See ``MetadataTree.take_sequences``."""
        self._check_session(session)
        notifications: list[Notification] = []
        child = f"{path}/"
        self._check_parents(child)
        first = self._take_sequence(child, now_ms, notifications, count)
        return range(first, first + count), notifications

    def delete(self, path: str, *, expected_version: int | None, session: int) -> list[Notification]:
        """See ``MetadataTree.delete``."""
        self._check_session(session)
        row = self._row(path)
        if row is None or path == "/":
            raise NoSuchNodeError(f"{path} does not exist")
        check_expected_version(path, expected_version, row[1])
        if self._connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone() is not None:
            raise NodeNotEmptyError(f"{path} has children")
        return self._remove(*split_path(path))

    # ---- inside

    def _check_session(self, session: int) -> None:
        if session not in self._alive:
            raise SessionExpiredError(f"metadata session {session} is over")

    def _check_parents(self, path: str) -> None:
        """Raise MetadataError if the nearest existing ancestor is ephemeral."""
        parent, _ = split_path(path)
        while (row := self._row(parent)) is None:
            parent, _ = split_path(parent)
        if row[4] != NO_SESSION:
            raise MetadataError(f"{parent} is ephemeral: it can not have children")

    def _make_parents(self, path: str, now_ms: int, notifications: list[Notification]) -> None:
        missing: list[str] = []
        parent, _ = split_path(path)
        while not self.exists(parent):
            missing.append(parent)
            parent, _ = split_path(parent)
        for missing_path in reversed(missing):
            above, name = split_path(missing_path)
            self._insert(above, name, b"", NO_SESSION, now_ms)
            notifications += _created(above, missing_path)

    def _take_sequence(self, path: str, now_ms: int, notifications: list[Notification], count: int = 1) -> int:
        """Count up the parent's counter; what it was. The parent is made if missing."""
        self._make_parents(path, now_ms, notifications)
        parent, _ = split_path(path)
        row = self._row(parent)
        if row is None:
            raise CorruptionError(f"{self.path}: {parent} vanished within a transaction")
        value, version, created_ms, modified_ms, session, sequence, _ = row
        self._update(parent, value, version, created_ms, modified_ms, session, sequence + count)
        return sequence

    def _row(self, path: str) -> _Row | None:
        row: _Row | None = self._connection.execute(_SELECT, split_path(path)).fetchone()
        if row is not None:
            _check_row(self.path, path, row)
        return row

    def _insert(self, parent: str, name: str, value: bytes, session: int, now_ms: int) -> None:
        path = parent + name if parent == "/" else f"{parent}/{name}"
        crc = _crc(path, value, 0, now_ms, now_ms, session, 0)
        self._connection.execute(
            "INSERT INTO node VALUES (?, ?, ?, 0, ?, ?, ?, 0, ?)", (parent, name, value, now_ms, now_ms, session, crc)
        )

    def _update(
        self, path: str, value: bytes, version: int, created_ms: int, modified_ms: int, session: int, sequence: int
    ) -> None:
        crc = _crc(path, value, version, created_ms, modified_ms, session, sequence)
        self._connection.execute(
            "UPDATE node SET value = ?, version = ?, modified_ms = ?, next_sequence = ?, crc = ? "
            "WHERE parent = ? AND name = ?",
            (value, version, modified_ms, sequence, crc, *split_path(path)),
        )

    def _remove(self, parent: str, name: str) -> list[Notification]:
        self._connection.execute("DELETE FROM node WHERE parent = ? AND name = ?", (parent, name))
        path = parent + name if parent == "/" else f"{parent}/{name}"
        return [Notification(ChangeKind.DELETED, path), Notification(ChangeKind.CHILDREN_CHANGED, parent)]

    def _pragma(self, name: str) -> int:
        return self._scalar(f"PRAGMA {name}")

    def _scalar(self, statement: str) -> int:
        value: int = self._connection.execute(statement).fetchone()[0]
        return value


def _check_row(file: str, path: str, row: _Row) -> None:
    """Raise CorruptionError unless the columns are of their types and fit the checksum."""
    is_sound = isinstance(row[0], bytes) and all(type(number) is int for number in row[1:])
    if not is_sound or row[6] != _crc(path, *row[:6]):
        raise CorruptionError(f"{file}: node {path} fails its checksum")


def _created(parent: str, path: str) -> list[Notification]:
    return [Notification(ChangeKind.CREATED, path), Notification(ChangeKind.CHILDREN_CHANGED, parent)]


def _stat(row: _Row, session: int) -> Stat:
    is_ephemeral = row[4] != NO_SESSION
    return Stat(row[1], row[2], row[3], is_ephemeral, is_ephemeral and row[4] == session)


def _crc(path: str, value: bytes, version: int, created_ms: int, modified_ms: int, session: int, sequence: int) -> int:
    crc = crc32c(path.encode() + b"\0" + _NUMBERS.pack(version, created_ms, modified_ms, session, sequence))
    result: int = crc32c(value, crc)
    return result
