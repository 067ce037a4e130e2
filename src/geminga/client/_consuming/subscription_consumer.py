"""The consumer of one subscription over its topics: listening, moving, its end, and what its parts tell it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from geminga.client._api.errors import InvalidConfiguration, OperationNotSupported, PulsarException, TopicNotFound
from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import Closable
from geminga.client._api.options import check_argument
from geminga.client._consuming.acknowledging import Acknowledging
from geminga.client._consuming.last_message import has_message_available
from geminga.client._consuming.listening import Listening
from geminga.client._consuming.multi_consumer import TopicSet, close_all
from geminga.client._consuming.pattern_consumer import PatternTopics
from geminga.client._consuming.subscription import Subscription
from geminga.client._consuming.topic_consumer import TopicConsumer
from geminga.client._messages.consumer_options import ConsumerType
from geminga.client._transport.cluster import Cluster
from geminga.client.rules.option_kinds import FLAG, INT64_MAX, Either, Instance, Number
from geminga.client.rules.stats import ConsumerStats, StatsRecorder, summary
from geminga.client.schema._protocol import MessageDecoder
from geminga.model import TopicName
from geminga.runtime import get_logger

_log = get_logger(__name__)

T = TypeVar("T")

_TARGET: Final = Either(
    Instance(MessageId, "a MessageId that can be", holds="is_possible"),
    Number(0, INT64_MAX, "a time in milliseconds since the epoch"),
)

#: Seconds between two looks at the statistics' interval are the interval itself.
_MS: Final = 1000


class SubscriptionConsumer(Acknowledging[T]):
    """See :class:`Consumer`; receiving and acknowledging are in the halves it stands on."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        topic: str,
        *,
        on_closed: Callable[[Closable], None],
    ) -> None:
        """Use :meth:`Client.subscribe`. ``topic``: what was subscribed to, as text; ``on_closed`` hears of the end."""
        super().__init__(topic, subscription, cluster.place)
        if subscription.interceptors is not None:
            subscription.interceptors.speak_for(self)
        options = subscription.options
        self._cluster = cluster
        self._on_closed = on_closed
        #: Who looks for its topics and partitions; set by whoever makes it.
        self.topic_set: TopicSet | None = None
        self.discovery: PatternTopics | None = None
        self._is_paused = False
        self._recorder = StatsRecorder(options.stats_interval_ms, self._now_ms())
        self._stats_timer: asyncio.TimerHandle | None = None
        if options.stats_interval_ms:
            self._stats_timer = self._loop.call_later(options.stats_interval_ms / _MS, self._on_stats_interval)
        self._listening = Listening(self, options.message_listener) if options.message_listener is not None else None
        #: Called at each end of a topic's queue, by table views.
        self.end_of_topic: asyncio.Event = asyncio.Event()

    # ---- listener, pause

    def pause(self) -> None:
        """See :meth:`Consumer.pause`."""
        self._place.check()
        self._is_paused = True
        for topic in self._topics.values():
            topic.pause()
        if self._listening is not None:
            self._listening.pause()

    def resume(self) -> None:
        """See :meth:`Consumer.resume`."""
        self._place.check()
        self._is_paused = False
        for topic in self._topics.values():
            topic.resume()
        if self._listening is not None:
            self._listening.resume()

    def pause_message_listener(self) -> None:
        """See :meth:`Consumer.pause_message_listener`."""
        self._place.check()
        if self._listening is None:
            raise InvalidConfiguration("the consumer has no message_listener")
        self._listening.pause()

    def resume_message_listener(self) -> None:
        """See :meth:`Consumer.resume_message_listener`."""
        self._place.check()
        if self._listening is None:
            raise InvalidConfiguration("the consumer has no message_listener")
        self._listening.resume()

    # ---- moving

    async def seek(self, target: MessageId | int) -> None:
        """See :meth:`Consumer.seek`."""
        self._check_open()
        check_argument("target", target, _TARGET)
        if not isinstance(target, MessageId):
            await self._each(lambda topic: topic.seek(None, target))
        elif target in (MessageId.earliest, MessageId.latest):
            await self._each(lambda topic: topic.seek(target))
        else:
            await self._source_of(target).seek(target)

    async def get_last_message_id(self) -> MessageId:
        """See :meth:`Consumer.get_last_message_id`."""
        ids = await self.get_last_message_ids()
        if len(ids) != 1:
            raise OperationNotSupported(f"{self._topic} has {len(ids)} topics: use get_last_message_ids")
        return ids[0]

    async def get_last_message_ids(self) -> list[MessageId]:
        """See :meth:`Consumer.get_last_message_ids`."""
        self._check_open()
        return [(await topic.last_message_ids())[0] for topic in list(self._topics.values())]

    async def has_message_available(self) -> bool:
        """See :meth:`Consumer.has_message_available`."""
        self._check_open()
        while not self._queue.total_count:
            if not await self._is_left_on_brokers():
                return self._queue.total_count > 0
            if not self._gets_everything() or not await self._has_arrived():
                return True
        return True

    def _gets_everything(self) -> bool:
        """Whether what the brokers have comes here by itself, and to nobody else."""
        options = self.options
        is_alone = not options.is_durable and options.consumer_type is ConsumerType.Exclusive
        return is_alone and not self._is_paused and not self._has_listener

    async def _is_left_on_brokers(self) -> bool:
        for topic in list(self._topics.values()):
            if await has_message_available(topic):
                return True
        return False

    async def _has_arrived(self) -> bool:
        """Wait until entries arrive; False: none did within the operation timeout."""
        if self._queue.total_count:
            return True
        try:
            async with asyncio.timeout(self._cluster.timeout_s):
                # Not in the line of those who receive: one of them may be given what comes.
                await self._watch()
        except TimeoutError:
            return False
        return True

    async def _each(self, do: Callable[[TopicConsumer], Awaitable[None]]) -> None:
        for topic in list(self._topics.values()):
            await do(topic)

    async def mark_delete_positions(self) -> list[MessageId | None]:
        """See :meth:`Consumer.mark_delete_positions`."""
        self._check_open()
        return [(await topic.last_message_ids())[1] for topic in list(self._topics.values())]

    # ---- life

    async def unsubscribe(self, *, force: bool = False) -> None:
        """See :meth:`Consumer.unsubscribe`."""
        self._check_open()
        check_argument("force", force, FLAG)
        for topic in list(self._topics.values()):
            await topic.unsubscribe(is_forced=force)
        await self.close()

    async def close(self) -> None:
        """See :meth:`Consumer.close`."""
        self._place.check()
        if self._is_closed:
            return
        self._is_closed = True
        self._on_closed(self)
        if self._stats_timer is not None:
            self._stats_timer.cancel()
        if self._listening is not None:
            self._listening.close()
        if self.topic_set is not None:
            self.topic_set.close()
        if self.discovery is not None:
            self.discovery.close()
        self._queue.drop(lambda _: True)
        self._arrivals.wake_all()
        self.end_of_topic.set()
        await close_all(list(self._topics.values()))
        if self._subscription.dead_letters is not None:
            await self._subscription.dead_letters.close()
        if self._interceptors is not None:
            self._interceptors.close()

    # ---- what it is

    def topic(self) -> str:
        """See :meth:`Consumer.topic`."""
        return self._topic

    def topics(self) -> list[str]:
        """See :meth:`Consumer.topics`."""
        return list(self._topics)

    def subscription_name(self) -> str:
        """See :meth:`Consumer.subscription_name`."""
        return self._subscription.name

    def consumer_name(self) -> str:
        """See :meth:`Consumer.consumer_name`."""
        return self._subscription.consumer_name

    def is_connected(self) -> bool:
        """See :meth:`Consumer.is_connected`."""
        return not self._is_closed and all(topic.is_connected for topic in self._topics.values())

    @property
    def is_closed(self) -> bool:
        """See :attr:`Consumer.is_closed`."""
        return self._is_closed

    def is_active(self) -> bool:
        """See :meth:`Consumer.is_active`."""
        return any(topic.is_active is not False for topic in self._topics.values())

    def stats(self) -> ConsumerStats:
        """See :meth:`Consumer.stats`."""
        return self._recorder.stats(
            self.counters,
            prefetched_messages=self._queue.total_count,
            pending_acks=sum(topic.acks.sender.tracker.pending_count for topic in self._topics.values()),
        )

    def _on_stats_interval(self) -> None:
        self._stats_timer = self._loop.call_later(self.options.stats_interval_ms / _MS, self._on_stats_interval)
        if self._recorder.tick(self.counters, self._now_ms()) and (self._recorder.has_news or self._queue.total_count):
            _log.info("%s, subscription %s: %s", self._topic, self._subscription.name, summary(self.stats()))

    def _now_ms(self) -> float:
        return self._cluster.runtime.clock.monotonic() * _MS

    # ---- for the client's own parts

    def start_listening(self) -> None:
        """The consumer is open: its listener gets messages now."""
        if self._listening is not None:
            self._listening.start()

    def make_topic(
        self,
        topic: TopicName,
        capacity: int,
        decoder: MessageDecoder[object] | None,
        start_message_id: MessageId | None,
        *,
        is_found: bool,
        is_added: bool,
    ) -> TopicConsumer:
        """A consumer of one more topic, not open yet; ``is_found``: by a pattern; ``is_added``: a new partition."""
        if is_added and start_message_id is not None:
            start_message_id = MessageId.earliest
        consumer = TopicConsumer(
            self._cluster,
            self._subscription.of_added_partition() if is_added else self._subscription,
            self,
            topic,
            capacity=capacity,
            decoder=decoder,
            start_message_id=start_message_id,
            is_found=is_found,
        )
        if self._is_paused:
            consumer.pause()
        return consumer

    def topic_consumers(self) -> list[TopicConsumer]:
        """Those of its topics and partitions."""
        return list(self._topics.values())

    def add_topic(self, consumer: TopicConsumer) -> None:
        """It is open, or about to."""
        self._topics[str(consumer.topic)] = consumer

    def remove_topic(self, consumer: TopicConsumer) -> None:
        """Its topic is gone or it could not be opened."""
        self._topics.pop(str(consumer.topic), None)

    def on_subscribed(self, topic: TopicName) -> None:
        """See :meth:`Delivery.on_subscribed`."""
        consumer = self._topics.get(str(topic))
        if self._arrivals.are_awaited and not self.options.receiver_queue_size and consumer is not None:
            consumer.ask_for_one()

    def on_topic_failed(self, topic: TopicName, error: PulsarException, *, is_found: bool) -> None:
        """One topic can not go on: receiving fails with its error. A pattern's topic may be deleted."""
        if self.discovery is not None and is_found and isinstance(error, TopicNotFound):
            self.discovery.on_topic_gone(topic)
            return
        self._error = error
        self._arrivals.wake_all()

    def on_end_of_topic(self) -> None:
        """A topic was terminated and everything of it was delivered."""
        self.end_of_topic.set()
