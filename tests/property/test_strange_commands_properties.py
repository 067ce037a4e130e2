"""Commands that are well-formed and make no sense: each is answered or closes its connection, and the broker goes on.

An exception that no handler expects would stop the broker (its fatal handler), and here fails the simulation.
"""

from __future__ import annotations

import pytest

from geminga.model.topic_name import TopicName
from support.house.strange_commands import strange_commands
from support.house.waiting import turns
from support.house.weekly_sample import sampled
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker

COMMANDS_PER_SEED = 250


@pytest.mark.parametrize("seed", sampled("strange commands properties", range(12), 5))
def test_strange_commands_never_stop_the_broker(seed: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(TopicName.parse("persistent://public/default/parts"), 2)
        client = await world.client()
        for index, frame in enumerate(strange_commands(seed, COMMANDS_PER_SEED)):
            if client.is_closed:
                client = await world.client()
            client.send_bytes(frame)
            if index % 10 == 0:
                await turns(index % 17)
        await turns(200)
        await _still_serves(world)
        client.lose()
        for topic in world.broker.topics.values():
            topic.check_invariants()

    run_with_broker(scenario)


async def _still_serves(world: BrokerWorld) -> None:
    client: Client = await world.client()
    topic = "persistent://public/default/untouched"
    await client.create_producer(topic)
    position = await client.publish(0)
    await client.subscribe(topic)
    message = (await client.expect(Type.MESSAGE)).message.message_id
    assert (message.ledgerId, message.entryId) == position
