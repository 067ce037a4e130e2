"""One broker's life over many ledgers, with crashes, failing bookies and a metadata store that misbehaves.

What must hold: an acknowledged entry stays readable with its bytes until its ledger is
deleted; a ledger that closed keeps its end for ever; an id names one ledger only; what was deleted stays deleted.
"""

from __future__ import annotations

import asyncio
import json

from geminga.bookkeeper import (
    BookKeeper,
    BookKeeperConfig,
    LocalBookiePool,
    MemoryBookie,
    MetadataLiveLedgers,
    crash_points,
)
from geminga.bookkeeper.ledger_handle import LedgerHandle
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults
from geminga.model.errors import DiskIOError, NoSuchLedgerError, StorageError
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.stories.lives import restarted_life

QUORUMS = [(1, 1, 1), (3, 3, 2), (3, 2, 2), (2, 2, 1)]
LIVES = 3
STEPS_PER_LIFE = 12
#: Ids below were given out by an older program.
OLD_IDS = 5


class Known:
    """What the client was told of one ledger."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.acknowledged = 0
        self.closed_at: int | None = None
        self.delete_begun = False
        self.deleted = False


class LedgerLife:
    """Survives the broker: bookies, metadata, and the memory of the clients."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("ledger life")
        self.server = MemoryMetadata()
        self.bookies = {f"b{i}": MemoryBookie() for i in range(5)}
        self.pool = LocalBookiePool(self.bookies)
        self.known: dict[int, Known] = {}

    async def run(self) -> None:
        node = self.world.node("broker")
        await node.run(self.tell_racks)
        for _ in range(LIVES):
            label = self.rng.choice(crash_points.ALL)
            self.world.crash_at(label, self.rng.randrange(1, 4))
            if self.rng.random() < 0.3:
                self.world.loop.call_later(self.rng.random() / 5, self.world.crash, node)
            try:
                await node.run(self.live)
            except NodeCrashedError:
                pass
            for bookie in self.bookies.values():
                bookie.fail(None)
            self.pool.unavailable.clear()
            # A point that is still armed may lie in recovery: each crashes once.
            await restarted_life(node, self.check, crashes_max=LIVES)

    async def tell_racks(self, node: SimNode) -> None:
        racks = {name: {"rack": f"/{name in ('b0', 'b1')}"} for name in self.bookies}
        value = json.dumps({"default": racks}).encode()
        store = MemoryMetadataStore(node.runtime, self.server)
        await store.put("/bookies", value, expected_version=None)
        # As a directory from before there were generators of ids.
        await store.put("/ledgers/idgen", b"%d" % OLD_IDS, expected_version=None)

    def client(self, node: SimNode, faults: MetadataFaults | None = None) -> BookKeeper:
        store = MemoryMetadataStore(node.runtime, self.server, faults)
        config = BookKeeperConfig(recovery_read_batch_size=2)
        return BookKeeper(node.runtime, store, self.pool, config)

    # ---- a life

    async def live(self, node: SimNode) -> None:
        faults = MetadataFaults(unknown_before_percent=8, unknown_after_percent=8, delay_ms_max=10)
        client = self.client(node, faults)
        handles: list[LedgerHandle] = []
        for _ in range(STEPS_PER_LIFE):
            try:
                await self.step(client, handles)
            except StorageError:
                continue

    async def step(self, client: BookKeeper, handles: list[LedgerHandle]) -> None:
        drawn = self.rng.random()
        if drawn < 0.25 or not handles:
            size, write, ack = self.rng.choice(QUORUMS)
            available = self.pool.available()
            handle = await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
            assert handle.ledger_id not in self.known, "a ledger id was used twice"
            assert handle.ledger_id > max(self.known, default=OLD_IDS - 1), "a ledger id that was given out before"
            ensemble = handle.metadata.last_fragment.ensemble
            assert len({*ensemble}) == size, "a bookie twice in an ensemble"
            if write > 1 and {"b0", "b1"} & {*available} and {"b2", "b3", "b4"} & {*available}:
                assert {"b0", "b1"} & {*ensemble}, f"{ensemble} of {available} is in one rack"
            self.known[handle.ledger_id] = Known()
            handles.append(handle)
        elif drawn < 0.7:
            await self.append(self.rng.choice(handles))
        elif drawn < 0.8:
            name = self.rng.choice(sorted(self.bookies))
            is_broken = name in self.pool.unavailable
            self.bookies[name].fail(None if is_broken else DiskIOError("broken"))
            (self.pool.unavailable.discard if is_broken else self.pool.unavailable.add)(name)
        elif drawn < 0.9:
            handle = handles.pop(self.rng.randrange(len(handles)))
            await handle.close()
            self.known[handle.ledger_id].closed_at = handle.last_add_confirmed
        else:
            ledger_id = self.rng.choice(sorted(self.known))
            known = self.known[ledger_id]
            known.delete_begun = True
            handles[:] = [handle for handle in handles if handle.ledger_id != ledger_id]
            await client.delete_ledger(ledger_id)
            known.deleted = True

    async def append(self, handle: LedgerHandle) -> None:
        known = self.known[handle.ledger_id]
        last: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        batches = self.rng.randrange(1, 4)

        def done(first: int, count: int, error: StorageError | None) -> None:
            nonlocal batches
            if error is None:
                assert first == known.acknowledged, "completed out of order"
                known.acknowledged += count
            batches -= 1
            if not batches and not last.done():
                last.set_result(None)

        for _ in range(batches):
            first = handle.last_add_pushed + 1
            payloads = [f"{handle.ledger_id}:{first + i}".encode() for i in range(self.rng.randrange(1, 4))]
            known.sent[first:] = payloads
            handle.append(payloads, done)
        if self.rng.random() < 0.8:
            await last

    # ---- what must hold after it

    async def check(self, node: SimNode) -> None:
        client = self.client(node)
        for ledger_id, known in sorted(self.known.items()):
            try:
                reader = await client.open_ledger(ledger_id)
            except NoSuchLedgerError:
                assert known.delete_begun, f"ledger {ledger_id} is gone"
                known.deleted = True
                continue
            assert not known.deleted, f"ledger {ledger_id} came back"
            last = reader.last_add_confirmed
            assert last >= known.acknowledged - 1, f"ledger {ledger_id}: lost, ends at {last}"
            if known.closed_at is not None:
                assert last == known.closed_at, f"ledger {ledger_id} closed at {known.closed_at}, now at {last}"
            known.closed_at = last
            known.acknowledged = last + 1
            if last >= 0:
                entries = await reader.read_entries(0, last)
                assert list(entries) == [f"{ledger_id}:{i}".encode() for i in range(last + 1)]
                assert reader.length_bytes == sum(map(len, entries))
        live = await MetadataLiveLedgers(MemoryMetadataStore(node.runtime, self.server)).live_ledger_ids()
        assert live is not None
        assert {ledger_id for ledger_id, known in self.known.items() if not known.deleted} <= live
        self.server.tree.check_invariants()


async def ledger_life(world: SimWorld) -> None:
    """The scenario."""
    await LedgerLife(world).run()
