"""What one cluster has to itself of what is kept alike, and what was deleted in it."""

from __future__ import annotations

import logging

import pytest

from geminga.broker.synchronization.core.events import SyncEvent, fields_of
from geminga.broker.synchronization.core.stamps import Stamp
from geminga.broker.synchronization.paths import COORDINATORS_PATH
from support.worlds.event_topics import Alike, Place, run_alike, run_two_alike

PATH = "/admin/policies/t/n"
GROUP = "/admin/resourcegroups/g"
#: As a broker of Apache's, or an older one, tells it.
TOLD = {
    "options": [],
    "expectedVersion": None,
    "sourceCluster": "north",
    "type": "Modified",
    "version": 0,
}


def test_number_of_transaction_coordinators_is_each_cluster_s_own() -> None:
    """A start makes them, or more: others got as many, for good, and those without transactions got some."""

    async def story(alike: Alike) -> None:
        east, west, north = alike["east"], alike["west"], alike["north"]
        await west.set(COORDINATORS_PATH, partitions=4)
        await alike.told(east, COORDINATORS_PATH, partitions=16)
        # What another one's broker says of its own, such as an older one or Apache's.
        value = {"value": b'{"partitions":32}', "lastUpdatedTimestamp": east.node.runtime.clock.wall_ms()}
        north.topic.add({**TOLD, **value, "path": COORDINATORS_PATH})
        await north.restart()
        assert await alike.settled(COORDINATORS_PATH) == [{"partitions": 16}, None, {"partitions": 4}]
        await east.delete(COORDINATORS_PATH)
        await alike.rest()
        assert await west.get(COORDINATORS_PATH) == {"partitions": 4}
        assert all(fields["path"] != COORDINATORS_PATH for fields, _ in west.topic.log)
        assert [place.count("unsendable") for place in alike.places.values()] == [0, 0, 0]

    run_alike(story, "east", "north", "west")


def test_who_had_one_of_that_name_brings_back_nothing_that_was_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """A cluster that comes later begins with a `public/default` of its own."""

    async def story(alike: Alike) -> None:
        east, west, north = alike["east"], alike["west"], alike["north"]
        await alike.told(east, PATH, ttl=1)
        await west.delete(PATH)
        await alike.rest()
        for place in (east, west):
            place.topic.add(
                fields_of(
                    SyncEvent(PATH, b'{"ttl":2}', Stamp(north.node.runtime.clock.wall_ms(), "north"), is_first=True)
                ),
            )
        assert await alike.settled(PATH) == [None] * 3
        assert [place.count("held") for place in (east, west)] == [1, 1]
        told = [
            record
            for record in caplog.records
            if record.levelno >= logging.WARNING and "since before they are kept alike" in record.getMessage()
        ]
        assert len(told) == 2
        # Who wants it makes it, here or there.
        await east.set(PATH, ttl=3)
        assert await alike.settled(PATH) == [{"ttl": 3}] * 3

    run_alike(story, "east", "north", "west")


def test_deletion_has_the_time_at_which_it_was_made_though_the_topic_was_away() -> None:
    """It had that at which it could be told, and took away what was changed elsewhere in the meantime."""

    async def story(alike: Alike, east: Place, west: Place) -> None:
        await east.set(PATH, ttl=1)
        await alike.told(east, GROUP, rate=1)
        east.topic.is_away = east.topic.is_cut = west.topic.is_cut = True
        await alike.rest(120)
        await east.delete(PATH)
        await east.delete(GROUP)
        await alike.rest(600)
        # Made again, it is what the other one is to hear, with the time of that.
        await east.set(GROUP, rate=2)
        await west.set(PATH, ttl=2)
        await alike.rest(600)
        for place in (east, west):
            place.topic.is_away = place.topic.is_cut = False
            place.topic.copy()
        await alike.rest(200)
        assert await alike.everywhere(PATH) == [{"ttl": 2}] * 2
        assert await alike.everywhere(GROUP) == [{"rate": 2}] * 2

    run_two_alike(story)


def test_deletion_has_its_time_though_another_change_waits_for_an_answer() -> None:
    """The time waited with what was being told: up to 30 s, in which others change what it takes away."""

    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, PATH, ttl=1)
        east.topic.is_silent = east.topic.is_cut = west.topic.is_cut = True
        await alike.told(east, GROUP, rate=1)
        await east.delete(PATH)
        await alike.rest()
        await alike.told(west, PATH, ttl=2)
        east.topic.speak()
        for place in (east, west):
            place.topic.is_cut = False
            place.topic.copy()
        await alike.rest(200)
        assert await alike.everywhere(PATH) == [{"ttl": 2}] * 2
        assert await alike.everywhere(GROUP) == [{"rate": 1}] * 2

    run_two_alike(story)


def test_change_of_another_cluster_is_made_though_one_of_this_cluster_waits_for_an_answer() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.rest()
        east.topic.is_silent = True
        await alike.told(east, GROUP, rate=1)
        await alike.told(west, PATH, ttl=2)
        assert await east.get(PATH) == {"ttl": 2}
        east.topic.speak()
        assert await alike.settled(GROUP) == [{"rate": 1}] * 2

    run_two_alike(story)


def test_what_apache_s_broker_followed_late_undoes_nothing_that_was_said_since() -> None:
    """It tells a node that it makes as a change of its own, though another cluster told it, with the time of that."""

    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, GROUP, rate=1)
        await alike.told(east, GROUP, rate=2)
        for place in (east, west):
            place.topic.add(
                {
                    **TOLD,
                    "path": GROUP,
                    "value": b'{"rate":1}',
                    "lastUpdatedTimestamp": (told_ms := east.node.runtime.clock.wall_ms()),
                }
            )
        assert await alike.settled(GROUP) == [{"rate": 2}] * 2
        # Which it follows, as it is later than what it wrote a moment after it told it.
        fields, _ = west.topic.log[-1]
        assert (fields["value"], fields["sourceCluster"]) == (b'{"rate": 2}', "west")
        assert fields["lastUpdatedTimestamp"] >= told_ms + 2_000
        # What an administrator says there says of which version it is.
        told = {"value": b'{"rate":1}', "lastUpdatedTimestamp": told_ms + 10_000, "expectedVersion": 1}
        west.topic.add({**TOLD, **told, "path": GROUP})
        east.topic.add({**TOLD, **told, "path": GROUP})
        assert await alike.settled(GROUP) == [{"rate": 1}] * 2

    run_two_alike(story)
