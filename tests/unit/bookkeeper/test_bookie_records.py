"""What the metadata store says of bookies: cookies, and ``/bookies`` by compare-and-set beside other writers."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga.bookkeeper.bookie_records import RACKS_BYTES_MAX
from geminga.metadata import MetadataFaults
from geminga.model.errors import CorruptionError
from support.worlds.ledgers import Cluster, run_cluster


def test_all_bookies_are_those_with_cookies():
    async def main(cluster: Cluster):
        records = cluster.client().records
        assert await records.all() == []
        for name in ("b:2", "b:1", "INSTANCEID", "readonly", "an-id"):
            await cluster.store().put(f"/ledgers/cookies/{name}", b"x", expected_version=None)
        assert await records.all() == ["an-id", "b:1", "b:2"]

    run_cluster(main)


def test_a_bookie_is_put_moved_and_taken_out_and_all_else_stays():
    async def main(cluster: Cluster):
        records, store = cluster.client().records, cluster.store()
        assert (await records.racks(), await records.rack("b"), await records.remove("b")) == ({}, None, False)
        assert await store.get("/bookies") is None, "what was not there is made"
        other = {"z": {"x": {"rack": "/x", "later": [1]}}, "empty": {}}
        await store.put("/bookies", json.dumps(other).encode(), expected_version=None)
        assert await records.set("g", "b", {"rack": "/a"})
        assert await records.rack("b") == {"rack": "/a"}
        assert await records.set("h", "b", {"rack": "/b"})
        assert await records.racks() == {**other, "h": {"b": {"rack": "/b"}}}
        assert await records.remove("b")
        assert await records.racks() == other
        assert not await records.remove("b")

    run_cluster(main)


def test_many_writers_whose_answers_are_lost_lose_nothing():
    async def main(cluster: Cluster):
        faults = MetadataFaults(unknown_before_percent=10, unknown_after_percent=10)
        many = [cluster.client(faults=faults).records for _ in range(8)]
        names = [f"b{number}" for number in range(8)]
        each = zip(many, names, strict=True)
        assert all(await asyncio.gather(*(records.set("g", name, {}) for records, name in each)))
        assert {*(await many[0].racks())["g"]} == {*names}
        each = zip(many, names, strict=True)
        assert all(await asyncio.gather(*(records.remove(name) for records, name in each)))
        assert await many[0].racks() == {}

    run_cluster(main)


def test_more_than_there_is_room_for_is_refused_and_damage_is_told():
    async def main(cluster: Cluster):
        records, store = cluster.client().records, cluster.store()
        assert await records.set("g", "b", {"rack": "/a"})
        assert not await records.set("g", "c", {"rack": "r" * RACKS_BYTES_MAX})
        assert await records.racks() == {"g": {"b": {"rack": "/a"}}}
        # What is that large already can be made smaller, and no larger.
        huge = {"g": {"b": {"rack": "r" * RACKS_BYTES_MAX}, "c": {"rack": "/b"}}}
        await store.put("/bookies", json.dumps(huge).encode(), expected_version=None)
        assert not await records.set("g", "c", {"rack": "/b", "hostname": "h" * 99})
        assert await records.set("g", "b", {"rack": "/a"})
        await store.put("/bookies", b"[]", expected_version=None)
        for call in (records.racks, lambda: records.set("g", "b", {}), lambda: records.remove("b")):
            with pytest.raises(CorruptionError, match="/bookies"):
                await call()
        node = await store.get("/bookies")
        assert node is not None
        assert node.value == b"[]"

    run_cluster(main)
