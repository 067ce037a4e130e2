"""``ZooKeeperMetadataStore``: the port on one ZooKeeper session.

A put is one request: ``create`` or ``setData`` by what is expected, and more only where a parent is missing or a node
came or went in between. The session's events are those of ZooKeeper; a new session follows an expired one by itself.
Rules: ``docs/formats/metadata-zookeeper.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Unpack

from kazoo import exceptions as zk
from kazoo.protocol.states import KazooState

from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.core.tree import check_count, check_value, split_path
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress, check_request, check_zookeeper_path
from geminga.metadata.ports import (
    MUST_NOT_EXIST,
    Node,
    Notification,
    PutOptions,
    PutResult,
    SessionEvent,
    Stat,
    Unsubscribe,
)
from geminga.metadata.watches import WatchedStore, Watches
from geminga.metadata.zookeeper.armed_watches import ArmedWatches
from geminga.metadata.zookeeper.connection import ZooKeeperConnection
from geminga.metadata.zookeeper.kazoo_thread import Inbox, Kazoo
from geminga.metadata.zookeeper.requests import Requests
from geminga.model.errors import (
    BadVersionError,
    MetadataError,
    MetadataUnavailableError,
    NodeNotEmptyError,
    NoSuchNodeError,
    SessionExpiredError,
    StorageError,
)
from geminga.runtime import again, get_logger, spawn
from geminga.runtime.ports import Runtime

#: BookKeeper's ``zkTimeout``, Pulsar's ``metadataStoreSessionTimeoutMillis``.
SESSION_TIMEOUT_MS: Final = 30_000
#: How long a start waits for the first connection.
CONNECT_TIMEOUT_S: Final = 30.0
#: How long a close waits for the session to end; a session that could not be ended expires.
CLOSE_TIMEOUT_S: Final = 5.0
#: Rounds of a put whose node, or parent, came or went in between each time.
PUT_ATTEMPTS_MAX: Final = 32
#: Of nodes that only tell their counters.
SEQUENCE_NAME: Final = "ID-"

#: What is said of who is not let in.
NOBODY: Final = (
    "the servers want to know who this client is: expected java.security.auth.login.config in the file of "
    "metadataStoreConfigPath"
)
REFUSED: Final = "the servers refuse this client's user or password (metadataStoreConfigPath)"

_log = get_logger(__name__)


class ZooKeeperMetadataStore(WatchedStore):
    """Implements ``metadata.ports.MetadataStore``; made by :meth:`open`."""

    def __init__(self, runtime: Runtime, address: ZooKeeperAddress, session_timeout_ms: int) -> None:
        self._runtime = runtime
        self._address = address
        self._away_s = session_timeout_ms / 1000
        inbox = Inbox(asyncio.get_running_loop())
        self._connection = ZooKeeperConnection(
            address, session_timeout_ms, inbox, on_state=self._state_changed, on_event=self._fired
        )
        self._requests = Requests(inbox, self._connection.submit)
        self._watches = Watches(MetadataFaults(), runtime.rng.random)
        self._armed = ArmedWatches(self._requests, self._connection, self._watches.notify)
        self._session = 0
        #: Parents that are being made.
        self._making: dict[str, asyncio.Future[None]] = {}
        #: Ends the waiting of requests when the connection is away too long.
        self._away: asyncio.TimerHandle | None = None
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        address: ZooKeeperAddress,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> ZooKeeperMetadataStore:
        """Connect, and make the chroot where it is missing. Raises MetadataUnavailableError, MetadataError."""
        store = cls(runtime, address, session_timeout_ms)
        store._connection.start()
        try:
            async with asyncio.timeout(connect_timeout_s):
                await store._first
            await store._make_with_parents("/")
        except TimeoutError:
            await store.close()
            why = store._connection.last_failure
            raise MetadataUnavailableError(
                f"{address}: not reached within {connect_timeout_s:g} s{f' ({why})' if why else ''}"
            ) from None
        except BaseException:
            # Also of who was cut off: the connection's thread would try on.
            await store.close()
            raise
        return store

    @property
    def session(self) -> int:
        """The present session's id."""
        return self._session

    # ---- reads

    async def get(self, path: str) -> Node | None:
        """See ``MetadataStore.get``."""
        check_zookeeper_path(path)
        try:
            value, stat = await self._read(f"get {path}", self._connection.get(path))
        except zk.NoNodeError:
            return None
        except zk.ZookeeperError as error:
            raise _unexpected(f"get {path}", error) from error
        return Node(value, self._stat(stat))

    async def exists(self, path: str) -> bool:
        """See ``MetadataStore.exists``."""
        check_zookeeper_path(path)
        try:
            return await self._read(f"exists {path}", self._connection.look(path)) is not None
        except zk.ZookeeperError as error:
            raise _unexpected(f"exists {path}", error) from error

    async def children(self, path: str) -> list[str]:
        """See ``MetadataStore.children``."""
        check_zookeeper_path(path)
        try:
            return sorted(await self._read(f"children {path}", self._connection.list(path)))
        except zk.NoNodeError:
            return []
        except zk.ZookeeperError as error:
            raise _unexpected(f"children {path}", error) from error

    async def next_sequence(self, path: str) -> int:
        """See ``MetadataStore.next_sequence``.

        A server counts the children that were made, and tells twice that, less those that are there (``cversion``).
        """
        check_zookeeper_path(path)
        try:
            stat = await self._read(f"exists {path}", self._connection.look(path))
        except zk.ZookeeperError as error:
            raise _unexpected(f"exists {path}", error) from error
        return 0 if stat is None else ((stat.cversion + stat.numChildren) & 0xFFFFFFFF) >> 1

    async def sync(self, path: str = "/") -> None:
        """See ``MetadataStore.sync``: servers know no part of it, only all."""
        del path
        try:
            await self._read("sync", self._connection.sync())
        except zk.ZookeeperError as error:
            raise _unexpected("sync", error) from error

    async def _read(self, what: str, payload: Kazoo) -> Kazoo:
        return await self._requests.ask(what, payload, is_write=False)

    # ---- writes

    async def put(self, path: str, value: bytes, **options: Unpack[PutOptions]) -> PutResult:
        """See ``MetadataStore.put``."""
        check_zookeeper_path(path)
        check_value(path, value)
        full = self._connection.full(path)
        check_request(full, value)
        value = bytes(value)
        expected_version, ephemeral = options["expected_version"], options.get("ephemeral", False)
        sequential = options.get("sequential", False)
        try:
            if sequential or expected_version == MUST_NOT_EXIST:
                return await self._create(path, value, ephemeral=ephemeral, sequential=sequential)
            if expected_version is not None:
                return await self._set(path, value, expected_version)
            for _ in range(PUT_ATTEMPTS_MAX):
                try:
                    return await self._set(path, value, None)
                except zk.NoNodeError:
                    pass
                try:
                    return await self._create(path, value, ephemeral=ephemeral, sequential=False)
                except zk.NodeExistsError:
                    pass
        except zk.NoNodeError as error:
            raise BadVersionError(f"{path} does not exist, expected version {expected_version}") from error
        except zk.ZookeeperError as error:
            raise _refused(f"put {path}", path, expected_version, error) from error
        raise MetadataUnavailableError(f"put {path}: it came and went {PUT_ATTEMPTS_MAX} times")

    async def _set(self, path: str, value: bytes, version: int | None) -> PutResult:
        sent = -1 if version is None else version
        stat = await self._requests.ask(
            f"put {path}", self._connection.set(path, value, sent), is_write=True, size_bytes=len(value)
        )
        return PutResult(path, self._stat(stat))

    async def _create(self, path: str, value: bytes, *, ephemeral: bool, sequential: bool) -> PutResult:
        for _ in range(PUT_ATTEMPTS_MAX):
            try:
                made, stat = await self._requests.ask(
                    f"put {path}",
                    self._connection.create(path, value, ephemeral=ephemeral, sequential=sequential),
                    is_write=True,
                    size_bytes=len(value),
                )
                return PutResult(self._connection.stripped(made), self._stat(stat))
            except zk.NoNodeError:
                # Somebody may delete the parents, which are empty, right away.
                await self._make_with_parents(split_path(path)[0])
        raise MetadataUnavailableError(f"put {path}: its parents went {PUT_ATTEMPTS_MAX} times")

    async def take_sequences(self, path: str, count: int) -> Sequence[int]:
        """See ``MetadataStore.take_sequences``."""
        check_zookeeper_path(path)
        check_count(path, count)
        what, below = f"take sequences of {path}", f"{path}/{SEQUENCE_NAME}"
        payload = self._connection.create_sequences(below, count)
        for _ in range(PUT_ATTEMPTS_MAX):
            try:
                made = await self._requests.ask(what, payload, is_write=True)
                errors = [each for each in made if isinstance(each, zk.ZookeeperError)]
                if errors:
                    # All of them failed, and those behind the first for that reason alone.
                    raise again(errors[0])
            except zk.NoNodeError:
                await self._make_with_parents(path)
            except zk.ZookeeperError as error:
                raise _unexpected(what, error) from error
            else:
                paths = [self._connection.stripped(each) for each in made]
                # They told their numbers; nobody waits until they are gone.
                spawn(self._forget(paths), name=f"forget sequences of {path}")
                return [int(each.removeprefix(below)) for each in paths]
        raise MetadataUnavailableError(f"{what}: its parents went {PUT_ATTEMPTS_MAX} times")

    async def _forget(self, paths: Sequence[str]) -> None:
        try:
            await self._requests.ask(f"delete {paths[0]}", self._connection.delete_all(paths), is_write=True)
        except (zk.ZookeeperError, StorageError) as error:
            _log.info("%s and others go with the session: %s", paths[0], error)

    async def _make_with_parents(self, path: str) -> None:
        """Make an empty persistent node, and those above it; fine if others do at the same time.

        Those here who need the same node share the requests.
        """
        making = self._making.get(path)
        if making is not None:
            # One who is cut off must not take it from those who make it and wait for it.
            await asyncio.shield(making)
            return
        making = self._making[path] = asyncio.get_running_loop().create_future()
        try:
            await self._make_missing(path)
        finally:
            del self._making[path]
            # Whether it failed or not: who waited tries for himself, and sees.
            making.set_result(None)

    async def _make_missing(self, path: str) -> None:
        missing = [self._connection.full(path)]
        while missing:
            try:
                await self._requests.ask(f"put {path}", self._connection.create_full(missing[-1]), is_write=True)
            except zk.NoNodeError:
                missing.append(split_path(missing[-1])[0])
                continue
            except zk.NodeExistsError:
                pass
            except zk.ZookeeperError as error:
                raise _unexpected(f"put {path}", error) from error
            missing.pop()

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """See ``MetadataStore.delete``."""
        check_zookeeper_path(path)
        if path == "/":
            raise NoSuchNodeError(f"{path} does not exist")
        if expected_version is not None and expected_version < 0:
            # ZooKeeper would take it for "any version".
            raise BadVersionError(f"{path}: no node has version {expected_version}")
        sent = -1 if expected_version is None else expected_version
        try:
            await self._requests.ask(f"delete {path}", self._connection.delete(path, sent), is_write=True)
        except zk.NoNodeError as error:
            raise NoSuchNodeError(f"{path} does not exist") from error
        except zk.ZookeeperError as error:
            raise _refused(f"delete {path}", path, expected_version, error) from error

    # ---- listeners and the session

    def watch_node(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_node``."""
        check_zookeeper_path(path)
        return self._armed.watch(path, self._watches.add_node(path, callback), of_children=False)

    def watch_children(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_children``."""
        check_zookeeper_path(path)
        return self._armed.watch(path, self._watches.add_children(path, callback), of_children=True)

    async def close(self) -> None:
        """See ``MetadataStore.close``; ends in time whatever the ensemble does. Closing twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_waiting()
        self._watches.clear()
        self._armed.clear()
        self._requests.refuse(lambda: MetadataUnavailableError("the metadata store is closed"))
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection.stop(lambda: None if ended.done() else ended.set_result(None))
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await ended
        except TimeoutError:
            _log.warning("%s does not answer: the session is left to expire", self._address)
        self._requests.refuse(lambda: MetadataUnavailableError("the metadata store is closed"), with_sent=True)

    # ---- what kazoo tells, on the loop's thread

    def _fired(self, path: str, of_children: bool) -> None:
        self._armed.fired(path, of_children=of_children)

    def _state_changed(self, state: str, session: int | None) -> None:
        if self._is_closed:
            return
        if state == KazooState.CONNECTED and session is not None:
            self._connected(session)
        elif state == KazooState.SUSPENDED:
            _log.warning("%s: the connection is lost", self._address)
            self._requests.lost()
            self._armed.connection_lost()
            self._watches.notify_session(SessionEvent.CONNECTION_LOST)
            self._stop_waiting()
            self._away = asyncio.get_running_loop().call_later(self._away_s, self._away_too_long)
        elif state == KazooState.LOST:
            self._session_lost()

    def _connected(self, session: int) -> None:
        self._stop_waiting()
        self._session = session
        # An unknown write is settled by reading: not from a server that lags behind the one before.
        self._requests.connected(self._connection.sync(), self._first_answered)
        self._armed.connected()
        if self._first.done():
            _log.info("%s: connected again, session %#x", self._address, session)
            self._watches.notify_session(SessionEvent.RECONNECTED)

    def _first_answered(self, _: Kazoo, error: BaseException | None) -> None:
        """Servers begin a session with anybody; only a request tells whether they serve this one."""
        if self._first.done():
            return
        if error is None:
            self._first.set_result(None)
        elif isinstance(error, zk.SessionClosedRequireSaslError | zk.AuthFailedError):
            why = NOBODY if self._address.credentials is None else REFUSED
            self._first.set_exception(MetadataUnavailableError(f"{self._address}: {why}"))
        # Else the connection was lost: the next one is awaited.

    def _session_lost(self) -> None:
        self._stop_waiting()
        self._armed.connection_lost()
        if self._connection.is_ended:
            why = REFUSED if self._connection.is_refused else "kazoo ended the connection for good"
            error = MetadataUnavailableError(f"{self._address}: {why}")
            if not self._first.done():
                # Nobody uses it yet: who opens it is told.
                self._first.set_exception(error)
                return
            self._requests.refuse(lambda: MetadataUnavailableError(str(error)), with_sent=True)
            self._runtime.on_fatal("metadata store", error)
            return
        session = self._session
        _log.warning("%s: session %#x expired, and its ephemeral nodes with it", self._address, session)
        self._requests.refuse(lambda: SessionExpiredError(f"metadata session {session:#x} is over"))
        self._watches.notify_session(SessionEvent.EXPIRED)

    def _away_too_long(self) -> None:
        self._away = None
        self._requests.refuse(self._unreachable, with_sent=True)

    def _unreachable(self) -> StorageError:
        return MetadataUnavailableError(f"{self._address} can not be reached now")

    def _stop_waiting(self) -> None:
        if self._away is not None:
            self._away.cancel()
            self._away = None

    def _stat(self, stat: Kazoo) -> Stat:
        owner = stat.ephemeralOwner
        return Stat(stat.version, stat.ctime, stat.mtime, owner != 0, owner != 0 and owner == self._session)


def _refused(what: str, path: str, expected_version: int | None, error: zk.ZookeeperError) -> MetadataError:
    """Of a write to ``path``."""
    if isinstance(error, zk.NodeExistsError):
        return BadVersionError(f"{path} exists, must not exist")
    if isinstance(error, zk.BadVersionError):
        return BadVersionError(f"{path} has another version, expected version {expected_version}")
    if isinstance(error, zk.NotEmptyError):
        return NodeNotEmptyError(f"{path} has children")
    return _unexpected(what, error)


def _unexpected(what: str, error: zk.ZookeeperError) -> MetadataError:
    if isinstance(error, zk.NoChildrenForEphemeralsError):
        return MetadataError(f"{what}: its parent is ephemeral: it can not have children")
    return MetadataError(f"{what}: ZooKeeper says {type(error).__name__} {error}".rstrip())
