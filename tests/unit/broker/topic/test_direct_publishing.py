"""Publishing to a non-persistent topic: whatever happened to a message, its producer has an answer."""

from __future__ import annotations

import pytest

from geminga.broker.topic.direct_publishing import DirectPublishing
from support.worlds.broker_world import BrokerWorld, Type, run_with_broker

TOPIC = "non-persistent://public/default/topic"


@pytest.mark.parametrize("consumers", [0, 1, 2])
def test_every_subscription_has_the_entry_and_the_producer_its_receipt(consumers: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(TOPIC)
        for number in range(consumers):
            await client.subscribe(TOPIC, number, subscription=f"sub-{number}")
        client.send_message(0, b"one")
        for _ in range(consumers):
            assert (await client.expect_with_payload(Type.MESSAGE))[1].endswith(b"one")
        receipt = await client.receipt()
        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (0, 0)
        publishing = world.broker.topics[TOPIC].publishing
        assert isinstance(publishing, DirectPublishing)
        assert (publishing.entries_in, publishing.messages_in) == (1, 1)

    run_with_broker(scenario)
