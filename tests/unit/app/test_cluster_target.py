"""A backup of a cluster is restored to another one: over bookies in memory, from real files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from geminga.app.storage import cluster_restore, cluster_target, cluster_tree
from geminga.app.storage.backup_reading import verified_manifest
from geminga.app.storage.cluster_restore import BackupTree, contents_of
from geminga.app.storage.cluster_target import ClusterTarget, Restored, RestoreProgress, TargetCluster
from geminga.app.storage.core.restore_marks import RestoredSizes
from geminga.app.storage.pace import Pace
from geminga.app.storage.restoring import Restoring
from geminga.bookkeeper import BookKeeper
from geminga.metadata import MemoryMetadataStore, MetadataStore
from geminga.metadata.core.zookeeper_address import check_request
from geminga.model.errors import DataDirectoryError, MetadataError
from support.worlds.ledgers import Cluster
from unit.app.test_cluster_backup import TOPICS, Story, add, read, run


class Other:
    """The cluster that a story's backup is restored to."""

    def __init__(self, story: Story, bookies: int = 3) -> None:
        self.story = story
        self.cluster = Cluster(story.runtime, bookies)
        self.store: MemoryMetadataStore = self.cluster.store()
        self.progress = RestoreProgress()

    async def restore(self, **sizes: int) -> Restored:
        story = self.story
        manifest = await verified_manifest(story.runtime, story.copy)
        pace = Pace(story.runtime.clock)
        backup = Restoring(story.runtime, story.copy, manifest, pace, lambda _: None)
        (stored,) = [one.stored for one in manifest.files if one.name == "metadata.sqlite"]
        tree = BackupTree(story.runtime, f"{story.copy}/files/{stored}")
        self.progress = RestoreProgress()
        try:
            contents = await contents_of(backup, tree)
            # As of a process of its own: its session ends with it.
            store = self.cluster.store()
            client = self.cluster.client()
            target = TargetCluster("zk:there", store, client, check_request)
            try:
                return await ClusterTarget(contents, target, RestoredSizes(**sizes), pace, self.progress).restore()
            finally:
                await store.close()
        finally:
            await tree.close()

    async def everything(self) -> Mapping[int, list[bytes]]:
        """Entries of each ledger."""
        client = self.cluster.client()
        return {ledger_id: await read(client, ledger_id) for ledger_id in await client.ledger_ids()}


async def filled(story: Story) -> dict[int, list[bytes]]:
    """Topics, and what each ledger holds; the backup was made."""
    long = await story.ledger(*(b"%d" % number for number in range(1100)), b"x" * 1_200_000)
    cursor, empty = await story.ledger(b"state"), await story.ledger()
    await story.topic("long", long.ledger_id, empty.ledger_id, cursor=cursor.ledger_id)
    await story.metadata.put("/admin/clusters/prod", b"{}", expected_version=None)
    await story.metadata.put("/counters/producer-name/-", b"", expected_version=-1, ephemeral=True, sequential=True)
    await story.metadata.put("/geminga/bookie-marks/abc", b"7 b0", expected_version=None)
    await story.back_up()
    entries = [b"%d" % number for number in range(1100)]
    return {long.ledger_id: [*entries, b"x" * 1_200_000], cursor.ledger_id: [b"state"], empty.ledger_id: []}


def test_everything_is_there_once_and_said_to_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_tree, "WINDOW_NODES", 2)
    monkeypatch.setattr(cluster_restore, "WINDOW_NODES", 2)

    async def main(story: Story) -> None:
        expected = await filled(story)
        other = Other(story)
        await other.store.put("/geminga/bookie-marks/def", b"9 b1", expected_version=None)
        done = await other.restore(ensemble_size=2)
        assert (done.was_resumed, done.was_done) == (False, False)
        assert await other.everything() == expected
        for ledger_id in expected:
            metadata = (await other.cluster.client().read_ledger(ledger_id)).metadata
            assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (2, 2, 2)
        for path in (f"{TOPICS}/long", f"{TOPICS}/long/sub", "/admin/clusters/prod"):
            before, after = await story.metadata.get(path), await other.store.get(path)
            assert before is not None
            assert after is not None
            assert after.value == before.value
        assert await other.store.children("/geminga/bookie-marks") == ["def"], "those of its own bookies"
        assert await other.store.next_sequence("/counters/producer-name") == 1
        progress = other.progress.document()
        assert progress["bytesDone"] == progress["bytes"] > 1_200_000
        assert progress["ledgersDone"] == progress["ledgers"] == 3
        assert (await other.restore()).was_done
        # A broker that starts there sets no trap for who restores another one.
        await add(await story.ledger(), b"more")
        await story.back_up()
        with pytest.raises(DataDirectoryError, match="was made of another backup"):
            await other.restore()

    run(tmp_path, main)


def test_target_that_is_not_empty_or_has_too_few_bookies_stays_as_it_is(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        await filled(story)
        few = Other(story, bookies=2)
        with pytest.raises(DataDirectoryError, match="are to be on 3 bookies, and zk:there has 2 that take entries"):
            await few.restore()
        assert await few.store.children("/") == []
        begun = Other(story)
        await begun.store.put("/admin/clusters/other", b"{}", expected_version=None)
        with pytest.raises(DataDirectoryError, match=r"zk:there is not empty: it holds /admin\. Nothing was changed"):
            await begun.restore()
        assert await begun.store.children("/") == ["admin"]
        used = Other(story)
        handle = await used.cluster.client().create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await used.cluster.client().delete_ledger(handle.ledger_id)
        await used.store.delete("/geminga/installation")
        with pytest.raises(DataDirectoryError, match="it holds ids given out to 1 ledgers"):
            await used.restore()
        await story.metadata.put("/admin/large", b"x" * (1 << 20), expected_version=None)
        await story.back_up()
        refused = Other(story)
        with pytest.raises(MetadataError, match="1 nodes can not be kept by zk:there, and nothing was written there"):
            await refused.restore()
        assert await refused.store.children("/") == []

    run(tmp_path, main)


def test_one_command_restores_at_a_time(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        expected = await filled(story)
        other = Other(story)
        holder = other.cluster.store()
        await holder.put("/geminga/restorer", b"", expected_version=-1, ephemeral=True)
        waiting = asyncio.ensure_future(other.restore())
        seen = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, seen.set)
        await seen.wait()
        assert not waiting.done()
        assert not await other.store.exists("/geminga/restoring"), "it waits before it writes"
        await holder.close()
        await waiting
        assert await other.everything() == expected

    run(tmp_path, main)


def test_who_loses_its_session_stops_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        expected = await filled(story)
        other = Other(story)
        working = asyncio.ensure_future(other.restore())
        begun = asyncio.Event()
        other.store.watch_node("/geminga/restoring", lambda _: begun.set())
        await begun.wait()
        for store in other.cluster.stores:
            store.expire_session()
        with pytest.raises(MetadataError, match="the session with zk:there expired"):
            await working
        assert (await other.restore()).was_resumed
        assert await other.everything() == expected
        # Killed between the last two steps: what is whole is not written again.
        note = await other.store.get("/geminga/restored")
        assert note is not None
        await other.store.put("/geminga/restoring", note.value, expected_version=None)
        assert (await other.restore()).was_resumed
        assert other.progress.ledgers_kept == other.progress.ledgers_done == 3
        assert await other.everything() == expected

    run(tmp_path, main)


def test_ids_of_ledgers_that_were_lost_are_not_given_out(tmp_path: Path) -> None:
    async def main(story: Story) -> None:
        there, gone = await story.ledger(b"there"), await story.ledger(b"gone")
        await story.topic("t", there.ledger_id, gone.ledger_id)
        await story.client.delete_ledger(gone.ledger_id)
        await story.back_up()
        assert story.made is not None
        assert story.made.lost_ledgers == {gone.ledger_id}
        other = Other(story)
        await other.restore()
        made = await other.cluster.client().create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        assert made.ledger_id > gone.ledger_id

        async def look(client: BookKeeper, metadata: MetadataStore) -> None:
            made = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            assert made.ledger_id > gone.ledger_id, "also in a standalone"

        await story.restored(look)

    run(tmp_path, main)


def test_ledger_that_somebody_takes_away_meanwhile_is_told_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_target, "_LOOKS_AT_ONCE", 1)

    async def main(story: Story) -> None:
        expected = await filled(story)
        other = Other(story)
        taking: list[asyncio.Future[None]] = []

        def take(_: object) -> None:
            # All ledgers are there when the nodes of topics come.
            if not taking:
                taking.append(asyncio.ensure_future(other.cluster.client().delete_ledger(max(expected))))

        forget = other.store.watch_node(f"{TOPICS}/long", take)
        with pytest.raises(MetadataError, match=f"ledger {max(expected)} of zk:there is not as it was restored"):
            await other.restore()
        forget()
        await other.restore()
        assert other.progress.ledgers_kept == 2
        assert await other.everything() == expected

    run(tmp_path, main)
