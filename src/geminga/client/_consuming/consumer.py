"""``Consumer``: what users see, over one topic, one partition or many of them.

Entries of all its topics meet in one prefetch queue, in order of arrival; ``receive``, ``batch_receive`` and
``async for`` take messages from there. Nothing leaves the queue before it is returned, so a cancelled ``receive`` loses
nothing. Each topic has its own permits, so a busy one does not starve the others of memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from geminga.client._consuming.acknowledging import Acknowledging, one_of
from geminga.client._consuming.dead_letter import DeadLetters
from geminga.client._consuming.entries import Decryptor
from geminga.client._consuming.last_message import has_message_available
from geminga.client._consuming.listening import Listening
from geminga.client._consuming.options import ConsumerOptions, ConsumerType
from geminga.client._consuming.topic_consumer import TopicConsumer, close_all
from geminga.client._errors import (
    AlreadyClosed,
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    InvalidMessage,
    NotAllowedError,
    OperationNotSupported,
    PulsarException,
    TopicNotFound,
)
from geminga.client._message import Message, make_message
from geminga.client._message_id import MessageId
from geminga.client._options import check_argument
from geminga.client._place import running_loop
from geminga.client.core.option_kinds import (
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
from geminga.client.core.stats import ConsumerStats, StatsRecorder
from geminga.model import TopicName
from geminga.runtime import get_logger, tell

if TYPE_CHECKING:
    from geminga.client._client import Client
    from geminga.client._consuming.multi_consumer import TopicSet
    from geminga.client._consuming.pattern_consumer import PatternTopics
    from geminga.client.schema._protocol import MessageDecoder

_log = get_logger(__name__)

T = TypeVar("T")

_PROPERTIES: Final = Either(NOTHING, TEXTS)
_TARGET: Final = Either(
    Instance(MessageId, "a MessageId that can be", holds="is_possible"),
    Number(0, INT64_MAX, "a time in milliseconds since the epoch"),
)

#: Seconds between two looks at the statistics' interval are the interval itself.
_MS: Final = 1000


class Consumer(Acknowledging[T]):
    """Receives the messages of a subscription; made by :meth:`Client.subscribe`. Not for use by several threads.

    ``async for message in consumer`` ends when the consumer is closed. ``async with`` closes it at the end.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        subscription_name: str,
        options: ConsumerOptions,
        *,
        decryptor: Decryptor | None,
    ) -> None:
        """Use :meth:`Client.subscribe`. ``topic``: what was subscribed to, as text."""
        super().__init__(topic, options, client.place)
        self.client = client
        self.decryptor = decryptor
        self._by_index = options.batch_index_ack_enabled
        self._subscription_name = subscription_name
        self._name = options.consumer_name or client.runtime.rng.token(3)[:5]
        #: Who looks for its topics and partitions; set by whoever makes it.
        self.topic_set: TopicSet | None = None
        self.discovery: PatternTopics | None = None
        self._is_paused = False
        self.dead_letters: DeadLetters | None = None
        self._recorder = StatsRecorder(options.stats_interval_ms, self._now_ms())
        self._stats_timer: asyncio.TimerHandle | None = None
        if options.stats_interval_ms:
            self._stats_timer = self._loop.call_later(options.stats_interval_ms / _MS, self._on_stats_interval)
        self._listening = Listening(self, options.message_listener) if options.message_listener is not None else None
        #: Called at each end of a topic's queue, by table views.
        self.end_of_topic: asyncio.Event = asyncio.Event()

    # ---- receive

    async def receive(self, timeout_millis: int | None = None) -> Message[T]:
        """The next message. Raises Timeout after ``timeout_millis`` (None: never), AlreadyClosed, or why it failed."""
        self._check_receiving()
        if timeout_millis is not None:
            check_argument("timeout_millis", timeout_millis, TIME_MS)
        message = self._take()
        if message is None:
            message = await self._wait_for_message(timeout_millis)
        return message

    def receive_nowait(self) -> Message[T] | None:
        """A message that was prefetched; None if there is none."""
        self._check_receiving()
        if self._turns.left <= 0:
            self._turns.begin(self._loop.time())  # nobody waits here: the caller sees to the loop
        return self._take()

    async def batch_receive(self) -> list[Message[T]]:
        """As many messages as ``batch_receive_policy`` says: the first of its limits that is reached ends the wait.

        Empty if none came in its time. Raises AlreadyClosed, or why the consumer failed.
        """
        self._check_receiving()
        self._place.check()
        await self._rest()
        policy = self.options.batch_receive_policy
        queue = self._queue
        count_max = max(1, sum(topic.flow.capacity for topic in self._topics.values()))
        if not policy.is_enough(queue.total_count, queue.total_bytes, count_max):
            await self._wait_for_batch(count_max)
        self.counters.batch_receives += 1
        wanted = policy.max_num_message if policy.max_num_message > 0 else count_max
        return self._take_many(wanted, policy.max_num_bytes)

    def __aiter__(self) -> AsyncIterator[Message[T]]:
        # A generator is resumed for less than a coroutine is made, a message each.
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message[T]]:
        self._place.check()
        queue, counters, make = self._queue, self.counters, make_message
        has_interceptors = bool(self._interceptors)
        while True:
            if has_interceptors or (queue.at >= queue.stop and not self._run_on()):
                try:
                    message = await self.__anext__()
                except StopAsyncIteration:
                    return
                yield message
                continue
            entry = queue.entry
            assert entry is not None
            source = entry.source
            assert source is not None
            order, flow = entry.order, source.flow
            # As _take, with what does not change within a run looked up once. Others may take from it meanwhile.
            while (at := queue.at) < queue.stop and queue.entry is entry:
                queue.at = at + 1
                message = make(Message)
                message._entry = entry
                message._index = order[at]
                counters.messages_received += 1
                flow.owed += 1
                if flow.owed >= flow.threshold:
                    source.send_permits(flow.take())
                yield message

    async def __anext__(self) -> Message[T]:
        message = self._take()
        if message is None:
            if self._is_closed:
                raise StopAsyncIteration
            self._check_receiving()
            try:
                message = await self._wait_for_message(None)
            except AlreadyClosed:
                raise StopAsyncIteration from None
        return message

    # ---- acknowledge

    async def acknowledge(self, message: Message[Any] | MessageId | Iterable[Message[Any] | MessageId]) -> None:
        """One message (or its id), or several; they are sent in groups.

        With ``ack_receipt_enabled`` it returns when the broker has done it, and raises its error: what is awaited
        leaves at once, together with all that is acknowledged in the same turn of the loop. Without, it returns at
        once. Raises InvalidMessage for what is no message, OperationNotSupported for an id that says too little (then
        nothing of a list is acknowledged), and AlreadyClosed.
        """
        if self._is_closed:
            self._check_alive()
        if type(message) is Message and not self._interceptors:
            entry = message._entry
            source = entry.source
            if source is None:
                raise OperationNotSupported("the message does not come from a consumer")
            acker = entry.acker
            self.counters.acks_sent += 1
            # As Acknowledgement.acknowledge, one call shorter: most messages are in batches, and not the last of them.
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
                await source.acks.sender.heard(receipt)
            return
        self._check_alive()
        await self._acknowledge_all(self._checked(message))

    async def acknowledge_cumulative(self, message: Message[Any] | MessageId) -> None:
        """Everything up to and with a message, of its topic or partition; receipts as in :meth:`acknowledge`.

        Raises CumulativeAcknowledgementNotAllowedError on Shared and Key_Shared: others hold what lies before it.
        """
        if self._is_closed or running_loop() is not self._loop:
            self._check_alive()
        if self.options.shares_messages:
            raise CumulativeAcknowledgementNotAllowedError(
                f"{self.options.consumer_type.name} subscriptions can not be acknowledged cumulatively: messages "
                "before this one may be with other consumers; acknowledge each message"
            )
        await self._acknowledge_up_to(self._checked(one_of(message))[0])

    async def negative_acknowledge(self, message: Message[Any] | MessageId) -> None:
        """It could not be processed: deliver it again after the redelivery delay (or backoff).

        A batch comes again with those of its messages that are not acknowledged. On Exclusive and Failover everything
        comes again that is not acknowledged, in order. Raises InvalidMessage for what is no message.
        """
        self._check_open()
        one = one_of(message)
        if isinstance(one, Message):
            entry = one._entry
            if entry.source is None:
                raise OperationNotSupported("the message does not come from a consumer")
            self.counters.negative_acks += 1
            entry.source.redelivery.negative_acks(entry.key, entry.redelivery_count)
        else:
            source = self._source_of(one)
            self.counters.negative_acks += 1
            source.redelivery.negative_acks((one.ledger_id(), one.entry_id()), 0)

    async def reconsume_later(
        self,
        message: Message[Any],
        delay: timedelta | float = 0,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Put the message into the retry-letter topic, to come back after ``delay`` (seconds), and acknowledge it.

        After ``max_redeliver_count`` rounds it goes to the dead-letter topic. Needs ``retry_enabled``; raises
        InvalidMessage, or the error of storing it, and then it is not acknowledged.
        """
        self._check_open()
        if not self.options.retry_enabled or self.dead_letters is None:
            raise NotAllowedError("reconsume_later: the consumer was not made with retry_enabled=True")
        if not isinstance(message, Message):
            raise InvalidMessage(f"{message!r:.100}: expected a message")
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not abs(seconds) < TIME_MS_MAX / _MS:
            raise InvalidMessage(f"delay={delay!r:.100}: expected seconds or a timedelta")
        if not _PROPERTIES.takes(properties):
            raise InvalidMessage(f"properties={properties!r:.100}: expected {_PROPERTIES.expected}")
        await self.dead_letters.reconsume_later(message, int(seconds * _MS), properties)
        await self.acknowledge(message)

    async def redeliver_unacknowledged_messages(self) -> None:
        """Everything this consumer holds unacknowledged comes again, now."""
        self._check_open()
        for topic in self._topics.values():
            topic.redeliver_all()

    async def flush_acknowledgements(self) -> None:
        """Send the acknowledgements that wait for their group now; with ``ack_receipt_enabled``, wait for the answers
        to all that was acknowledged before, and raise the first error among them."""
        self._check_open()
        for topic in list(self._topics.values()):
            topic.acks.sender.flush()
        for topic in list(self._topics.values()):
            await topic.acks.sender.flushed()

    # ---- listener, pause

    def pause(self) -> None:
        """Ask for no more messages; what was asked for still comes and can be received, the listener gets none."""
        self._place.check()
        self._is_paused = True
        for topic in self._topics.values():
            topic.pause()
        if self._listening is not None:
            self._listening.pause()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._place.check()
        self._is_paused = False
        for topic in self._topics.values():
            topic.resume()
        if self._listening is not None:
            self._listening.resume()

    def pause_message_listener(self) -> None:
        """The listener gets no messages; they wait in the prefetch queue."""
        self._place.check()
        if self._listening is None:
            raise InvalidConfiguration("the consumer has no message_listener")
        self._listening.pause()

    def resume_message_listener(self) -> None:
        """The listener gets messages again."""
        self._place.check()
        if self._listening is None:
            raise InvalidConfiguration("the consumer has no message_listener")
        self._listening.resume()

    # ---- moving

    async def seek(self, target: MessageId | int) -> None:
        """Move the subscription: to a message id (also ``MessageId.earliest`` and ``latest``), or to a time in
        milliseconds since the epoch.

        The message of that id comes next with ``start_message_id_inclusive``, else the one behind it; of a time, the
        first one published then or later. An id moves its own topic, the two ends and a time move all topics.
        """
        self._check_open()
        check_argument("target", target, _TARGET)
        if not isinstance(target, MessageId):
            await self._each(lambda topic: topic.seek(None, target))
        elif target in (MessageId.earliest, MessageId.latest):
            await self._each(lambda topic: topic.seek(target))
        else:
            await self._source_of(target).seek(target)

    async def get_last_message_id(self) -> MessageId:
        """Id of the topic's last message (entry id -1: it is empty); OperationNotSupported with several topics."""
        ids = await self.get_last_message_ids()
        if len(ids) != 1:
            raise OperationNotSupported(f"{self._topic} has {len(ids)} topics: use get_last_message_ids")
        return ids[0]

    async def get_last_message_ids(self) -> list[MessageId]:
        """Ids of the last messages, one for each topic or partition."""
        self._check_open()
        return [(await topic.last_message_ids())[0] for topic in list(self._topics.values())]

    async def has_message_available(self) -> bool:
        """Whether a message can be received without waiting for somebody to publish one.

        The broker knows the last message of a topic, not whether it can be read. A reader waits until one is here, or
        what the broker has was read and gave none; for the operation timeout at most, then it is the broker's word.
        """
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
            async with asyncio.timeout(self.client.options.operation_timeout_ms / _MS):
                # Not in the line of those who receive: one of them may be given what comes.
                await self._watch_for_arrival()
        except TimeoutError:
            return False
        return True

    async def _each(self, do: Callable[[TopicConsumer], Awaitable[None]]) -> None:
        for topic in list(self._topics.values()):
            await do(topic)

    # ---- life

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription (``force``: also while others consume it) and close this consumer."""
        self._check_open()
        check_argument("force", force, FLAG)
        for topic in list(self._topics.values()):
            await topic.unsubscribe(is_forced=force)
        await self.close()

    async def close(self) -> None:
        """Send what is acknowledged, leave the broker; harmless twice. Whoever receives gets AlreadyClosed."""
        self._place.check()
        if self._is_closed:
            return
        self._is_closed = True
        self.client.forget(self)
        if self._stats_timer is not None:
            self._stats_timer.cancel()
        if self._listening is not None:
            self._listening.close()
        if self.topic_set is not None:
            self.topic_set.close()
        if self.discovery is not None:
            self.discovery.close()
        self._queue.drop(lambda _: True)
        self._wake_all()
        self.end_of_topic.set()
        await close_all(list(self._topics.values()))
        if self.dead_letters is not None:
            await self.dead_letters.close()
        for interceptor in self._interceptors:
            tell(_log, "interceptor", interceptor.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # ---- what it is

    def topic(self) -> str:
        """What was subscribed to."""
        return self._topic

    def topics(self) -> list[str]:
        """The topics and partitions consumed now."""
        return list(self._topics)

    def subscription_name(self) -> str:
        """The subscription."""
        return self._subscription_name

    def consumer_name(self) -> str:
        """This consumer's name, unique in the subscription as a rule."""
        return self._name

    def is_connected(self) -> bool:
        """Whether it is subscribed to all its topics now."""
        return not self._is_closed and all(topic.is_connected for topic in self._topics.values())

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._is_closed

    def is_active(self) -> bool:
        """On Failover: whether the broker made this the active consumer of any topic; True on the other types."""
        return any(topic.is_active is not False for topic in self._topics.values())

    def stats(self) -> ConsumerStats:
        """Counters since it was made, and rates of the last interval."""
        return self._recorder.stats(
            self.counters,
            prefetched_messages=self._queue.total_count,
            pending_acks=sum(topic.acks.sender.tracker.pending_count for topic in self._topics.values()),
        )

    def _on_stats_interval(self) -> None:
        self._stats_timer = self._loop.call_later(self.options.stats_interval_ms / _MS, self._on_stats_interval)
        if self._recorder.tick(self.counters, self._now_ms()) and self.counters.messages_received:
            _log.debug("consumer of %s: %s", self._topic, self.stats())

    def _now_ms(self) -> float:
        return self.client.runtime.clock.monotonic() * _MS

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
    ) -> TopicConsumer:
        """A consumer of one more topic, not open yet."""
        consumer = TopicConsumer(self, topic, capacity=capacity, decoder=decoder, start_message_id=start_message_id)
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

    def on_subscribed(self, consumer: TopicConsumer) -> None:
        """It is subscribed, again perhaps."""
        if self._waiters and not self.options.receiver_queue_size:
            consumer.ask_for_one()

    def on_topic_failed(self, consumer: TopicConsumer, error: PulsarException) -> None:
        """One topic can not go on: receiving fails with its error. A pattern's topic may be deleted."""
        if self.discovery is not None and consumer.is_found and isinstance(error, TopicNotFound):
            self.discovery.on_topic_gone(consumer)
            return
        self._error = error
        self._wake_all()

    def on_end_of_topic(self, consumer: TopicConsumer) -> None:
        """The topic was terminated and everything of it was delivered."""
        self.end_of_topic.set()
