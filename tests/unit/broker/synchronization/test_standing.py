"""How it stands with configuration kept alike: what differs is known, also by the next leader, until it does not."""

from __future__ import annotations

from typing import Any

import pytest

from geminga import sim
from geminga.broker.synchronization import walking
from geminga.broker.synchronization.core.records import NOTHING, PathRecord
from geminga.broker.synchronization.core.stamps import Stamp
from geminga.broker.synchronization.standing import DIFFERING_MAX, GIVEN_UP_MAX, NAMED_MAX, SyncStanding
from geminga.runtime import wait_ms
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.event_topics import NAME, Alike, Place, run_alike, run_two_alike
from support.worlds.rest_world import Answer, ask, rest_application
from unit.broker.ownership.test_membership import Cluster, Member

PATH = "/admin/policies/t/n"
GROUP = "/admin/resourcegroups/g"
STORED = "/managed-ledgers/t/n/persistent/x"


async def state(place: Place) -> Any:
    return await place.synchronizer.state()


async def differing(place: Place) -> dict[str, str]:
    found = (await state(place))["differing"]
    assert found["count"] == len(found["paths"])
    assert place.synchronizer.metrics()["geminga_configuration_sync_differing"] == found["count"]
    return found["paths"]


def test_what_differs_since_before_is_known_to_each_leader_until_somebody_says_it() -> None:
    async def before(alike: Alike) -> None:
        await alike["east"].set(PATH, clusters="east")
        await alike["west"].set(PATH, clusters="west")

    async def story(alike: Alike, east: Place, west: Place) -> None:
        for place, other in ((east, "west"), (west, "east")):
            assert [*(await differing(place))] == [PATH]
            assert f"cluster {other} had one before" in (await differing(place))[PATH]
        await west.restart()
        await alike.rest()
        assert [*(await differing(west))] == [PATH]
        await alike.told(east, PATH, clusters="both")
        assert await differing(east) == await differing(west) == {}

    run_two_alike(story, before=before)


def test_what_is_held_is_known_until_it_goes() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, PATH, a=1)
        await west.set(STORED)
        await east.delete(PATH)
        await alike.rest()
        assert "was deleted in cluster east" in (await differing(west))[PATH]
        await west.restart()
        await alike.rest()
        assert [*(await differing(west))] == [PATH]
        await west.delete(STORED)
        await alike.rest(700)
        assert await west.get(PATH) is None
        assert await differing(west) == {}

    run_two_alike(story)


def test_what_is_too_large_differs_until_it_is_not() -> None:
    async def story(alike: Alike) -> None:
        east = alike["east"]
        await alike.told(east, GROUP, a="x" * 1_000_000)
        assert "is not told to other clusters" in (await differing(east))[GROUP]
        await alike.told(east, GROUP, a="x")
        assert await differing(east) == {}
        await alike.told(east, f"{GROUP}2", a="x" * 1_000_000)
        await east.delete(f"{GROUP}2")
        await alike.rest()
        assert await differing(east) == {}

    run_alike(story)


def test_last_events_troubles_and_what_came_to_nothing_are_told() -> None:
    async def story(alike: Alike, east: Place, west: Place) -> None:
        await alike.told(east, GROUP, rate=1)
        told, followed = (await state(east))["lastTold"], (await state(west))["lastFollowed"]
        assert (told["path"], told["cluster"]) == (followed["path"], followed["cluster"]) == (GROUP, "east")
        assert told["changedMs"] == followed["changedMs"] <= told["atMs"] <= followed["atMs"]
        assert (await state(west))["topic"] == str(NAME)
        east.topic.is_away = True
        await alike.told(east, GROUP, rate=2)
        assert "nobody serves it" in (await state(east))["troubles"]["tell"]
        await alike.told(west, GROUP, rate=3)
        east.topic.is_away = False
        await alike.rest(120)
        assert (await state(east))["troubles"] == {}
        (undone,) = (await state(east))["givenUp"]
        assert "comes to nothing" in undone["what"]
        east.leads = False
        await alike.rest()
        assert (await state(east))["isLeading"] is False

    run_two_alike(story)


def test_deletion_that_another_cluster_has_from_before_is_forgotten_like_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "DELETIONS_KEPT_MS", 4_000_000)

    async def story(alike: Alike) -> None:
        east = alike["east"]
        await alike.told(east, GROUP, rate=1)
        await east.delete(GROUP)
        await alike.rest()
        record = await east.record(GROUP)
        await east.metadata.put(
            f"/geminga/configuration-sync{GROUP}",
            b'{"stamp":"%s","digest":"","differs":"west"}' % str(record.stamp).encode(),
            expected_version=None,
        )
        await alike.rest(700)
        assert [*(await differing(east))] == [GROUP]
        await alike.rest(5_000)
        assert await east.record(GROUP) is None
        assert await differing(east) == {}

    run_alike(story)


def test_what_is_remembered_and_named_has_bounds() -> None:
    async def main(world: sim.SimWorld) -> None:
        standing = SyncStanding(world.node("a").runtime.clock)
        for number in range(DIFFERING_MAX + 1):
            standing.remembered(f"/{number}", PathRecord(Stamp(1, "east"), NOTHING, held="a"))
        for number in range(GIVEN_UP_MAX + 1):
            standing.given_up(f"{number}" * 1000)
        found: Any = standing.document()
        assert (found["differing"]["count"], found["differing"]["areMore"]) == (DIFFERING_MAX, True)
        assert (len(found["differing"]["paths"]), len(found["givenUp"])) == (NAMED_MAX, GIVEN_UP_MAX)
        assert found["givenUp"][0]["what"] == "1" * 500

    sim.run(main)


def test_whoever_is_asked_sends_on_to_the_broker_that_leads() -> None:
    path = "/admin/v2/brokers/configuration/synchronization"

    async def scenario(world: BrokerWorld) -> None:
        cluster = Cluster(world.runtime)
        first = await cluster.member("a")
        await wait_ms(1)
        second = await cluster.member("b")
        await wait_ms(10)

        async def state() -> dict[str, Any]:
            return {"isLeading": True}

        async def answer(member: Member | None, **settings: Any) -> Answer:
            return await ask(rest_application(world.broker, membership=member, **settings), "GET", path)

        for member in (first, None):
            assert (await answer(member, synchronization=state)).body == b'{"isLeading":true}'
        sent_on = await answer(second, synchronization=state)
        assert (sent_on.status, sent_on.headers["location"]) == (307, f"http://a:8080{path}?authoritative=false")
        none = await answer(first)
        assert (none.status, "configurationMetadataSyncEventTopic" in none.reason) == (404, True)
        assert (await answer(Member(cluster, "c"), synchronization=state)).status == 503
        for member in (second, first):
            await member.leave()

    run_with_broker(scenario)
