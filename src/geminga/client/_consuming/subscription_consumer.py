"""The consumer of one subscription over its topics: what users call, and what of it may be called when.

What it has prefetched and who waits for it is in :mod:`.receiving`, whose message is acknowledged in
:mod:`.acknowledging`, its topics in :mod:`.held_topics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

from geminga.client._api.condition import Condition
from geminga.client._api.errors import (
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    InvalidMessage,
    NotAllowedError,
    OperationNotSupported,
)
from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import Closable
from geminga.client._api.options import check_argument
from geminga.client._api.place import running_loop
from geminga.client._api.transaction import Transaction
from geminga.client._consuming.acknowledging import Acknowledging, along, one_of
from geminga.client._consuming.held_topics import HeldTopics
from geminga.client._consuming.last_message import is_any_left
from geminga.client._consuming.listening import Listening
from geminga.client._consuming.multi_consumer import TopicSet, close_all
from geminga.client._consuming.pattern_consumer import PatternTopics
from geminga.client._consuming.receiving import Receiving
from geminga.client._consuming.reporting import Reporting
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.consumer import Consumer
from geminga.client._messages.consumer_options import ConsumerType
from geminga.client._messages.message import Message
from geminga.client._transport.cluster import Cluster
from geminga.client.rules.option_kinds import (
    FLAG,
    INT64_MAX,
    NOTHING,
    TEXTS,
    TIME_MS,
    TIME_MS_MAX,
    Either,
    Instance,
    Number,
)
from geminga.client.rules.stats import ConsumerStats
from geminga.runtime import spawn

T = TypeVar("T")

_TARGET: Final = Either(
    Instance(MessageId, "a MessageId that can be", holds="is_possible"),
    Number(0, INT64_MAX, "a time in milliseconds since the epoch"),
)
_PROPERTIES: Final = Either(NOTHING, TEXTS)
_MS: Final = 1000


class SubscriptionConsumer(Consumer[T]):
    """See :class:`Consumer`."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        topic: str,
        *,
        on_closed: Callable[[Closable], None],
    ) -> None:
        """Use :meth:`Client.subscribe`. ``topic``: what was subscribed to, as text; ``on_closed`` hears of the end."""
        self.options = options = subscription.options
        self.counters = subscription.counters
        self._cluster = cluster
        self._subscription = subscription
        self._place = cluster.place
        self._topic = topic
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._interceptors = subscription.interceptors
        if self._interceptors is not None:
            self._interceptors.speak_for(self)
        self._by_index = options.batch_index_ack_enabled
        self.condition = Condition(cluster.place, f"the consumer of {topic}")
        #: Its topics and partitions; whoever makes it looks for them.
        self.held = HeldTopics()
        self.receiving: Receiving[T] = Receiving(topic, subscription, cluster.place, self.condition, self.held)
        self._acknowledging = Acknowledging(subscription, cluster.place, self.held)
        self._reporting = Reporting(cluster.runtime.clock, subscription, topic, self.receiving, self.held)
        #: Calls the listener; whoever makes it starts it once it is open. None: there is none.
        self.listening: Listening | None = None
        if options.message_listener is not None:
            self.listening = Listening(self.receiving, options.message_listener)
        if options.start_paused:
            self.held.pause()
            if self.listening is not None:
                self.listening.pause()
        #: Who looks for its topics and partitions; set by whoever makes it.
        self.topic_set: TopicSet | None = None
        self.discovery: PatternTopics | None = None

    # ---- receive

    async def receive(self, timeout_millis: int | None = None) -> Message[T]:
        """See :meth:`Consumer.receive`."""
        receiving = self.receiving
        if not receiving.is_open:
            receiving.check()
        if timeout_millis is not None:
            check_argument("timeout_millis", timeout_millis, TIME_MS)
        message = receiving.take()
        if message is None:
            message = await receiving.wait(timeout_millis)
        return message

    def receive_nowait(self) -> Message[T] | None:
        """See :meth:`Consumer.receive_nowait`."""
        receiving = self.receiving
        if not receiving.is_open:
            receiving.check()
        message = receiving.take()
        return message if message is not None else receiving.take_now()

    async def batch_receive(self) -> list[Message[T]]:
        """See :meth:`Consumer.batch_receive`."""
        self.receiving.check()
        self._place.check()
        return await self.receiving.take_batch()

    def __aiter__(self) -> AsyncIterator[Message[T]]:
        # A generator is resumed for less than a coroutine is made, a message each.
        return self.receiving.messages()

    async def __anext__(self) -> Message[T]:
        return await self.receiving.next_or_end()

    # ---- acknowledge

    async def acknowledge(
        self,
        message: Message[Any] | MessageId | Iterable[Message[Any] | MessageId],
        txn: Transaction | None = None,
        *,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """See :meth:`Consumer.acknowledge`."""
        if self.condition.is_closed:
            self.condition.check_alive()
        # One comparison for all: that there are no interceptors, no transaction and no properties.
        if type(message) is Message and self._interceptors is txn is properties:  # type: ignore[comparison-overlap]
            entry = message._entry
            source = entry.source
            if source is None:
                raise OperationNotSupported("the message does not come from a consumer")
            acker = entry.acker
            self.counters.acks_sent += 1
            # As Acknowledgment.acknowledge, one call shorter: most messages are in batches, and not the last of them.
            if acker is not None and not acker.acknowledge(message._index):
                if not self._by_index or acker.is_waiting:
                    return
                if running_loop() is not self._loop:
                    self._place.check()
                receipt = source.acks.sender.add_partial(entry.key, acker)
            else:
                if running_loop() is not self._loop:
                    self._place.check()
                receipt = source.acks.acknowledge_entry(entry.key)
            if receipt is not None:
                try:
                    await source.acks.sender.heard(receipt)
                finally:
                    del receipt  # see runtime's value_of
            return
        self.condition.check_alive()
        given = along(properties, txn)
        if txn is None:
            await self._acknowledging.all(self._acknowledging.checked(message), given)
        else:
            await self._acknowledging.all_in(txn, self._acknowledging.checked(message))

    async def acknowledge_cumulative(
        self,
        message: Message[Any] | MessageId,
        txn: Transaction | None = None,
        *,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """See :meth:`Consumer.acknowledge_cumulative`."""
        if self.condition.is_closed or running_loop() is not self._loop:
            self.condition.check_alive()
        if self.options.shares_messages:
            raise CumulativeAcknowledgementNotAllowedError(
                f"{self.options.consumer_type.name} subscriptions can not be acknowledged cumulatively: messages "
                "before this one may be with other consumers; acknowledge each message"
            )
        checked = self._acknowledging.checked(one_of(message))
        given = along(properties, txn)
        if txn is None:
            await self._acknowledging.up_to(checked[0], given)
        else:
            await self._acknowledging.all_in(txn, checked, is_cumulative=True)

    async def negative_acknowledge(self, message: Message[Any] | MessageId) -> None:
        """See :meth:`Consumer.negative_acknowledge`."""
        self.condition.check_open()
        self._acknowledging.refuse(one_of(message))

    async def reconsume_later(
        self,
        message: Message[Any],
        delay: timedelta | float = 0,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """See :meth:`Consumer.reconsume_later`."""
        self.condition.check_open()
        dead_letters = self._subscription.dead_letters
        if not self.options.retry_enabled or dead_letters is None:
            raise NotAllowedError("reconsume_later: the consumer was not made with retry_enabled=True")
        if not isinstance(message, Message):
            raise InvalidMessage(f"{message!r:.100}: expected a message")
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not abs(seconds) < TIME_MS_MAX / _MS:
            raise InvalidMessage(f"delay={delay!r:.100}: expected seconds or a timedelta")
        if not _PROPERTIES.takes(properties):
            raise InvalidMessage(f"properties={properties!r:.100}: expected {_PROPERTIES.expected}")
        await dead_letters.reconsume_later(message, int(seconds * _MS), properties)
        await self.acknowledge(message)

    async def redeliver_unacknowledged_messages(self) -> None:
        """See :meth:`Consumer.redeliver_unacknowledged_messages`."""
        self.condition.check_open()
        for topic in self.held:
            topic.redeliver_all()

    async def flush_acknowledgements(self) -> None:
        """See :meth:`Consumer.flush_acknowledgements`."""
        self.condition.check_open()
        for topic in self.held:
            topic.acks.sender.flush()
        for topic in self.held.all():
            await topic.acks.sender.flushed()

    # ---- listener, pause

    def pause(self) -> None:
        """See :meth:`Consumer.pause`."""
        self._place.check()
        self.held.pause()
        if self.listening is not None:
            self.listening.pause()

    def resume(self) -> None:
        """See :meth:`Consumer.resume`."""
        self._place.check()
        self.held.resume()
        self.receiving.on_resumed()
        if self.listening is not None:
            self.listening.resume()

    def pause_message_listener(self) -> None:
        """See :meth:`Consumer.pause_message_listener`."""
        self._place.check()
        _message_listener(self.listening).pause()

    def resume_message_listener(self) -> None:
        """See :meth:`Consumer.resume_message_listener`."""
        self._place.check()
        _message_listener(self.listening).resume()

    # ---- moving

    async def seek(self, target: MessageId | int) -> None:
        """See :meth:`Consumer.seek`."""
        self.condition.check_open()
        check_argument("target", target, _TARGET)
        if not isinstance(target, MessageId):
            for topic in self.held.all():
                await topic.seek(None, target)
        elif target in (MessageId.earliest, MessageId.latest):
            for topic in self.held.all():
                await topic.seek(target)
        else:
            await self.held.source_of(target).seek(target)

    async def get_last_message_id(self) -> MessageId:
        """See :meth:`Consumer.get_last_message_id`."""
        ids = await self.get_last_message_ids()
        if len(ids) != 1:
            raise OperationNotSupported(f"{self._topic} has {len(ids)} topics: use get_last_message_ids")
        return ids[0]

    async def get_last_message_ids(self) -> list[MessageId]:
        """See :meth:`Consumer.get_last_message_ids`."""
        self.condition.check_open()
        return [(await topic.last_message_ids())[0] for topic in self.held.all()]

    async def has_message_available(self) -> bool:
        """See :meth:`Consumer.has_message_available`."""
        self.condition.check_open()
        receiving = self.receiving
        while not receiving.count:
            if not await is_any_left(self.held.all()):
                return receiving.count > 0
            if not self._gets_everything() or not await receiving.has_arrived(self._cluster.timeout_s):
                return True
        return True

    def _gets_everything(self) -> bool:
        """Whether what the brokers have comes here by itself, and to nobody else."""
        options = self.options
        is_alone = not options.is_durable and options.consumer_type is ConsumerType.Exclusive
        return is_alone and not self.held.is_paused and self.listening is None

    async def mark_delete_positions(self) -> list[MessageId | None]:
        """See :meth:`Consumer.mark_delete_positions`."""
        self.condition.check_open()
        return [(await topic.last_message_ids())[1] for topic in self.held.all()]

    def watch_prefetched(self, hook: Callable[[int], None], chunked_bytes_max: int = 0) -> None:
        """See :meth:`Consumer.watch_prefetched`."""
        bounds = self._subscription.chunk_bounds
        # Who watches bounds what is kept himself, over more than this consumer.
        bounds.message_bytes_max, bounds.held_bytes_max = chunked_bytes_max, 0
        self.receiving.on_prefetched = hook

    def prefetched_bytes(self) -> int:
        """See :meth:`Consumer.prefetched_bytes`."""
        return self.receiving.bytes_waiting

    def kept_bytes(self) -> int:
        """See :meth:`Consumer.kept_bytes`."""
        return self.receiving.kept_bytes

    def has_reached_end_of_topic(self) -> bool:
        """See :meth:`Consumer.has_reached_end_of_topic`."""
        topics = self.held.all()
        return bool(topics) and all(topic.is_at_end for topic in topics)

    # ---- life

    async def unsubscribe(self, *, force: bool = False) -> None:
        """See :meth:`Consumer.unsubscribe`."""
        self.condition.check_open()
        check_argument("force", force, FLAG)
        for topic in self.held.all():
            await topic.unsubscribe(is_forced=force)
        await self.close()

    async def close(self) -> None:
        """See :meth:`Consumer.close`."""
        self._place.check()
        if self.condition.is_closed:
            return
        self.condition.is_closed = True
        self._on_closed(self)
        self._reporting.close()
        if self.listening is not None:
            self.listening.close()
        if self.topic_set is not None:
            self.topic_set.close()
        if self.discovery is not None:
            self.discovery.close()
        self.receiving.close()
        self.held.on_gone = None
        try:
            await close_all(self.held.all())
        finally:
            await self._end_letters()

    async def _end_letters(self) -> None:
        # Nobody closes it again: who is cut off here leaves them to end by themselves.
        try:
            if self._subscription.dead_letters is not None:
                ending = spawn(self._subscription.dead_letters.close(), name=f"end letters of {self._topic}")
                await asyncio.shield(ending)
        finally:
            if self._interceptors is not None:
                self._interceptors.close()

    # ---- what it is

    def topic(self) -> str:
        """See :meth:`Consumer.topic`."""
        return self._topic

    def topics(self) -> list[str]:
        """See :meth:`Consumer.topics`."""
        return self.held.names()

    def subscription_name(self) -> str:
        """See :meth:`Consumer.subscription_name`."""
        return self._subscription.name

    def consumer_name(self) -> str:
        """See :meth:`Consumer.consumer_name`."""
        return self._subscription.consumer_name

    def is_connected(self) -> bool:
        """See :meth:`Consumer.is_connected`."""
        return not self.condition.is_closed and all(topic.is_connected for topic in self.held)

    @property
    def is_closed(self) -> bool:
        """See :attr:`Consumer.is_closed`."""
        return self.condition.is_closed

    def is_active(self) -> bool:
        """See :meth:`Consumer.is_active`."""
        return any(topic.is_active is not False for topic in self.held)

    def stats(self) -> ConsumerStats:
        """See :meth:`Consumer.stats`."""
        return self._reporting.stats()


def _message_listener(listening: Listening | None) -> Listening:
    if listening is None:
        raise InvalidConfiguration("the consumer has no message_listener")
    return listening
