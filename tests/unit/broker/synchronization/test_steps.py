"""Steps on one path: cut off at any write, they are begun again and end the same."""

from __future__ import annotations

import logging

import pytest

from geminga.broker.synchronization.core.events import REPLACES, SyncEvent, fields_of
from geminga.broker.synchronization.core.stamps import Stamp
from geminga.metadata.core.faults import WriteFault
from geminga.runtime import next_turn
from support.worlds.event_topics import Alike, Place, run_alike, run_two_alike

GROUP = "/admin/resourcegroups/g"
TENANT, PATH = "/admin/policies/t", "/admin/policies/t/n"
TOPIC = "/admin/partitioned-topics/t/n/persistent/x"
BEFORE, AFTER = WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER


@pytest.mark.parametrize("fault", [BEFORE, AFTER])
@pytest.mark.parametrize("writes", [0, 1, 2])
@pytest.mark.parametrize("ends", [False, True])
def test_change_is_told_and_made_whatever_write_fails(fault: WriteFault, writes: int, ends: bool) -> None:
    """Of the cluster that tells it, and of the one that makes it; who began may end there."""

    async def story(alike: Alike, east: Place, west: Place) -> None:
        for number in range(2):
            await east.set(GROUP, rate=number)
            for place in (east, west):
                place.metadata.faults.next_writes.extend([WriteFault.NONE] * writes + [fault])
            await alike.rest(0.4)
            if ends:
                await east.restart()
                await west.restart()
            await alike.rest(20)
            assert await west.get(GROUP) == {"rate": number}
            for place in (east, west):
                record = await place.record(GROUP)
                assert record == record.settled(), place.name
                place.metadata.faults.next_writes.clear()
            assert (await east.record(GROUP)).stamp == (await west.record(GROUP)).stamp

    run_two_alike(story)


def test_two_changes_of_one_moment_are_two_though_the_first_had_no_receipt() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, GROUP, rate=0)
        events = len(west.topic.log)
        east.topic.loses_receipts = True
        await east.set(GROUP, rate=1)
        while len(west.topic.log) == events:
            await next_turn()
        # No time has passed.
        await east.set(GROUP, rate=2)
        east.topic.loses_receipts = False
        await east.restart()
        assert await alike.settled(GROUP) == [{"rate": 2}] * 2

    run_two_alike(story)


def test_change_that_is_made_is_made_for_good_before_its_event_is_acknowledged() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, GROUP, rate=0)
        west.metadata.faults.watch_lost_percent = 100
        await alike.told(east, GROUP, rate=1)
        record = await west.record(GROUP)
        assert record == record.settled()

    run_two_alike(story)


def test_change_in_the_midst_of_another_cluster_s_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, GROUP, rate=1)
        # The record is written, the change is not; then an administrator comes.
        west.metadata.faults.next_writes.extend([WriteFault.NONE, BEFORE])
        await east.set(GROUP, rate=2)
        await alike.rest(0.1)
        record = await west.record(GROUP)
        assert record.before is not None
        await west.set(GROUP, rate=3)
        assert await alike.settled(GROUP) == [{"rate": 3}] * 2
        assert "comes to nothing: that of cluster east" in caplog.text

    run_two_alike(story)


def test_event_that_comes_to_what_is_being_deleted_here_is_followed() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        topic = "/admin/partitioned-topics/t/n/persistent/x"
        await alike.told(east, topic, partitions=2)
        await alike.told(west, topic, partitions=2, deleted=True)
        assert await east.get(topic) == {"partitions": 2}
        await east.set(topic, partitions=3)
        assert await alike.settled(topic) == [{"partitions": 3}] * 2

    run_two_alike(story)


def test_what_is_below_may_come_before_what_is_above() -> None:
    """From different clusters, each by its own way."""

    async def story(alike: Alike, east: Place, west: Place) -> None:
        tenant, namespace = "/admin/policies/t", "/admin/policies/t/n"
        now_ms = east.node.runtime.clock.wall_ms()
        for path in (namespace, tenant):
            event = SyncEvent(path, b'{"a":1}', Stamp(now_ms, "north"))
            for place in (east, west):
                place.topic.add(fields_of(event))
            await alike.rest()
        assert await alike.everywhere(tenant) == await alike.everywhere(namespace) == [{"a": 1}] * 2
        assert (east.count("published"), west.count("published")) == (0, 0)

    run_two_alike(story)


def test_record_of_the_newer_leader_stays(caplog: pytest.LogCaptureFixture) -> None:
    """Two that think to lead: both tell, and neither writes over what the other wrote."""

    async def story(alike: Alike) -> None:
        east = alike["east"]
        older = east.synchronizer
        east.synchronizer = east._new()
        east.synchronizer.start()
        with caplog.at_level(logging.INFO):
            for number in range(5):
                await east.set(GROUP, rate=number)
                await alike.rest(0.2)
            await alike.rest(60)
        assert await alike["west"].get(GROUP) == {"rate": 4}
        record = await east.record(GROUP)
        assert record == record.settled()
        assert record.stamp == (await alike["west"].record(GROUP)).stamp
        await older.close()

    run_alike(story)


def test_a_namespace_of_each_clusters_own_stays_so_though_a_change_of_it_is_told_twice() -> None:
    """A change whose receipt was lost was told again as one by who had seen the other's, which was lost then."""

    async def story(alike: Alike, east: Place, west: Place) -> None:
        for place in (east, west):
            await place.set(PATH, replication_clusters=[place.name], ttl=0)
        await alike.rest(20)
        await east.set(PATH, replication_clusters=["east"], ttl=1)
        await alike.rest(20)
        west.topic.loses_receipts = True
        await west.set(PATH, replication_clusters=["west"], ttl=2)
        await alike.rest(1)
        west.topic.loses_receipts = False
        await west.restart()
        await alike.rest(60)
        steps = await west.synchronizer._begin()
        await steps.tell_again(PATH, ["east"], with_deletions=False)
        await alike.rest(20)
        # The change, twice, and what was told again.
        assert [told[REPLACES] for _, told in east.topic.log[-3:]] == [""] * 3
        assert await alike.everywhere(PATH) == [
            {"replication_clusters": ["east"], "ttl": 1},
            {"replication_clusters": ["west"], "ttl": 2},
        ]

    run_two_alike(story)


def test_path_is_told_again_to_some_clusters_alone() -> None:
    async def story(alike: Alike) -> None:
        east = alike["east"]
        await alike.told(east, GROUP, rate=1)
        synchronizer = east.synchronizer
        steps = await synchronizer._begin()
        before = len(alike["north"].topic.log), len(alike["west"].topic.log)
        await steps.tell_again(GROUP, ["west"], with_deletions=False)
        await steps.tell_again("/admin/resourcegroups/none", ["west"], with_deletions=True)
        await alike.rest()
        assert (len(alike["north"].topic.log), len(alike["west"].topic.log)) == (before[0], before[1] + 1)
        await east.delete(GROUP)
        await alike.rest()
        await steps.tell_again(GROUP, ["west"], with_deletions=False)
        await steps.tell_again(GROUP, ["west"], with_deletions=True)
        await alike.rest()
        assert len(alike["west"].topic.log) == before[1] + 3
        await steps.follow(SyncEvent(GROUP, b"{}", Stamp(1, "x")))

    run_alike(story, "east", "north", "west")


def test_tenant_that_has_a_namespace_elsewhere_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await east.set(TENANT, a=1)
        await alike.told(east, PATH, a=1)
        west.topic.is_cut = True
        await alike.told(west, f"{TENANT}/more", a=2)
        for path in (PATH, TENANT):
            await east.delete(path)
        assert await alike.settled(PATH) == [None] * 2
        assert await alike.everywhere(TENANT) == [None, {"a": 1}]
        west.topic.is_cut = False
        west.topic.copy()
        assert await alike.settled(TENANT) == [{"a": 1}] * 2
        assert await alike.everywhere(f"{TENANT}/more") == [{"a": 2}] * 2
        assert any("there is more below it" in text for text in caplog.messages)

    run_two_alike(story)


def test_tenant_whose_namespace_is_only_held_goes_after_it() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await east.set(TENANT, a=1)
        await alike.told(east, PATH, a=1)
        topic = "/managed-ledgers/t/n/persistent/x"
        await west.metadata.put(topic, b"", expected_version=None)
        for path in (PATH, TENANT):
            await east.delete(path)
        await alike.rest()
        assert [await place.get(TENANT) for place in (east, west)] == [None, {"a": 1}]
        await west.delete(topic)
        await alike.rest(700)
        assert await west.metadata.get(TENANT) is None
        assert await alike.everywhere(TENANT) == [None] * 2

    run_two_alike(story)


def test_what_a_cluster_has_to_itself_below_what_is_deleted_elsewhere_is_kept() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        north = "/admin/clusters/north"
        await alike.told(east, north, a=1)
        await west.set(f"{north}/policies", migrated=True)
        await east.delete(north)
        assert await alike.settled(north) == [None, {"a": 1}]
        await west.delete(f"{north}/policies")
        await alike.rest(700)
        assert await alike.everywhere(north) == [None] * 2

    run_two_alike(story)


def test_what_is_left_of_parents_goes_with_what_was_in_them() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        domain = "/admin/clusters/north/failureDomain/d"
        await east.set("/admin/clusters/north", a=1)
        await east.set(domain, a=1)
        await alike.told(east, TOPIC, partitions=2)
        # Deleted there with all that is below, of which no event comes.
        await east.delete(domain)
        await east.delete(domain.rpartition("/")[0])
        await east.delete("/admin/clusters/north")
        await east.delete(TOPIC)
        await alike.rest()
        assert await west.metadata.get("/admin/clusters/north") is None
        assert await west.metadata.children("/admin/partitioned-topics") == []

    run_two_alike(story)
