"""Whatever topic or subscription the binary protocol makes, its owner can look at, empty and delete: none holds a
backlog, or its namespace, for ever."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote, quote_plus

import pytest

from geminga.admin import _paths
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.errors import InvalidTopicNameError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.texts import SUBSCRIPTION_BYTES_MAX, subscription_refusal
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import ask, rest_application

TOPIC: Final = "persistent://public/default/t"
BASE: Final = "/admin/v2/persistent/public/default/t/subscription"
LONG: Final = {
    "ascii": "x" * SUBSCRIPTION_BYTES_MAX,
    "latin": "é" * (SUBSCRIPTION_BYTES_MAX // 2),
    "han": "漢" * (SUBSCRIPTION_BYTES_MAX // 3),
    "percent": "%" * SUBSCRIPTION_BYTES_MAX,
}
HOSTILE: Final = {"escape": "s\x1b[2J", "line": "a\nb", "nul": "\x00", "blank": " ", "slash": "a/../b"}


async def published(world: BrokerWorld, name: str) -> PersistentTopic:
    """The topic with one message that this subscription has not had."""
    client = await world.client()
    topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=True)
    assert isinstance(topic, PersistentTopic)
    assert subscription_refusal(name, {}) == ""
    await topic.ensure_subscription(name, EARLIEST)
    await client.create_producer(TOPIC, 0)
    await client.publish(0, producer_id=0)
    return topic


@pytest.mark.parametrize("name", [*LONG.values(), *HOSTILE.values()], ids=[*LONG, *HOSTILE])
def test_a_subscription_of_any_name_is_emptied_and_deleted(name: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application, topic = rest_application(world.broker), await published(world, name)
        path = f"{BASE}/{_paths.subscription(name)}"
        listed = await ask(application, "GET", f"{BASE}s", b"")
        assert json.loads(listed.body) == [name]
        assert (await ask(application, "GET", f"{path}/position/1", b"")).status == 200
        assert (await ask(application, "POST", f"{path}/skip_all", b"")).status == 204
        assert topic.subscriptions[name].cursor.backlog_count == 0
        assert (await ask(application, "DELETE", path, b"")).status == 204
        assert topic.subscriptions == {}

    run_quietly(scenario)


@pytest.mark.parametrize("name", LONG.values(), ids=LONG)
def test_a_long_name_is_taken_of_a_namespace(name: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application, topic = rest_application(world.broker), await published(world, name)
        path = f"/admin/v2/namespaces/public/default/clearBacklog/{quote(quote_plus(name), safe='%+')}"
        assert (await ask(application, "POST", path, b"")).status == 204
        assert topic.subscriptions[name].cursor.backlog_count == 0

    run_quietly(scenario)


@pytest.mark.parametrize("name", ["", "x" * (SUBSCRIPTION_BYTES_MAX + 1), "é" * (SUBSCRIPTION_BYTES_MAX // 2 + 1)])
def test_a_name_that_no_subscription_can_have_is_refused(name: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await published(world, "s")
        answer = await ask(rest_application(world.broker), "PUT", f"{BASE}/{_paths.subscription(name)}", b"")
        assert answer.status in (404, 405, 412)
        assert (answer.status == 412) == bool(name)

    run_quietly(scenario)


@pytest.mark.parametrize("local", ["t\x1b[2J", "a\nb", "\x00", "\t", "a/../b", "+"])
def test_a_topic_of_any_name_is_deleted_and_none_is_made(local: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application, client = rest_application(world.broker), await world.client()
        await client.create_producer(f"persistent://public/default/{local}", 0)
        await client.publish(0, producer_id=0)
        await client.close_producer(0)
        path = f"/admin/v2/{_paths.topic(f'persistent://public/default/{local}')}"
        assert (await ask(application, "GET", f"{path}/stats", b"")).status == 200
        assert (await ask(application, "PUT", f"{path}/unload", b"")).status == 204
        made = await ask(application, "PUT", path, b"")
        assert made.status == (409 if local.isprintable() else 412)
        assert (await ask(application, "DELETE", path, b"")).status == 204
        listed = await ask(application, "GET", "/admin/v2/persistent/public/default", b"")
        assert json.loads(listed.body) == []

    run_quietly(scenario)


def test_a_control_character_that_is_encoded_once_is_no_name() -> None:
    """As with Apache's broker."""

    async def scenario(world: BrokerWorld) -> None:
        await published(world, "a\x00b")
        application = rest_application(world.broker)
        assert (await ask(application, "DELETE", f"{BASE}/a%00b", b"")).status == 412
        assert (await ask(application, "DELETE", f"{BASE}/a%2500b", b"")).status == 204

    run_quietly(scenario)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_blank_topic_which_no_path_can_name_is_made_by_nobody(domain: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, name = await world.client(), f"{domain}://public/default/ "
        client.request_producer(name, 0)
        error = await client.error()
        assert (error.error, "its last part must not be blank" in error.message) == (pb.InvalidTopicName, True)
        with pytest.raises(InvalidTopicNameError, match="its last part must not be blank"):
            await world.broker.registry.partitioned_count(TopicName.parse(name), create=True)
        assert await world.broker.registry.list("public/default", mode=TopicMode.ALL) == []

    run_quietly(scenario)
