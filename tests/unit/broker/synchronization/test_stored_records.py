"""Records in the cluster's own store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.broker.synchronization.core.records import PathRecord
from geminga.broker.synchronization.core.stamps import Stamp
from geminga.broker.synchronization.stored_records import ROOT, StoredRecords, Told
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import BadVersionError

RECORD = PathRecord(Stamp(5, "east"), "ab")


def run(story: Callable[[MemoryMetadataStore, StoredRecords], Awaitable[None]]) -> None:
    async def main(world: sim.SimWorld) -> None:
        store = MemoryMetadataStore(world.node("a").runtime)
        await story(store, StoredRecords(store))

    sim.run(main)


def test_record_is_written_by_who_read_it_last() -> None:
    async def story(_: MemoryMetadataStore, records: StoredRecords) -> None:
        first, second = [await records.read("/a/b") for _ in range(2)]
        assert first.record is None
        await first.write(RECORD)
        with pytest.raises(BadVersionError):
            await second.write(RECORD)
        await first.write(RECORD._replace(digest="cd"))
        assert (await records.read("/a/b")).record == RECORD._replace(digest="cd")
        assert (await records.read("/a")).record is None
        assert await records.below("/a") == ["b"]

    run(story)


def test_record_goes_with_the_parents_that_are_left_of_it() -> None:
    async def story(store: MemoryMetadataStore, records: StoredRecords) -> None:
        await records.joined_ms()
        for path in ("/a", "/a/b", "/c/d"):
            await (await records.read(path)).write(RECORD)
        await (await records.read("/a")).remove()
        assert (await records.read("/a")).record is None
        assert (await records.read("/a/b")).record == RECORD
        stale = await records.read("/a/b")
        await (await records.read("/a/b")).remove()
        await stale.remove()
        await (await records.read("/c/d")).remove()
        assert await store.children(ROOT) == []

    run(story)


def test_what_is_no_record_is_none(caplog: pytest.LogCaptureFixture) -> None:
    async def story(store: MemoryMetadataStore, records: StoredRecords) -> None:
        await store.put(f"{ROOT}/a", b"?", expected_version=-1)
        found = await records.read("/a")
        assert found.record is None
        await found.write(RECORD)
        assert "holds no record" in caplog.text

    run(story)


def test_cluster_is_kept_alike_since_the_first_time() -> None:
    async def story(store: MemoryMetadataStore, records: StoredRecords) -> None:
        since_ms = await records.joined_ms()
        await (await records.read("/a")).write(RECORD)
        await records.write_told(Told(frozenset(["west"]), version=0))
        assert await records.joined_ms() == since_ms
        assert (await store.get(ROOT)).stat.created_ms == since_ms

    run(story)


def test_clusters_that_were_told_are_remembered_when_they_go() -> None:
    async def story(store: MemoryMetadataStore, records: StoredRecords) -> None:
        assert await records.told() == Told()
        await records.joined_ms()
        told = Told(frozenset(["north", "west"]), frozenset(["old"]), frozenset(["x"]), 7, 0)
        await records.write_told(told)
        with pytest.raises(BadVersionError):
            await records.write_told(told)
        assert await records.told() == told._replace(version=1)
        after = told.among(["west", "south"])
        assert (after.clusters, after.former) == ({"west"}, {"north", "old"})
        await store.put(ROOT, b"[", expected_version=None)
        assert await records.told() == Told(version=2)

    run(story)
