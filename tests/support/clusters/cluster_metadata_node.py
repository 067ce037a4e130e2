"""The metadata of a simulated cluster: a server on a node of its own, reached over the simulated network.

Sessions are those of the product's metadata socket, which are ZooKeeper's: they outlive connections, end after silence,
and who was cut off hears of the end when it is back. What is behind is a tree in memory whose watches come late, twice
or never and whose writes may end without an answer. Each broker has a server of its own on the shared tree, so that it
is known here which session is whose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.socket.server import MetadataServer
from geminga.metadata.socket.store import SocketMetadataStore
from geminga.runtime import Runtime
from geminga.sim import SimNode, SimWorld

TOKEN: Final = "token"
PORT_FIRST: Final = 2181
SESSION_MS: Final = 3000
#: A broker that is not cut off has heard of the end of its session, and closed what it had, in this time, seconds.
TOLD_S: Final = 4.0
LATE_MS_MAX: Final = 3000


class FarSocket:
    """The network of a node, whose Unix sockets are another node's."""

    def __init__(self, network: object, host: str, port: int) -> None:
        self._network = network
        self._host = host
        self._port = port

    def __getattr__(self, name: str) -> object:
        return getattr(self._network, name)

    async def listen_local(self, factory: Callable[[], asyncio.BaseProtocol], path: str, **_: object) -> object:
        return await self._network.listen(factory, self._host, self._port)  # type: ignore[attr-defined]

    async def connect_local(self, factory: Callable[[], asyncio.BaseProtocol], path: str) -> object:
        return await self._network.connect(factory, self._host, self._port)  # type: ignore[attr-defined]


def with_far_socket(runtime: Runtime, host: str, port: int) -> Runtime:
    return replace(runtime, network=FarSocket(runtime.network, host, port))  # type: ignore[arg-type]


class MetadataNode:
    """See the module."""

    def __init__(self, world: SimWorld, clients: tuple[str, ...]) -> None:
        self.world = world
        self.node = world.node("metadata")
        self.state = MemoryMetadata()
        self.ports = {name: PORT_FIRST + number for number, name in enumerate(clients)}
        self.servers: dict[str, MetadataServer] = {}
        #: What misbehaves, by client; changed at any time.
        self.faults = {name: MetadataFaults() for name in clients}
        #: The stores of the sessions of each client, in the order in which they were opened: ids count from 1.
        self._opened: dict[str, list[MemoryMetadataStore]] = {name: [] for name in clients}

    async def start(self) -> None:
        await self.node.run(self._start)

    async def _start(self, node: SimNode) -> None:
        for name, port in self.ports.items():
            runtime = with_far_socket(node.runtime, "0.0.0.0", port)
            self.servers[name] = await MetadataServer.listen(runtime, name, self._opening(name), token=TOKEN)

    def _opening(self, name: str) -> Callable[[], object]:
        async def open_session() -> MemoryMetadataStore:
            store = MemoryMetadataStore(self.node.runtime, self.state, self.faults[name])
            self._opened[name].append(store)
            return store

        return open_session

    async def connect(self, node: SimNode) -> SocketMetadataStore:
        """As of a process of that node."""
        runtime = with_far_socket(node.runtime, self.node.name, self.ports[node.name])
        return await SocketMetadataStore.open(
            runtime, node.name, token=TOKEN, name=node.name, session_timeout_ms=SESSION_MS
        )

    def expire(self, name: str) -> None:
        """The sessions of that client end, as after a silence that only the server noticed."""

        async def end(_: SimNode) -> None:
            for session, _name in self.servers[name].sessions():
                self.servers[name].expire(session)

        self.node.run(end)

    # ---- what is true

    def session_of(self, store: SocketMetadataStore, name: str) -> int:
        """As the tree knows it; 0 where the client has none."""
        return self._opened[name][store.session - 1].session if store.session else 0

    def is_own(self, path: str, session: int) -> bool:
        """Whether there is a node that this session made."""
        node = self.state.tree.get(path, session=session)
        return node is not None and node.stat.is_own
