"""The transactions of a topic: a buffer that is made with the first use, or when there were some before."""

from __future__ import annotations

from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

NAME = TopicName.parse(TOPIC)


async def topic_of(world: BrokerWorld) -> PersistentTopic:
    topic = await world.broker.registry.get(NAME, create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


def test_a_buffer_is_made_with_the_first_use_and_found_by_the_next_load() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        assert topic.transactions is not None
        await topic.apply_policies()
        assert topic.transactions.buffer is None
        buffer = await topic.transactions.use()
        assert topic.transactions.buffer is buffer is await topic.use_transactions()
        await buffer.begin()
        await world.broker.registry.unload(NAME)
        again = await topic_of(world)
        assert again.transactions is not None
        assert again.transactions.buffer is not None
        assert again.transactions.buffer is not buffer

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_topics_of_the_broker_itself_and_of_brokers_without_transactions_take_none() -> None:
    async def system(world: BrokerWorld) -> None:
        name = TopicName.parse("persistent://public/default/__change_events")
        assert (await world.broker.registry.get(name, create=True)).transactions is None

    async def without(world: BrokerWorld) -> None:
        assert (await topic_of(world)).transactions is None

    run_with_broker(system, transaction_coordinator_enabled=True)
    run_with_broker(without)
