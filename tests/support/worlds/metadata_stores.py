"""The metadata stores as the contract suite sees them: one harness for each backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pytest

from geminga import sim
from geminga.metadata import (
    MemoryMetadata,
    MemoryMetadataStore,
    MetadataFaults,
    MetadataStore,
    Notification,
    SqliteMetadataStore,
)
from geminga.metadata.ports import Node
from geminga.metadata.socket.server import MetadataServer
from geminga.metadata.socket.store import SocketMetadataStore
from geminga.model.errors import MetadataError
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from geminga.runtime import Runtime, real_runtime
from support.house.real_runtimes import close_runtime

T = TypeVar("T")
AnyStore = Any


class Inbox:
    """Collects what listeners are told; ``await inbox.has(n)`` waits for the n-th."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def __call__(self, item: Any) -> None:
        self.items.append(item)
        for count, waiter in self._waiters:
            if len(self.items) >= count and not waiter.done():
                waiter.set_result(None)

    async def has(self, count: int) -> list[Any]:
        if len(self.items) < count:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((count, waiter))
            await waiter
        return self.items

    async def comes(self, item: Any) -> None:
        """Wait until ``item`` was told."""
        while item not in self.items:
            await self.has(len(self.items) + 1)

    def kinds_and_paths(self) -> list[tuple[str, str]]:
        return [(item.kind.value, item.path) for item in self.items if isinstance(item, Notification)]


class Harness:
    """One store in a running loop, and the means to start its process again."""

    def __init__(self, runtime: Runtime, store: AnyStore, reopen: Callable[[AnyStore], Coroutine[Any, Any, AnyStore]]):
        #: Of a value at a path as short as those of the suite.
        self.value_bytes_max = METADATA_VALUE_BYTES_MAX
        self.runtime = runtime
        self.store = store
        self._reopen = reopen
        self._all: list[AnyStore] = [store]

    @property
    def faults(self) -> MetadataFaults:
        """The misbehaviour switches of the store that the present session is of."""
        faults: MetadataFaults = self.store.faults
        return faults

    async def expire_session(self) -> None:
        """The present session ends without the process knowing; a new one follows by itself."""
        if isinstance(self.store, MemoryMetadataStore | SqliteMetadataStore):
            self.store.expire_session(outage_ms=5)
        else:
            await asyncio.to_thread(end_session, self.store)

    async def restart(self) -> AnyStore:
        """The process dies without closing anything and starts again."""
        self.store = await self._reopen(self.store)
        self._all.append(self.store)
        return self.store

    async def close(self) -> None:
        for store in reversed(self._all):
            await store.close()


def _run(main: Callable[[Runtime], Coroutine[Any, Any, T]], *, simulated: bool, seed: int = 7) -> T:
    """On a node of a simulation, or in an ordinary loop."""

    async def scenario(world: sim.SimWorld) -> T:
        return await world.node("broker").run(lambda node: main(node.runtime))

    async def real() -> T:
        runtime = real_runtime(_no_fatal)
        try:
            return await main(runtime)
        finally:
            await close_runtime(runtime)

    return sim.run(scenario, seed=seed) if simulated else asyncio.run(real())


class MemoryCase:
    """MemoryMetadataStore in an ordinary loop, or under simulation."""

    def __init__(self, *, simulated: bool) -> None:
        self._simulated = simulated

    def run(self, main: Callable[[Harness], Coroutine[Any, Any, T]]) -> T:
        return _run(lambda runtime: self._in(runtime, main), simulated=self._simulated)

    async def _in(self, runtime: Runtime, main: Callable[[Harness], Coroutine[Any, Any, T]]) -> T:
        server = MemoryMetadata()

        async def reopen(dead: AnyStore) -> AnyStore:
            server.end_session(dead.session, runtime.clock.wall_ms())
            server.detach(dead)  # type: ignore[arg-type]
            return MemoryMetadataStore(runtime, server, MetadataFaults())

        harness = Harness(runtime, MemoryMetadataStore(runtime, server), reopen)
        result = await main(harness)
        server.tree.check_invariants()
        await harness.close()
        return result


class SqliteCase:
    """SqliteMetadataStore on a real file."""

    def __init__(self, directory: Path) -> None:
        self._path = str(directory / "metadata.db")

    def run(self, main: Callable[[Harness], Coroutine[Any, Any, T]]) -> T:
        return _run(lambda runtime: self._in(runtime, main), simulated=False)

    async def _in(self, runtime: Runtime, main: Callable[[Harness], Coroutine[Any, Any, T]]) -> T:
        async def reopen(dead: AnyStore) -> AnyStore:
            return await SqliteMetadataStore.open(runtime, self._path)

        harness = Harness(runtime, await SqliteMetadataStore.open(runtime, self._path), reopen)
        result = await main(harness)
        await harness.close()
        return result


class SocketHarness(Harness):
    """A store behind a metadata socket, and what serves it."""

    def __init__(self, runtime: Runtime, store: AnyStore, reopen: Any, server: MetadataServer) -> None:
        super().__init__(runtime, store, reopen)
        self.server = server

    @property
    def faults(self) -> MetadataFaults:
        return self.behind.faults  # type: ignore[no-any-return]

    @property
    def behind(self) -> AnyStore:
        """The store of the present session, in the serving process."""
        return self.server._sessions[self.store.session].store

    async def expire_session(self) -> None:
        self.server.expire(self.store.session)


class SocketCase:
    """SocketMetadataStore before a store in memory, simulated or not, or before an SQLite file (``directory``)."""

    TOKEN = "a life"
    NAME = "broker-1"

    def __init__(self, socket: Path, *, directory: Path | None = None, simulated: bool = False, seed: int = 7) -> None:
        self._socket = str(socket)
        self._directory = directory
        self._simulated = simulated
        self._seed = seed

    def run(self, main: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        return _run(lambda runtime: self._in(runtime, main), simulated=self._simulated, seed=self._seed)

    async def _in(self, runtime: Runtime, main: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        state = MemoryMetadata()
        file = None
        if self._directory is not None:
            file = await SqliteMetadataStore.open(runtime, str(self._directory / "metadata.db"))

        async def open_session() -> AnyStore:
            return MemoryMetadataStore(runtime, state) if file is None else await file.open_session()

        server = await MetadataServer.listen(runtime, self._socket, open_session, token=self.TOKEN)

        async def reopen(dead: AnyStore) -> AnyStore:
            dead._give_up()
            await server.end_sessions_of(self.NAME)
            return await self.open(runtime)

        harness = SocketHarness(runtime, await self.open(runtime), reopen, server)
        result = await main(harness)
        await harness.close()
        await server.close()
        state.tree.check_invariants()
        if file is not None:
            await file.close()
        return result

    async def open(self, runtime: Runtime, **options: Any) -> SocketMetadataStore:
        """One more process of the same standalone."""
        given = {"token": self.TOKEN, "name": self.NAME, **options}
        return await SocketMetadataStore.open(runtime, self._socket, **given)


#: Stores behind a metadata socket, by what is served.
SOCKETS = ("socket-memory", "socket-simulated", "socket-sqlite")


def socket_case(name: str, directory: Path) -> SocketCase:
    """One of :data:`SOCKETS`."""
    is_sqlite = name == "socket-sqlite"
    return SocketCase(
        directory / "metadata.socket",
        directory=directory if is_sqlite else None,
        simulated=name == "socket-simulated",
    )


class ZooKeeperCase:
    """ZooKeeperMetadataStore on a real server, below a chroot of its own."""

    def __init__(self, server: Any, name: str) -> None:
        self._address = zookeeper_address(server, name)

    def run(self, main: Callable[[Harness], Coroutine[Any, Any, T]]) -> T:
        return _run(lambda runtime: self._in(runtime, main), simulated=False)

    async def _in(self, runtime: Runtime, main: Callable[[Harness], Coroutine[Any, Any, T]]) -> T:
        from geminga.metadata.core.zookeeper_address import REQUEST_BYTES_MAX, REQUEST_OVERHEAD_BYTES
        from geminga.metadata.zookeeper import ZooKeeperMetadataStore

        async def reopen(dead: AnyStore) -> AnyStore:
            # What a server does for a process that is gone, without the wait.
            await dead.close()
            return await ZooKeeperMetadataStore.open(runtime, self._address)

        harness = Harness(runtime, await ZooKeeperMetadataStore.open(runtime, self._address), reopen)
        path_bytes = len(f"{self._address.chroot}/a".encode())
        harness.value_bytes_max = REQUEST_BYTES_MAX - REQUEST_OVERHEAD_BYTES - path_bytes
        result = await main(harness)
        await harness.close()
        return result


def store_case(request: pytest.FixtureRequest, directory: Path) -> MemoryCase | SqliteCase | SocketCase | ZooKeeperCase:
    """What a fixture's parameter names: ``memory``, ``memory-simulated``, ``sqlite``, ``zookeeper``, one of SOCKETS."""
    if request.param == "zookeeper":
        return ZooKeeperCase(request.getfixturevalue("zookeeper"), request.node.name)
    if request.param == "sqlite":
        return SqliteCase(directory)
    if request.param in SOCKETS:
        return socket_case(request.param, directory)
    return MemoryCase(simulated=request.param == "memory-simulated")


def zookeeper_address(server: Any, name: str) -> Any:
    """``server`` below a chroot for ``name``, such as a test's."""
    from geminga.metadata.core.zookeeper_address import ZooKeeperAddress

    return ZooKeeperAddress((server.hosts,), f"/{sha256(name.encode()).hexdigest()[:16]}/tests")


def end_session(store: Any) -> None:
    """End a store's session at its ZooKeeper, as by a long silence: by another connection of the same session."""
    from kazoo.client import KazooClient

    client = store._connection._client
    other = KazooClient(",".join(store._address.hosts), client_id=(client._session_id, client._session_passwd))
    other.start()
    other.stop()
    other.close()


def _no_fatal(part: str, error: BaseException) -> None:
    raise AssertionError(f"fatal in {part}: {error!r}")


async def all_paths(store: MetadataStore, top: str = "/") -> list[str]:
    """Every node below ``top``, sorted."""
    found = []
    for name in await store.children(top):
        path = f"{top.rstrip('/')}/{name}"
        found += [path, *await all_paths(store, path)]
    return sorted(found)


class UnreachableStore(MemoryMetadataStore):
    """Takes so many more writes, and none after them; None: all."""

    writes_left: int | None = None

    def _count(self) -> None:
        if self.writes_left is not None:
            if not self.writes_left:
                raise MetadataError("the store can not be reached")
            self.writes_left -= 1

    async def put(self, path: str, value: bytes, **options) -> Node:
        self._count()
        return await super().put(path, value, **options)

    async def delete(self, path: str, **options) -> None:
        self._count()
        await super().delete(path, **options)
