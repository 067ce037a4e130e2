"""Bookies in memory, ledgers written before, and parts of auto-recovery on them, under simulated time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from geminga import sim
from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.bookkeeper.core.distribution import Distribution
from geminga.metadata import MemoryMetadataStore, MetadataFaults
from geminga.model.errors import StorageError
from geminga.replication import AutoRecovery, LocalBookieRegistry, ReplicationConfig
from geminga.replication.auditor import Auditor
from geminga.replication.copier import Copier
from geminga.replication.core.fragments import settled_fragments
from geminga.replication.core.pacing import ByteRate
from geminga.replication.counters import ReplicationCounters
from geminga.replication.marks import UnderReplicatedLedgers
from geminga.replication.worker import RepairOutcome, ReplicationWorker
from geminga.runtime import Runtime
from geminga.sim import SimWorld
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata
from support.worlds.ledgers import Appends, Cluster, payloads

T = TypeVar("T")

QUICK = ReplicationConfig(
    open_ledger_rereplication_grace_period_ms=1000, lock_release_of_failed_ledger_grace_period_ms=3200
)


class ReplicationWorld(Cluster):
    """A cluster with an auditor and a worker that a test drives step by step."""

    def __init__(self, world: SimWorld, runtime: Runtime, bookies: int, config: ReplicationConfig = QUICK) -> None:
        super().__init__(runtime, bookies)
        self.world = world
        self.config = config
        self.registry = LocalBookieRegistry(self.bookies)
        self.counters = ReplicationCounters()
        self.store = MemoryMetadataStore(runtime, self.server)
        self.bookkeeper = BookKeeper(runtime, self.store, self.pool)
        self.marks = UnderReplicatedLedgers(self.store)
        self.copier = Copier(self.pool, runtime.clock, ByteRate(config.replication_rate_by_bytes), self.counters)
        self.worker = self.new_worker("worker")
        self.auditor = Auditor(
            runtime, self.store, self.bookkeeper, self.registry, self.copier, config, name="a", counters=self.counters
        )

    def new_worker(
        self, name: str, store: MemoryMetadataStore | None = None, runtime: Runtime | None = None
    ) -> ReplicationWorker:
        """Another worker, in a session of its own if ``store`` is one."""
        return ReplicationWorker(
            runtime or self.runtime,
            store or self.store,
            self.pool,
            self.bookkeeper,
            self.registry,
            self.copier,
            self.config,
            name=name,
            counters=self.counters,
        )

    def session(self, faults: MetadataFaults | None = None) -> MemoryMetadataStore:
        """Another process's session."""
        return MemoryMetadataStore(self.runtime, self.server, faults)

    def autorecovery(self, name: str, store: MemoryMetadataStore | None = None) -> AutoRecovery:
        """A whole one."""
        store = store or self.session()
        client = BookKeeper(self.runtime, store, self.pool)
        return AutoRecovery(self.runtime, store, self.pool, client, self.registry, self.config, name=name)

    def lose(self, *names: str) -> None:
        for name in names:
            self.bookies[name].go_down(StorageError(f"{name} is down"))

    async def write(
        self, entries: int, quorums: tuple[int, int, int] = (3, 2, 2), *, close: bool = True
    ) -> LedgerHandle:
        """A ledger of so many entries."""
        size, write, ack = quorums
        handle = await self.bookkeeper.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        await self.append(handle, entries)
        if close:
            await handle.close()
        return handle

    async def append(self, handle: LedgerHandle, entries: int) -> None:
        appends = Appends(handle)
        for entry_id in range(handle.last_add_pushed + 1, handle.last_add_pushed + 1 + entries):
            assert await appends.append_and_wait(*payloads(entry_id, 1)) is None

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return (await self.bookkeeper.read_ledger(ledger_id)).metadata

    async def step(self) -> RepairOutcome | None:
        """The worker's attempt at one marked ledger; None: there is none."""
        ledger_id = await self.worker._take()
        if ledger_id is None:
            return None
        outcome = await self.worker._attempt(ledger_id)
        await self.worker._unlock(ledger_id)
        return outcome

    async def check_copies(self, ledger_id: int, registered: Sequence[str] | None = None) -> None:
        """Every settled entry lies, sound, on its whole write set, on bookies that are there."""
        metadata = await self.metadata(ledger_id)
        distribution = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        there = (await self.registry.registered()).all
        for fragment in settled_fragments(metadata):
            assert set(fragment.ensemble) <= there, fragment
            for entry_id in fragment.entry_ids:
                copies = {
                    self.bookies[fragment.ensemble[index]].entry(ledger_id, entry_id)
                    for index in distribution.write_set(entry_id)
                }
                assert len(copies) == 1
                [copy] = copies
                assert copy is not None, f"{ledger_id}:{entry_id} is missing on {fragment}"
                assert copy.endswith(payloads(entry_id, 1)[0])


def run_replication(
    main: Callable[[ReplicationWorld], Coroutine[Any, Any, T]],
    *,
    bookies: int = 5,
    seed: int = 1,
    config: ReplicationConfig = QUICK,
) -> T:
    """Run ``main(cluster)`` on one node of a simulated world."""

    async def scenario(world: SimWorld) -> T:
        return await world.node("node").run(lambda node: main(ReplicationWorld(world, node.runtime, bookies, config)))

    return sim.run(scenario, seed=seed)
