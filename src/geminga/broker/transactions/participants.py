"""How the end of a transaction reaches the topics and subscriptions that this broker serves."""

from __future__ import annotations

from typing import Protocol

from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic.base import Topic
from geminga.model.errors import (
    NotAllowedError,
    NotInThisClusterError,
    SubscriptionNotFoundError,
    TransactionTopicError,
)
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId, TxnSubscription


class LoadTopics(Protocol):
    """The topics of this broker; raises GemingaError, also for one that another broker serves."""

    async def get(self, name: TopicName, *, create: bool, is_for_client: bool = True) -> Topic:
        """The topic, loaded."""
        ...


class LocalParticipants:
    """:class:`geminga.transaction.ports.Participants`, for topics that are here."""

    __slots__ = ("_topics",)

    def __init__(self, topics: LoadTopics) -> None:
        self._topics = topics

    async def end_on_partition(self, txn_id: TxnId, topic: str, *, commit: bool, low_watermark: int) -> None:
        """As the port says."""
        try:
            found = await self._topic(topic)
        except TransactionTopicError:
            return
        try:
            buffer = await found.use_transactions()
        except NotAllowedError:
            # A client may name any topic: one that takes no transactions, a shadow or the broker's own, has nothing of
            # this one, and would be told again and again.
            return
        await buffer.end(txn_id, commit=commit, low_watermark=low_watermark)

    async def end_on_subscription(
        self, txn_id: TxnId, subscription: TxnSubscription, *, commit: bool, low_watermark: int
    ) -> None:
        """As the port says."""
        try:
            topic = await self._topic(subscription.topic)
        except TransactionTopicError:
            return  # nobody subscribes to a log of transactions
        found = topic.subscriptions.get(subscription.subscription)
        if not isinstance(found, Subscription):
            raise SubscriptionNotFoundError(
                f"Subscription {subscription.subscription} not found for topic {subscription.topic}"
            )
        if found.transactions.acks is None:
            return  # as above: a Reader's holds nothing of a transaction, and lives as long as it likes
        await found.transactions.end(txn_id, commit=commit, low_watermark=low_watermark)

    async def _topic(self, text: str) -> Topic:
        """Also one of a namespace that left the cluster, which keeps what was published to it until it is deleted."""
        name = TopicName.parse(text)
        try:
            return await self._topics.get(name, create=False)
        except NotInThisClusterError:
            return await self._topics.get(name, create=False, is_for_client=False)
