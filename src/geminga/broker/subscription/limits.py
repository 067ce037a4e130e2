"""What a topic may have: producers, consumers, subscriptions; and how much its consumers may leave unacknowledged."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from geminga.model.errors import ConsumerBusyError

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import ConsumerSubscription
    from geminga.broker.subscription.ports import SubscriptionTopic


class TopicLimits(NamedTuple):
    """Of the namespace, else of the broker. 0: no limit."""

    producers: int = 0
    consumers: int = 0
    consumers_per_subscription: int = 0
    subscriptions: int = 0


class UnackedLimits(NamedTuple):
    """Messages sent and not acknowledged, on Shared and Key_Shared subscriptions; defaults of Pulsar. 0: no limit.

    At the limit dispatch stops until half of it is acknowledged or given back. An entry (a batch) is never cut, so
    the last one may go over it.
    """

    per_consumer: int = 50_000
    per_subscription: int = 200_000


#: What a topic has until its policies are known.
NO_LIMITS = TopicLimits()


def is_reached(limit: int, count: int) -> bool:
    """Whether one more than ``count`` would be too many."""
    return 0 < limit <= count


def host_of(peer: str) -> str:
    """Of a client's address as ``/127.0.0.1:1234``: its connections differ in the port."""
    return peer.rpartition(":")[0]


def check_consumer_limit(topic: SubscriptionTopic, subscriptions: Collection[ConsumerSubscription], peer: str) -> None:
    """Raise ConsumerBusyError if the topic has all the consumers it may have, or those from the client's address."""
    limit = topic.limits.consumers
    if limit and is_reached(limit, sum(len(subscription.consumers) for subscription in subscriptions)):
        raise ConsumerBusyError("Topic reached max consumers limit")
    from_one = topic.services.config.max_consumers_per_address
    if from_one and not topic.name.is_system:
        host = host_of(peer)
        each = (consumer for subscription in subscriptions for consumer in subscription.consumers)
        if is_reached(from_one, sum(host_of(consumer.connection.peer) == host for consumer in each)):
            raise ConsumerBusyError("Topic reached max same address consumers limit")
