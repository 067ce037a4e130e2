"""Backlogs of all namespaces, and the topics that nobody tells of."""

from __future__ import annotations

from geminga.app.handles.backlogs import backlogs
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.handles_world import SimAdmin
from support.worlds.ownership import OwnershipTable
from support.worlds.policy_levels import NAME, Publisher, topic_of
from support.worlds.rest_world import rest_application


def test_a_backlog_is_told_until_nobody_serves_its_topic() -> None:
    table = OwnershipTable(["here"])

    async def scenario(world: BrokerWorld) -> None:
        admin = SimAdmin(rest_application(world.broker))
        publisher = await Publisher.open(world)
        await admin.subscriptions.create(str(NAME), "s", "earliest")
        await publisher.publish()
        ((row,), untold) = await backlogs(admin)
        assert (row.place, row.entries, row.oldest_ms) == ((str(NAME), "s"), 1, publisher.times[0])
        assert untold == []
        assert await backlogs(admin, "public/default") == ([row], [])
        await table.give([(await topic_of(world)).name], None)
        assert await backlogs(admin, "public/default") == ([], [str(NAME)])

    run_with_broker(scenario, ownership=table.brokers["here"])
