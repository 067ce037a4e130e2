"""How the end of a transaction reaches what is served here."""

from __future__ import annotations

import pytest

from geminga.model.errors import SubscriptionNotFoundError, TopicNotFoundError
from geminga.model.txn_id import TxnId, TxnSubscription
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

PLAIN = "non-persistent://public/default/plain"


def test_what_is_not_there_is_named() -> None:
    async def scenario(world: BrokerWorld) -> None:
        participants = world.broker.transactions.participants
        told = {"commit": True, "low_watermark": -1}
        with pytest.raises(TopicNotFoundError):
            await participants.end_on_partition(TxnId(0, 0), TOPIC, **told)
        with pytest.raises(TopicNotFoundError):
            await participants.end_on_subscription(TxnId(0, 0), TxnSubscription(TOPIC, "sub"), **told)
        client = await world.subscriber()
        await participants.end_on_partition(TxnId(0, 0), TOPIC, **told)
        await participants.end_on_subscription(TxnId(0, 0), TxnSubscription(TOPIC, "sub"), **told)
        with pytest.raises(SubscriptionNotFoundError, match="Subscription other not found"):
            await participants.end_on_subscription(TxnId(0, 0), TxnSubscription(TOPIC, "other"), **told)
        # Nothing of a transaction is in a topic that takes none.
        await client.create_producer(PLAIN, 5)
        await participants.end_on_partition(TxnId(0, 0), PLAIN, **told)

    run_with_broker(scenario, transaction_coordinator_enabled=True)
