"""Backlogs of all namespaces, and the topics that nobody tells of."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from geminga.admin import AdminClient
from geminga.admin.errors import UnauthorizedError
from geminga.app.handles.backlogs import backlogs
from geminga.broker.access.core.actions import Action, NamespaceOperation, Resource, TopicOperation
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import ALLOWED
from support.house.deciding import Denying
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.handles_world import SimAdmin, sim_admin
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
        ((row,), untold, refused) = await backlogs(admin)
        assert (row.place, row.entries, row.oldest_ms) == ((str(NAME), "s"), 1, publisher.times[0])
        assert (untold, refused) == ([], {})
        assert await backlogs(admin, "public/default") == ([row], [], {})
        await table.give([(await topic_of(world)).name], None)
        assert await backlogs(admin, "public/default") == ([], [str(NAME)], {})

    run_with_broker(scenario, ownership=table.brokers["here"])


async def with_a_backlog(world: BrokerWorld) -> AdminClient:
    """Of one message."""
    admin = sim_admin(rest_application(world.broker))
    publisher = await Publisher.open(world)
    await admin.subscriptions.create(str(NAME), "s", "earliest")
    await publisher.publish()
    return admin


class DenyingIn(Denying):
    """Denies some actions in one namespace."""

    def __init__(self, denied: Collection[Action], namespace: str) -> None:
        super().__init__(denied, reason="not yours")
        self._namespace = namespace

    def decide(self, principal: Principal, action: Action, resource: Resource):
        if resource.namespace == self._namespace:
            return super().decide(principal, action, resource)
        return ALLOWED


def test_who_is_refused_one_namespace_is_told_so_and_sees_the_others() -> None:
    denying = DenyingIn({NamespaceOperation.GET_TOPICS}, "public/closed")

    async def scenario(world: BrokerWorld) -> None:
        admin = await with_a_backlog(world)
        await admin.namespaces.create("public/closed")
        found = await backlogs(admin)
        assert [row.place for row in found.rows] == [(str(NAME), "s")]
        assert found.untold == []
        assert list(found.refused) == ["public/closed"]
        assert "not yours" in found.refused["public/closed"]
        with pytest.raises(UnauthorizedError):
            await backlogs(admin, "public/closed")

    run_with_broker(scenario, access=denying.access)


def test_who_is_refused_the_statistics_of_one_topic_is_told_so_and_sees_the_others() -> None:
    denying = DenyingIn({TopicOperation.GET_STATS}, "public/half")

    async def scenario(world: BrokerWorld) -> None:
        admin = await with_a_backlog(world)
        await admin.namespaces.create("public/half")
        await admin.topics.create("public/half/t")
        found = await backlogs(admin)
        assert [row.place for row in found.rows] == [(str(NAME), "s")]
        assert list(found.refused) == ["persistent://public/half/t"]

    run_with_broker(scenario, access=denying.access)
