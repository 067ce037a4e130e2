"""The copy of a standalone's metadata is killed at every step, answers are lost, the standalone goes on in between."""

from __future__ import annotations

import pytest

from geminga.app.storage.data_directory import claim_directory, read_move
from geminga.app.storage.metadata_copy import NOTED, SETTLED, Copied, SourceDirectory, copy_metadata
from geminga.bookkeeper.ledger_ids import LedgerIds, next_ledger_id
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults, copying
from geminga.metadata.core.copying import MARKER_PATH
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress, parse_zookeeper_address
from geminga.model.errors import DataDirectoryError, StorageError
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.house.copied_trees import MemorySource, values_of
from support.house.weekly_sample import run_each

#: One ZooKeeper, written in two ways.
ADDRESSES = (ZooKeeperAddress(("there:2181",), "/c"), ZooKeeperAddress(("other:2181", "there:2181"), "/c"))
DIRECTORY = "/data"
POINTS = (
    NOTED,
    copying.BEGUN,
    copying.WINDOW_WRITTEN,
    copying.COUNTED,
    copying.COMPARED,
    SETTLED,
    copying.ENDED,
)
ATTEMPTS = 12


class CopyLife:
    """Survives the processes: two metadata servers, and the directory on the node's disk."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("copy life")
        self.source = MemoryMetadata()
        self.target = MemoryMetadata()
        self.newest_id = -1
        self.copied: Copied | None = None

    async def run(self) -> None:
        node = self.world.node("machine")
        await node.run(self.standalone)
        for _ in range(3):
            self.world.crash_at(self.rng.choice(POINTS), self.rng.randrange(1, 3))
        for attempt in range(ATTEMPTS):
            run = node.run if attempt == 0 else (lambda main: self.world.restart(node, main))
            try:
                copied = await run(self.attempt)
            except NodeCrashedError:
                await self.between(node)
                continue
            if copied is not None:
                self.copied = copied
                await self.world.restart(node, self.check)
                return
        raise AssertionError(f"not done in {ATTEMPTS} attempts")

    async def standalone(self, node: SimNode) -> None:
        """What a standalone does between two attempts, if it may start."""
        await claim_directory(node.runtime.disk, DIRECTORY, pid=1, program="test")
        store = MemoryMetadataStore(node.runtime, self.source)
        for _ in range(self.rng.randrange(30)):
            path = f"/a/{self.rng.randrange(4)}/{self.rng.randrange(8)}"
            if self.rng.random() < 0.7 or not await store.exists(path):
                await store.put(path, b"%d" % self.rng.randrange(100), expected_version=None)
            else:
                await store.delete(path)
        await store.put("/ledgers/cookies/b:1", b"", expected_version=None)
        ids = LedgerIds(store)
        for _ in range(self.rng.randrange(20)):
            self.newest_id = await ids.next_id()
        await store.close()

    async def between(self, node: SimNode) -> None:
        if self.rng.random() < 0.5:
            try:
                await self.world.restart(node, self.standalone)
            except DataDirectoryError:
                # It was moved: then everything is there.
                assert values_of(self.source).items() <= values_of(self.target).items()

    async def attempt(self, node: SimNode) -> Copied | None:
        runtime = node.runtime
        await claim_directory(runtime.disk, DIRECTORY, pid=2, program="test", may_be_moved=True)
        faults = MetadataFaults(unknown_before_percent=4, unknown_after_percent=4, delay_ms_max=5)

        async def open_target() -> MemoryMetadataStore:
            return MemoryMetadataStore(runtime, self.target, faults)

        store = MemoryMetadataStore(runtime, self.source)
        move = await read_move(runtime.disk, DIRECTORY)
        try:
            return await copy_metadata(
                SourceDirectory(runtime, DIRECTORY),
                MemorySource(self.source),
                store,
                open_target,
                self.rng.choice(ADDRESSES) if move is None or not move.is_done else parse_zookeeper_address(move.to),
                lambda what, done, of: None,
            )
        except StorageError:
            return None
        finally:
            await store.close()

    async def check(self, node: SimNode) -> None:
        before, after = values_of(self.source), values_of(self.target)
        assert before.items() <= after.items()
        assert set(after) - set(before) <= {"/geminga", "/ledgers/INSTANCEID"}
        assert MARKER_PATH not in after
        assert self.copied is not None
        assert self.copied.nodes == len(before)
        store = MemoryMetadataStore(node.runtime, self.target)
        assert await next_ledger_id(store) > self.newest_id
        assert await LedgerIds(store).next_id() > self.newest_id
        move = await read_move(node.runtime.disk, DIRECTORY)
        assert move is not None
        assert move.is_done
        with pytest.raises(DataDirectoryError, match="was moved to a cluster"):
            await claim_directory(node.runtime.disk, DIRECTORY, pid=3, program="test")
        await store.close()


async def copy_story(world: SimWorld) -> None:
    await CopyLife(world).run()


@pytest.mark.slow
def test_copies_that_are_cut_off_anywhere_are_whole_in_the_end():
    run_each(copy_story, range(100), hits_min=20, points=POINTS)
