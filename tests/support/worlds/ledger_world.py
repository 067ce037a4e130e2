"""A managed ledger over a bookie and metadata in memory, under virtual time, with awaitable appends and reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from geminga.bookkeeper import BookKeeper, LocalBookiePool, MemoryBookie
from geminga.managed_ledger import (
    AppendResult,
    Entry,
    ManagedCursor,
    ManagedLedger,
    ManagedLedgerConfig,
    ManagedLedgerFactory,
)
from geminga.managed_ledger.log.new_ledgers import NewLedgers
from geminga.managed_ledger.shared.ports import OpenLedger
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.sim import SimWorld

NAME = "public/default/persistent/topic"
SMALL = ManagedLedgerConfig(max_entries_per_ledger=10, min_rollover_minutes=0)


class LedgerWorld:
    """One process after another on the same bookie and metadata."""

    def __init__(self, world: SimWorld, config: ManagedLedgerConfig = SMALL) -> None:
        self.world = world
        self.bookie = MemoryBookie()
        #: What every process finds; more may be put in.
        self.bookies = {"b": self.bookie}
        self.server = MemoryMetadata()
        self.faults = MetadataFaults()
        self.config = config
        self.runtime = world.node("broker").runtime
        self.factory = self.new_process()

    def new_process(self, config: ManagedLedgerConfig | None = None, *, is_shared: bool = False):
        """A factory of its own, as after a kill of the one before."""
        self.store = MemoryMetadataStore(self.runtime, self.server, self.faults)
        self.bookkeeper = BookKeeper(self.runtime, self.store, LocalBookiePool(self.bookies))
        self.factory = ManagedLedgerFactory(
            self.runtime, self.store, self.bookkeeper, config or self.config, is_shared=is_shared
        )
        return self.factory

    async def open(self, name: str = NAME, *, retention_ms: int = -1) -> ManagedLedger:
        """Opened, and keeping what is consumed unless told otherwise."""
        ml = await self.factory.open(name)
        ml.trimmer.set_retention(retention_ms=retention_ms, retention_bytes=-1 if retention_ms else 0)
        return ml

    async def reopen(self) -> ManagedLedger:
        """What a new process finds after a kill -9."""
        self.new_process()
        return await self.open()

    async def fill(self, ml: ManagedLedger, count: int, prefix: str = "m") -> list[Position]:
        """Append ``count`` entries one call, all confirmed; their positions."""
        results = await append(ml, [f"{prefix}{i}".encode() for i in range(count)])
        assert all(result.error is None for result in results), results
        return [Position(r.ledger_id, r.first_entry_id + i) for r in results for i in range(r.count)]

    async def filled(self, count: int, prefix: str = "m", **options) -> tuple[ManagedLedger, list[Position]]:
        """As :meth:`open`, with ``count`` entries that are confirmed: ``m0``, ``m1``, ...; and their positions."""
        ml = await self.open(**options)
        return ml, await self.fill(ml, count, prefix)

    async def with_cursor(self, count: int, prefix: str = "m") -> tuple[ManagedLedger, ManagedCursor, list[Position]]:
        """As :meth:`filled`, with a cursor ``s`` in front of the first entry."""
        ml, positions = await self.filled(count, prefix)
        return ml, await ml.open_cursor("s", initial=EARLIEST), positions

    async def subscribed(self) -> tuple[ManagedLedger, ManagedCursor]:
        """Opened, with a cursor ``s`` in front of its first entry."""
        ml = await self.open()
        return ml, await ml.open_cursor("s", initial=EARLIEST)

    async def cold(self, entries: list[bytes]) -> ManagedLedger:
        """A ledger that has them, in a process that has read none."""
        ml = await self.open()
        for start in range(0, len(entries), 500):
            await append(ml, entries[start : start + 500])
        return await self.reopen()

    async def let_background_persist(self) -> None:
        await self.world.sleep(1.5)


async def unlisted(ml: ManagedLedger) -> OpenLedger:
    """A ledger for it that its list does not name yet."""
    return await NewLedgers(ml, ml._services, ml._home).make()


async def append(ml: ManagedLedger, payloads: Sequence[bytes]) -> list[AppendResult]:
    """Append and wait for every part."""
    results: list[AppendResult] = []
    future = asyncio.get_running_loop().create_future()

    def done(result: AppendResult) -> None:
        results.append(result)
        if sum(r.count for r in results) == len(payloads):
            future.set_result(None)

    ml.append(payloads, done)
    await future
    return results


async def read_entries(
    cursor: ManagedCursor, max_entries: int = 100, max_bytes: int = 1 << 20, max_position: Position = LATEST
) -> list[Entry]:
    """One read; raises its error."""
    future = asyncio.get_running_loop().create_future()
    cursor.reading.read_entries(max_entries, max_bytes, future.set_result, max_position=max_position)
    result = await future
    if isinstance(result, StorageError):
        raise result
    return list(result)


async def read_all(cursor: ManagedCursor) -> list[bytes]:
    """Payloads up to the end."""
    found: list[bytes] = []
    while entries := await read_entries(cursor):
        found += [entry.data for entry in entries]
    return found


async def acknowledge(cursor: ManagedCursor, positions: Sequence[Position], ack_sets=None) -> StorageError | None:
    """Acknowledge and wait until that is durable."""
    future = asyncio.get_running_loop().create_future()
    cursor.acknowledge(positions, ack_sets, future.set_result)
    return await future


async def acknowledge_cumulative(cursor: ManagedCursor, position: Position, ack_set=None, **options):
    """Acknowledge and wait until that is durable."""
    future = asyncio.get_running_loop().create_future()
    cursor.acknowledge_cumulative(position, ack_set, future.set_result, **options)
    return await future
