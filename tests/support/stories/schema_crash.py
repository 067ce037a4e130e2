"""A seeded life of a few topics' schemas: added by many at once, marked as deleted, deleted, cut off by crashes.

``SchemaStory`` keeps, outside of the node, what callers were told. After a crash every version that was told is there
with its definition, versions are numbered without a gap, each can be read, and nothing was added that nobody brought.
"""

from __future__ import annotations

import asyncio
import json

from geminga.bookie import LocalBookie
from geminga.bookkeeper import BookKeeper, LocalBookiePool, MetadataLiveLedgers
from geminga.broker.schema import crash_points
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import SchemaRegistry
from geminga.broker.schema.store import SchemaQuorums, SchemaStore
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import StorageError
from geminga.sim import SimNode, SimWorld
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.house.orphans import collect_now
from support.stories.lives import crashed_life, last_life
from support.worlds.bookies import FLUSHED_OFTEN

IDS = ("public/default/a", "public/default/b")
LIVES = 4
STEPS = 12


class SchemaStory:
    """See the module."""

    def __init__(self, world: SimWorld, *, names_first: bool = False) -> None:
        """``names_first``: a planted fault, the locator names a version before it is stored."""
        self.world = world
        self.rng = world.rng("schema story")
        self.node = world.node("broker")
        self.server = MemoryMetadata()
        self.faults = MetadataFaults()
        self.counter = 0
        self.names_first = names_first
        #: Id -> version -> definition, as callers were told; forgotten when a deletion begins.
        self.told: dict[str, dict[int, bytes]] = {schema_id: {} for schema_id in IDS}
        self.brought: set[bytes] = {b""}
        #: Ids whose deletion was cut off: all or nothing may be there.
        self.uncertain: set[str] = set()

    async def open(self, node: SimNode) -> LocalBookie:
        store = MemoryMetadataStore(node.runtime, self.server, self.faults)
        bookie = await LocalBookie.open(node.runtime, "/data", FLUSHED_OFTEN, ledgers=MetadataLiveLedgers(store))
        self.metadata = store
        self.bookkeeper = bookkeeper = BookKeeper(node.runtime, store, LocalBookiePool({"b": bookie}))
        self.store = (EagerStore if self.names_first else SchemaStore)(store, bookkeeper, SchemaQuorums(1, 1, 1))
        self.registry = SchemaRegistry(node.runtime.clock, node.runtime.threads, self.store)
        return bookie

    async def live(self, node: SimNode, *, is_last: bool) -> None:
        bookie = await self.open(node)
        for schema_id in IDS:
            await self.check(schema_id)
        for _ in range(0 if is_last else STEPS):
            await self.step()
        if is_last:
            await self.collect()
        await bookie.close()

    async def step(self) -> None:
        schema_id = self.rng.choice(IDS)
        roll = self.rng.random()
        if roll < 0.75:
            await asyncio.gather(*(self.add(schema_id) for _ in range(self.rng.randint(1, 3))))
        elif roll < 0.85:
            await self.registry.mark_deleted(schema_id)
        else:
            self.told[schema_id] = {}
            self.uncertain.add(schema_id)
            await self.registry.delete(schema_id)
            self.uncertain.discard(schema_id)

    async def add(self, schema_id: str) -> None:
        self.counter += 1
        document = {"type": "record", "name": f"R{self.counter}", "fields": []}
        definition = json.dumps(document).encode()
        self.brought.add(definition)
        info = SchemaInfo("", SchemaType.AVRO, definition)
        version = await self.registry.put_if_absent(schema_id, info, Strategy.FULL)
        self.told[schema_id][version] = definition

    async def check(self, schema_id: str) -> None:
        locator = (await self.store.locate(schema_id)).locator
        index = locator.index if locator is not None else ()
        assert [entry.version for entry in index] == list(range(len(index)))
        definitions = [(await self.store.read(entry)).info.schema for entry in index]
        assert set(definitions) <= self.brought
        for version, definition in self.told[schema_id].items():
            assert version < len(definitions), f"{schema_id} lost version {version}"
            assert definitions[version] == definition
        if schema_id in self.uncertain:
            self.uncertain.discard(schema_id)

    async def collect(self) -> None:
        """What crashes left behind is found, and nothing else."""
        await collect_now(self.node.runtime, self.metadata, self.bookkeeper)
        named = {ledger.ledger_id for schema_id in IDS for ledger in await self.store.ledgers(schema_id)}
        live = await MetadataLiveLedgers(MemoryMetadataStore(self.node.runtime, self.server)).live_ledger_ids()
        assert live == named
        for schema_id in IDS:
            await self.check(schema_id)

    def plan(self) -> None:
        """Decide where this life ends, and what goes wrong before."""
        self.faults = MetadataFaults(delay_ms_max=self.rng.choice((0, 3)))
        if self.rng.random() < 0.4:
            self.faults.unknown_before_percent = self.faults.unknown_after_percent = 8.0
        if self.rng.random() < 0.7:
            label = self.rng.choice(crash_points.ALL)
            self.world.crash_at(label, self.rng.choice((1, 1, 2, 3)), node=self.node)
        else:
            self.world.crash_at_disk_step(self.node, self.rng.randint(3, 80))

    async def run(self) -> None:
        """Some lives that end in a crash, then one without faults that must find everything."""
        for _ in range(LIVES - 1):
            self.plan()
            may_fail = self.faults.unknown_before_percent > 0
            excused = (StorageError,) if may_fail else ()
            await crashed_life(self.node, lambda node: self.live(node, is_last=False), self.rng, excused=excused)
        self.node.disk.on_step = None
        self.faults = MetadataFaults()
        await last_life(self.node, lambda node: self.live(node, is_last=True))


class EagerStore(SchemaStore):
    """The planted fault: the ledger's entry is not awaited before the locator names it."""

    __slots__ = ()

    async def _write_entry(self, schema_id, data):
        quorums = self._quorums
        handle = await self._bookkeeper.create_ledger(
            ensemble_size=quorums.ensemble_size,
            write_quorum=quorums.write_quorum,
            ack_quorum=quorums.ack_quorum,
            custom_metadata={"pulsar/schemaId": schema_id.encode()},
        )
        from geminga.model.position import Position

        return Position(handle.ledger_id, handle.append([data], lambda first, count, error: None))


async def schema_story(world: SimWorld) -> None:
    """The scenario with the sound store."""
    await SchemaStory(world).run()
