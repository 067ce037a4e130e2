"""How the end of a transaction reaches the topics and subscriptions that this broker serves."""

from __future__ import annotations

from typing import Protocol

from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic.base import Topic
from geminga.model.errors import SubscriptionNotFoundError
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId, TxnSubscription


class LoadTopics(Protocol):
    """The topics of this broker; raises GemingaError, also for one that another broker serves."""

    async def get(self, name: TopicName, *, create: bool) -> Topic:
        """The topic, loaded."""
        ...


class LocalParticipants:
    """:class:`geminga.transaction.ports.Participants`, for topics that are here."""

    __slots__ = ("_topics",)

    def __init__(self, topics: LoadTopics) -> None:
        self._topics = topics

    async def end_on_partition(self, txn_id: TxnId, topic: str, *, commit: bool, low_watermark: int) -> None:
        """As the port says."""
        found = await self._topics.get(TopicName.parse(topic), create=False)
        buffer = await found.use_transactions()
        await buffer.end(txn_id, commit=commit, low_watermark=low_watermark)

    async def end_on_subscription(
        self, txn_id: TxnId, subscription: TxnSubscription, *, commit: bool, low_watermark: int
    ) -> None:
        """As the port says."""
        topic = await self._topics.get(TopicName.parse(subscription.topic), create=False)
        found = topic.subscriptions.get(subscription.subscription)
        if not isinstance(found, Subscription):
            raise SubscriptionNotFoundError(
                f"Subscription {subscription.subscription} not found for topic {subscription.topic}"
            )
        await found.transactions.end(txn_id, commit=commit, low_watermark=low_watermark)
