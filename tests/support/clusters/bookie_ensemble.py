"""Five bookies behind one pool, and what can happen to each: the ledger client's contract runs on any kind of them.

``FarBookie`` is a bookie on a simulated node of its own, with its own disk: calls and answers take time, a crash
answers everything under way with an error and keeps what was durable. "remote" is the same node with a server of
BookKeeper's protocol, which the broker's node reaches over the simulated network.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from geminga import sim
from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookie.serving import BookieServer
from geminga.bookie.serving.server import BOOKIE_PORT
from geminga.bookkeeper import BookKeeper, BookKeeperConfig, LocalBookiePool, MemoryBookie
from geminga.bookkeeper.ledger_handle import LedgerHandle
from geminga.bookkeeper.remote import RemoteBookie
from geminga.bookkeeper.remote.remote_bookie import READ_ONLY_S
from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.model.bookie_port import (
    AddDone,
    Availability,
    AvailabilityListener,
    AvailabilityState,
    Bookie,
    FenceDone,
    InfoDone,
    LacDone,
    ListDone,
    ReadDone,
    WriteLacDone,
)
from geminga.model.errors import DiskFullError, StorageError
from geminga.runtime import spawn
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.worlds.bookies import Calls, Listed

T = TypeVar("T")

#: Small files, so that a few hundred entries flush and roll; timers out of the way.
SMALL = BookieConfig(
    journal_pre_alloc_size_mb=0.03,
    write_cache_max_size_mb=0.03,
    log_size_limit=8192,
    flush_interval_ms=2000,
    gc_wait_time_ms=3_600_000,
    disk_check_interval_ms=100,
)


class FarBookie:
    """See the module. Calls are made by other nodes, and answered there."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self.world = world
        self.node = world.node(name)
        self.bookie: LocalBookie | None = None
        self._availability = AvailabilityState(Availability.DOWN)
        #: Seconds from a call to its arrival, and from its answer to its return, at most.
        self.way_s_max = 0.002
        self.config = SMALL
        self._rng = world.rng("far bookie", name)

    async def start(self) -> None:
        """Open what its disk holds."""
        if not self.node.is_up or self.bookie is None:
            self.world.crash(self.node)
            self.node.start()
            await self.node.run(self._open)

    async def _open(self, node: SimNode) -> None:
        await node.runtime.disk.make_dirs("/data")
        self.bookie = await LocalBookie.open(node.runtime, "/data", self.config, ledgers=Listed())
        await BookieServer.listen(node.runtime, self.bookie, "0.0.0.0", BOOKIE_PORT)
        self.bookie.watch(self._availability.set)
        self._availability.set(Availability.WRITABLE)

    def crash(self) -> None:
        """Power loss."""
        self.bookie = None
        self.world.crash(self.node)
        self._availability.set(Availability.DOWN)

    # ---- the port

    @property
    def is_writable(self) -> bool:
        return self.availability is Availability.WRITABLE

    @property
    def availability(self) -> Availability:
        return self._availability.current

    def watch(self, listener: AvailabilityListener) -> None:
        self._availability.watch(listener)

    def add_entries(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        async def call(calls: Calls) -> dict[int, StorageError | None]:
            return await calls.add_each(ledger_id, entry_ids, entries, recovery=recovery, key=master_key)

        def answer(result: dict[int, StorageError | None] | StorageError) -> None:
            if isinstance(result, StorageError):
                done(entry_ids, result)
                return
            # As a network brings them: in two groups.
            half = len(entry_ids) // 2
            for part in (entry_ids[:half], entry_ids[half:]):
                if part:
                    done(part, result[part[0]])

        self._go(call, answer)

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        def answer(result: list[bytes | StorageError] | StorageError) -> None:
            done([result] * len(entry_ids) if isinstance(result, StorageError) else result)

        self._go(lambda calls: calls.read(ledger_id, *entry_ids, bytes_max=bytes_max), answer)

    def fence(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        self._go(lambda calls: calls.fence(ledger_id, key=master_key), done)

    def fence_and_read_lac(self, ledger_id: int, *, master_key: bytes, done: LacDone) -> None:
        self._go(lambda calls: calls.fence_and_lac(ledger_id, key=master_key), done)

    def readmit(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        self._go(lambda calls: calls.readmit(ledger_id, key=master_key), done)

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        self._go(lambda calls: calls.lac(ledger_id), done)

    def write_lac(self, ledger_id: int, lac: bytes, *, master_key: bytes, done: WriteLacDone) -> None:
        self._go(lambda calls: calls.announce(ledger_id, lac, key=master_key), done)

    def list_entries(self, ledger_id: int, *, done: ListDone) -> None:
        self._go(lambda calls: calls.listed(ledger_id), done)

    def read_info(self, *, done: InfoDone) -> None:
        self._go(lambda calls: calls.info(), done)

    def _go(self, call: Callable[[Calls], Coroutine[Any, Any, Any]], answer: Callable[[Any], None]) -> None:
        spawn(self._far(call, answer), name=f"call of {self.node.name}")

    async def _far(self, call: Callable[[Calls], Coroutine[Any, Any, Any]], answer: Callable[[Any], None]) -> None:
        async def there(node: SimNode) -> Any:
            bookie = self.bookie
            return StorageError(f"{node.name} is starting") if bookie is None else await call(Calls(bookie))

        await self.world.sleep(self._rng.uniform(0, self.way_s_max))
        try:
            result = await self.node.run(there)
        except NodeCrashedError as error:
            result = StorageError(f"{self.node.name} does not answer: {error}")
        await self.world.sleep(self._rng.uniform(0, self.way_s_max))
        answer(result)


class Ensemble:
    """``size`` bookies b0, b1, ... of one kind, "memory", "far" or "remote", a pool, a metadata server."""

    def __init__(self, world: SimWorld, kind: str, size: int) -> None:
        self.world = world
        self.kind = kind
        self.names = [f"b{i}" for i in range(size)]
        self.memory = {name: MemoryBookie() for name in self.names} if kind == "memory" else {}
        self.far = {} if kind == "memory" else {name: FarBookie(world, name) for name in self.names}
        bookies: dict[str, Bookie] = {**self.memory, **self.far}
        self.pool = LocalBookiePool(bookies)
        self.server = MemoryMetadata()
        for bookie in self.memory.values():
            bookie.answers_in_groups_of = 3

    async def start(self) -> None:
        for bookie in self.far.values():
            await bookie.start()
        if self.kind == "remote":
            self.pool = await self.world.node("broker").run(self._reach)

    async def _reach(self, node: SimNode) -> LocalBookiePool:
        return LocalBookiePool({name: RemoteBookie(node.runtime, name, name, BOOKIE_PORT) for name in self.names})

    def client(self, node: SimNode) -> BookKeeper:
        """A ledger client as of a process of its own."""
        store = MemoryMetadataStore(node.runtime, self.server)
        return BookKeeper(node.runtime, store, self.pool, BookKeeperConfig(recovery_read_batch_size=7))

    # ---- what can happen to one

    def take_down(self, name: str) -> None:
        """It answers nothing but errors from now on."""
        if self.memory:
            self.memory[name].go_down(StorageError(f"{name} is down"))
        else:
            self.far[name].crash()

    async def bring_back(self, name: str) -> None:
        """It is there again, with what it had, however it was away."""
        if self.memory:
            self.memory[name].come_back()
            self.memory[name].release()
            return
        bookie = self.far[name]
        bookie.node.disk.clear_faults()
        self.world.resume(bookie.node)
        await bookie.start()
        await self.world.sleep(1)
        for _ in range(2 * int(READ_ONLY_S)):
            if name in self.pool.available():
                return
            await self.world.sleep(1)
        raise AssertionError(f"{name} did not come back")

    def stall(self, name: str) -> None:
        """It takes what comes, if it ever gets to it, and answers nothing until it is brought back."""
        if self.memory:
            self.memory[name].holds_replies = True
        else:
            self.world.pause(self.far[name].node)

    async def fill_up(self, name: str) -> None:
        """Its disk takes nothing more: adds are refused, reads go on."""
        if self.memory:
            self.memory[name].add_error = DiskFullError(f"{name} is full")
            self.memory[name].is_writable = False
        else:
            self.far[name].node.disk.inject("write", "*", error=errno.ENOSPC, times=None)
            await self.world.sleep(1)


def run_ensemble(
    main: Callable[[Ensemble, SimNode], Coroutine[Any, Any, T]], *, kind: str, size: int = 5, seed: int = 1
) -> T:
    """Run ``main(ensemble, node)`` on a node of its own beside the started bookies."""

    async def scenario(world: SimWorld) -> T:
        ensemble = Ensemble(world, kind, size)
        await ensemble.start()
        return await world.node("broker").run(lambda node: main(ensemble, node))

    return sim.run(scenario, seed=seed)


async def completed(future: asyncio.Future[T], world: SimWorld, seconds: float = 5) -> T:
    """The result, which must be there within so much virtual time."""
    for _ in range(100):
        if future.done():
            break
        await world.sleep(seconds / 100)
    assert future.done(), f"nothing came in {seconds} s"
    return future.result()


async def read_whole(
    client: BookKeeper, ledger_id: int, world: SimWorld, limit_s: float, told: Callable[[int, int], None]
) -> tuple[LedgerHandle, Sequence[bytes]]:
    """A ledger as who opens it finds it, and its entries; ``told``: hears of its end before they are read."""
    reader = await completed(asyncio.ensure_future(client.open_ledger(ledger_id)), world, limit_s)
    told(ledger_id, reader.last_add_confirmed)
    if reader.last_add_confirmed < 0:
        return reader, []
    reading = asyncio.ensure_future(reader.read_entries(0, reader.last_add_confirmed))
    return reader, await completed(reading, world, limit_s)
