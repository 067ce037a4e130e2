"""Whether a subscription is alike in all clusters of its topic: kept with its position, under Pulsar's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.managed_ledger.rules.cursor import REPLICATED, REPLICATED_PROPERTY

if TYPE_CHECKING:
    from geminga.broker.subscription.subscription import Subscription


def is_replicated(subscription: Subscription) -> bool:
    """Whether its position is told to other clusters, and is to follow theirs. A Reader's never is."""
    return subscription.is_durable and subscription.cursor.properties.get(REPLICATED_PROPERTY) == REPLICATED


async def set_replicated(subscription: Subscription, is_wanted: bool) -> None:
    """Durable on return. Raises StorageError."""
    if is_wanted == is_replicated(subscription):
        return
    cursor = subscription.cursor
    properties = {key: value for key, value in cursor.properties.items() if key != REPLICATED_PROPERTY}
    if is_wanted:
        properties[REPLICATED_PROPERTY] = REPLICATED
    await cursor.set_properties(properties)
    subscription.topic.subscriptions_changed()
