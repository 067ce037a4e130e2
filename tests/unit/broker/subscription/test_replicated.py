"""Whether a subscription is replicated is kept with its position, under Pulsar's name."""

from __future__ import annotations

from geminga.broker.subscription.seek import is_replicated, set_replicated
from geminga.model.position import EARLIEST
from support.worlds.broker_world import BrokerWorld, run_with_broker


def test_it_is_stored_and_taken_back_and_other_properties_stay() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        subscription = await world.topic.create_subscription("sub", EARLIEST)
        await subscription.cursor.set_properties({"other": 5})
        assert not is_replicated(subscription)
        for is_wanted in (True, False, True, True):
            await set_replicated(subscription, is_wanted)
            properties = {"other": 5} | ({"pulsar.replicated.subscription": 1} if is_wanted else {})
            assert (is_replicated(subscription), subscription.cursor.properties) == (is_wanted, properties)
        await world.broker.registry.unload(world.topic.name)
        await client.create_producer(producer_name="again", producer_id=2)
        assert is_replicated(world.topic.subscriptions["sub"])

    run_with_broker(scenario)
