"""The metadata store in memory: for the embedded broker without a directory, for tests and for simulation.

``MemoryMetadata`` is the state, which outlives processes under simulation; ``MemoryMetadataStore`` is one
process's session on it. A write reaches the state after a delay (0: the loop's next turn) and its reply comes
after another: a process that crashes between leaves a write that was kept but never answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, Unpack

from geminga.metadata.core.faults import MetadataFaults, WriteFault
from geminga.metadata.core.tree import MetadataTree, check_path, check_value
from geminga.metadata.ports import Node, Notification, PutOptions, PutResult, SessionEvent
from geminga.metadata.watches import WatchedStore, Watches
from geminga.model.errors import MetadataUnavailableError, SessionExpiredError, UnknownOutcomeError
from geminga.runtime import delay
from geminga.runtime.ports import Runtime

T = TypeVar("T")


class MemoryMetadata:
    """The state that sessions share."""

    __slots__ = ("_stores", "tree")

    def __init__(self) -> None:
        self.tree = MetadataTree()
        self._stores: list[MemoryMetadataStore] = []

    def attach(self, store: MemoryMetadataStore) -> None:
        """Tell ``store`` of changes."""
        self._stores.append(store)

    def detach(self, store: MemoryMetadataStore) -> None:
        """The store's process is gone."""
        if store in self._stores:
            self._stores.remove(store)

    def notify(self, notifications: Iterable[Notification]) -> None:
        """Tell every attached store."""
        for store in tuple(self._stores):
            store.on_changes(notifications)

    def end_session(self, session: int, now_ms: int) -> None:
        """A process died or was silent too long: its ephemeral nodes vanish."""
        self.notify(self.tree.end_session(session, now_ms))


class MemoryMetadataStore(WatchedStore):
    """One session on a :class:`MemoryMetadata`; implements ``metadata.ports.MetadataStore``."""

    __slots__ = ("_clock", "_is_closed", "_random", "_server", "_session", "faults")

    def __init__(
        self, runtime: Runtime, server: MemoryMetadata | None = None, faults: MetadataFaults | None = None
    ) -> None:
        self._clock = runtime.clock
        self._random = runtime.rng.random
        #: The misbehaviour switches; may be changed at any time.
        self.faults = faults if faults is not None else MetadataFaults()
        self._server = server if server is not None else MemoryMetadata()
        self._session = self._server.tree.open_session()
        self._watches = Watches(self.faults, self._random)
        self._is_closed = False
        self._server.attach(self)

    @property
    def server(self) -> MemoryMetadata:
        """The shared state; hand it to the store of the next process."""
        return self._server

    @property
    def session(self) -> int:
        """The present session's id."""
        return self._session

    # ---- reads

    async def get(self, path: str) -> Node | None:
        """See ``MetadataStore.get``."""
        check_path(path)
        await self._request()
        return await self._reply(self._server.tree.get(path, session=self._session))

    async def exists(self, path: str) -> bool:
        """See ``MetadataStore.exists``."""
        check_path(path)
        await self._request()
        return await self._reply(self._server.tree.exists(path))

    async def children(self, path: str) -> list[str]:
        """See ``MetadataStore.children``."""
        check_path(path)
        await self._request()
        return await self._reply(self._server.tree.children(path))

    async def next_sequence(self, path: str) -> int:
        """See ``MetadataStore.next_sequence``."""
        check_path(path)
        await self._request()
        return await self._reply(self._server.tree.next_sequence(path))

    async def sync(self, path: str = "/") -> None:
        """See ``MetadataStore.sync``: reads are never old here."""
        del path
        await self._request()

    # ---- writes

    async def put(self, path: str, value: bytes, **options: Unpack[PutOptions]) -> PutResult:
        """See ``MetadataStore.put``."""
        check_path(path)
        check_value(path, value)

        def apply(session: int) -> PutResult:
            now_ms = self._clock.wall_ms()
            outcome = self._server.tree.put(path, bytes(value), session=session, now_ms=now_ms, **options)
            self._server.notify(outcome.notifications)
            return outcome.result

        return await self._write(f"put {path}", apply)

    async def take_sequences(self, path: str, count: int) -> Sequence[int]:
        """See ``MetadataStore.take_sequences``."""
        check_path(path)

        def apply(session: int) -> Sequence[int]:
            now_ms = self._clock.wall_ms()
            taken, notifications = self._server.tree.take_sequences(path, count, session=session, now_ms=now_ms)
            self._server.notify(notifications)
            return taken

        return await self._write(f"take sequences of {path}", apply)

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """See ``MetadataStore.delete``."""
        check_path(path)

        def apply(session: int) -> None:
            self._server.notify(self._server.tree.delete(path, expected_version=expected_version, session=session))

        await self._write(f"delete {path}", apply)

    # ---- listeners and the session

    def on_changes(self, notifications: Iterable[Notification]) -> None:
        """Called by :class:`MemoryMetadata` with what any session changed."""
        self._watches.notify(notifications)

    def expire_session(self, outage_ms: int = 0) -> None:
        """Misbehave: the session expires now; after ``outage_ms`` a new one is up (RECONNECTED).

        Until then every call raises SessionExpiredError, and so do the writes that were under way.
        """
        if self._is_closed:
            return
        self._server.end_session(self._session, self._clock.wall_ms())
        self._watches.notify_session(SessionEvent.EXPIRED)
        asyncio.get_running_loop().call_later(outage_ms / 1000.0, self._new_session)

    def _new_session(self) -> None:
        if not self._is_closed and not self._server.tree.is_alive(self._session):
            self._session = self._server.tree.open_session()
            self._watches.notify_session(SessionEvent.RECONNECTED)

    async def close(self) -> None:
        """See ``MetadataStore.close``; closing twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watches.clear()
        self._server.detach(self)
        self._server.end_session(self._session, self._clock.wall_ms())

    # ---- the way there and back

    async def _write(self, what: str, apply: Callable[[int], T]) -> T:
        session = self._session
        await self._request()
        fault = self.faults.write_fault(self._random)
        if fault is WriteFault.UNKNOWN_BEFORE:
            await self._reply(None)
            raise UnknownOutcomeError(f"{what}: connection lost before the reply")
        result = apply(session)
        await self._reply(None)
        if fault is WriteFault.UNKNOWN_AFTER:
            raise UnknownOutcomeError(f"{what}: connection lost before the reply")
        return result

    async def _request(self) -> None:
        """The way to the server; afterwards the session must be alive."""
        if self._is_closed:
            raise MetadataUnavailableError("the metadata store is closed")
        await delay(self.faults.delay_ms(self._random))
        if not self._server.tree.is_alive(self._session):
            raise SessionExpiredError(f"metadata session {self._session} is over")

    async def _reply(self, result: T) -> T:
        """The way back; only taken when slow, as the caller resumes on a later turn anyway."""
        if self.faults.delay_ms_max:
            await delay(self.faults.delay_ms(self._random))
        return result
