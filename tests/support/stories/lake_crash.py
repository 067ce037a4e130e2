"""A topic's ledgers go to the lake and leave it, under crashes, a store that fails and metadata that do not answer.

What must hold: every entry that was confirmed and not trimmed is read, in order and with its bytes; once all is quiet,
the lake holds the files that the list names and no other, the manifest names those, and no bookie has what is gone.
"""

from __future__ import annotations

import errno
from dataclasses import replace

from geminga.bookkeeper import BookKeeper, LocalBookiePool, MemoryBookie
from geminga.bookkeeper import crash_points as ledger_points
from geminga.managed_ledger import ManagedLedger, ManagedLedgerFactory
from geminga.managed_ledger.offload.lake_files import waiting
from geminga.managed_ledger.rules.offload import record_of
from geminga.managed_ledger.shared import crash_points
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults
from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST, Position
from geminga.runtime import spawn
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.sim.threads import SimThreads
from support.stories.lives import restarted_life
from support.worlds.lake_world import POLICY, PROPERTIES, MemoryLakeStore
from support.worlds.ledger_world import NAME, SMALL, acknowledge_cumulative, append, read_all

LIVES = 4
BEHIND_ALL = Position(1 << 62, 0)
STEPS_PER_LIFE = 14
POINTS = tuple(
    point
    for point in (*crash_points.ALL, *ledger_points.ALL)
    if point.startswith(("ml.offload", "ml.lake", "ml.trim", "ml.delete", "ml.restore", "ledger.readmit"))
)
_OPERATIONS = ("write", "commit", "read", "delete", "list")


class LakeLife:
    """Survives the broker: bookie, metadata, lake, and what was told."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("lake life")
        self.server = MemoryMetadata()
        self.bookie = MemoryBookie()
        self.lake = MemoryLakeStore()
        self.lake.is_torn = True
        #: Confirmed entries, oldest first, and the next number.
        self.entries: dict[Position, bytes] = {}
        #: Appends of which nobody was told: they may be there.
        self.doubtful: set[bytes] = set()
        self.acknowledged = EARLIEST
        self.number = 0

    def factory(self, node: SimNode, faults: MetadataFaults | None = None) -> ManagedLedgerFactory:
        runtime = replace(node.runtime, threads=SimThreads(inline=True))
        self.store = MemoryMetadataStore(runtime, self.server, faults)
        self.bookkeeper = BookKeeper(runtime, self.store, LocalBookiePool({"b": self.bookie}))
        self.runtime = runtime
        return ManagedLedgerFactory(
            runtime, self.store, self.bookkeeper, SMALL, open_lake_store=lambda driver, properties: self.lake
        )

    async def run(self) -> None:
        node = self.world.node("broker")
        node.on_fatal = None
        for _ in range(LIVES):
            self.world.crash_at(self.rng.choice(POINTS), self.rng.randrange(1, 3))
            if self.rng.random() < 0.3:
                self.world.loop.call_later(self.rng.random() * 3, self.world.crash, node)
            try:
                await node.run(self.live)
            except NodeCrashedError:
                pass
            self.lake.fail.clear()
            await restarted_life(node, self.check, crashes_max=LIVES)

    # ---- a life

    async def live(self, node: SimNode) -> None:
        factory = self.factory(node, MetadataFaults(unknown_before_percent=4, unknown_after_percent=4, delay_ms_max=10))
        try:
            ml = await factory.open(NAME)
            # Without a cursor everything is consumed.
            await ml.open_cursor("s", initial=EARLIEST)
        except StorageError:
            return
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        offloading = ml.new_offloading(self.runtime.rng)
        for _ in range(STEPS_PER_LIFE):
            lag_ms = self.rng.choice((0, 0, 2000, -1))
            offloading.policy = POLICY._replace(deletion_lag_ms=lag_ms, threshold_bytes=self.rng.choice((0, 0, 40)))
            try:
                await self.step(ml, offloading, factory)
            except StorageError:
                if ml.tenure.is_fenced or ml.tenure.is_closed:
                    return
            await self.world.sleep(self.rng.random())

    async def step(self, ml: ManagedLedger, offloading, factory) -> None:
        drawn = self.rng.random()
        if drawn < 0.35:
            await self.publish(ml)
        elif drawn < 0.6:
            await offloading.look()
        elif drawn < 0.7:
            offloading.look_later()
            spawn(self.publish_quietly(ml), name="publish")
        elif drawn < 0.8:
            await self.acknowledge(ml)
        elif drawn < 0.9:
            self.lake.fail.clear()
            if self.rng.random() < 0.7:
                self.lake.fail[self.rng.choice(_OPERATIONS)] = OSError(errno.EIO, "the store fails")
        elif drawn < 0.95:
            # The bookie has forgotten what left it, most of the time.
            if self.rng.random() < 0.7:
                await self.collect_garbage()
            offloading.policy = offloading.policy._replace(threshold_bytes=-1)
            await offloading.restore()
        elif drawn < 0.97:
            await factory.retry_lake_deletions()
        else:
            await ml.roll()

    async def collect_garbage(self) -> None:
        """As a bookie does: what is in the metadata no more is deleted for good."""
        self.bookie.collect_garbage(frozenset(await self.bookkeeper.ledger_ids()))

    async def publish_quietly(self, ml: ManagedLedger) -> None:
        try:
            await self.publish(ml)
        except StorageError:
            pass

    async def publish(self, ml: ManagedLedger) -> None:
        payloads = []
        for _ in range(self.rng.randrange(1, 12)):
            self.number += 1
            payloads.append(b"m%06d" % self.number)
        self.doubtful.update(payloads)
        for result in await append(ml, payloads):
            for index in range(result.count):
                payload = payloads.pop(0)
                if result.error is None:
                    self.doubtful.discard(payload)
                    self.entries[Position(result.ledger_id, result.first_entry_id + index)] = payload

    async def acknowledge(self, ml: ManagedLedger) -> None:
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        known = sorted(position for position in self.entries if position > cursor.state.mark_delete)
        if not known:
            return
        position = known[self.rng.randrange(min(len(known), 15))]
        self.acknowledged = max(self.acknowledged, position)
        await acknowledge_cumulative(cursor, position)
        await ml.trimmer.trim()

    # ---- what must hold

    async def check(self, node: SimNode) -> None:
        factory = self.factory(node)
        ml = await factory.open(NAME)
        ml.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)
        cursor = ml.new_non_durable_cursor("check", EARLIEST)
        found = await read_all(cursor)
        await cursor.close()
        first = ml.ledgers.first_position if len(ml.ledgers) else BEHIND_ALL
        owed = [payload for position, payload in sorted(self.entries.items()) if position >= first]
        assert [payload for payload in found if payload not in self.doubtful] == owed
        lost = [position for position in self.entries if position < first and position > self.acknowledged]
        assert not lost, f"trimmed and never acknowledged: {lost}"
        self.entries = {position: payload for position, payload in self.entries.items() if position >= first}
        offloading = ml.new_offloading(self.runtime.rng)
        offloading.policy = POLICY._replace(threshold_bytes=-1, deletion_lag_ms=-1)
        await self.world.sleep(3700)
        await factory.retry_lake_deletions()
        await offloading.look()
        await self.check_quiet(factory, ml)
        await ml.close()

    async def check_quiet(self, factory: ManagedLedgerFactory, ml: ManagedLedger) -> None:
        assert await waiting(self.store) == []
        records = {info.ledger_id: record_of(info) for info in ml.ledgers.infos if info.offload_context}
        assert all(record.is_complete for record in records.values())
        uids = [name[-40:-8] for name in self.lake.ledgers]
        assert sorted(uids) == sorted(record.uid for record in records.values())
        manifest = await (await factory.lake().root("filesystem", PROPERTIES)).read_manifest(NAME)
        named = [] if manifest is None else [one.ledger_id for one in manifest.ledgers]
        assert named == sorted(records)
        there = set(await self.bookkeeper.ledger_ids())
        assert not {ledger_id for ledger_id, record in records.items() if record.is_bookkeeper_deleted} & there


async def lake_story(world: SimWorld) -> None:
    """One seed."""
    await LakeLife(world).run()
