"""Each subscription says how it stands with a message, asked of a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.admin import AdminClient
from geminga.admin.errors import NotFoundError
from geminga.app.console.core.delivery import Standing
from geminga.app.console.core.positions import start_of
from geminga.app.console.reading.browsing import Request, browse
from geminga.app.console.reading.deliveries import Deliveries, deliveries_of
from geminga.app.handles.core.causes import Cause
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch
from support.clusters.transacting import Id, Transacting
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
        page = await browse(self.admin, Request(TOPIC))
        message = page.messages[newest].message
        now_ms = self.world.runtime.clock.wall_ms()
        start = start_of(message.id)
        return await deliveries_of(self.admin, TOPIC, message, start, subscription=subscription, now_ms=now_ms)

    async def standings(self, newest: int = 0) -> dict[str, Standing]:
        return {each.subscription: each.delivery.standing for each in (await self.told(newest)).standings}


def run(story: Callable[[Desk], Awaitable[None]]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Transacting(await world.client())
        await client.client.create_producer()
        await story(Desk(world, client))

    run_with_broker(scenario, bookies=1)


def test_each_subscription_says_how_far_it_is() -> None:
    async def story(desk: Desk) -> None:
        await desk.admin.subscriptions.create(TOPIC, "alone", "latest")
        await desk.subscribe("busy", 1)
        await desk.client.send(b"one")
        await desk.client.send(encode_batch([b"two", b"three"], 0), metadata={"num_messages_in_batch": 2})
        await seconds(1)
        first, batch = [each for each, _ in desk.client.messages()]
        await desk.client.acknowledge([first])
        assert await desk.standings(newest=2) == {"alone": Standing.WAITING, "busy": Standing.ACKNOWLEDGED}
        assert await desk.standings() == {"alone": Standing.WAITING, "busy": Standing.PENDING}
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


def test_delayed_message_is_told_to_be_one() -> None:
    async def story(desk: Desk) -> None:
        await desk.subscribe("late", 1)
        at_ms = desk.world.runtime.clock.wall_ms() + HOUR_MS
        await desk.client.send(b"one", metadata={"deliver_at_time": at_ms})
        assert await desk.standings() == {"late": Standing.DELAYED}

    run(story)
