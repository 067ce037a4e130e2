"""The metadata store of a process that reaches it over a Unix socket (``docs/formats/metadata-socket.md``).

A session outlives its connections: while there is none, calls wait as long as a session lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Unpack, cast

from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.core.socket_hot import TEXT_BYTES_MAX
from geminga.metadata.core.socket_messages import Numbers, Reason, Refused, StoreOperation, Watch, Welcome
from geminga.metadata.core.tree import check_count, check_path, check_value
from geminga.metadata.ports import Node, Notification, PutOptions, PutResult, SessionEvent, Unsubscribe
from geminga.metadata.socket.calls import Calls
from geminga.metadata.socket.link import Link, LinkLostError
from geminga.metadata.watches import WatchedStore, Watches
from geminga.model.errors import MetadataError, MetadataUnavailableError, SessionExpiredError, StorageError
from geminga.runtime import Runtime, again, get_logger, spawn, wait_ms

#: Pulsar's ``metadataStoreSessionTimeoutMillis``.
SESSION_TIMEOUT_MS: Final = 30_000
#: How long a start waits for the first session.
CONNECT_TIMEOUT_S: Final = 30.0
#: How long a close waits for the session to end; a session that could not be ended expires.
CLOSE_TIMEOUT_S: Final = 5.0
#: Between two attempts to connect: from the first, doubled up to the second, milliseconds.
RETRY_MS_MIN: Final = 20
RETRY_MS_MAX: Final = 1_000
#: Nodes and lists of children watched at once.
WATCHED_MAX: Final = 50_000

#: Of UTF-8.
_CHARACTER_BYTES_MAX: Final = 4

_log = get_logger(__name__)


class SocketMetadataStore(WatchedStore):
    """Implements ``metadata.ports.MetadataStore``; made by :meth:`open`."""

    def __init__(self, runtime: Runtime, path: str, token: str, name: str, session_timeout_ms: int) -> None:
        self._runtime = runtime
        self._path = path
        self._token = token
        self._name = name
        self._timeout_ms = session_timeout_ms
        self._calls = Calls()
        self._watches = Watches(MetadataFaults(), runtime.rng.random)
        #: Listeners at each path, of the node or of its children.
        self._watched: dict[tuple[str, bool], int] = {}
        #: None: a new one is wanted.
        self._session: Welcome | None = None
        self._link: Link | None = None
        #: Ends the waiting of calls when the connection is away too long.
        self._away: asyncio.TimerHandle | None = None
        self._first: asyncio.Future[MetadataError | None] = asyncio.get_running_loop().create_future()
        self._last_failure = ""
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        path: str,
        *,
        token: str,
        name: str,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> SocketMetadataStore:
        """Connect to the socket at ``path``. Raises MetadataUnavailableError, MetadataError (it is refused for good).

        ``token``: of the serving process's life. ``name``: of this process, for its log.
        """
        store = cls(runtime, path, token, name, session_timeout_ms)
        spawn(store._keep_connected(), name="metadata-connection")
        try:
            async with asyncio.timeout(connect_timeout_s):
                refused = await store._first
            if refused is not None:
                raise again(refused)  # the error's frames have the store, which has the future
        except TimeoutError:
            store._give_up()
            why = f" ({store._last_failure})" if store._last_failure else ""
            raise MetadataUnavailableError(
                f"metadata socket {path}: not reached within {connect_timeout_s:g} s{why}"
            ) from None
        except BaseException:
            # Also of who was cut off: the task that connects would try on.
            store._give_up()
            raise
        return store

    @property
    def session(self) -> int:
        """The present session's id; 0: there is none now."""
        return 0 if self._session is None else self._session.session

    # ---- reads

    async def get(self, path: str) -> Node | None:
        """See ``MetadataStore.get``."""
        _check_path(path)
        return cast("Node | None", await self._calls.ask(StoreOperation.GET, path))

    async def exists(self, path: str) -> bool:
        """See ``MetadataStore.exists``."""
        _check_path(path)
        return bool(await self._calls.ask(StoreOperation.EXISTS, path))

    async def children(self, path: str) -> list[str]:
        """See ``MetadataStore.children``."""
        _check_path(path)
        return list(cast("tuple[str, ...]", await self._calls.ask(StoreOperation.CHILDREN, path)))

    async def next_sequence(self, path: str) -> int:
        """See ``MetadataStore.next_sequence``."""
        _check_path(path)
        return cast("int", await self._calls.ask(StoreOperation.NEXT_SEQUENCE, path))

    async def sync(self, path: str = "/") -> None:
        """See ``MetadataStore.sync``; of all, whatever is asked for."""
        del path
        await self._calls.ask(StoreOperation.SYNC)

    # ---- writes

    async def put(self, path: str, value: bytes, **options: Unpack[PutOptions]) -> PutResult:
        """See ``MetadataStore.put``."""
        _check_path(path)
        check_value(path, value)
        return cast("PutResult", await self._calls.ask(StoreOperation.PUT, path, value=bytes(value), **options))

    async def take_sequences(self, path: str, count: int) -> Sequence[int]:
        """See ``MetadataStore.take_sequences``."""
        _check_path(path)
        check_count(path, count)
        return cast("Numbers", await self._calls.ask(StoreOperation.TAKE_SEQUENCES, path, how_many=count)).taken

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """See ``MetadataStore.delete``."""
        _check_path(path)
        await self._calls.ask(StoreOperation.DELETE, path, expected_version=expected_version)

    # ---- listeners and the session

    def watch_node(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_node``."""
        return self._watch(path, self._watches.add_node, callback, of_children=False)

    def watch_children(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_children``."""
        return self._watch(path, self._watches.add_children, callback, of_children=True)

    async def close(self) -> None:
        """See ``MetadataStore.close``; ends in time whatever the server does. Closing twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watches.clear()
        self._watched.clear()
        try:
            if self._link is not None:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._calls.ask(StoreOperation.CLOSE)
        except TimeoutError:
            _log.warning("metadata socket %s does not answer: the session is left to expire", self._path)
        except StorageError as error:
            _log.debug("the metadata session may have ended or not: %s", error)
        finally:
            # Also of who was cut off: the connection would keep the session alive.
            self._give_up()

    # ---- inside

    def _watch(
        self,
        path: str,
        add: Callable[[str, Callable[[Notification], None]], Unsubscribe],
        callback: Callable[[Notification], None],
        *,
        of_children: bool,
    ) -> Unsubscribe:
        _check_path(path)
        key = (path, of_children)
        if key not in self._watched and len(self._watched) >= WATCHED_MAX:
            raise MetadataUnavailableError(f"{WATCHED_MAX} metadata nodes are watched already")
        unsubscribe = add(path, callback)
        self._watched[key] = self._watched.get(key, 0) + 1
        if self._watched[key] == 1:
            self._calls.watch(Watch(path, of_children))
        is_active = True

        def end() -> None:
            nonlocal is_active
            unsubscribe()
            if not is_active or key not in self._watched:
                return
            is_active = False
            self._watched[key] -= 1
            if not self._watched[key]:
                del self._watched[key]
                self._calls.watch(Watch(path, of_children, is_end=True))

        return end

    async def _keep_connected(self) -> None:
        retry_ms = RETRY_MS_MIN
        while not self._is_closed:
            link = Link(self._runtime, self._path, self._calls.answered, self._notified, self._expired)
            try:
                said = await link.connect(self._session, self._token, self._name, self._timeout_ms)
            except (OSError, LinkLostError) as error:
                said = None
                self._last_failure = str(error)
            if isinstance(said, Welcome) and not self._is_closed:
                retry_ms = RETRY_MS_MIN
                self._connected(link, said)
                await link.lost
                self._connection_lost()
                continue
            link.abort()
            if isinstance(said, Refused):
                self._last_failure = said.why
                if said.reason is Reason.SESSION_OVER and self._session is not None:
                    self._expired()
                    continue
                if said.reason in (Reason.VERSION, Reason.TOKEN):
                    self._refused_for_good(said.why)
                    return
            await wait_ms(retry_ms)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    def _connected(self, link: Link, welcome: Welcome) -> None:
        self._stop_waiting()
        self._session = welcome
        self._link = link
        self._calls.connected(link.write)
        for path, of_children in self._watched:
            self._calls.watch(Watch(path, of_children, is_told=self._first.done()))
        if self._first.done():
            _log.info("metadata socket %s: connected again, session %d", self._path, welcome.session)
            self._watches.notify_session(SessionEvent.RECONNECTED)
        else:
            self._first.set_result(None)

    def _connection_lost(self) -> None:
        self._link = None
        self._calls.lost()
        if self._is_closed or self._session is None:
            return
        _log.warning("metadata socket %s: the connection is lost", self._path)
        self._watches.notify_session(SessionEvent.CONNECTION_LOST)
        self._stop_waiting()
        away_s = self._session.timeout_ms / 1000
        self._away = asyncio.get_running_loop().call_later(away_s, self._away_too_long)

    def _expired(self) -> None:
        """The session is over; the next connection begins another."""
        if self._is_closed or self._session is None:
            return
        session = self._session.session
        self._session = None
        _log.warning("metadata session %d is over, and its ephemeral nodes are gone", session)
        self._stop_waiting()
        self._calls.refuse(lambda: SessionExpiredError(f"metadata session {session} is over"))
        self._watches.notify_session(SessionEvent.EXPIRED)

    def _refused_for_good(self, why: str) -> None:
        if self._is_closed:
            return
        error = MetadataError(f"metadata socket {self._path}: {why}")
        if not self._first.done():
            self._first.set_result(error)
            return
        self._give_up()
        self._runtime.on_fatal("metadata store", error)

    def _away_too_long(self) -> None:
        self._away = None
        self._calls.refuse(lambda: MetadataUnavailableError(f"metadata socket {self._path} can not be reached now"))

    def _give_up(self) -> None:
        self._is_closed = True
        self._stop_waiting()
        self._calls.refuse(lambda: MetadataUnavailableError("the metadata store is closed"))
        if self._link is not None:
            self._link.abort()

    def _stop_waiting(self) -> None:
        if self._away is not None:
            self._away.cancel()
            self._away = None

    def _notified(self, notification: Notification) -> None:
        self._watches.notify((notification,))


def _check_path(path: str) -> None:
    """Raise MetadataError for what is no path, or can not be sent."""
    check_path(path)
    if len(path) <= TEXT_BYTES_MAX // _CHARACTER_BYTES_MAX:
        return
    size_bytes = len(path.encode())
    if size_bytes > TEXT_BYTES_MAX:
        raise MetadataError(f"a metadata path of {size_bytes} bytes, at most {TEXT_BYTES_MAX} are sent")
