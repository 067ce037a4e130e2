"""Deleting a namespace while clients come."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.rest.deletion import delete_empty_namespace, delete_namespace_and_topics
from geminga.broker.topic import PersistentTopic
from geminga.managed_ledger import AppendResult
from geminga.model.errors import ConflictError, GemingaError
from geminga.model.topic_name import TopicName
from support.broker_world import BrokerWorld
from support.policy_levels import run_quietly, seconds

NAMESPACE = "public/going"
NAME = TopicName.parse(f"persistent://{NAMESPACE}/topic")
#: How long after the deletion began a client comes; the store takes up to a tenth of a second for each answer.
LEADS_MS = (0, 5, 20, 50, 90, 150, 250, 400, 700)


async def store(world: BrokerWorld) -> bool:
    """A topic that comes into being with one message; whether that was answered for."""
    try:
        topic = await world.broker.get_topic(NAME, create=True)
    except GemingaError:
        return False
    assert isinstance(topic, PersistentTopic)
    stored: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    topic.ledger.append([b"message"], stored.set_result)
    return (await stored).error is None


def test_namespace_with_topics_is_refused_and_goes_on() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE)
        assert await store(world)
        with pytest.raises(ConflictError, match="not empty"):
            await delete_empty_namespace(world.broker, NAMESPACE)
        assert not (await world.resources.namespaces.get(NAMESPACE)).is_deleted
        assert await store(world)

    run_quietly(scenario)


def test_topic_that_comes_while_an_empty_namespace_goes_is_refused_or_kept() -> None:
    """It was looked at, found empty, and deleted with whatever had come since."""

    def outcome(lead_ms: int) -> str:
        async def scenario(world: BrokerWorld) -> str:
            await world.resources.namespaces.create(NAMESPACE)
            world.metadata.faults.delay_ms_max = 100
            deletion = asyncio.ensure_future(delete_empty_namespace(world.broker, NAMESPACE))
            await seconds(lead_ms / 1000)
            answered = await store(world)
            try:
                await deletion
            except ConflictError:
                assert await world.broker.topic_exists(NAME)
                assert not (await world.resources.namespaces.get(NAMESPACE)).is_deleted
                return "kept"
            if answered:
                assert await world.broker.topic_exists(NAME), f"{lead_ms} ms: answered for and gone"
            return "deleted"

        return run_quietly_for(scenario)

    assert {outcome(lead_ms) for lead_ms in LEADS_MS} == {"kept", "deleted"}


def run_quietly_for(scenario) -> str:
    outcomes: list[str] = []

    async def keep(world: BrokerWorld) -> None:
        outcomes.append(await scenario(world))

    run_quietly(keep)
    return outcomes[0]


def test_policies_changed_while_a_namespace_goes_are_not_deleted_unseen() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE)
        await store(world)
        world.metadata.faults.delay_ms_max = 50
        deletion = asyncio.ensure_future(delete_namespace_and_topics(world.broker, NAMESPACE))
        while not (await world.resources.namespaces.get(NAMESPACE)).is_deleted:
            await seconds(0.001)
        await world.resources.namespaces.set_policy(NAMESPACE, "deduplicationEnabled", True)
        with pytest.raises(ConflictError):
            await deletion
        await delete_namespace_and_topics(world.broker, NAMESPACE)
        assert await world.resources.namespaces.find(NAMESPACE) is None

    run_quietly(scenario)
