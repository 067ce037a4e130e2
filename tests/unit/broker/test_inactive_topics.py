"""Deletion of topics that nobody uses."""

from __future__ import annotations

import asyncio

from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from support.broker_world import TOPIC, BrokerWorld, run_with_broker

NAME = TopicName.parse(TOPIC)


async def seconds(count: float) -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(count, future.set_result, None)
    await future


def test_topic_nobody_uses_is_deleted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.get_topic(NAME, create=True)
        await seconds(125)
        assert not await world.broker.topic_exists(NAME)

    run_with_broker(scenario)


def test_topic_with_a_subscription_or_a_producer_stays() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.get_topic(NAME, create=True)
        await topic.create_subscription("sub", EARLIEST)
        other = TopicName.parse("other")
        await (await world.client()).create_producer(str(other))
        await world.broker.get_topic(other, create=True)
        client = await world.client()
        await client.create_producer(str(other))
        inactive = world.broker.topics[str(other)]
        assert inactive.is_in_use
        await seconds(50)
        assert await world.broker.topic_exists(NAME)

    run_with_broker(scenario, delete_inactive_topics_frequency_s=10, keep_alive_interval_s=1000)


def test_caught_up_subscriptions_do_not_keep_a_topic_in_that_mode() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.get_topic(NAME, create=True)
        await topic.create_subscription("sub", EARLIEST)
        await seconds(25)
        assert not await world.broker.topic_exists(NAME)

    run_with_broker(
        scenario,
        delete_inactive_topics_frequency_s=10,
        delete_inactive_topics_mode="delete_when_subscriptions_caught_up",
    )


def test_nothing_is_deleted_when_switched_off() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.get_topic(NAME, create=True)
        await seconds(1000)
        assert await world.broker.topic_exists(NAME)

    run_with_broker(scenario, delete_inactive_topics=False)
