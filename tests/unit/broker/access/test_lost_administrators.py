"""Who administers a tenant no more is sent away as who lost a permission is, by whichever broker that was changed."""

from __future__ import annotations

import json

import pytest

from geminga.runtime import delay, next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import Client, Type
from support.worlds.rest_world import ask
from support.worlds.rights_world import PATHS, TOPIC, Story, tell, was_sent

TENANT = {"adminRoles": ["owner"], "allowedClusters": ["standalone"]}


def test_administrator_who_is_none_any_more_is_sent_away() -> None:
    async def scenario(story: Story) -> None:
        await story.do("POST", "/admin/v2/tenants/public", TENANT)
        cook = await story.producer("owner")
        await story.do("POST", "/admin/v2/tenants/public", {**TENANT, "adminRoles": []})
        # Before the answer, as by a permission: who was one can not use the moment to become one again.
        assert not cook.connection.members.producers
        back = await ask(
            story.application, "POST", "/admin/v2/tenants/public", json.dumps(TENANT).encode(), role="owner"
        )
        assert back.status == 401
        await cook.expect(Type.CLOSE_PRODUCER)
        await story.do("POST", "/admin/v2/tenants/public", TENANT)
        back = await ask(
            story.application, "POST", "/admin/v2/tenants/public", json.dumps(TENANT).encode(), role="owner"
        )
        assert back.status == 204

    tell(scenario)


def test_administrator_whom_another_broker_made_none_is_sent_away() -> None:
    """As with a permission, it is heard of by the metadata store's watch."""

    async def scenario(story: Story) -> None:
        await story.do("POST", "/admin/v2/tenants/public", TENANT)
        cook, other = await story.producer("owner"), await story.producer("root")
        clock = story.world.runtime.clock
        started = clock.monotonic()
        await story.world.resources.tenants.update("public", {**TENANT, "adminRoles": []})
        await cook.expect(Type.CLOSE_PRODUCER)
        assert clock.monotonic() - started <= 3
        assert not was_sent(other, Type.CLOSE_PRODUCER)

    tell(scenario)


async def watching(story: Story, role: str) -> Client:
    """A client that is told of the topics that come and go, none of which is served here."""
    client = await story.world.client(role)
    request = pb.CommandWatchTopicList(
        namespace="public/default", request_id=1, watcher_id=7, topics_pattern="persistent://public/default/t.*"
    )
    client.send(pb.BaseCommand(type=Type.WATCH_TOPIC_LIST, watchTopicList=request))
    await client.expect(Type.WATCH_TOPIC_LIST_SUCCESS)
    assert not story.world.broker.topics
    return client


@pytest.mark.parametrize("role", ["owner", "super"])
def test_watch_of_topics_ends_for_who_administers_no_more_where_no_topic_is_served_here(role: str) -> None:
    """A watch needs no topic of its namespace here: other brokers serve them."""

    async def scenario(story: Story) -> None:
        await story.do("POST", "/admin/v2/tenants/public", TENANT)
        client = await watching(story, role)
        await take_administration(story)
        assert not client.connection.members.watchers
        await story.do("PUT", PATHS[TOPIC])
        await delay(1000)
        assert not was_sent(client, Type.WATCH_TOPIC_UPDATE)

    tell(scenario, super_user_roles=("root", "super"))


@pytest.mark.parametrize("role", ["owner", "super"])
def test_producer_of_a_topic_that_is_still_loaded_is_sent_away_when_its_administrator_is_none_any_more(
    role: str,
) -> None:
    async def scenario(story: Story) -> None:
        await story.do("POST", "/admin/v2/tenants/public", TENANT)
        client = await story.world.client(role)
        client.request_producer()
        while not client.connection.members.requests:
            await next_turn()
        assert not story.world.broker.topics
        await take_administration(story)
        await client.expect(Type.CLOSE_PRODUCER)
        assert not client.connection.members.producers

    tell(scenario, super_user_roles=("root", "super"))


def test_watch_of_topics_stays_with_who_administers_another_tenant_too() -> None:
    async def scenario(story: Story) -> None:
        await story.do("POST", "/admin/v2/tenants/public", TENANT)
        await story.do("PUT", "/admin/v2/tenants/publican", TENANT)
        client = await watching(story, "owner")
        await story.do("POST", "/admin/v2/tenants/publican", {**TENANT, "adminRoles": []})
        await delay(1000)
        assert list(client.connection.members.watchers) == [7]

    tell(scenario)


async def take_administration(story: Story) -> None:
    """From the tenant's administrator, and from the super-user that is one by a setting."""
    await story.do("POST", "/admin/v2/tenants/public", {**TENANT, "adminRoles": []})
    object.__setattr__(story.world.broker.config, "super_user_roles", ("root",))
    await story.world.broker.settings_changed()
    await delay(100)
