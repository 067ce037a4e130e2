"""Five bookies, one after another gone for good or for a while, and two processes of auto-recovery that die.

Within the promise (one bookie away at a time, the next only when all copies are there again): every acknowledged
entry is read with its bytes; a closed ledger has one end for all; in the end every entry of every closed ledger
lies, sound, on its whole write set, on bookies that are registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from geminga.bookie import crash_points as bookie_points
from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.bookkeeper.core.distribution import Distribution
from geminga.metadata import MemoryMetadataStore, MetadataFaults
from geminga.model.errors import NotEnoughBookiesError, StorageError
from geminga.replication import AutoRecovery, MetadataBookieRegistry, ReplicationConfig, crash_points
from geminga.replication.core.fragments import lost_bookies, settled_fragments
from geminga.replication.marks import UnderReplicatedLedgers
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH
from geminga.wire.bookkeeper.digest import digest_for
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata
from support.clusters.bookie_ensemble import Ensemble, read_whole
from support.worlds.bookies import Calls
from support.worlds.ledgers import payloads

QUORUMS = [(3, 2, 2), (3, 3, 2), (5, 3, 2)]
BOOKIES = 5
#: Newcomers that take the place of who is gone for good.
SPARE = 2
ROUNDS = 2
STEPS = 25
#: Virtual time in which everything must be restored once nobody disturbs.
RESTORED_S = 1200
CONFIG = ReplicationConfig(
    auditor_periodic_bookie_check_interval_s=30,
    auditor_periodic_check_interval_s=60,
    open_ledger_rereplication_grace_period_ms=1000,
    lock_release_of_failed_ledger_grace_period_ms=3200,
    rw_rereplicate_backoff_ms=200,
    rereplication_entry_batch_size=4,
)
#: Where a bookie that takes copies, or loses them, may lose its power.
BOOKIE_POINTS = [point for point in bookie_points.ALL if ".journal." in point or ".cache." in point]


class RepairStory:
    """Survives every process: what was acknowledged, where each ledger was told to end, who is registered."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("repair story")
        self.ensemble = Ensemble(world, "far", BOOKIES + SPARE)
        self.server = self.ensemble.server
        self.writer = world.node("writer")
        self.reader = world.node("reader")
        self.repairers = [world.node(f"repairer-{n}") for n in range(2)]
        #: Registered bookies, each with its session.
        self.sessions: dict[str, MemoryMetadataStore] = {}
        #: Those that lost their power and come back; those that never do.
        self.away: set[str] = set()
        self.gone: set[str] = set()
        self.acknowledged: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.is_calm = False
        self.is_over = False
        self.watching = MemoryMetadataStore(world.node("watcher").runtime, self.server)
        self.marks = UnderReplicatedLedgers(self.watching)

    async def run(self) -> None:
        for far in self.ensemble.far.values():
            far.config = replace(far.config, disk_check_interval_ms=10_000, flush_interval_ms=10_000)
        for name in self.ensemble.names[:BOOKIES]:
            await self.ensemble.far[name].start()
            await self.register(name)
        self.ensemble.pool.unavailable.update(self.ensemble.names[BOOKIES:])
        repairing = [asyncio.ensure_future(self.keep_repairing(node)) for node in self.repairers]
        for number in range(ROUNDS):
            self.is_calm = False
            trouble = asyncio.ensure_future(self.trouble(number))
            crash = self.world.loop.call_later(self.rng.uniform(0.5, 30), self.world.crash, self.writer)
            try:
                await self.world.restart(self.writer, self.write)
            except NodeCrashedError:
                self.world.points.hits["writer died"] += 1
            crash.cancel()
            self.world.crash(self.writer)
            await trouble
            await self.world.sleep(self.rng.uniform(0, 5))
            self.is_calm = True
            # Somebody who never heard of it reads everything, while copies are still missing.
            await self.world.restart(self.reader, self.read)
            await self.restored()
            await self.world.restart(self.reader, self.read)
            await self.world.restart(self.reader, self.check_copies)
        self.is_over = True
        for node in self.repairers:
            self.world.crash(node)
        await asyncio.gather(*repairing)

    # ---- bookies

    async def register(self, name: str) -> None:
        session = MemoryMetadataStore(self.world.node("watcher").runtime, self.server)
        self.sessions[name] = session
        await session.put(f"{AVAILABLE_PATH}/{name}", b"", expected_version=None, ephemeral=True)

    async def unregister(self, name: str) -> None:
        """Its session ends some time after it."""
        await self.world.sleep(self.rng.uniform(0, 3))
        session = self.sessions.pop(name)
        self.server.end_session(session.session, 0)
        self.server.detach(session)

    async def trouble(self, number: int) -> None:
        """One bookie loses its power, at a named point or anywhere; it comes back, or another one joins."""
        await self.world.sleep(self.rng.uniform(0, 2))
        candidates = [name for name in self.ensemble.names if name in self.sessions]
        name = self.rng.choice(candidates)
        far = self.ensemble.far[name]
        if self.rng.random() < 0.5:
            label = self.rng.choice(BOOKIE_POINTS)
            self.world.crash_at(label, self.rng.randrange(1, 4), node=far.node)
            for _ in range(20):
                if not far.node.is_up:
                    break
                await self.world.sleep(0.5)
            # Not later: while one is away no other may go.
            self.world.points.disarm(label)
        self.ensemble.take_down(name)
        self.world.points.hits["bookie lost"] += 1
        await self.unregister(name)
        if self.rng.random() < 0.3:
            self.away.add(name)
            await self.world.sleep(self.rng.uniform(0, 20))
            await self.ensemble.bring_back(name)
            self.away.discard(name)
            await self.register(name)
            self.world.points.hits["bookie came back"] += 1
            return
        self.gone.add(name)
        await self.world.sleep(self.rng.choice((0, self.rng.uniform(0, 20))))
        newcomer = self.ensemble.names[BOOKIES + number]
        self.ensemble.pool.unavailable.discard(newcomer)
        await self.ensemble.bring_back(newcomer)
        await self.register(newcomer)

    # ---- auto-recovery

    async def keep_repairing(self, node: SimNode) -> None:
        """One life after another, each ended at a named point, or anywhere, until it is calm."""
        while not self.is_over:
            if not self.is_calm:
                label = self.rng.choice(crash_points.ALL)
                self.world.crash_at(label, self.rng.randrange(1, 4), node=node)
            life: list[MemoryMetadataStore] = []
            try:
                await self.world.restart(node, lambda node: self.repair(node, life))  # noqa: B023 -- ends in this round
            except NodeCrashedError:
                self.world.points.hits["repairer died"] += 1
            # Its locks and its vote stay until the session ends.
            await self.world.sleep(self.rng.uniform(0, 6))
            for store in life:
                self.server.end_session(store.session, 0)
                self.server.detach(store)

    async def repair(self, node: SimNode, life: list[MemoryMetadataStore]) -> None:
        calm = MetadataFaults(watch_lost_percent=20, watch_late_percent=20, delay_ms_max=5)
        rough = replace(calm, unknown_before_percent=3, unknown_after_percent=3)
        store = MemoryMetadataStore(node.runtime, self.server, calm if self.is_calm else rough)
        life.append(store)
        client = BookKeeper(node.runtime, store, self.ensemble.pool)
        registry = MetadataBookieRegistry(store)
        recovery = AutoRecovery(node.runtime, store, self.ensemble.pool, client, registry, CONFIG, name=node.name)
        await recovery.start()
        while True:
            await self.world.sleep(self.rng.uniform(1, 20))
            if not self.is_calm and self.rng.random() < 0.3:
                self.world.points.hits["session expired"] += 1
                store.expire_session(outage_ms=self.rng.choice((5, 2000)))

    # ---- a writer

    async def write(self, node: SimNode) -> None:
        client = self.client(node)
        handles: list[LedgerHandle] = []
        for _ in range(STEPS):
            drawn = self.rng.random()
            if drawn < 0.2 or not handles:
                await self.create(client, handles)
            elif drawn < 0.3:
                handle = handles.pop(self.rng.randrange(len(handles)))
                await self.close(handle)
            else:
                self.append(self.rng.choice(handles))
            await self.world.sleep(self.rng.choice((0, 0.01, self.rng.uniform(0, 3))))
        for handle in handles:
            if self.rng.random() < 0.5:
                await self.close(handle)

    def client(self, node: SimNode) -> BookKeeper:
        return self.ensemble.client(node)

    async def create(self, client: BookKeeper, handles: list[LedgerHandle]) -> None:
        size, write, ack = self.rng.choice(QUORUMS)
        try:
            handle = await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        except NotEnoughBookiesError:
            return
        self.acknowledged[handle.ledger_id] = 0
        handles.append(handle)

    async def close(self, handle: LedgerHandle) -> None:
        try:
            await handle.close()
        except StorageError:
            # Recovered by a worker meanwhile: its end is not ours to say.
            self.world.points.hits["writer fenced"] += 1
            return
        self.told(handle.ledger_id, handle.last_add_confirmed)

    def append(self, handle: LedgerHandle) -> None:
        count = self.rng.choice((1, 2, 9))

        def done(done_first: int, done_count: int, error: StorageError | None) -> None:
            if error is None:
                assert done_first == self.acknowledged[handle.ledger_id], "completed out of order"
                end = self.ends.get(handle.ledger_id)
                assert end is None or done_first + done_count - 1 <= end, "acknowledged past the end"
                self.acknowledged[handle.ledger_id] += done_count

        handle.append(payloads(handle.last_add_pushed + 1, count), done)

    def told(self, ledger_id: int, end: int) -> None:
        assert self.ends.setdefault(ledger_id, end) == end, f"ledger {ledger_id} ended at {self.ends[ledger_id]}"
        assert end >= self.acknowledged[ledger_id] - 1, f"ledger {ledger_id} was cut at {end}"

    # ---- what must hold

    async def read(self, node: SimNode) -> None:
        client = self.client(node)
        for ledger_id in sorted(self.acknowledged):
            reader, entries = await read_whole(client, ledger_id, self.world, 120, self.told)
            assert list(entries) == payloads(0, reader.last_add_confirmed + 1), f"ledger {ledger_id}"

    async def restored(self) -> None:
        """Wait until no mark is left, no ledger names who is not registered, and every copy was looked at since."""
        began = self.world.now
        checked_ms = None
        while True:
            assert self.world.now - began < RESTORED_S, f"not restored: {await self.story()}"
            await self.world.sleep(2)
            if await self.lost() or await self.marks.ledger_ids():
                checked_ms = None
                continue
            latest = await self.marks.checked_all_ms()
            if checked_ms is None:
                checked_ms = latest
            elif latest != checked_ms:
                return

    async def lost(self) -> dict[int, Sequence[str]]:
        found = {}
        for ledger_id in sorted(self.acknowledged):
            lost = lost_bookies(await self.metadata(ledger_id), self.sessions.keys())
            if lost:
                found[ledger_id] = lost
        return found

    async def story(self) -> str:
        return f"lost {await self.lost()}, marked {await self.marks.ledger_ids()}, locked {await self.marks.locked()}"

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return (
            await BookKeeper(self.world.node("watcher").runtime, self.watching, self.ensemble.pool).read_ledger(
                ledger_id
            )
        ).metadata

    async def check_copies(self, node: SimNode) -> None:
        """Every bookie has, sound, every entry of its share."""
        for ledger_id in sorted(self.acknowledged):
            metadata = await self.metadata(ledger_id)
            assert metadata.is_closed
            digest = digest_for(metadata.digest_type, metadata.password)
            distribution = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
            for fragment in settled_fragments(metadata):
                for index, name in enumerate(fragment.ensemble):
                    share = distribution.share(index, fragment.entry_ids)
                    if not share:
                        continue
                    copies = await Calls(self.ensemble.far[name]).read(ledger_id, *share)
                    for entry_id, copy in zip(share, copies, strict=True):
                        assert isinstance(copy, bytes), f"{ledger_id}:{entry_id} on {name}: {copy!r}, {metadata}"
                        payload = digest.payload(ledger_id, entry_id, copy)
                        assert payload == payloads(entry_id, 1)[0], f"{ledger_id}:{entry_id} on {name}"
                        self.world.points.hits["copy checked"] += 1


async def repair_story(world: SimWorld) -> None:
    """The scenario."""
    await RepairStory(world).run()
