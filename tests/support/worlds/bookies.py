"""Bookies as the contract suite sees them: calls as coroutines, on every implementation of the port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from geminga import sim
from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookie.serving import BookieServer, TakenPort
from geminga.bookie.serving.server import BOOKIE_PORT
from geminga.bookie.spread import SpreadBookie
from geminga.bookkeeper import Bookie, LocalBookiePool, MemoryBookie
from geminga.bookkeeper.remote import RemoteBookie
from geminga.model.bookie_port import Availability, BookieInfo, LacResult
from geminga.model.errors import StorageError
from geminga.sim import SimNode, SimWorld
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX
from geminga.wire.bookkeeper.digest import encode_entries
from support.processes.old_bookie import OldBookieServer

T = TypeVar("T")
#: Of the length that they have on the wire.
KEY = b"master key" * 2
#: Calls until a client has noticed that its bookie is there again.
RECONNECT_TRIES_MAX = 20
#: A simulated disk holds every byte of a file, twice, and 16 MiB of zeros say no more than these.
SMALL_JOURNALS: Final = BookieConfig(journal_pre_alloc_size_mb=0.25)
#: For stories that are over before a usual flush.
FLUSHED_OFTEN: Final = replace(SMALL_JOURNALS, flush_interval_ms=500)
#: Journals on one disk, ledgers on three.
PAIRS = [("/j/1", "/a"), ("/j/2", "/b"), ("/j/3", "/c")]


class Listed:
    """The ledgers that exist are those that a test says; None: that can not be told, so nothing is collected."""

    def __init__(self, live: set[int] | None = None) -> None:
        self.live = live

    async def live_ledger_ids(self) -> set[int] | None:
        return None if self.live is None else set(self.live)

    async def next_ledger_id(self) -> int | None:
        return None

    async def read_mark(self, instance: str) -> int | None:
        return None

    async def write_mark(self, instance: str, mark: int) -> None:
        pass

    async def existing(self, ledger_ids: Sequence[int]) -> set[int] | None:
        live = await self.live_ledger_ids()
        return None if live is None else {ledger_id for ledger_id in ledger_ids if ledger_id in live}


class Calls:
    """The port's callbacks as coroutines."""

    def __init__(self, bookie: Bookie) -> None:
        self.bookie = bookie

    async def add(
        self, ledger_id: int, first: int, entries: Sequence[bytes], *, recovery: bool = False, key: bytes = KEY
    ) -> StorageError | None:
        entry_ids = range(first, first + len(entries))
        answers = await self.add_each(ledger_id, entry_ids, entries, recovery=recovery, key=key)
        return next((error for error in answers.values() if error is not None), None)

    async def add_each(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        *,
        recovery: bool = False,
        key: bytes = KEY,
    ) -> dict[int, StorageError | None]:
        """The answer of each entry, whatever groups they come in; an id that comes twice has two answers, equal."""
        answers: list[tuple[int, StorageError | None]] = []
        all_there: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(answered: Sequence[int], error: StorageError | None) -> None:
            answers.extend((entry_id, error) for entry_id in answered)
            assert len(answers) <= len(entry_ids), "answered twice"
            if len(answers) == len(entry_ids):
                all_there.set_result(None)

        self.bookie.add_entries(ledger_id, entry_ids, entries, master_key=key, recovery=recovery, done=done)
        if entry_ids:
            await all_there
        assert sorted(entry_id for entry_id, _ in answers) == sorted(entry_ids)
        return dict(answers)

    async def read(self, ledger_id: int, *entry_ids: int, bytes_max: int | None = None) -> list[bytes | StorageError]:
        return list(
            await _reply(lambda done: self.bookie.read_entries(ledger_id, entry_ids, done, bytes_max=bytes_max))
        )

    async def fence(self, ledger_id: int, *, key: bytes = KEY) -> StorageError | None:
        return await _reply(lambda done: self.bookie.fence(ledger_id, master_key=key, done=done))

    async def fence_and_lac(self, ledger_id: int, *, key: bytes = KEY) -> LacResult | StorageError:
        return await _reply(lambda done: self.bookie.fence_and_read_lac(ledger_id, master_key=key, done=done))

    async def readmit(self, ledger_id: int, *, key: bytes = KEY) -> StorageError | None:
        return await _reply(lambda done: self.bookie.readmit(ledger_id, master_key=key, done=done))

    async def lac(self, ledger_id: int) -> LacResult | StorageError:
        return await _reply(lambda done: self.bookie.read_lac(ledger_id, done=done))

    async def announce(self, ledger_id: int, lac: bytes, *, key: bytes = KEY) -> StorageError | None:
        return await _reply(lambda done: self.bookie.write_lac(ledger_id, lac, master_key=key, done=done))

    async def listed(self, ledger_id: int) -> list[range] | StorageError:
        found = await _reply(lambda done: self.bookie.list_entries(ledger_id, done=done))
        return found if isinstance(found, StorageError) else list(found)

    async def info(self) -> BookieInfo | StorageError:
        return await _reply(lambda done: self.bookie.read_info(done=done))


async def _reply(call: Callable[[Callable[[Any], None]], None]) -> Any:
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any) -> None:
        assert not reply.done(), "answered twice"
        reply.set_result(result)

    call(done)
    return await reply


class BookieCase:
    """Runs ``main(calls, restart)``; ``await restart()`` is a power loss, and the calls of the next life.

    The bookie is reached through its pool. "memory": a bookie in memory that answers as a network would, a few entries
    at a time; "local": the bookie on a simulated disk, in the process of its pool; "spread": the same over three pairs
    of directories; "remote": the same as a server on
    another node, behind the simulated network, which cuts what is sent at will; "old": so, and it has no batch reads;
    "unix": a server on the same machine, behind a Unix socket.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        #: What the metadata list.
        self.listed = Listed()
        self._collect: Callable[[], Coroutine[Any, Any, None]]

    async def collect(self) -> None:
        """Garbage collection: what is not listed is deleted."""
        await self._collect()

    def run(self, main: Callable[[Calls, Callable[[], Coroutine[Any, Any, Calls]]], Coroutine[Any, Any, T]]) -> T:
        return sim.run(lambda world: self._in(world, main), seed=5)

    async def _in(self, world: SimWorld, main: Callable[..., Coroutine[Any, Any, T]]) -> T:
        if self._kind == "memory":
            bookie = MemoryBookie()
            bookie.answers_in_groups_of = 2
            bookie.is_listed = lambda ledger_id: ledger_id in (self.listed.live or ())

            async def collect_here() -> None:
                bookie.collect_garbage(self.listed.live or ())

            self._collect = collect_here

            async def same() -> Calls:
                return Calls(_in_pool(bookie))

            return await main(Calls(_in_pool(bookie)), same)
        if self._kind in ("remote", "old"):
            return await _remote(world, main, serve if self._kind == "remote" else serve_old)
        node = world.node("bookie")

        async def start(node: SimNode) -> Bookie:
            if self._kind == "unix":
                return await served_locally(node)
            if self._kind == "spread":
                bookie = await SpreadBookie.open(node.runtime, PAIRS, SMALL_JOURNALS, ledgers=self.listed)
                parts, found = bookie.parts, bookie
            else:
                await node.runtime.disk.make_dirs("/data")
                local = await LocalBookie.open(node.runtime, "/data", SMALL_JOURNALS, ledgers=self.listed)
                parts, found = (local,), local

            async def collect_on(_: SimNode) -> None:
                for part in parts:
                    await part.collect_garbage(compact_below=0.0)

            async def collect() -> None:
                await node.run(collect_on)

            self._collect = collect
            return found

        calls = InNode(_in_pool(await node.run(start)), node)

        async def restart() -> Calls:
            bookie = _in_pool(await world.restart(node, start))
            if self._kind == "unix":
                calls.bookie = bookie  # what asked the life before died with it
                return calls
            return InNode(bookie, node)

        return await main(calls, restart)


async def serve(node: SimNode, kind: type[BookieServer] = BookieServer) -> LocalBookie:
    """Start a bookie and its server on a node."""
    await node.runtime.disk.make_dirs("/data")
    bookie = await LocalBookie.open(node.runtime, "/data", SMALL_JOURNALS, ledgers=Listed())
    await kind.listen(node.runtime, bookie, "0.0.0.0", BOOKIE_PORT)
    return bookie


async def served_locally(node: SimNode) -> RemoteBookie:
    """A bookie and its server at a Unix socket, and a client of it, as another process of the machine has one."""
    await node.runtime.disk.make_dirs("/data")
    bookie = await LocalBookie.open(node.runtime, "/data", SMALL_JOURNALS, ledgers=Listed())
    taken = await TakenPort.take_local(node.runtime, "/data/bookie.socket")
    await taken.serve(bookie, FRAME_BYTES_MAX)
    return RemoteBookie(node.runtime, "b", "unix:/data/bookie.socket", 0)


async def serve_old(node: SimNode) -> LocalBookie:
    """The same, of before batch reads."""
    return await serve(node, OldBookieServer)


async def remote_on(node: SimNode) -> RemoteBookie:
    """A client of it on another node."""
    return RemoteBookie(node.runtime, "b", "bookie", BOOKIE_PORT)


async def _remote(
    world: SimWorld,
    main: Callable[..., Coroutine[Any, Any, T]],
    serve: Callable[[SimNode], Coroutine[Any, Any, LocalBookie]],
) -> T:
    server, client = world.node("bookie"), world.node("client")
    client.start()
    await server.run(serve)
    remote = await client.run(remote_on)

    calls = InNode(remote, client)

    async def restart() -> Calls:
        await world.restart(server, serve)
        for _ in range(RECONNECT_TRIES_MAX):
            if isinstance(await calls.info(), BookieInfo):
                return InNode(_in_pool(remote), client)
            await world.sleep(0.1)
        raise AssertionError("the client did not come back to the bookie")

    return await main(InNode(_in_pool(remote), client), restart)


def _in_pool(bookie: Bookie) -> Bookie:
    pool = LocalBookiePool({"b": bookie})
    assert pool.available() == ["b"]
    assert pool.get("b").availability is Availability.WRITABLE
    return pool.get("b")


class InNode(Calls):
    """Calls made as the node itself, as a ledger client of the same process makes them."""

    def __init__(self, bookie: Bookie, node: SimNode) -> None:
        super().__init__(bookie)
        self._node = node

    async def add_each(self, *args: Any, **more: Any) -> dict[int, StorageError | None]:
        return await self._node.run(lambda node: Calls.add_each(self, *args, **more))

    async def announce(self, *args: Any, **more: Any) -> StorageError | None:
        return await self._node.run(lambda node: Calls.announce(self, *args, **more))

    async def listed(self, ledger_id: int) -> list[range] | StorageError:
        return await self._node.run(lambda node: Calls.listed(self, ledger_id))

    async def info(self) -> BookieInfo | StorageError:
        return await self._node.run(lambda node: Calls.info(self))

    async def read(self, *args: Any, **more: Any) -> list[bytes | StorageError]:
        return await self._node.run(lambda node: Calls.read(self, *args, **more))

    async def fence(self, *args: Any, **more: Any) -> StorageError | None:
        return await self._node.run(lambda node: Calls.fence(self, *args, **more))

    async def fence_and_lac(self, *args: Any, **more: Any) -> LacResult | StorageError:
        return await self._node.run(lambda node: Calls.fence_and_lac(self, *args, **more))

    async def readmit(self, *args: Any, **more: Any) -> StorageError | None:
        return await self._node.run(lambda node: Calls.readmit(self, *args, **more))

    async def lac(self, ledger_id: int) -> LacResult | StorageError:
        return await self._node.run(lambda node: Calls.lac(self, ledger_id))


def entries_of(ledger_id: int, first: int, count: int) -> list[bytes]:
    """Whole entries as a ledger client makes them."""
    return encode_entries(
        ledger_id, first, first - 1, first * 4, [f"{i:4d}".encode() for i in range(first, first + count)]
    )


def sized_entries(ledger_id: int, sizes: Sequence[int]) -> list[bytes]:
    """Entries from the first on with payloads of these sizes."""
    return encode_entries(ledger_id, 0, -1, 0, [b"%c" % (97 + i) * size for i, size in enumerate(sizes)])
