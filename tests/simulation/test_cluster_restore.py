"""A backup is restored to a cluster by commands that are killed at every step; ZooKeeper's answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial

import pytest

from geminga.app.storage import cluster_target
from geminga.app.storage.cluster_target import BackupContents, ClusterTarget, Restored, RestoreProgress, TargetCluster
from geminga.app.storage.core.backup_format import BackupFile
from geminga.app.storage.core.ledger_segments import LedgerSegment, segment_name
from geminga.app.storage.core.restore_marks import RESTORED_PATH, RestoredSizes
from geminga.app.storage.pace import Pace
from geminga.bookkeeper import BookKeeper, LocalBookiePool, crash_points
from geminga.bookkeeper.installation import INSTALLATION_PATH
from geminga.bookkeeper.memory import MemoryBookie
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults, copying
from geminga.metadata.core.copying import RESTORING_PATH
from geminga.model.errors import DataDirectoryError, StorageError
from geminga.runtime import answer_of
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata, LedgerState
from support.house.copied_trees import MemorySource, values_of
from support.house.weekly_sample import run_each

POINTS = (
    *cluster_target.POINTS,
    *(crash_points.READMITTED_IN_METADATA, crash_points.READMITTED_ON_BOOKIES, crash_points.CLOSED),
    *(copying.WINDOW_WRITTEN, copying.COUNTED, copying.COMPARED),
)
ATTEMPTS = 14
#: Of the backup: ledgers that topics of it name, one of which its cluster had lost.
LOST_ID = 40


class RestoreLife:
    """Survives the commands: the backup, the target's bookies and its metadata."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("restore life")
        self.source, self.server = MemoryMetadata(), MemoryMetadata()
        self.bookies = {f"b{number}": MemoryBookie() for number in range(3)}
        self.entries = {
            ledger_id: [b"%d of %d" % (number, ledger_id) for number in range(self.rng.randrange(7))]
            for ledger_id in self.rng.sample(range(LOST_ID), 20)
        }
        self.store: MemoryMetadataStore | None = None
        self.done: Restored | None = None

    async def run(self) -> None:
        node = self.world.node("machine")
        await node.run(self.make_source)
        for _ in range(4):
            self.world.crash_at(self.rng.choice(POINTS), self.rng.randrange(1, 4))
        for attempt in range(ATTEMPTS):
            run = node.run if attempt == 0 else (lambda main: self.world.restart(node, main))
            try:
                self.done = await run(self.attempt)
            except NodeCrashedError:
                self.done = None
            if self.done is not None:
                await self.world.restart(node, self.check)
                return
            await self.world.restart(node, self.between)
        raise AssertionError(f"not done in {ATTEMPTS} attempts")

    async def make_source(self, node: SimNode) -> None:
        store = MemoryMetadataStore(node.runtime, self.source)
        for number in range(self.rng.randrange(30)):
            await store.put(f"/admin/{number % 4}/{number}", b"%d" % number, expected_version=None)
        await store.put(INSTALLATION_PATH, b"of before", expected_version=None)
        for _ in range(self.rng.randrange(4)):
            await store.put("/counters/names/n-", b"", expected_version=None, ephemeral=True, sequential=True)
        await store.close()

    def contents(self) -> BackupContents:
        ledgers, segments = {}, {}
        for ledger_id, payloads in self.entries.items():
            ledgers[ledger_id] = LedgerMetadata(
                *(3, 2, 2, (LedgerFragment(0, ("x", "y", "z")),), LedgerState.CLOSED, len(payloads) - 1),
                password=b"of %d" % ledger_id,
                custom_metadata={"application": b"pulsar"},
            )
            cut = len(payloads) // 2
            segments[ledger_id] = [
                LedgerSegment(ledger_id, first, last, BackupFile(segment_name(ledger_id, first, last), "", 1, 0))
                for first, last in ((0, cut - 1), (cut, len(payloads) - 1))
                if first <= last
            ]
        source = MemorySource(self.source)
        return BackupContents("b1", "/copy", source, ledgers, segments, LOST_ID + 1, b"of before", self.entries_of)

    async def entries_of(self, segment: LedgerSegment) -> AsyncGenerator[Sequence[bytes], None]:
        payloads = self.entries[segment.ledger_id][segment.first_entry_id : segment.last_entry_id + 1]
        for start in range(0, len(payloads), 2):
            yield payloads[start : start + 2]

    def client(self, node: SimNode, store: MemoryMetadataStore) -> BookKeeper:
        for bookie in self.bookies.values():
            bookie.is_listed = lambda _: True
        return BookKeeper(node.runtime, store, LocalBookiePool(self.bookies))

    async def attempt(self, node: SimNode) -> Restored | None:
        faults = MetadataFaults(unknown_before_percent=1, unknown_after_percent=1, delay_ms_max=5)
        before, self.store = self.store, MemoryMetadataStore(node.runtime, self.server, faults)
        if before is not None:
            # ZooKeeper gives the session of one that was killed up a while later.
            asyncio.get_running_loop().call_later(
                self.rng.choice((0.0, 9.0)), self.server.end_session, before.session, 0
            )
        try:
            target = TargetCluster("zk:there", self.store, self.client(node, self.store), lambda path, value: None)
            sizes, pace = RestoredSizes(), Pace(node.runtime.clock, 200)
            return await ClusterTarget(self.contents(), target, sizes, pace, RestoreProgress()).restore()
        except DataDirectoryError:
            raise
        except StorageError:
            return None

    async def between(self, node: SimNode) -> None:
        """Auto-recovery may close what was cut off; nobody else finds anything to begin with."""
        store = MemoryMetadataStore(node.runtime, self.server)
        client = self.client(node, store)
        if self.rng.random() < 0.5:
            for ledger_id in await client.ledger_ids():
                if self.rng.random() < 0.3:
                    await client.open_ledger(ledger_id)
        if await store.exists(RESTORING_PATH):
            with pytest.raises(DataDirectoryError, match="holds a part of the backup in /copy"):
                await copying.refuse_unfinished(store, "zk:there")
            await copying.refuse_unfinished(store, "zk:there", while_restored=True)
            other = self.contents()._replace(backup_id="b2")
            target = TargetCluster("zk:there", store, client, lambda path, value: None)
            with pytest.raises(DataDirectoryError, match="a part of another backup"):
                await ClusterTarget(
                    other, target, RestoredSizes(), Pace(node.runtime.clock), RestoreProgress()
                ).restore()
        await store.close()

    async def check(self, node: SimNode) -> None:
        before, after = values_of(self.source), values_of(self.server)
        assert before.items() <= after.items()
        there = {path for path in set(after) - set(before) if not path.startswith("/ledgers")}
        assert there == {RESTORED_PATH}
        store = MemoryMetadataStore(node.runtime, self.server)
        client = self.client(node, store)
        assert set(await client.ledger_ids()) == set(self.entries)
        for ledger_id, payloads in self.entries.items():
            metadata = (await client.read_ledger(ledger_id)).metadata
            assert metadata.is_closed
            assert (metadata.ensemble_size, metadata.write_quorum, metadata.password) == (3, 2, b"of %d" % ledger_id)
            assert metadata.custom_metadata["application"] == b"pulsar"
            handle = await client.open_ledger(ledger_id, recover=False)
            assert handle.last_add_confirmed == len(payloads) - 1
            if payloads:
                read = await answer_of(partial(handle.read, 0, len(payloads) - 1, bytes_max=1 << 20))
                assert list(read) == payloads
        made = await client.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2)
        assert made.ledger_id > LOST_ID
        assert await store.next_sequence("/counters/names") >= self.source.tree.next_sequence("/counters/names")
        await copying.refuse_unfinished(store, "zk:there")
        await store.close()


async def restore_story(world: SimWorld) -> None:
    await RestoreLife(world).run()


@pytest.mark.slow
def test_restores_that_are_killed_anywhere_are_whole_in_the_end():
    run_each(restore_story, range(60), hits_min=10, points=POINTS)
