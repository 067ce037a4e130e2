"""Dead-letter and retry-letter topics of one consumer: their producers, and what messages carry into them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from geminga.client._consumer_options import ConsumerDeadLetterPolicy
from geminga.client._entry_batch import EntryBatch
from geminga.client._errors import PulsarException
from geminga.client._message import Message
from geminga.client._producer import MessageFields, Producer
from geminga.client.core import dead_letter_names as names
from geminga.runtime import get_logger

if TYPE_CHECKING:
    from geminga.client._client import Client

_log = get_logger(__name__)


class DeadLetters:
    """Sends messages to the retry-letter and the dead-letter topic; producers are made when first needed."""

    __slots__ = (
        "_client",
        "_dead_letter_producer",
        "_policy",
        "_retry_producer",
        "_subscription",
        "dead_letter_topic",
        "redeliveries_max",
        "retry_letter_topic",
    )

    def __init__(self, client: Client, topic: str, subscription: str, policy: ConsumerDeadLetterPolicy | None) -> None:
        """``topic``: the first one of the consumer, whose name the default topics get."""
        self._client = client
        self._subscription = subscription
        self._policy = policy
        self.redeliveries_max = names.REDELIVERIES_MAX_DEFAULT if policy is None else policy.max_redeliver_count
        given_dead = policy.dead_letter_topic if policy is not None else None
        given_retry = policy.retry_letter_topic if policy is not None else None
        self.dead_letter_topic = given_dead or names.dead_letter_topic(topic, subscription)
        self.retry_letter_topic = given_retry or names.retry_letter_topic(topic, subscription)
        self._dead_letter_producer: Producer[bytes] | None = None
        self._retry_producer: Producer[bytes] | None = None

    async def bury(self, entry: EntryBatch) -> bool:
        """Store what is unacknowledged of an entry in the dead-letter topic; False: it could not be stored."""
        source = entry.source
        try:
            for index in entry.order:
                if entry.acker is not None and entry.acker.is_acknowledged(index):
                    continue
                message: Message[Any] = Message(entry, index)
                await self.bury_message(message, self._origin(message))
        except PulsarException as error:
            _log.warning("dead letter of %s: %s", entry.topic_name, error)
            return False
        if source is not None:
            source.owner.counters.dead_lettered += len(entry.order)
        return True

    async def bury_message(self, message: Message[Any], properties: Mapping[str, str]) -> None:
        """Store one message in the dead-letter topic."""
        if self._dead_letter_producer is None:
            initial = self._policy.initial_subscription_name if self._policy is not None else None
            self._dead_letter_producer = await self._client.create_producer(
                self.dead_letter_topic, initial_subscription_name=initial or "", batching_enabled=False
            )
        await self._dead_letter_producer.send(_content(message), **_fields(message, properties))

    async def reconsume_later(self, message: Message[Any], delay_ms: int, properties: Mapping[str, str] | None) -> None:
        """Store one message in the retry-letter topic, or in the dead-letter topic if it was there often enough."""
        carried = self._origin(message)
        if properties:
            carried.update(properties)
        times = names.reconsume_times(message.properties()) + 1
        if times > self.redeliveries_max:
            await self.bury_message(message, carried)
            source = message._entry.source
            if source is not None:
                source.owner.counters.dead_lettered += 1
            return
        if self._retry_producer is None:
            self._retry_producer = await self._client.create_producer(self.retry_letter_topic, batching_enabled=False)
        fields = _fields(message, names.retry_properties(carried, times=times, delay_ms=delay_ms))
        if delay_ms > 0:
            fields["deliver_after"] = timedelta(milliseconds=delay_ms)
        await self._retry_producer.send(_content(message), **fields)

    async def close(self) -> None:
        """Close the producers."""
        for producer in (self._dead_letter_producer, self._retry_producer):
            if producer is not None:
                await producer.close()

    def _origin(self, message: Message[Any]) -> dict[str, str]:
        return names.origin_properties(
            message.properties(),
            topic=message.topic_name(),
            subscription=self._subscription,
            message_id=str(message.message_id()),
        )


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
