"""Which topics and subscriptions a path means."""

from __future__ import annotations

from geminga.broker.service import Broker
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic import PersistentTopic
from geminga.model.errors import NotAllowedError, SubscriptionNotFoundError
from geminga.model.topic_name import TopicName


async def partitions_or_self(broker: Broker, name: TopicName) -> list[TopicName]:
    """The partitions of a partitioned topic, or the topic itself."""
    found = None if name.is_partition else await broker.resources.partitioned_topics.find(name)
    return [name.with_partition(index) for index in range(found.partitions)] if found else [name]


async def refuse_partitioned(broker: Broker, name: TopicName, what: str) -> None:
    """Raise :class:`NotAllowedError` (405) if ``name`` is a partitioned topic."""
    if not name.is_partition and await broker.resources.partitioned_topics.find(name) is not None:
        raise NotAllowedError(f"{what} needs one partition: {name} is partitioned")


async def persistent_topic(broker: Broker, name: TopicName) -> PersistentTopic:
    """The loaded topic; raises TopicNotFoundError (404), NotAllowedError (405) for a non-persistent one."""
    topic = await broker.get_topic(name, create=False)
    if not isinstance(topic, PersistentTopic):
        raise NotAllowedError(f"{name} stores no messages")
    return topic


async def subscription_of(broker: Broker, name: TopicName, subscription: str) -> Subscription:
    """The subscription; raises SubscriptionNotFoundError (404) and what :func:`persistent_topic` raises."""
    found = (await persistent_topic(broker, name)).subscriptions.get(subscription)
    if not isinstance(found, Subscription):
        raise SubscriptionNotFoundError(f"topic {name} has no subscription {subscription}")
    return found
