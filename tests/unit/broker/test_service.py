"""The broker's life and what it tells the composition root."""

from __future__ import annotations

import pytest

from geminga.broker.composition.service import Broker
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker


def test_broker_is_ready_between_start_and_close() -> None:
    async def scenario(world: BrokerWorld) -> None:
        fresh = Broker(world.runtime, world.metadata, world.ledgers, BrokerConfig(), world.resources)
        assert not fresh.is_ready
        with pytest.raises(UnavailableError):
            _ = fresh.broker_url
        assert world.broker.is_ready
        assert world.broker.broker_url == "pulsar://broker:6650"
        assert world.broker.web_url == "http://broker:8080"

    run_with_broker(scenario)


def test_close_sends_everybody_away_and_is_done_once() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.subscribe()
        await world.broker.close()
        await world.broker.close()
        kinds = {command.type for command, _ in client.received}
        assert {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER} <= kinds
        assert client.is_closed
        assert not world.broker.is_ready
        assert not world.broker.topics
        with pytest.raises(UnavailableError):
            await world.broker.registry.get(TopicName.parse(TOPIC), create=True)

    run_with_broker(scenario)


def test_messages_survive_a_restart() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.subscriber()
        await client.create_producer()
        for sequence_id in range(10):
            await client.publish(sequence_id, b"message-%d" % sequence_id)
        await world.restart()
        client = await world.subscriber()
        for sequence_id in range(10):
            _, payload = await client.expect_with_payload(Type.MESSAGE)
            assert payload.endswith(b"message-%d" % sequence_id)

    run_with_broker(scenario)
