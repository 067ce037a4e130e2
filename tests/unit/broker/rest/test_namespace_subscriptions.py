"""Subscriptions of a whole namespace or bundle: what a broker that is alone does, and to which topics."""

from __future__ import annotations

import json

import pytest
from starlette.types import ASGIApp

from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import BrokerWorld, Client
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import ask, rest_application

NAMESPACE = "/admin/v2/namespaces/public/default"
#: As many as two bundles of four have between them for certain.
NAMES = [f"persistent://public/default/{number}" for number in range(12)]


async def published(world: BrokerWorld, subscriptions: tuple[str, ...] = ("s", "t")) -> Client:
    """Three messages in each topic that nobody of ``subscriptions`` took; all topics are loaded."""
    client = await world.client()
    for number, name in enumerate(NAMES):
        topic = await world.broker.registry.get(TopicName.parse(name), create=True)
        for subscription in subscriptions:
            await topic.ensure_subscription(subscription, EARLIEST)
        await client.create_producer(name, number)
        for sequence_id in range(3):
            await client.publish(sequence_id, producer_id=number)
        await client.close_producer(number)
    return client


async def backlogs(world: BrokerWorld, subscription: str) -> dict[str, int]:
    found = {}
    for name in NAMES:
        topic = await world.broker.registry.get(TopicName.parse(name), create=False)
        assert isinstance(topic, PersistentTopic)
        if subscription in topic.subscriptions:
            found[name] = topic.subscriptions[subscription].cursor.backlog_count
    return found


async def bundle_of(application: ASGIApp, name: str) -> tuple[str, set[str]]:
    """The bundle of a topic, and all of ``NAMES`` in it."""
    local = name.rpartition("/")[2]
    answer = await ask(application, "GET", f"/lookup/v2/topic/persistent/public/default/{local}/bundle", b"")
    bundle = answer.body.decode()
    listed = await ask(application, "GET", f"/admin/v2/persistent/public/default?bundle={bundle}", b"")
    return bundle, set(json.loads(listed.body)) & set(NAMES)


@pytest.mark.parametrize("is_unloaded", [False, True])
def test_backlog_of_a_namespace_is_cleared_of_topics_that_are_loaded_and_of_those_that_are_not(
    is_unloaded: bool,
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        await published(world)
        if is_unloaded:
            assert (await ask(application, "PUT", f"{NAMESPACE}/unload", b"")).status == 204
        assert (await ask(application, "POST", f"{NAMESPACE}/clearBacklog/s", b"")).status == 204
        assert await backlogs(world, "s") == dict.fromkeys(NAMES, 0)
        assert await backlogs(world, "t") == dict.fromkeys(NAMES, 3)
        if is_unloaded:
            assert (await ask(application, "PUT", f"{NAMESPACE}/unload", b"")).status == 204
        assert (await ask(application, "POST", f"{NAMESPACE}/clearBacklog", b"")).status == 204
        assert await backlogs(world, "t") == dict.fromkeys(NAMES, 0)

    run_quietly(scenario)


def test_topics_without_the_subscription_are_not_loaded_and_so_not_taken_for_unused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        await published(world, ())
        topic = await world.broker.registry.get(TopicName.parse(NAMES[0]), create=False)
        await topic.ensure_subscription("s", EARLIEST)
        assert (await ask(application, "PUT", f"{NAMESPACE}/unload", b"")).status == 204
        for path in ("clearBacklog", "clearBacklog/s", "clearBacklog/other", "unsubscribe/other"):
            assert (await ask(application, "POST", f"{NAMESPACE}/{path}", b"")).status == 204
            assert set(world.broker.topics) <= {NAMES[0]}

    run_quietly(scenario)


def test_a_bundle_is_cleared_and_nothing_of_the_others() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        await published(world)
        bundle, inside = await bundle_of(application, NAMES[0])
        assert 0 < len(inside) < len(NAMES)
        assert (await ask(application, "POST", f"{NAMESPACE}/{bundle}/clearBacklog/s", b"")).status == 204
        expected = {name: 0 if name in inside else 3 for name in NAMES}
        assert await backlogs(world, "s") == expected
        assert (await ask(application, "POST", f"{NAMESPACE}/{bundle}/clearBacklog", b"")).status == 204
        assert await backlogs(world, "t") == expected
        assert (await ask(application, "POST", f"{NAMESPACE}/{bundle}/unsubscribe/t", b"")).status == 204
        assert set(await backlogs(world, "t")) == set(NAMES) - inside

    run_quietly(scenario)


def test_unsubscribing_spares_whom_consumers_use_tells_it_and_does_the_others() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        client = await published(world)
        await client.subscribe(NAMES[3], subscription="s")
        answer = await ask(application, "POST", f"{NAMESPACE}/unsubscribe/s", b"")
        assert (answer.status, answer.reason) == (412, "Subscription has active connected consumers")
        assert set(await backlogs(world, "s")) == {NAMES[3]}
        assert await backlogs(world, "t") == dict.fromkeys(NAMES, 3)
        client.lose()
        assert (await ask(application, "POST", f"{NAMESPACE}/unsubscribe/s", b"")).status == 204
        assert await backlogs(world, "s") == {}

    run_quietly(scenario)


def test_what_comes_after_is_kept() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        client = await published(world)
        assert (await ask(application, "POST", f"{NAMESPACE}/clearBacklog", b"")).status == 204
        await client.create_producer(NAMES[5], 5)
        await client.publish(3, producer_id=5)
        assert (await backlogs(world, "s"))[NAMES[5]] == 1

    run_quietly(scenario)


def test_a_bundle_with_topics_is_given_up_by_force_only_and_they_stay() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        await published(world)
        bundle, inside = await bundle_of(application, NAMES[0])
        answer = await ask(application, "DELETE", f"{NAMESPACE}/{bundle}", b"")
        assert (answer.status, answer.reason) == (409, "Cannot delete non empty bundle")
        assert set(world.broker.topics) == set(NAMES)
        assert (await ask(application, "DELETE", f"{NAMESPACE}/{bundle}?force=true", b"")).status == 204
        assert set(world.broker.topics) == set(NAMES) - inside
        assert await backlogs(world, "s") == dict.fromkeys(NAMES, 3)

    run_quietly(scenario)


@pytest.mark.parametrize(
    ("method", "path", "status", "told"),
    [
        ("POST", "public/none/clearBacklog", 404, "Namespace"),
        ("POST", "public/none/clearBacklog/s", 404, "Namespace"),
        ("POST", "public/none/unsubscribe/s", 404, "Namespace"),
        ("POST", "public/default/x/clearBacklog", 412, "a bundle is two boundaries"),
        ("POST", "public/default/0x00000000_0x00000001/clearBacklog", 412, "has no bundle"),
        ("POST", "public/default/0x00000000_0x00000001/unsubscribe/s", 412, "has no bundle"),
        ("POST", "public/default/clearBacklog/%00", 412, "control characters"),
        ("DELETE", "public/default/everything", 412, "a bundle is two boundaries"),
        ("DELETE", "public/default/0x00000000_0x00000001", 412, "has no bundle"),
    ],
)
def test_what_is_not_there_is_told(method: str, path: str, status: int, told: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await published(world)
        answer = await ask(rest_application(world.broker), method, f"/admin/v2/namespaces/{path}", b"")
        assert answer.status == status
        assert told in answer.reason
        assert await backlogs(world, "s") == dict.fromkeys(NAMES, 3)

    run_quietly(scenario)
