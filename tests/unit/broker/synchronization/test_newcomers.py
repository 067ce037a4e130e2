"""Clusters that the topic is copied to from now on."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from geminga import sim
from geminga.broker.synchronization.newcomers import LOOK_S, NAMED_S, NewClusters
from geminga.broker.synchronization.paths import digest_at
from geminga.broker.synchronization.stored_records import ROOT, StoredRecords
from geminga.metadata.memory import MemoryMetadataStore
from support.worlds.event_topics import NAME, Alike, Place, run_alike, run_two_alike

PATH = "/admin/policies/t/n"
TENANT = "/admin/policies/t"
GROUP = "/admin/resourcegroups/g"


class Told:
    """What is told, instead of a walk; whose topic goes where."""

    def __init__(self) -> None:
        self.clusters: list[str] = []
        self.calls: list[tuple[list[str], bool]] = []

    async def others(self) -> Sequence[str]:
        return self.clusters

    async def knows(self, cluster: str) -> bool:
        return cluster != "unknown"

    async def tell_all(self, clusters: Sequence[str], with_deletions: bool) -> None:
        self.calls.append(([*clusters], with_deletions))


def test_each_is_told_once_when_it_has_been_named_for_a_while() -> None:
    async def main(world: sim.SimWorld) -> None:
        runtime = world.node("a").runtime
        records = StoredRecords(MemoryMetadataStore(runtime))
        await records.joined_ms()
        told = Told()
        new = NewClusters(records, told, runtime.clock, told.tell_all)

        async def look() -> None:
            while (next_s := await new.look()) and world.now < end_s:
                await world.sleep(next_s - runtime.clock.monotonic())

        # Nobody listens there yet.
        end_s = 3 * NAMED_S
        await look()
        for _ in range(2):
            for name in ("north", "south", "unknown", "west"):
                await new.hear(name)
        assert (await records.told()).heard == {"north", "south", "west"}
        end_s += NAMED_S - LOOK_S
        told.clusters = ["west"]
        await look()
        assert told.calls == []
        end_s += NAMED_S + 2 * LOOK_S
        await look()
        assert told.calls == [(["west"], False)]
        told.clusters = ["north"]
        end_s += NAMED_S + 2 * LOOK_S
        await look()
        told.clusters = ["north", "south", "west"]
        end_s += NAMED_S + 2 * LOOK_S
        await look()
        assert told.calls[1:] == [(["north"], False), (["west"], True), (["south"], False)]
        found = await records.told()
        assert (found.clusters, found.former) == ({"north", "south", "west"}, set())
        # Another leader tells them no more.
        new = NewClusters(records, told, runtime.clock, told.tell_all)
        end_s += NAMED_S + 2 * LOOK_S
        await look()
        assert len(told.calls) == 4

    sim.run(main)


def test_cluster_that_comes_is_told_how_everything_came_to_be() -> None:
    """One that was there before hears of deletions, too."""

    async def set_clusters(alike: Alike, *clusters: str) -> None:
        for place in alike.places.values():
            await place.set(f"/admin/policies/{NAME.namespace}", replication_clusters=[*clusters])

    async def story(alike: Alike) -> None:
        east, west, north = alike["east"], alike["west"], alike["north"]
        north.topic.others = []
        for place in (east, west):
            place.topic.others = [other.topic for other in (east, west) if other is not place]
            await place.set("/admin/clusters/north", a=1)
        await set_clusters(alike, "east", "west")
        await east.set(GROUP, rate=1)
        await west.set(PATH, a=1)
        await east.set(f"{TENANT}/gone", a=1)
        await alike.rest(60)
        await east.delete(f"{TENANT}/gone")
        await alike.rest()
        assert await north.get(GROUP) is None

        for place in (east, west, north):
            place.topic.others = [other.topic for other in (east, west, north) if other is not place]
        await set_clusters(alike, "east", "north", "west")
        await north.set(f"{GROUP}2", a=1)
        await alike.rest(60)
        assert await alike.everywhere(GROUP) == [{"rate": 1}] * 3
        assert await alike.everywhere(PATH) == [{"a": 1}] * 3
        assert all(fields["type"] == "Modified" for fields, _ in north.topic.log)
        assert [place.count("undone") for place in alike.places.values()] == [0, 0, 0]

        await set_clusters(alike, "east", "west")
        await alike.rest(60)
        north.topic.others = []
        for place in (east, west):
            place.topic.others = [other.topic for other in (east, west) if other is not place]
        await east.delete(GROUP)
        await west.set(PATH, a=2)
        await alike.rest(60)
        assert await alike.everywhere(PATH) == [{"a": 2}, {"a": 1}, {"a": 2}]
        for place in (east, west, north):
            place.topic.others = [other.topic for other in (east, west, north) if other is not place]
        await set_clusters(alike, "east", "north", "west")
        await alike.rest(60)
        assert await alike.everywhere(GROUP) == [None] * 3
        assert await alike.everywhere(PATH) == [{"a": 2}] * 3

    run_alike(story, "east", "north", "west")


def test_cluster_that_begins_to_listen_later_is_told_what_it_did_not_hear() -> None:
    """The brokers of one cluster are told the topic's name after those of the other."""

    async def before(alike: Alike) -> None:
        for name, place in alike.places.items():
            await place.set(f"/admin/policies/{NAME.namespace}", replication_clusters=["east", "west"])
            for cluster in alike.places:
                await place.set(f"/admin/clusters/{cluster}", of=name)
        alike["west"].leads = False

    async def story(alike: Alike, east: Place, west: Place) -> None:
        await east.set(GROUP, rate=1)
        await alike.rest(100)
        await east.set(PATH, a=1)
        await alike.rest(100)
        assert await west.get(GROUP) is None
        west.leads = True
        await alike.rest(60)
        assert await alike.everywhere(GROUP) == [{"rate": 1}] * 2
        assert await alike.everywhere(PATH) == [{"a": 1}] * 2
        told = len(west.topic.log), len(east.topic.log)
        await alike.rest(2_000)
        assert (len(west.topic.log), len(east.topic.log)) == told

    run_two_alike(story, before=before)


def test_cluster_that_lost_its_store_has_its_own_changes_back() -> None:
    """It is taken out of the topic's namespace by the others, and comes again."""
    home = f"/admin/policies/{NAME.namespace}"

    async def before(alike: Alike) -> None:
        for name, place in alike.places.items():
            await place.set(home, replication_clusters=["east", "west"])
            for cluster in alike.places:
                await place.set(f"/admin/clusters/{cluster}", of=name)

    async def story(alike: Alike, east: Place, west: Place) -> None:
        await west.set(GROUP, rate=1)
        await east.set(PATH, a=1)
        await alike.rest(60)
        await west.set(PATH, a=2)
        await west.delete(GROUP)
        await alike.rest()
        assert await east.get(PATH) == {"a": 2}
        west.leads = False
        await alike.rest()
        # As a backup had it.
        record = await west.record(PATH)
        await west.metadata.put(PATH, b'{"a":1}', expected_version=None)
        await west.set(GROUP, rate=1)
        for path, digest in ((PATH, digest_at(PATH, b'{"a":1}')), (GROUP, digest_at(GROUP, b'{"rate":1}'))):
            stored = await StoredRecords(west.metadata).read(path)
            await stored.write(record._replace(stamp=record.replaced, digest=digest, replaced=None))
        west.leads = True
        await alike.rest(60)
        assert [await west.get(path) for path in (PATH, GROUP)] == [{"a": 1}, {"rate": 1}]
        for clusters in (["east"], ["east", "west"]):
            await east.metadata.put(
                home, json.dumps({"replication_clusters": clusters}).encode(), expected_version=None
            )
            await alike.rest(60)
        assert await alike.everywhere(PATH) == [{"a": 2}] * 2
        assert await alike.everywhere(GROUP) == [None] * 2

    run_two_alike(story, before=before)


def test_what_a_backup_had_makes_no_change_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    """Records and nodes that were copied at different moments, into another store."""

    async def story(alike: Alike, east: Place, west: Place) -> None:
        await east.set(GROUP, rate=1)
        await east.set(PATH, a=1)
        await alike.told(east, f"{GROUP}2", a=1)
        west.leads = False
        await alike.rest()
        # The record of the one is older than the node, that of the other newer, of a third there is none.
        await west.set(GROUP, rate=2)
        await west.metadata.put(PATH, b'{"a":0}', expected_version=None)
        await west.delete(f"{ROOT}{GROUP}2")
        told = await StoredRecords(west.metadata).told()
        await StoredRecords(west.metadata).write_told(told._replace(made_ms=told.made_ms - 1))
        west.leads = True
        assert await alike.settled(GROUP) == [{"rate": 1}, {"rate": 2}]
        assert await alike.everywhere(PATH) == [{"a": 1}, {"a": 0}]
        assert sum("were restored" in text for text in caplog.messages) == 1
        await east.set(GROUP, rate=3)
        await west.set(PATH, a=5)
        await east.set(f"{GROUP}2", a=2)
        await west.restart()
        assert await alike.settled(GROUP) == [{"rate": 3}] * 2
        assert await alike.everywhere(PATH) == [{"a": 5}] * 2
        assert await alike.everywhere(f"{GROUP}2") == [{"a": 2}] * 2
        assert sum("were restored" in text for text in caplog.messages) == 1

    run_two_alike(story)
