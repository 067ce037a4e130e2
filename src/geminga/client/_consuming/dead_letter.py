"""Dead-letter and retry-letter topics of one consumer: their producers, and what messages carry into them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from geminga.client._api.errors import PulsarException
from geminga.client._api.producer import MessageFields
from geminga.client._api.topic_names import parse_topic
from geminga.client._messages.consumer_options import ConsumerDeadLetterPolicy
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.letter_producers import LetterProducers, MakeProducer, WrittenSchemas
from geminga.client._messages.message import Message
from geminga.client.consumer_rules import dead_letter_names as names
from geminga.client.rules.stats import ConsumerCounters
from geminga.client.schema._protocol import SchemaSource
from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError
from geminga.runtime import get_logger

_log = get_logger(__name__)


class DeadLetters:
    """Sends messages to the retry-letter and the dead-letter topic; producers are made when first needed."""

    __slots__ = (
        "_counters",
        "_fixed_dead_letter_topic",
        "_making",
        "_policy",
        "_producers",
        "_schemas",
        "_subscription",
        "redeliveries_max",
        "retry_letter_topic",
        "subscribed_topics",
    )

    def __init__(
        self,
        make: MakeProducer,
        schemas: SchemaSource,
        topic: str,
        subscription: str,
        policy: ConsumerDeadLetterPolicy | None,
        *,
        is_one_for_all: bool,
        counters: ConsumerCounters,
    ) -> None:
        """Raises InvalidTopicName. ``topic``: the first one of the consumer, whose name the default retry-letter topic
        gets, and with ``is_one_for_all`` the default dead-letter topic; else each topic has one of its own."""
        self._schemas = WrittenSchemas(schemas)
        self._counters = counters
        #: The topics as they were subscribed to; set once they are known.
        self.subscribed_topics: Callable[[], Sequence[str]] = tuple
        self._subscription = subscription
        self._policy = policy
        self.redeliveries_max = names.REDELIVERIES_MAX_DEFAULT if policy is None else policy.max_redeliver_count
        given_dead = policy.dead_letter_topic if policy is not None else None
        given_retry = policy.retry_letter_topic if policy is not None else None
        if not given_dead and is_one_for_all:
            given_dead = names.dead_letter_topic(topic, subscription)
        self._fixed_dead_letter_topic = given_dead
        self.retry_letter_topic = str(parse_topic(given_retry or names.retry_letter_topic(topic, subscription)))
        self._making = asyncio.Lock()
        self._producers = LetterProducers(make)

    def dead_letter_topic(self, topic: str) -> str:
        """Where messages of ``topic``, or of its partition, are buried."""
        return self._fixed_dead_letter_topic or names.dead_letter_topic(topic, self._subscription)

    async def bury(self, entry: EntryBatch, buried: Callable[[int], None], is_held: Callable[[int], bool]) -> bool:
        """Store what is unacknowledged of an entry in the dead-letter topic; False: not all of it could be stored.

        ``buried`` hears of each message that is, by its index: it is not stored again where a later one fails.
        ``is_held`` says which are acknowledged in transactions that are not over: aborted, they come again.
        """
        try:
            for index in entry.order:
                if entry.acker is not None and (entry.acker.is_acknowledged(index) or is_held(index)):
                    continue
                message: Message[Any] = Message(entry, index)
                await self._bury_message(message, self._origin(message, message.topic_name()))
                self._counters.dead_lettered += 1
                buried(index)
        except PulsarException as error:
            _log.warning("dead letter of %s: %s", entry.topic_name, error)
            return False
        return True

    async def _bury_message(self, message: Message[Any], properties: Mapping[str, str]) -> None:
        initial = self._policy.initial_subscription_name if self._policy is not None else None
        topic = self.dead_letter_topic(self._home_of(message))
        await self._send(topic, initial or "", message, _fields(message, properties))

    async def _send(self, topic: str, initial: str, message: Message[Any], fields: MessageFields) -> None:
        schema = await self._schemas.of(message)
        async with self._making:  # several may need it at once
            producer = await self._producers.find(topic, initial, schema)
        try:
            await producer.send(_content(message), **fields)
        except PulsarException:
            await self._producers.drop(producer)
            raise

    def _home_of(self, message: Message[Any]) -> str:
        """The topic a message belongs to: where it came from, if it comes from the retry-letter topic."""
        topic = message.topic_name()
        if str(TopicName.parse(topic).partitioned_topic) != self.retry_letter_topic:
            return topic
        try:
            return str(TopicName.parse(message.properties().get(names.REAL_TOPIC, topic)))
        except InvalidTopicNameError:
            return topic

    async def reconsume_later(self, message: Message[Any], delay_ms: int, properties: Mapping[str, str] | None) -> None:
        """Store one message in the retry-letter topic, or in the dead-letter topic if it was there often enough."""
        carried = self._origin(message, self._subscribed_topic(message))
        if properties:
            carried.update(properties)
        times = names.reconsume_times(carried) + 1
        carried = names.retry_properties(carried, times=times, delay_ms=delay_ms)
        if times > self.redeliveries_max:
            await self._bury_message(message, carried)
            self._counters.dead_lettered += 1
            return
        fields = _fields(message, carried)
        if delay_ms > 0:
            fields["deliver_after"] = timedelta(milliseconds=delay_ms)
        await self._send(self.retry_letter_topic, "", message, fields)

    async def close(self) -> None:
        """Close the producers."""
        self.subscribed_topics = tuple
        await self._producers.close()

    def _origin(self, message: Message[Any], topic: str) -> dict[str, str]:
        message_id = message.message_id()
        first = message_id.first_chunk_message_id()
        return names.origin_properties(
            message.properties(),
            topic=topic,
            subscription=self._subscription,
            message_id=names.message_id_text(
                message_id.ledger_id(),
                message_id.entry_id(),
                message_id.partition(),
                message_id.batch_index(),
                None if first is None else (first.ledger_id(), first.entry_id()),
            ),
        )

    def _subscribed_topic(self, message: Message[Any]) -> str:
        """The topic as it was subscribed to: of a partition, the partitioned topic."""
        source = message._entry.source
        name = message.topic_name()
        if source is None:
            return name
        whole = str(source.topic.partitioned_topic)
        return whole if whole in self.subscribed_topics() else name


def _content(message: Message[Any]) -> bytes | None:
    return None if message.has_null_value() else message.data()


def _fields(message: Message[Any], properties: Mapping[str, str]) -> MessageFields:
    fields: MessageFields = {"properties": properties}
    if message.has_key():
        fields["partition_key"] = message.key_bytes() if message.has_base64_key() else message.partition_key()
    ordering_key = message.ordering_key_bytes()
    if ordering_key:
        fields["ordering_key"] = ordering_key
    event_timestamp = message.event_timestamp()
    if event_timestamp:
        fields["event_timestamp"] = event_timestamp
    return fields
