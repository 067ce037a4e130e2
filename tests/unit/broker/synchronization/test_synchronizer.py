"""Clusters whose configuration is kept alike by a topic: what is said in one holds in all, and nothing is lost."""

from __future__ import annotations

import contextlib
import logging

import pytest

from geminga.broker.synchronization.core.deciding import AHEAD_MS_MAX
from geminga.broker.synchronization.core.events import SyncEvent, fields_of
from geminga.broker.synchronization.core.stamps import Stamp
from geminga.broker.synchronization.synchronizer import WALK_S
from geminga.metadata.core.faults import MetadataFaults
from geminga.model.errors import MetadataError, UnavailableError
from support.worlds.event_topics import NAME, Alike, Place, run_alike, run_two_alike

PATH = "/admin/policies/t/n"
TENANT = "/admin/policies/t"
GROUP = "/admin/resourcegroups/g"
TOPIC = "/admin/partitioned-topics/t/n/persistent/x"
PARTITION = "/managed-ledgers/t/n/persistent/x-partition-3"
APACHE = {
    "path": GROUP,
    "value": b'{"of":"apache"}',
    "options": [],
    "expectedVersion": None,
    "lastUpdatedTimestamp": 1,
    "sourceCluster": "north",
    "type": "Modified",
    "version": 0,
}


def now_ms(place: Place) -> int:
    return place.node.runtime.clock.wall_ms()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_is_said_in_one_cluster_holds_in_all() -> None:
    async def story(alike: Alike) -> None:
        await alike["east"].set(TENANT, allowedClusters=["east"])
        await alike["east"].set(PATH, ttl=1)
        await alike["north"].set(GROUP, rate=5)
        assert await alike.settled(TENANT) == [{"allowedClusters": ["east"]}] * 3
        assert await alike.everywhere(PATH) == [{"ttl": 1}] * 3
        await alike["west"].set(PATH, ttl=2)
        await alike["west"].delete(GROUP)
        assert await alike.settled(PATH) == [{"ttl": 2}] * 3
        assert await alike.everywhere(GROUP) == [None] * 3
        # Nothing goes round: each change is one event, of which each cluster has a copy.
        assert {len(place.topic.log) for place in alike.places.values()} == {5}
        assert all(place.topic.acknowledged == 5 for place in alike.places.values())
        assert [place.count("undone") for place in alike.places.values()] == [0, 0, 0]

    run_alike(story, "east", "north", "west")


def test_what_is_a_cluster_s_own_stays_there() -> None:
    async def story(alike: Alike) -> None:
        own = ("/admin/local-policies/t/n", "/admin/configuration", "/admin/clusters/east/policies", "/ledgers/x")
        for path in own:
            await alike["east"].set(path, a=1)
        await alike["east"].set("/admin/clusters/east", serviceUrl="http://east")
        await alike.rest()
        assert [await alike["west"].get(path) for path in own] == [None] * 4
        assert await alike["west"].get("/admin/clusters/east") == {"serviceUrl": "http://east"}

    run_alike(story)


def test_what_was_there_before_goes_where_there_is_nothing_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def before(alike: Alike) -> None:
        await alike["east"].set(PATH, clusters="east")
        await alike["west"].set(PATH, clusters="west")
        await alike["east"].set(GROUP, rate=5)

    async def story(alike: Alike) -> None:
        assert await alike.everywhere(GROUP) == [{"rate": 5}] * 2
        assert await alike.everywhere(PATH) == [{"clusters": "east"}, {"clusters": "west"}]
        told = [text for text in warnings_of(caplog) if "since before they are kept alike" in text]
        assert len(told) == 2
        await alike["east"].set(PATH, clusters="both")
        assert await alike.settled(PATH) == [{"clusters": "both"}] * 2

    run_alike(story, before=before)


def test_later_one_of_two_changes_holds_and_the_other_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, GROUP, rate=1)
        east.topic.is_cut = west.topic.is_cut = True
        await alike.told(east, GROUP, rate=2)
        await alike.told(west, GROUP, rate=3)
        for place in (east, west):
            place.topic.is_cut = False
            place.topic.copy()
        assert await alike.settled(GROUP) == [{"rate": 3}] * 2
        assert (east.count("undone"), west.count("undone")) == (1, 1)
        told = [text for text in warnings_of(caplog) if "comes to nothing" in text]
        assert len(told) == 2
        assert all(GROUP in text and "cluster east" in text and "@west" in text for text in told)

    run_two_alike(story)


def test_deletion_outlives_a_write_that_comes_late() -> None:
    async def story(alike: Alike) -> None:
        east, west, north = alike["east"], alike["west"], alike["north"]
        await alike.told(east, GROUP, rate=1)
        north.topic.is_cut = True
        await alike.told(north, GROUP, rate=2)
        await east.delete(GROUP)
        await alike.rest(7_200)
        north.topic.is_cut = False
        north.topic.copy()
        assert await alike.settled(GROUP) == [None] * 3
        assert west.count("undone") == 1

    run_alike(story, "east", "north", "west")


def test_change_waits_for_the_topic_and_for_the_leader() -> None:
    async def story(alike: Alike) -> None:
        east = alike["east"]
        east.topic.is_away = True
        await alike.told(east, GROUP, rate=1)
        assert await alike["west"].get(GROUP) is None
        await east.restart()
        east.leads = False
        await alike.rest()
        east.topic.is_away = False
        await east.set(GROUP, rate=2)
        await alike.rest(100)
        assert await alike["west"].get(GROUP) is None
        east.leads = True
        await alike.rest()
        assert await alike["west"].get(GROUP) == {"rate": 2}
        await alike["west"].delete(GROUP)
        await alike.rest()
        east.leads = False
        await alike.rest()
        await alike["west"].set(GROUP, rate=3)
        await alike.rest()
        assert await east.get(GROUP) is None
        east.leads = True
        await alike.rest()
        assert await east.get(GROUP) == {"rate": 3}

    run_alike(story)


def test_deletion_while_nobody_leads_is_found_by_the_walk() -> None:
    async def story(alike: Alike) -> None:
        east = alike["east"]
        await alike.told(east, PATH, ttl=1)
        east.leads = False
        await alike.rest()
        await east.delete(PATH)
        await alike.rest()
        assert await alike["west"].get(PATH) == {"ttl": 1}
        east.leads = True
        await alike.rest()
        assert await alike["west"].get(PATH) is None

    run_alike(story)


@pytest.mark.parametrize("seed", range(4))
def test_clusters_end_alike_through_failing_stores_cuts_and_leaders_that_end(seed: int) -> None:
    async def story(alike: Alike) -> None:
        rng = alike.world.rng("story")
        places = list(alike.places.values())
        for place in places:
            faults = place.metadata.faults
            faults.unknown_before_percent = faults.unknown_after_percent = 15
            faults.watch_lost_percent, faults.watch_twice_percent, faults.delay_ms_max = 10, 10, 20
        for number in range(60):
            place, path = rng.choice(places), rng.choice((GROUP, PATH, TENANT))
            with contextlib.suppress(MetadataError):
                if rng.random() < 0.3:
                    await place.delete(path)
                else:
                    await place.set(path, number=number)
            await alike.rest(rng.random() * 0.2)
            if rng.random() < 0.2:
                place.topic.is_cut = not place.topic.is_cut
            if rng.random() < 0.2:
                await place.restart()
        for place in places:
            place.metadata.faults = MetadataFaults()
            place.topic.is_cut = False
            place.topic.copy()
        await alike.rest(2_000)
        for path in (GROUP, PATH, TENANT):
            values = await alike.everywhere(path)
            assert values[1:] == values[:-1], path
            records = [await place.record(path) for place in places]
            assert len({record.stamp for record in records if record is not None}) <= 1

    run_alike(story, "east", "north", "west", seed=seed)


def test_change_that_no_watch_tells_of_is_found_by_the_walk() -> None:
    async def story(alike: Alike) -> None:
        east = alike["east"]
        await alike.told(east, PATH, a=1)
        east.metadata.faults.watch_lost_percent = 100
        await east.set(PATH, a=2)
        await alike.told(east, GROUP, a=2)
        assert await alike["west"].get(PATH) == {"a": 1}
        await alike.rest(WALK_S)
        assert await alike["west"].get(PATH) == await alike["west"].get(GROUP) == {"a": 2}

    run_alike(story)


def test_bundles_of_a_namespace_that_is_gone_are_nothing_to_a_later_one() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, PATH, a=1)
        local = "/admin/local-policies/t/n"
        await west.set(local, bundles=1)
        await east.delete(PATH)
        await alike.rest()
        assert await west.get(local) is None

    run_two_alike(story)


def test_namespace_with_topics_here_stays_until_they_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await east.set(PATH, a=1)
        await alike.told(east, "/admin/clusters/west", a=1)
        topic = "/managed-ledgers/t/n/persistent/x"
        await west.metadata.put(topic, b"", expected_version=None)
        await east.delete(PATH)
        await east.delete("/admin/clusters/west")
        await alike.rest(700)
        assert await west.get(PATH) == await west.get("/admin/clusters/west") == {"a": 1}
        assert await east.get(PATH) is None
        assert any("topics of it are stored here" in text for text in warnings_of(caplog))
        assert any("it is this cluster" in text for text in warnings_of(caplog))
        await west.delete(topic)
        await alike.rest(700)
        assert await west.get(PATH) is None

    run_two_alike(story)


def test_partitions_are_made_before_their_number_is_known_and_are_never_fewer() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, TOPIC, partitions=2)
        assert west.made == []
        await alike.told(east, TOPIC, partitions=4)
        assert west.made == [("persistent://t/n/x", 4)]
        await west.metadata.put(PARTITION, b"", expected_version=None)
        await east.delete(TOPIC)
        await alike.rest()
        assert await west.get(TOPIC) == {"partitions": 4}
        await east.set(TOPIC, partitions=3)
        assert await alike.settled(TOPIC) == [{"partitions": 4}] * 2
        await west.delete(PARTITION)
        await east.set(TOPIC, partitions=3)
        assert await alike.settled(TOPIC) == [{"partitions": 3}] * 2

    run_two_alike(story)


def test_partitions_that_can_not_be_made_hold_up_nothing_for_ever() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, TOPIC, partitions=2)
        west.refusal = UnavailableError("nobody serves it")
        await east.set(TOPIC, partitions=4)
        await east.set(GROUP, rate=1)
        await alike.rest(1)
        assert await west.get(TOPIC) == {"partitions": 2}
        await alike.rest(100)
        assert (await west.get(TOPIC), await west.get(GROUP)) == ({"partitions": 4}, {"rate": 1})
        assert 1 < len(west.made) < 10

    run_two_alike(story)


def test_mark_of_a_deletion_goes_nowhere() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, TOPIC, partitions=2, deleted=False)
        await east.set(TOPIC, partitions=2, deleted=True)
        west.topic.add({**APACHE, "path": PATH, "value": b'{"deleted":true}', "lastUpdatedTimestamp": now_ms(west)})
        await alike.rest()
        assert await west.get(TOPIC) == {"partitions": 2, "deleted": False}
        assert [fields["value"] for fields, _ in east.topic.log if b'"deleted": true' in fields["value"]] == []
        assert await west.get(PATH) is None
        await east.delete(TOPIC)
        await alike.rest()
        assert await west.get(TOPIC) is None

    run_two_alike(story)


def test_bundles_of_a_namespace_are_each_cluster_s_own() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, PATH, ttl=1, bundles={"numBundles": 4})
        events = len(west.topic.log)
        await alike.told(west, PATH, ttl=1, bundles={"numBundles": 5})
        assert len(west.topic.log) == events
        await alike.told(east, PATH, ttl=2, bundles={"numBundles": 8})
        assert await west.get(PATH) == {"ttl": 2, "bundles": {"numBundles": 5}}

    run_two_alike(story)


def test_cluster_is_not_taken_out_of_a_namespace_by_who_does_not_know_it(caplog: pytest.LogCaptureFixture) -> None:
    async def before(alike: Alike) -> None:
        for name, place in alike.places.items():
            await place.set(PATH, replication_clusters=[name])

    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, PATH, replication_clusters=["east"], ttl=1)
        assert await west.get(PATH) == {"replication_clusters": ["west"]}
        assert any("would take this cluster out" in text for text in warnings_of(caplog))
        # Nor the other one by what is said here since.
        await alike.told(west, PATH, replication_clusters=["west"], ttl=2)
        assert await east.get(PATH) == {"replication_clusters": ["east"], "ttl": 1}
        await east.set(PATH, replication_clusters=["east", "west"], ttl=1)
        assert await alike.settled(PATH) == [{"replication_clusters": ["east", "west"], "ttl": 1}] * 2
        await west.set(PATH, replication_clusters=["west"], ttl=1)
        assert await alike.settled(PATH) == [{"replication_clusters": ["west"], "ttl": 1}] * 2

    run_two_alike(story, before=before)


def test_what_was_alike_before_is_what_both_saw() -> None:
    both = ["east", "west"]

    async def before(alike: Alike) -> None:
        for place in alike.places.values():
            await place.set(PATH, replication_clusters=both)

    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, PATH, replication_clusters=both, ttl=1)
        await alike.told(west, PATH, replication_clusters=both, ttl=2)
        await east.set(PATH, replication_clusters=["east"], ttl=2)
        assert await alike.settled(PATH) == [{"replication_clusters": ["east"], "ttl": 2}] * 2
        assert [place.count(what) for place in (east, west) for what in ("undone", "held")] == [0] * 4

    run_two_alike(story, before=before)


def test_cluster_is_taken_out_by_the_first_change_after_what_was_alike() -> None:
    async def before(alike: Alike) -> None:
        for place in alike.places.values():
            await place.set(PATH, replication_clusters=["east", "west"])
            await alike.rest(0.01)

    async def story(alike: Alike) -> None:
        for name, other in (("east", "west"), ("west", "east")):
            await alike[name].set(PATH, replication_clusters=[name])
            await alike.rest()
            assert await alike[other].get(PATH) == {"replication_clusters": [name]}
            await alike[name].set(PATH, replication_clusters=["east", "west"])
            await alike.rest()

    run_alike(story, before=before)


def test_events_of_apache_are_followed() -> None:
    async def story(alike: Alike) -> None:
        west = alike["west"]
        west.topic.add({**APACHE, "lastUpdatedTimestamp": now_ms(west), "expectedVersion": 7})
        await alike.rest()
        assert await west.get(GROUP) == {"of": "apache"}
        west.topic.add({**APACHE, "lastUpdatedTimestamp": now_ms(west), "type": "Deleted", "value": None})
        await alike.rest()
        assert await west.get(GROUP) is None
        assert await alike["east"].get(GROUP) is None
        assert len(west.topic.log) == 2

    run_alike(story)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"path": "/admin/configuration"}, "none of what clusters may share"),
        ({"path": "/admin/policies/../configuration"}, "its path is none"),
        ({"path": "/ledgers/idgen-long"}, "none of what clusters may share"),
        ({"value": b"[]"}, "JSON"),
        ({"value": b'{"a":"' + b"x" * 1_000_000 + b'"}'}, "bytes"),
        ({"options": ["Ephemeral"]}, "session"),
        ({"sourceCluster": None}, "cluster"),
        ({"lastUpdatedTimestamp": 1 << 61}, "later than now"),
        ({"problem": "it can not be read"}, "can not be read"),
    ],
)
def test_what_no_administrator_said_is_passed_over_and_told(
    change: dict[str, object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(alike: Alike) -> None:
        west = alike["west"]
        event = {**APACHE, "lastUpdatedTimestamp": now_ms(west)}
        for _ in range(3):
            west.topic.add({**event, **change})
        west.topic.add({**event, "path": f"{GROUP}2"})
        await alike.rest()
        assert await west.get(f"{GROUP}2") == {"of": "apache"}
        assert await west.get(GROUP) is None
        assert west.topic.acknowledged == 4
        assert west.count("skipped") == 3
        told = [text for text in warnings_of(caplog) if "passed over" in text]
        assert len(told) == 1
        assert why in told[0]

    run_alike(story)


def test_clock_ahead_within_its_limit_makes_no_later_change_lose() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        ahead = SyncEvent(GROUP, b'{"rate":1}', Stamp(now_ms(west) + AHEAD_MS_MAX, "north"), tells_replaced=True)
        for place in (east, west):
            place.topic.add(fields_of(ahead))
        await alike.rest()
        await west.set(GROUP, rate=2)
        assert await alike.settled(GROUP) == [{"rate": 2}] * 2

    run_two_alike(story)


def test_change_that_is_too_large_for_an_event_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story(alike: Alike) -> None:
        await alike["east"].set(GROUP, a="x" * 1_000_000)
        await alike["east"].set(PATH, a=1)
        await alike.rest()
        assert await alike["west"].get(PATH) == {"a": 1}
        assert alike["east"].count("unsendable") > 0
        assert any("is not told to other clusters" in text for text in warnings_of(caplog))

    run_alike(story)


def test_topic_that_goes_nowhere_is_told_when_the_lead_begins(caplog: pytest.LogCaptureFixture) -> None:
    async def before(alike: Alike) -> None:
        await alike["east"].set(f"/admin/policies/{NAME.namespace}", replication_clusters=["east"])
        clusters = ["east", "west"]
        await alike["west"].set(
            f"/admin/policies/{NAME.namespace}", replication_clusters=clusters, message_ttl_in_seconds=60
        )

    async def story(alike: Alike) -> None:
        told = [text for text in warnings_of(caplog) if "may not come to be alike" in text]
        assert len(told) == 3
        for why in ("lives in no other cluster", "time to live", "there is no namespace"):
            assert sum(why in text for text in told) == 1

    run_alike(story, "east", "west", "north", before=before)


def test_path_that_can_not_be_told_keeps_no_other_waiting() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        east.topic.bytes_max = 100
        await alike.told(east, "/admin/clusters/a", a="x" * 100)
        await alike.told(east, GROUP, rate=1)
        assert await west.get(GROUP) == {"rate": 1}
        assert east.count("unsendable") > 0
        await east.restart()
        await east.delete(GROUP)
        await alike.rest()
        assert await west.get(GROUP) is None

    run_two_alike(story)


def test_event_that_was_received_and_not_done_comes_to_the_next_leader() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        west.metadata.faults.unknown_before_percent = 100
        await east.set(GROUP, rate=1)
        await alike.rest(1)
        assert (west.topic.received, west.topic.acknowledged) == (1, 0)
        west.leads = False
        await alike.rest(2)
        assert west.topic.received == 0
        west.metadata.faults = MetadataFaults()
        west.leads = True
        await alike.rest()
        assert await west.get(GROUP) == {"rate": 1}

    run_two_alike(story)
