"""A lake in memory, with faults, and a managed ledger's world that has one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from geminga.bookkeeper import BookKeeper, LocalBookiePool
from geminga.lake.store import StoredFile
from geminga.managed_ledger import ManagedLedger, ManagedLedgerConfig, ManagedLedgerFactory
from geminga.managed_ledger.offload.offloading import Offloading
from geminga.managed_ledger.rules.offload import OffloadPolicy
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.position import EARLIEST
from geminga.runtime import is_halted
from geminga.sim import SimWorld
from geminga.sim.threads import SimThreads
from support.worlds.ledger_world import SMALL, LedgerWorld, read_all

PROPERTIES = {"geminga.lake": "1", "root": "memory://lake"}
POLICY = OffloadPolicy("filesystem", PROPERTIES, threshold_bytes=0, deletion_lag_ms=4 * 3600 * 1000)


class MemoryLakeStore:
    """Files by path. ``fail[operation]`` is raised by the next calls of it; ``torn``: a failed write leaves a part."""

    root = "memory://lake"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.fail: dict[str, OSError] = {}
        self.is_torn = False
        #: Whether it makes a file only if there is none.
        self.has_conditions = True
        #: Operations carried out, for who counts them.
        self.calls: list[str] = []

    def _called(self, operation: str) -> None:
        if is_halted():
            raise OSError("the power is gone")
        self.calls.append(operation)
        if operation in self.fail:
            raise self.fail[operation]

    @contextmanager
    def write(self, path: str) -> Iterator[io.BytesIO]:
        self._called("write")
        output = io.BytesIO()
        output.close = lambda: None  # type: ignore[method-assign]
        try:
            yield output
            self._called("commit")
        except BaseException:
            if self.is_torn and not is_halted():
                self.files[path] = output.getvalue()[:-1]
            raise
        self.files[path] = output.getvalue()

    def read(self, path: str) -> pa.BufferReader:
        self._called("read")
        if path not in self.files:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.files[path])

    def read_bytes(self, path: str) -> bytes:
        self._called("read")
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def write_bytes(self, path: str, data: bytes) -> None:
        with self.write(path) as output:
            output.write(data)

    def write_new(self, path: str, data: bytes) -> bool | None:
        if not self.has_conditions:
            return None
        self._called("write")
        return self.files.setdefault(path, data) is data

    def delete(self, path: str) -> None:
        self._called("delete")
        self.files.pop(path, None)

    def list(self, directory: str) -> list[StoredFile]:
        self._called("list")
        inside = (path for path in self.files if path.rpartition("/")[0] == directory)
        return sorted(StoredFile(path.rpartition("/")[2], len(self.files[path])) for path in inside)

    def directories(self, directory: str) -> list[str]:
        self._called("list")
        inside = [path[len(directory) + 1 :] for path in self.files if path.startswith(f"{directory}/")]
        return sorted({path.partition("/")[0] for path in inside if "/" in path})

    def size_bytes(self, path: str) -> int:
        self._called("size")
        if path not in self.files:
            raise FileNotFoundError(path)
        return len(self.files[path])

    def remove_directory(self, directory: str) -> None:
        self._called("rmdir")

    @property
    def ledgers(self) -> list[str]:
        """Names of the ledgers' files."""
        return sorted(path.rpartition("/")[2] for path in self.files if path.endswith(".parquet"))

    @property
    def manifests(self) -> list[str]:
        """Names of the manifests."""
        return sorted(path.rpartition("/")[2] for path in self.files if "/_manifest/" in path)


class LakeWorld(LedgerWorld):
    """Processes one after the other on the same bookie, metadata and lake."""

    def __init__(self, world: SimWorld, config: ManagedLedgerConfig = SMALL) -> None:
        self.lake_store = MemoryLakeStore()
        super().__init__(world, config)

    def new_process(self, config: ManagedLedgerConfig | None = None, *, is_shared: bool = False):
        """As there, with threads that run at once, and the lake."""
        self.runtime = replace(self.runtime, threads=SimThreads(inline=True))
        self.store = MemoryMetadataStore(self.runtime, self.server, self.faults)
        self.bookkeeper = BookKeeper(self.runtime, self.store, LocalBookiePool(self.bookies))
        self.factory = ManagedLedgerFactory(
            self.runtime,
            self.store,
            self.bookkeeper,
            config or self.config,
            is_shared=is_shared,
            open_lake_store=lambda driver, properties: self.lake_store,
        )
        return self.factory

    def offloading(self, ml: ManagedLedger, policy: OffloadPolicy = POLICY, **options) -> Offloading:
        """Of a topic with that policy."""
        offloading = ml.new_offloading(self.runtime.rng, **options)
        offloading.policy = policy
        ml.reader.is_bookkeeper_first = policy.is_bookkeeper_first
        return offloading

    async def offloaded(
        self, count: int, policy: OffloadPolicy = POLICY, **options
    ) -> tuple[ManagedLedger, Offloading]:
        """As :meth:`filled`, after a look at what is to be offloaded."""
        ml, _ = await self.filled(count, **options)
        offloading = self.offloading(ml, policy)
        await offloading.look()
        return ml, offloading


def payloads(count: int) -> list[bytes]:
    """Of the first entries that :meth:`LakeWorld.filled` appends."""
    return [f"m{number}".encode() for number in range(count)]


async def everything(ml: ManagedLedger) -> list[bytes]:
    """Payloads of all entries, wherever they are."""
    cursor = ml.new_non_durable_cursor("all", EARLIEST)
    try:
        return await read_all(cursor)
    finally:
        await cursor.close()
