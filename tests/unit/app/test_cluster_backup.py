"""A backup of a cluster and its restoring, over bookies in memory: many topics, long ledgers, ledgers that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from geminga.app.handles.backups import local_runtime
from geminga.app.storage import backup_reading, cluster_backup, cluster_restore, cluster_tree
from geminga.app.storage.backup_writing import Copying, Progress
from geminga.app.storage.bookies import LocalBookies
from geminga.app.storage.cluster_backup import ClusterBackup, ClusterConnection, ClusterFacts
from geminga.app.storage.cluster_tree import transaction_logs
from geminga.app.storage.core.ledger_segments import by_ledger
from geminga.bookie import BookieConfig
from geminga.bookkeeper import BookKeeper, LedgerHandle, LocalBookiePool
from geminga.managed_ledger.rules.attached import ATTACHED_PROPERTY
from geminga.metadata import MemoryMetadataStore, MetadataStore, SqliteMetadataStore
from geminga.metadata.ports import Node
from geminga.metadata.sqlite_tree import SqliteTree
from geminga.model.errors import DataDirectoryError, StorageError
from geminga.model.position import Position
from geminga.runtime import Runtime, answer_of
from geminga.wire.managed_ledger import (
    CursorInfoRecord,
    LedgerRecord,
    ManagedLedgerRecord,
    encode_cursor_info,
    encode_managed_ledger_info,
)
from geminga.wire.managed_ledger.cursor_info import SegmentRecord, encode_position, encode_segment
from geminga.wire.pulsar.compacted import COMPACTED_LEDGER
from support.worlds.ledgers import Cluster

TOPICS = "/managed-ledgers/public/default/persistent"


class Watched(MemoryMetadataStore):
    """Tells what is read, after it was read."""

    on_read: Callable[[str], Awaitable[None]] | None = None

    async def get(self, path: str) -> Node | None:
        found = await super().get(path)
        if self.on_read is not None:
            await self.on_read(path)
        return found


class Story:
    """A cluster without brokers, whose topics are written by hand, and the directories of its backup."""

    def __init__(self, runtime: Runtime, place: Path) -> None:
        self.runtime = runtime
        self.cluster = Cluster(runtime, 3)
        self.client = self.cluster.client()
        self.metadata = Watched(runtime, self.cluster.server)
        self.copy, self.new = str(place / "copy"), str(place / "new")
        self.made: ClusterBackup | None = None

    async def ledger(self, *payloads: bytes) -> LedgerHandle:
        handle: LedgerHandle = await self.client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        if payloads:
            await add(handle, *payloads)
        return handle

    async def topic(self, name: str, *ledger_ids: int, cursor: int = -1) -> None:
        records = tuple(LedgerRecord(ledger_id) for ledger_id in ledger_ids)
        value = encode_managed_ledger_info(ManagedLedgerRecord(records))
        await self.metadata.put(f"{TOPICS}/{name}", value, expected_version=None)
        if cursor >= 0:
            info = encode_cursor_info(CursorInfoRecord(cursor, Position(-1, -1)))
            await self.metadata.put(f"{TOPICS}/{name}/sub", info, expected_version=None)

    async def back_up(self) -> Progress:
        await self.runtime.disk.make_dirs(self.copy)
        progress = Progress()
        facts = await ClusterFacts.of(self.metadata)
        reached = ClusterConnection(self.metadata, self.cluster.client())
        self.made = ClusterBackup(self.runtime, self.copy, facts, reached, Copying(progress))
        await self.made.write()
        return progress

    async def restored(self, look: Callable[[BookKeeper, MetadataStore], Awaitable[None]]) -> None:
        """Verify and restore it, and look at what is there then."""
        assert (await backup_reading.verify(self.runtime, self.copy)).faults == []
        await backup_reading.restore(self.runtime, self.copy, self.new)
        metadata = await SqliteMetadataStore.open(self.runtime, f"{self.new}/metadata.sqlite")
        closers = []
        bookies = LocalBookies(
            self.runtime,
            metadata,
            self.new,
            BookieConfig(),
            count=1,
            left_out=(),
            on_open=lambda _, close: closers.append(close),
        )
        await bookies.open()
        await look(BookKeeper(self.runtime, metadata, LocalBookiePool(bookies.by_id)), metadata)
        await closers[0]()
        await metadata.close()


async def add(handle: LedgerHandle, *payloads: bytes) -> None:
    def append(done: Callable[[int | StorageError], None]) -> None:
        handle.append(payloads, lambda first, count, error: done(first if error is None else error))

    await answer_of(append)


def run(place: Path, main: Callable[[Story], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with local_runtime() as runtime:
            story = Story(runtime, place)
            await story.metadata.put("/ledgers/INSTANCEID", b"c1", expected_version=None)
            await main(story)

    asyncio.run(whole())


async def read(client: BookKeeper, ledger_id: int) -> list[bytes]:
    handle = await client.open_ledger(ledger_id)
    last = handle.last_add_confirmed
    found: list[bytes] = []
    while len(found) <= last:
        found += await answer_of(partial(handle.read, len(found), last, bytes_max=1 << 20))
    return found


def test_many_topics_and_a_long_ledger_come_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_tree, "WINDOW_NODES", 2)
    monkeypatch.setattr(cluster_restore, "WINDOW_NODES", 2)
    monkeypatch.setattr(cluster_backup, "TOPICS_AT_ONCE", 2)
    # More than is asked for at once, and one that is more than is read of a file at once.
    long = [b"%d" % number for number in range(1100)] + [b"x" * 1_200_000, b"", b"end"]

    async def main(story: Story) -> None:
        handle = await story.ledger(*long)
        cursor = await story.ledger(b"state")
        empty = await story.ledger()
        await story.topic("long", handle.ledger_id, empty.ledger_id, cursor=cursor.ledger_id)
        others = [await story.ledger(b"of %d" % number) for number in range(5)]
        for number, other in enumerate(others):
            await story.topic(f"t{number}", other.ledger_id)
            await story.metadata.put(f"/admin/policies/n{number}", b"{}", expected_version=None)
        await story.metadata.put("/leader", b"me", expected_version=-1, ephemeral=True)
        await story.metadata.put("/counters/producer-name/-", b"", expected_version=-1, ephemeral=True, sequential=True)
        first = await story.back_up()
        assert first.files_kept == 0
        await add(handle, b"more")
        second = await story.back_up()
        # The metadata, and what the long one has more.
        assert (second.files_copied, second.files_kept) == (2, 7)

        async def look(client: BookKeeper, metadata: MetadataStore) -> None:
            assert await read(client, handle.ledger_id) == [*long, b"more"]
            assert await read(client, cursor.ledger_id) == [b"state"]
            assert await read(client, empty.ledger_id) == []
            for number, other in enumerate(others):
                assert await read(client, other.ledger_id) == [b"of %d" % number]
            assert await metadata.children(TOPICS) == ["long", *(f"t{number}" for number in range(5))]
            assert len(await metadata.children("/admin/policies")) == 5
            assert not await metadata.exists("/leader")
            assert await metadata.next_sequence("/counters/producer-name") == 1
            made = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            assert made.ledger_id > others[-1].ledger_id

        await story.restored(look)

    run(tmp_path, main)


def test_ledger_that_the_cluster_lost_is_told_and_one_that_can_not_be_read_ends_it(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        there = await story.ledger(b"there")
        await story.topic("t", 4711, there.ledger_id)
        await story.back_up()
        assert story.made is not None
        assert story.made.lost_ledgers == {4711}
        manifest = await story.runtime.disk.read_file(f"{story.copy}/geminga-backup.json")
        for bookie in story.cluster.bookies.values():
            bookie.read_error = StorageError("away")
            bookie.fence_error = StorageError("away")
        with pytest.raises(StorageError, match="away"):
            await story.back_up()
        assert await story.runtime.disk.read_file(f"{story.copy}/geminga-backup.json") == manifest, "it stays"
        assert (await backup_reading.verify(story.runtime, story.copy)).faults == []

    run(tmp_path, main)


@pytest.mark.parametrize("is_pulsars", [False, True])
def test_what_was_compacted_of_a_topic_comes_back(tmp_path: Path, is_pulsars: bool) -> None:
    """Where the log was trimmed since it is all that there is of it; a topic's node names it, or a cursor's ledger."""

    async def main(story: Story) -> None:
        log, compacted = await story.ledger(b"log"), await story.ledger(b"compacted")
        records, noted = (LedgerRecord(log.ledger_id),), {ATTACHED_PROPERTY: f"{compacted.ledger_id}"}
        value = encode_managed_ledger_info(ManagedLedgerRecord(records, properties={} if is_pulsars else noted))
        await story.metadata.put(f"{TOPICS}/t", value, expected_version=None)
        properties = {COMPACTED_LEDGER: compacted.ledger_id} if is_pulsars else {}
        entries = [
            encode_position(Position(log.ledger_id, -1), properties={}),
            encode_position(Position(log.ledger_id, 0), properties=properties),
        ]
        if is_pulsars:
            entries.append(encode_segment(entries[0], SegmentRecord(log.ledger_id, 0, 0, 1, b"")))
        state = await story.ledger(*entries)
        cursor = encode_cursor_info(CursorInfoRecord(state.ledger_id, Position(-1, -1)))
        await story.metadata.put(f"{TOPICS}/t/__compaction", cursor, expected_version=None)
        await story.back_up()
        assert story.made is not None
        assert story.made.lost_ledgers == set()

        async def look(client: BookKeeper, metadata: MetadataStore) -> None:
            del metadata
            assert await read(client, compacted.ledger_id) == [b"compacted"]
            assert await client.ledger_ids() == [log.ledger_id, compacted.ledger_id, state.ledger_id]

        await story.restored(look)

    run(tmp_path, main)


def test_newer_compacted_ledger_is_copied_where_one_goes_while_the_topic_is_copied(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        log, old = await story.ledger(b"log"), await story.ledger(b"old")

        async def note(compacted: LedgerHandle) -> None:
            properties = {ATTACHED_PROPERTY: f"{compacted.ledger_id}"}
            record = ManagedLedgerRecord((LedgerRecord(log.ledger_id),), properties=properties)
            await story.metadata.put(f"{TOPICS}/t", encode_managed_ledger_info(record), expected_version=None)

        async def compact(path: str) -> None:
            if path == f"{TOPICS}/t":
                story.metadata.on_read = None
                await note(await story.ledger(b"new"))
                await story.client.delete_ledger(old.ledger_id)

        await note(old)
        story.metadata.on_read = compact
        await story.back_up()
        assert story.made is not None
        assert story.made.lost_ledgers == set()

        async def look(client: BookKeeper, metadata: MetadataStore) -> None:
            del metadata
            assert sorted([await read(client, one) for one in await client.ledger_ids()]) == [[b"log"], [b"new"]]

        await story.restored(look)

    run(tmp_path, main)


def test_ledger_that_goes_while_its_topic_is_copied_is_looked_for_in_the_nodes_again(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        old, new = await story.ledger(b"old"), await story.ledger(b"new")
        await story.topic("t", new.ledger_id, cursor=old.ledger_id)

        async def take_its_place(path: str) -> None:
            # Between the look at the cursor and the copy of its ledger another one takes its place.
            if path == f"{TOPICS}/t/sub":
                story.metadata.on_read = None
                await story.topic("t", new.ledger_id, cursor=(await story.ledger(b"newer")).ledger_id)
                await story.client.delete_ledger(old.ledger_id)

        story.metadata.on_read = take_its_place
        await story.back_up()
        assert story.made is not None
        assert story.made.lost_ledgers == set()

        async def look(client: BookKeeper, metadata: MetadataStore) -> None:
            assert sorted([await read(client, one) for one in await client.ledger_ids()]) == [[b"new"], [b"newer"]]

        await story.restored(look)

    run(tmp_path, main)


def test_topic_that_is_deleted_while_it_is_copied_leaves_no_ledger_in_the_backup(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        state, shared, kept = await story.ledger(b"state"), await story.ledger(b"shared"), await story.ledger(b"kept")
        await story.topic("gone", kept.ledger_id, cursor=state.ledger_id)
        await story.topic("gone-too", kept.ledger_id, cursor=shared.ledger_id)
        await story.topic("stays", kept.ledger_id, cursor=shared.ledger_id)

        async def delete(path: str) -> None:
            # Behind the copy of its cursor's ledger.
            for name in ("gone", "gone-too"):
                if path == f"{TOPICS}/{name}/sub":
                    await story.metadata.delete(path, expected_version=None)
                    await story.metadata.delete(f"{TOPICS}/{name}", expected_version=None)

        story.metadata.on_read = delete
        await story.back_up()
        manifest = await backup_reading.manifest_of(story.runtime, story.copy)
        assert by_ledger(manifest.files).keys() == {shared.ledger_id, kept.ledger_id}
        stored = set(await story.runtime.disk.list_dir(f"{story.copy}/files"))
        assert stored == {file.stored for file in manifest.files}

        async def look(client: BookKeeper, metadata: MetadataStore) -> None:
            assert sorted([await read(client, one) for one in await client.ledger_ids()]) == [[b"kept"], [b"shared"]]
            assert await metadata.children(TOPICS) == ["stays"]

        await story.restored(look)

    run(tmp_path, main)


def test_ledger_that_a_topic_does_not_name_any_more_when_it_is_read_again_is_not_in_the_backup(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        old, state, newer = await story.ledger(b"old"), await story.ledger(b"state"), await story.ledger(b"newer")
        await story.topic("t", old.ledger_id, cursor=state.ledger_id)

        async def roll(path: str) -> None:
            if path == f"{TOPICS}/t":
                story.metadata.on_read = None
                await story.client.delete_ledger(old.ledger_id)
                await story.topic("t", newer.ledger_id, cursor=newer.ledger_id)

        story.metadata.on_read = roll
        await story.back_up()
        manifest = await backup_reading.manifest_of(story.runtime, story.copy)
        assert by_ledger(manifest.files).keys() == {newer.ledger_id}

    run(tmp_path, main)


def test_backup_whose_segments_are_not_the_ledgers_is_damaged(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        await story.topic("t", (await story.ledger(b"a", b"b")).ledger_id)
        await story.back_up()
        manifest = await backup_reading.manifest_of(story.runtime, story.copy)
        shorter = manifest._replace(files=tuple(one for one in manifest.files if not one.name.startswith("ledgers/")))
        (stored,) = [one.stored for one in manifest.files if one.name == "metadata.sqlite"]
        tree = SqliteTree(f"{story.copy}/files/{stored}", read_only=True)
        try:
            assert cluster_restore.ledger_faults(tree, manifest) == []
            (story_told,) = cluster_restore.ledger_faults(tree, shorter)
            assert "entries 0 to 1 are expected, the backup has 0 to -1" in story_told
        finally:
            tree.close()
        (segment,) = by_ledger(manifest.files)[0]
        path = f"{story.copy}/files/{segment.file.stored}"
        data = await story.runtime.disk.read_file(path) + b"\x00"
        await story.runtime.disk.write_file(path, data)
        longer = segment._replace(file=segment.file._replace(size_bytes=len(data)))
        with pytest.raises(DataDirectoryError, match="has 2 whole entries, expected 2 and nothing behind"):
            async for _ in cluster_restore.payloads_of(story.runtime, story.copy, longer):
                pass

    run(tmp_path, main)


def test_logs_of_transactions_are_told_with_the_ledger_they_write(tmp_path: Path) -> None:
    """By which a backup sees that a coordinator began another one meanwhile."""

    async def main(story: Story) -> None:
        system = "/managed-ledgers/pulsar/system/persistent"
        written = encode_managed_ledger_info(ManagedLedgerRecord((LedgerRecord(3), LedgerRecord(7))))
        await story.metadata.put(f"{system}/__transaction_log_0", written, expected_version=None)
        empty = encode_managed_ledger_info(ManagedLedgerRecord(()))
        await story.metadata.put(f"{system}/__transaction_log_1", empty, expected_version=None)
        await story.metadata.put(f"{system}/other", written, expected_version=None)
        found = await transaction_logs(story.metadata)
        assert found == {f"{system}/__transaction_log_0": 7, f"{system}/__transaction_log_1": -1}

    run(tmp_path, main)
