"""Bookies as the contract suite sees them: calls as coroutines, on every implementation of the port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from geminga import sim
from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookkeeper import Bookie, MemoryBookie
from geminga.model.errors import StorageError
from geminga.model.ledger import LacResult
from geminga.sim import SimNode, SimWorld
from geminga.wire.bookkeeper.digest import encode_entries

T = TypeVar("T")
KEY = b"master key"


class AllLive:
    """Every ledger exists."""

    async def live_ledger_ids(self) -> None:
        return None

    async def next_ledger_id(self) -> None:
        return None


class Calls:
    """The port's callbacks as coroutines."""

    def __init__(self, bookie: Bookie) -> None:
        self.bookie = bookie

    async def add(
        self, ledger_id: int, first: int, entries: Sequence[bytes], *, recovery: bool = False, key: bytes = KEY
    ) -> StorageError | None:
        return await _reply(
            lambda done: self.bookie.add_entries(
                ledger_id, first, entries, master_key=key, recovery=recovery, done=done
            )
        )

    async def read(self, ledger_id: int, *entry_ids: int, bytes_max: int | None = None) -> list[bytes | StorageError]:
        return list(
            await _reply(lambda done: self.bookie.read_entries(ledger_id, entry_ids, done, bytes_max=bytes_max))
        )

    async def fence(self, ledger_id: int) -> StorageError | None:
        return await _reply(lambda done: self.bookie.fence(ledger_id, master_key=KEY, done=done))

    async def lac(self, ledger_id: int) -> LacResult | StorageError:
        return await _reply(lambda done: self.bookie.read_lac(ledger_id, done=done))


async def _reply(call: Callable[[Callable[[Any], None]], None]) -> Any:
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any) -> None:
        assert not reply.done(), "answered twice"
        reply.set_result(result)

    call(done)
    return await reply


class BookieCase:
    """Runs ``main(calls, restart)``; ``await restart()`` is a power loss, and the calls of the next life."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def run(self, main: Callable[[Calls, Callable[[], Coroutine[Any, Any, Calls]]], Coroutine[Any, Any, T]]) -> T:
        return sim.run(lambda world: self._in(world, main), seed=5)

    async def _in(self, world: SimWorld, main: Callable[..., Coroutine[Any, Any, T]]) -> T:
        if self._kind == "memory":
            bookie = MemoryBookie()

            async def same() -> Calls:
                return Calls(bookie)

            return await main(Calls(bookie), same)
        node = world.node("bookie")

        async def start(node: SimNode) -> LocalBookie:
            await node.runtime.disk.make_dirs("/data")
            return await LocalBookie.open(node.runtime, "/data", BookieConfig(), ledgers=AllLive())

        async def restart() -> Calls:
            return InNode(await world.restart(node, start), node)

        return await main(InNode(await node.run(start), node), restart)


class InNode(Calls):
    """Calls made as the node itself, as a ledger client of the same process makes them."""

    def __init__(self, bookie: Bookie, node: SimNode) -> None:
        super().__init__(bookie)
        self._node = node

    async def add(self, *args: Any, **more: Any) -> StorageError | None:
        return await self._node.run(lambda node: Calls.add(self, *args, **more))

    async def read(self, *args: Any, **more: Any) -> list[bytes | StorageError]:
        return await self._node.run(lambda node: Calls.read(self, *args, **more))

    async def fence(self, ledger_id: int) -> StorageError | None:
        return await self._node.run(lambda node: Calls.fence(self, ledger_id))

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
