"""A non-persistent topic: messages go from producers straight to connected consumers, and nowhere else.

A receipt says that the broker took the message, not that anybody got it; a consumer without permits misses it.
Every receipt and message has the id 0:0, as in Pulsar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from geminga.broker.subscription.non_persistent import (
    NO_POSITION,
    NonPersistentSubscription,
    subscribe_non_persistent,
)
from geminga.broker.subscription.subscribe import check_subscription_limit
from geminga.broker.topic.base import Topic, closing_error
from geminga.broker.topic.publish import PublishBatch
from geminga.broker.topic.services import TopicServices
from geminga.model.errors import ConflictError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer, ConsumerConnection


class NonPersistentTopic(Topic):
    """A topic whose messages are not stored."""

    __slots__ = ("_subscriptions", "entries_in")

    def __init__(self, services: TopicServices, name: TopicName) -> None:
        super().__init__(services, name)
        self._subscriptions: dict[str, NonPersistentSubscription] = {}
        #: Entries published since it was loaded.
        self.entries_in = 0

    @property
    def subscriptions(self) -> dict[str, NonPersistentSubscription]:
        """Subscriptions by name."""
        return self._subscriptions

    @property
    def last_position(self) -> Position:
        """There is no position to read from."""
        return NO_POSITION

    async def apply_policies(self) -> None:
        """As :meth:`Topic.apply_policies`; as in Pulsar nothing but publishing has a rate where nothing is stored."""
        await super().apply_policies()
        self.hold_to(self.rules.rates)

    def publish(self, batch: PublishBatch) -> None:
        """Hand the entries to every subscription and answer at once."""
        entries, producer = batch.entries, batch.producer
        size_bytes = sum(map(len, entries))
        self.entries_in += len(entries)
        self.messages_in += batch.messages
        self.bytes_in += size_bytes
        self.last_published_s = self.services.runtime.clock.monotonic()
        producer.messages_in += batch.messages
        producer.bytes_in += size_bytes
        for subscription in list(self._subscriptions.values()):
            subscription.dispatch(entries)
        producer.begin(batch, 0)
        batch.same_id(NO_POSITION.ledger_id, NO_POSITION.entry_id)

    async def subscribe(self, connection: ConsumerConnection, request: pb.CommandSubscribe) -> Consumer:
        """Attach a consumer, creating its subscription if need be; raises GemingaError."""
        await self.check_may_subscribe(request)
        consumer = await subscribe_non_persistent(self, connection, request)
        self.touch()
        if self.is_closing:
            # Without CLOSE_CONSUMER, which the client would get before the answer to its SUBSCRIBE.
            consumer.close()
            raise closing_error(self.name)
        return consumer

    async def create_subscription(
        self, name: str, position: Position, properties: Mapping[str, str] | None = None
    ) -> NonPersistentSubscription:
        """Create a subscription, which keeps nothing while it has no consumers; raises ConflictError."""
        if name in self._subscriptions:
            raise ConflictError(f"Subscription {name} of {self.name} exists already")
        check_subscription_limit(self, len(self._subscriptions))
        subscription = NonPersistentSubscription(self, name)
        self._subscriptions[name] = subscription
        self.touch()
        return subscription
