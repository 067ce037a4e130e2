"""Each subscription says how it stands with a message, asked of a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.admin import AdminClient
from geminga.admin.errors import NotFoundError
from geminga.app.console.core.delivery import DeliveryState
from geminga.app.console.core.positions import start_of
from geminga.app.console.reading.browsing import Browsing, browse
from geminga.app.console.reading.deliveries import Deliveries, deliveries_of, standings_of
from geminga.app.handles.core.causes import Cause
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch
from support.clusters.transacting import Id, Transacting, producing
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.handles_world import sim_admin
from support.worlds.policy_levels import seconds
from support.worlds.rest_world import rest_application

HOUR_MS = 3_600_000


class Desk:
    """A topic with subscriptions and who looks at them."""

    def __init__(self, world: BrokerWorld, client: Transacting) -> None:
        self.world = world
        self.admin: AdminClient = sim_admin(rest_application(world.broker))
        self.client = client

    async def subscribe(self, name: str, number: int, *, permits: int = 1000) -> None:
        await self.client.client.subscribe(
            TOPIC, number, permits, subscription=name, subType=pb.CommandSubscribe.Shared, consumer_name=f"c{number}"
        )

    async def told(self, newest: int = 0, subscription: str = "") -> Deliveries:
        """About the message that is so many before the newest one."""
        await seconds(1)
        page = await browse(self.admin, Browsing(TOPIC))
        message = page.messages[newest].message
        now_ms = self.world.runtime.clock.wall_ms()
        start = start_of(message.id)
        return await deliveries_of(self.admin, TOPIC, message, start, subscription=subscription, now_ms=now_ms)

    async def standings(self, newest: int = 0) -> dict[str, DeliveryState]:
        return {each.subscription: each.delivery.standing for each in (await self.told(newest)).standings}


def run(story: Callable[[Desk], Awaitable[None]], **settings: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        await story(Desk(world, client))

    run_with_broker(scenario, bookies=1, **settings)


def test_each_subscription_says_how_far_it_is() -> None:
    async def story(desk: Desk) -> None:
        await desk.admin.subscriptions.create(TOPIC, "alone", "latest")
        await desk.subscribe("busy", 1)
        await desk.client.send(b"one")
        await desk.client.send(encode_batch([b"two", b"three"], 0), metadata={"num_messages_in_batch": 2})
        await seconds(1)
        first, batch = [each for each, _ in desk.client.messages()]
        await desk.client.acknowledge([first])
        assert await desk.standings(newest=2) == {"alone": DeliveryState.WAITING, "busy": DeliveryState.ACKNOWLEDGED}
        assert await desk.standings() == {"alone": DeliveryState.WAITING, "busy": DeliveryState.PENDING}
        half = Id(ledgerId=batch.ledgerId, entryId=batch.entryId, ack_set=[0b10], batch_size=2)
        await desk.client.acknowledge([half])
        told = await desk.told()
        [alone, busy] = told.standings
        assert busy.delivery.sentence.endswith("without acknowledgment: c1 (1).")
        assert [each.cause for each in alone.findings] == [Cause.NO_CONSUMER]
        only = await desk.told(subscription="alone")
        assert [each.subscription for each in only.standings] == ["alone"]
        with pytest.raises(NotFoundError, match="no subscription gone"):
            await desk.told(subscription="gone")

    run(story)


def test_page_of_messages_says_how_one_subscription_stands_with_each() -> None:
    async def story(desk: Desk) -> None:
        await desk.subscribe("busy", 1, permits=3)
        for number in range(4):
            await desk.client.send(b"%d" % number)
        await seconds(1)
        ids = [each for each, _ in desk.client.messages()]
        await desk.client.acknowledge([ids[1]])
        messages = [each.message for each in (await browse(desk.admin, Browsing(TOPIC, newest_first=False))).messages]
        found = await standings_of(desk.admin, TOPIC, "busy", messages, now_ms=0)
        assert [found[each.id].standing for each in messages] == [
            DeliveryState.PENDING,
            DeliveryState.ACKNOWLEDGED,
            DeliveryState.PENDING,
            DeliveryState.WAITING,
        ]
        assert await standings_of(desk.admin, TOPIC, "gone", [], now_ms=0) == {}
        with pytest.raises(NotFoundError, match="no subscription gone"):
            await standings_of(desk.admin, TOPIC, "gone", messages, now_ms=0)

    run(story)


def test_what_was_not_looked_at_is_told_by_the_cursor() -> None:
    async def story(desk: Desk) -> None:
        await desk.subscribe("busy", 1)
        for number in range(4):
            batch = encode_batch([b"%d" % number, b"x"], 0)
            await desk.client.send(batch, metadata={"num_messages_in_batch": 2})
        await seconds(1)
        first = desk.client.messages()[0][0]
        half = Id(ledgerId=first.ledgerId, entryId=first.entryId, ack_set=[0b10], batch_size=2)
        await desk.client.acknowledge([half])
        messages = [each.message for each in (await browse(desk.admin, Browsing(TOPIC, newest_first=False))).messages]
        found = await standings_of(desk.admin, TOPIC, "busy", messages, now_ms=0)
        assert [
            number for number, each in enumerate(messages) if found[each.id].standing is DeliveryState.ACKNOWLEDGED
        ] == [0]

    run(story, backlog_scan_entries_max=1)


def test_delayed_message_is_told_to_be_one() -> None:
    async def story(desk: Desk) -> None:
        await desk.subscribe("late", 1)
        at_ms = desk.world.runtime.clock.wall_ms() + HOUR_MS
        await desk.client.send(b"one", metadata={"deliver_at_time": at_ms})
        assert await desk.standings() == {"late": DeliveryState.DELAYED}

    run(story)
