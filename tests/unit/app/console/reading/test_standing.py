"""Rights, cluster, replication and compaction, asked of a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from geminga.admin import AdminClient
from geminga.admin.errors import ForbiddenError
from geminga.app.console.core.rights import RightsRow
from geminga.app.console.reading import standing
from geminga.app.console.reading.standing import cluster_of, compaction_of, replication_of, rights_of
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.handles_world import sim_admin
from support.worlds.policy_levels import seconds
from support.worlds.rest_world import rest_application
from support.worlds.rights_world import Story, tell

NAMESPACE = "public/default"


def run(story: Callable[[AdminClient, BrokerWorld], Awaitable[None]], **settings: Any) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.publisher()
        await story(sim_admin(rest_application(world.broker)), world)

    run_with_broker(scenario, bookies=1, **settings)


def test_rights_say_where_they_come_from() -> None:
    async def story(admin: AdminClient, world: BrokerWorld) -> None:
        await admin.permissions.grant(NAMESPACE, "app", ["produce"])
        await admin.topics.grant_permission(TOPIC, "app", ["consume"])
        await admin.permissions.grant_of_subscription(NAMESPACE, "billing", ["app"])
        found = await rights_of(admin, NAMESPACE, TOPIC)
        assert found.rows == [RightsRow("app", ("namespace", "topic", "", "", "", ""), "")]
        assert found.subscriptions == [("billing", ["app"])]
        [row] = (await rights_of(admin, NAMESPACE)).rows
        assert row.actions == ("produce",)

    run(story)


def test_cluster_tells_its_brokers_and_bookies() -> None:
    async def story(admin: AdminClient, world: BrokerWorld) -> None:
        found = await cluster_of(admin)
        assert found.health == "ok"
        assert [(each.is_leader, each.bundles) for each in found.brokers] == [(True, 1)]
        assert found.load is not None
        assert (found.load.topics, found.load.producers) == (1, 1)
        assert found.unseen == []

    run(story)


def test_topic_that_is_not_copied_has_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(admin: AdminClient, world: BrokerWorld) -> None:
        assert await replication_of(admin, TOPIC) == [(TOPIC, [])]
        await admin.topics.create_partitioned("parts", 2)
        assert [name.rpartition("-")[2] for name, _ in await replication_of(admin, "parts")] == ["0", "1"]
        monkeypatch.setattr(standing, "PARTITIONS_TOLD_MAX", 1)
        assert len(await replication_of(admin, "parts")) == 1

    run(story)


def test_compaction_tells_its_last_run() -> None:
    async def story(admin: AdminClient, world: BrokerWorld) -> None:
        assert (await compaction_of(admin, TOPIC)).state == "never"
        client = await world.publisher(producer_id=2)
        for number in range(3):
            await client.publish(number, producer_id=2)
        await admin.compaction.start(TOPIC)
        await seconds(5)
        found = await compaction_of(admin, TOPIC)
        assert (found.state, found.entries_behind) == ("done", 0)

    run(story)


def test_who_may_not_see_all_is_told_what() -> None:
    async def story(rights: Story) -> None:
        await rights.do("POST", "/admin/v2/tenants/public", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]})
        boss, app = (sim_admin(rights.application, role) for role in ("boss", "app"))
        found = await rights_of(boss, NAMESPACE)
        assert [(row.role, row.standing) for row in found.rows] == [("boss", "administrator of the tenant")]
        assert "You may not see superusers." in found.unseen
        settings = rest_application(rights.world.broker, configuration=lambda: {"superUserRoles": "root, root2"})
        root = await rights_of(sim_admin(settings, "root"), NAMESPACE)
        assert ("root", "superuser") in [(row.role, row.standing) for row in root.rows]
        with pytest.raises(ForbiddenError):
            await rights_of(app, NAMESPACE)
        assert "You may not see the bookies." in (await cluster_of(app)).unseen

    tell(story)
