"""The metadata store of a standalone: a session on an SQLite file (``sqlite_file``).

The process that opens the file has the first session, and closes it; the others are those of processes that it serves
(``socket_server``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from geminga.metadata.core.faults import MetadataFaults, WriteFault
from geminga.metadata.core.tree import NO_SESSION, check_count, check_path, check_value
from geminga.metadata.ports import Node, Notification, PutOptions, PutResult, SessionEvent
from geminga.metadata.sqlite_file import Change, SqliteFile
from geminga.metadata.sqlite_tree import SqliteTree
from geminga.metadata.watches import WatchedStore, Watches
from geminga.model.errors import MetadataError, MetadataUnavailableError, SessionExpiredError, UnknownOutcomeError
from geminga.runtime import delay, spawn
from geminga.runtime.ports import Runtime

if TYPE_CHECKING:
    from geminga.metadata.core.copying import SourceNode
    from geminga.metadata.snapshot import SqliteSnapshot

T = TypeVar("T")


class SqliteMetadataStore(WatchedStore):
    """Implements ``metadata.ports.MetadataStore``; made by :meth:`open` and :meth:`open_session`."""

    __slots__ = ("_file", "_is_closed", "_is_ended", "_is_first", "_runtime", "_session", "faults")

    def __init__(self, file: SqliteFile, session: int, faults: MetadataFaults, *, is_first: bool) -> None:
        self._file = file
        self._runtime = file.runtime
        #: The misbehaviour switches; may be changed at any time.
        self.faults = faults
        self._session = session
        self._watches = Watches(faults, file.runtime.rng.random)
        self._is_first = is_first
        self._is_closed = False
        #: Its nodes are gone.
        self._is_ended = False
        file.attach(self._watches)

    @classmethod
    async def open(cls, runtime: Runtime, path: str, faults: MetadataFaults | None = None) -> SqliteMetadataStore:
        """Open or create the file; the sessions before end. See :meth:`SqliteFile.open`."""
        file = await SqliteFile.open(runtime, path)
        return cls(file, file.first_session, faults if faults is not None else MetadataFaults(), is_first=True)

    async def open_session(self) -> SqliteMetadataStore:
        """Another session on the same file, which ends before this one does. Raises StorageError."""
        self._check_usable()
        return SqliteMetadataStore(self._file, await self._file.open_session(), MetadataFaults(), is_first=False)

    @property
    def session(self) -> int:
        """The present session's id."""
        return self._session

    # ---- reads

    async def get(self, path: str) -> Node | None:
        """See ``MetadataStore.get``; CorruptionError if the stored node is damaged."""
        check_path(path)
        self._check_usable()
        await self._delay()
        return await self._file.node(path, self._session)

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

    def snapshot(self) -> SqliteSnapshot:
        """What was asked to be written before this call, and nothing else, to be copied. Raises StorageError."""
        self._check_usable()
        return self._file.snapshot()

    async def next_sequence(self, path: str) -> int:
        """See ``MetadataStore.next_sequence``."""
        check_path(path)
        return await self._read(lambda reader: reader.next_sequence(path))

    async def sync(self, path: str = "/") -> None:
        """See ``MetadataStore.sync``: a read sees every commit that was answered."""
        del path
        self._check_usable()
        await self._delay()

    async def _read(self, read: Callable[[SqliteTree], T]) -> T:
        self._check_usable()
        await self._delay()
        return await self._file.read(read)

    # ---- writes

    async def put(self, path: str, value: bytes, **options: Unpack[PutOptions]) -> PutResult:
        """See ``MetadataStore.put``."""
        check_path(path)
        check_value(path, value)
        value = bytes(value)
        session, now_ms = self._session, self._runtime.clock.wall_ms()

        def change(tree: SqliteTree) -> tuple[PutResult, list[Notification]]:
            return tree.put(path, value, session=session, now_ms=now_ms, **options)

        result = await self._write(f"put {path}", change, len(value))
        if result is None:
            raise MetadataError(f"put {path}: no result")
        return result

    async def take_sequences(self, path: str, count: int) -> Sequence[int]:
        """See ``MetadataStore.take_sequences``."""
        check_path(path)
        check_count(path, count)
        session, now_ms = self._session, self._runtime.clock.wall_ms()
        taken: list[Sequence[int]] = []

        def change(tree: SqliteTree) -> tuple[None, list[Notification]]:
            sequences, notifications = tree.take_sequences(path, count, session=session, now_ms=now_ms)
            taken.append(sequences)
            return None, notifications

        await self._write(f"take sequences of {path}", change, 0)
        return taken[-1]

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """See ``MetadataStore.delete``."""
        check_path(path)
        session = self._session
        await self._write(
            f"delete {path}",
            lambda tree: (None, tree.delete(path, expected_version=expected_version, session=session)),
            0,
        )

    async def _write(self, what: str, change: Change, size_bytes: int) -> PutResult | None:
        self._check_usable()
        await self._delay()
        fault = self.faults.write_fault(self._runtime.rng.random)
        if fault is WriteFault.UNKNOWN_BEFORE:
            raise UnknownOutcomeError(f"{what}: told to lose the request")
        result = await self._file.write(change, size_bytes)
        await self._delay()
        if fault is WriteFault.UNKNOWN_AFTER:
            raise UnknownOutcomeError(f"{what}: told to lose the reply")
        return result

    # ---- listeners and the session

    def expire_session(self, outage_ms: int = 0) -> None:
        """Misbehave: the session expires now; a new one is up (RECONNECTED) ``outage_ms`` after the file knows.

        Until then every call raises SessionExpiredError, and so do the writes that were queued.
        """
        if self._is_closed or self._session == NO_SESSION:
            return
        session, self._session = self._session, NO_SESSION
        self._watches.notify_session(SessionEvent.EXPIRED)
        spawn(self._begin_again(session, outage_ms), name="metadata-session")

    async def _begin_again(self, before: int, outage_ms: int) -> None:
        await self._file.end_session(before)
        session = await self._file.open_session()
        await delay(outage_ms)
        if not self._is_closed:
            self._session = session
            self._watches.notify_session(SessionEvent.RECONNECTED)

    async def close(self) -> None:
        """See ``MetadataStore.close``; what is queued is committed first. Closing twice is fine.

        If it fails the session is over, and closing it again deletes the nodes that it had.
        """
        if self._is_ended or self._file.is_closed:
            return
        self._is_closed = True
        self._watches.clear()
        await self._file.end_session(self._session)
        self._is_ended = True
        self._file.detach(self._watches)
        if self._is_first:
            await self._file.close()

    # ---- inside

    def _check_usable(self) -> None:
        if self._is_closed or self._file.is_closed:
            raise MetadataUnavailableError("the metadata store is closed")
        if self._session == NO_SESSION:
            raise SessionExpiredError("the metadata session is over")

    async def _delay(self) -> None:
        if self.faults.delay_ms_max:
            await delay(self.faults.delay_ms(self._runtime.rng.random))
