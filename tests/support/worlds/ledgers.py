"""A ledger client on bookies and metadata in memory, under simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from geminga import sim
from geminga.bookkeeper import BookKeeper, BookKeeperConfig, LedgerHandle, LocalBookiePool, MemoryBookie
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults
from geminga.model.errors import StorageError
from geminga.runtime import Runtime, delay

T = TypeVar("T")


class Cluster:
    """``bookies`` MemoryBookies b0, b1, ...; one client per call of :meth:`client`."""

    def __init__(self, runtime: Runtime, bookies: int) -> None:
        self.runtime = runtime
        self.bookies = {f"b{i}": MemoryBookie() for i in range(bookies)}
        self.pool = LocalBookiePool(self.bookies)
        self.server = MemoryMetadata()
        self.stores: list[MemoryMetadataStore] = []

    def client(self, *, faults: MetadataFaults | None = None, config: BookKeeperConfig | None = None) -> BookKeeper:
        """A client as of a process of its own: a metadata session, ids, handles."""
        return BookKeeper(self.runtime, self.store(faults), self.pool, config)

    def store(self, faults: MetadataFaults | None = None) -> MemoryMetadataStore:
        """A metadata session."""
        store = MemoryMetadataStore(self.runtime, self.server, faults)
        self.stores.append(store)
        return store


def run_cluster(main: Callable[[Cluster], Coroutine[Any, Any, T]], *, bookies: int = 3, seed: int = 1) -> T:
    """Run ``main(cluster)`` on one node of a simulated world."""

    async def scenario(world: sim.SimWorld) -> T:
        return await world.node("broker").run(lambda node: main(Cluster(node.runtime, bookies)))

    return sim.run(scenario, seed=seed)


class Appends:
    """Collects the completions of appends."""

    def __init__(self, handle: LedgerHandle) -> None:
        self.handle = handle
        #: (first entry id, count, error) in the order of completion.
        self.done: list[tuple[int, int, StorageError | None]] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def append(self, *payloads: bytes) -> int:
        return self.handle.append(payloads, self._on_done)

    async def has(self, count: int) -> list[tuple[int, int, StorageError | None]]:
        """Wait for the ``count``-th completion."""
        if len(self.done) < count:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((count, waiter))
            await waiter
        return self.done

    async def append_and_wait(self, *payloads: bytes) -> StorageError | None:
        self.append(*payloads)
        return (await self.has(len(self.done) + 1))[-1][2]

    def _on_done(self, first: int, count: int, error: StorageError | None) -> None:
        self.done.append((first, count, error))
        for wanted, waiter in self._waiters:
            if len(self.done) >= wanted and not waiter.done():
                waiter.set_result(None)


async def turn(count: int = 1) -> None:
    """Let the loop go round ``count`` times."""
    for _ in range(count):
        await delay(0)


def payloads(first: int, count: int) -> list[bytes]:
    """Payloads that tell which entry they are."""
    return [f"payload {i}".encode() for i in range(first, first + count)]


def error_classes(done: Sequence[tuple[int, int, StorageError | None]]) -> list[type | None]:
    return [None if error is None else type(error) for _, _, error in done]


async def create(client: BookKeeper, quorums: tuple[int, int, int] = (1, 1, 1), **more: Any) -> LedgerHandle:
    """A new ledger of so large an ensemble, write quorum and ack quorum."""
    size, write, ack = quorums
    return await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack, **more)


async def appending(cluster: Cluster, quorums: tuple[int, int, int] = (1, 1, 1)) -> tuple[LedgerHandle, Appends]:
    """A new ledger of a client of its own, and what is appended to it."""
    handle = await create(cluster.client(), quorums)
    return handle, Appends(handle)


async def filled(cluster: Cluster, *payloads: bytes, quorums: tuple[int, int, int] = (1, 1, 1)) -> LedgerHandle:
    """A new ledger of a client of its own, with these entries confirmed."""
    handle, appends = await appending(cluster, quorums)
    await appends.append_and_wait(*payloads)
    return handle


async def appends_error(handle: LedgerHandle) -> StorageError | None:
    """Of an entry that is appended to a ledger that takes none any more."""
    return await Appends(handle).append_and_wait(b"too late")
