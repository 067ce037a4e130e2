"""A bookie on a simulated node for unit tests: tiny files, calls as coroutines, its disk at hand for damage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from geminga import sim
from geminga.bookie import BookieConfig, LocalBookie
from geminga.model.bookie_port import LacResult
from geminga.model.errors import StorageError
from geminga.sim import SimNode, SimWorld
from support.worlds.bookies import Listed

KEY = b"key"

#: Files of a few KiB; timers out of the way.
SMALL = BookieConfig(
    journal_pre_alloc_size_mb=0.016,
    write_cache_max_size_mb=0.032,
    log_size_limit=4096,
    flush_interval_ms=3_600_000,
    gc_wait_time_ms=3_600_000,
    disk_check_interval_ms=100,
)


class Ledgers(Listed):
    """And what else of them the metadata store says, as far as a test has it say so."""

    def __init__(self) -> None:
        super().__init__()
        #: The counter of ids; None: not known.
        self.next_id: int | None = None
        #: By the bookie's instance; of an older backup, too.
        self.marks: dict[str, int] = {}

    async def next_ledger_id(self) -> int | None:
        return self.next_id

    async def read_mark(self, instance: str) -> int | None:
        return self.marks.get(instance)

    async def write_mark(self, instance: str, mark: int) -> None:
        self.marks[instance] = mark


class BookieNode:
    """One bookie with its disk; :meth:`open` starts it (again)."""

    def __init__(self, world: SimWorld, node: SimNode) -> None:
        self.world = world
        self.node = node
        self.disk = node.disk
        self.ledgers = Ledgers()
        self.fatal: list[str] = []
        node.on_fatal = lambda part, _: self.fatal.append(part)
        self._bookie: LocalBookie | None = None

    @property
    def bookie(self) -> LocalBookie:
        assert self._bookie is not None
        return self._bookie

    async def open(self, **changes: Any) -> LocalBookie:
        expected = changes.pop("expected_instance_id", None)
        self._bookie = await LocalBookie.open(
            self.node.runtime,
            "/b",
            replace(SMALL, **changes),
            ledgers=self.ledgers,
            expected_instance_id=expected,
        )
        return self._bookie

    async def reopen(self, **changes: Any) -> LocalBookie:
        """Close in order and start again."""
        await self.bookie.close()
        return await self.open(**changes)

    async def kill(self) -> None:
        """Forget the running bookie as a killed process would: its locks go, the files stay as they are."""
        await self.node.runtime.disk.close()
        for timer in self.bookie._timers:
            timer.cancel()

    def start_add(self, ledger_id: int, first: int, entries: Sequence[bytes], **options: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.bookie.add_entries(
            ledger_id,
            range(first, first + len(entries)),
            entries,
            master_key=options.get("key", KEY),
            recovery=options.get("recovery", False),
            done=lambda _, error: future.set_result(error),
        )
        return future

    async def add_flushed(self, ledger_id: int, first: int, count: int) -> None:
        """Add so many entries, which are in an entry log then."""
        assert await self.add(ledger_id, first, entries_of(ledger_id, first, count)) is None
        await self.bookie.flush()

    async def add(self, ledger_id: int, first: int, entries: Sequence[bytes], **options: Any) -> StorageError | None:
        result: StorageError | None = await self.start_add(ledger_id, first, entries, **options)
        return result

    async def read(self, ledger_id: int, *entry_ids: int) -> list[bytes | StorageError]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.bookie.read_entries(ledger_id, entry_ids, future.set_result)
        return list(await future)

    async def fence(self, ledger_id: int) -> StorageError | None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.bookie.fence(ledger_id, master_key=KEY, done=future.set_result)
        result: StorageError | None = await future
        return result

    async def lac(self, ledger_id: int) -> LacResult | StorageError:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.bookie.read_lac(ledger_id, done=future.set_result)
        result: LacResult | StorageError = await future
        return result

    def files(self, suffix: str) -> list[str]:
        """Paths of the bookie's files that end so."""
        return [path for path in self.disk.paths() if path.endswith(suffix)]

    def flip(self, path: str, offset: int) -> None:
        """Turn one bit of a file on the medium."""
        byte = self.disk.contents(path)[offset]
        self.disk.damage(path, offset, bytes([byte ^ 4]))


def entries_of(ledger_id: int, first: int, count: int, size: int = 40) -> list[bytes]:
    """Distinct entries."""
    return [f"{ledger_id}:{first + i}:".encode().ljust(size, b"x") for i in range(count)]


def run_bookie(main: Callable[[BookieNode], Coroutine[Any, Any, None]], *, is_open: bool = True) -> None:
    """Run ``main`` on a simulated node with a fresh bookie."""

    async def scenario(world: SimWorld) -> None:
        async def on_node(node: SimNode) -> None:
            case = BookieNode(world, node)
            if is_open:
                await case.open()
            await main(case)

        await world.node("bookie").run(on_node)

    sim.run(scenario)
