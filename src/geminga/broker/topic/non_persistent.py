"""A non-persistent topic: messages go from producers straight to connected consumers, and nowhere else.

A receipt says that the broker took the message, not that anybody got it; a consumer without permits misses it.
Every receipt and message has the id 0:0, as in Pulsar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.broker.policies.core.limit_rows import MAX_MESSAGE_SIZE
from geminga.broker.publishing.life import TopicLife
from geminga.broker.publishing.producers import TopicProducers
from geminga.broker.subscription.non_persistent import (
    NO_POSITION,
    NonPersistentSubscription,
    subscribe_non_persistent,
)
from geminga.broker.subscription.subscribe import check_new_subscription
from geminga.broker.topic.base import Topic, attached
from geminga.broker.topic.direct_publishing import DirectPublishing
from geminga.broker.topic.services import TopicServices
from geminga.model.errors import ConflictError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.core.new_subscription import Properties
    from geminga.broker.subscription.consumer import Consumer, ConsumerConnection
    from geminga.broker.topic.parts import LedAway
    from geminga.broker.topic.producer import Producer


class NonPersistentTopic(Topic):
    """A topic whose messages are not stored. As in Pulsar nothing but publishing has a rate.

    Its own policies outlive it: it is there while somebody uses it, and holds to them whenever it comes back.
    """

    __slots__ = ("_led_away", "_subscriptions")

    publishing: DirectPublishing
    #: No part of it hides anything: it has none.
    hides: Final = ()

    def __init__(self, services: TopicServices, name: TopicName) -> None:
        clock = services.runtime.clock
        self._subscriptions: dict[str, NonPersistentSubscription] = {}
        #: While it moves to another cluster.
        self._led_away: LedAway | None = None
        life = TopicLife(name, clock)
        publishing = DirectPublishing(clock, self._subscriptions)
        super().__init__(services, name, life, publishing, TopicProducers(name, life, self, watch=self))

    @property
    def subscriptions(self) -> dict[str, NonPersistentSubscription]:
        """Subscriptions by name."""
        return self._subscriptions

    @property
    def last_position(self) -> Position:
        """There is no position to read from."""
        return NO_POSITION

    async def apply_policies(self) -> None:
        """As :meth:`Topic.apply_policies`; what is said of stored messages has no meaning here."""
        await super().apply_policies()
        self.publishing.entry_bytes_max = self.rules[MAX_MESSAGE_SIZE]

        self._follow_move()

    def _follow_move(self) -> None:
        moves, clusters = self.services.moves, self.services.remote_clusters
        if moves is None or clusters is None or self.name.is_system:
            return
        place = moves.place_of(self.rules)
        if self._led_away is not None and self._led_away.place != place:
            self._end_move()
        # One that closed while its rules were read has nobody to end this any more.
        if place is not None and self._led_away is None and not self.is_closing:
            self._led_away = clusters.lead_away(self, place)

    # ---- who publishes

    async def admit_producer(self, _producer: Producer) -> None:
        """Raise TopicMovedError where it moved to another cluster."""
        if self._led_away is not None:
            self._led_away.check()

    async def producer_joined(self, _producer: Producer) -> None:
        """Nothing is kept of it."""

    def producer_left(self, _producer: Producer) -> None:
        """Nothing is kept of it."""

    # ---- its end

    async def close_storage(self) -> None:
        """Nothing is stored."""
        self._end_move()

    async def drop_storage(self) -> None:
        """The same."""
        self._end_move()

    async def delete_storage(self) -> None:
        """The same."""
        self._end_move()

    def _end_move(self) -> None:
        if self._led_away is not None:
            self._led_away.end()
            self._led_away = None

    # ---- who listens

    async def subscribe(self, connection: ConsumerConnection, request: pb.CommandSubscribe) -> Consumer:
        """Attach a consumer, creating its subscription if need be; raises GemingaError."""
        await self.check_may_subscribe(request)
        if self._led_away is not None:
            self._led_away.check()
        return attached(self.life, await subscribe_non_persistent(self, connection, request))

    async def create_subscription(
        self, name: str, position: Position, properties: Properties | None = None, *, is_replicated: bool = False
    ) -> NonPersistentSubscription:
        """Create a subscription, which keeps nothing while it has no consumers, in no cluster; raises ConflictError."""
        del is_replicated
        if name in self._subscriptions:
            raise ConflictError(f"Subscription {name} of {self.name} exists already")
        check_new_subscription(self, name, len(self._subscriptions))
        subscription = NonPersistentSubscription(self, name)
        self._subscriptions[name] = subscription
        self.life.touch()
        return subscription
