"""The topic of events, by our own client: wherever in this cluster it is served; :class:`ports.EventTopic`.

Names and settings are those of Pulsar's brokers, so that theirs and ours take turns in one cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from geminga.broker.synchronization.core.events import SCHEMA, SyncEvent, fields_of, properties_of
from geminga.broker.synchronization.paths import VALUE_BYTES_MAX
from geminga.broker.synchronization.ports import Received
from geminga.client import (
    Client,
    Consumer,
    ConsumerType,
    EntryProducer,
    InitialPosition,
    Message,
    MessageTooBig,
    Producer,
    PulsarException,
)
from geminga.client.schema import AvroSchema
from geminga.model.errors import PreconditionFailedError, UnavailableError
from geminga.model.topic_name import TopicName

#: As in Pulsar.
SUBSCRIPTION: Final = "metadata-syncer"
#: An event without a receipt, or an acknowledgment, for so long fails.
ANSWER_S_MAX: Final = 30.0
#: How long is waited for the end of what is not used any more.
CLOSE_S_MAX: Final = 5.0
#: Prefetched: messages, and their bytes.
PREFETCHED_MAX: Final = 100
PREFETCHED_BYTES_MAX: Final = 8 << 20
#: Of a message: a value, and what an event says beside it.
MESSAGE_BYTES_MAX: Final = VALUE_BYTES_MAX + (64 << 10)

_Fields = Mapping[str, object]


class ClientEventTopic:
    """See the module."""

    __slots__ = ("_client", "_cluster", "_consumer", "_name", "_open_client", "_opening", "_producer")

    def __init__(self, name: TopicName, cluster: str, open_client: Callable[[], Client]) -> None:
        """``cluster``: this one. ``open_client``: of it; it is called when needed, and closed with this."""
        self._name = name
        self._cluster = cluster
        self._open_client = open_client
        self._client: Client | None = None
        self._producer: Producer[_Fields] | None = None
        self._consumer: Consumer[_Fields] | None = None
        self._opening = asyncio.Lock()

    async def listen(self) -> None:
        """As of the port."""
        try:
            await self._open_consumer()
        except PulsarException as error:
            raise self._unavailable("read", error) from error

    async def publish(self, event: SyncEvent, clusters: Sequence[str] = ()) -> None:
        """As of the port."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                producer = await self._open_producer()
                await producer.send(
                    cast("_Fields", fields_of(event)),
                    partition_key=event.path,
                    properties=properties_of(event, self._cluster),
                    replication_clusters=[*clusters] or None,
                )
        except MessageTooBig as error:
            raise PreconditionFailedError(f"{self._name} takes none so large: {error}") from error
        except (PulsarException, TimeoutError) as error:
            producer_, self._producer = self._producer, None
            await _close(producer_)
            raise self._unavailable("written", error) from error

    async def receive(self) -> Received:
        """As of the port."""
        try:
            consumer = await self._open_consumer()
            message = await consumer.receive()
        except PulsarException as error:
            await self._close_consumer()
            raise self._unavailable("read", error) from error
        return _received(message)

    async def acknowledge(self, received: Received) -> None:
        """As of the port."""
        consumer = self._consumer
        if consumer is None:
            return  # it comes again, and is known
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await consumer.acknowledge(cast("Message[_Fields]", received.handle))
        except (PulsarException, TimeoutError) as error:
            await self._close_consumer()
            raise self._unavailable("acknowledged", error) from error

    async def close(self) -> None:
        """As of the port."""
        client, self._client = self._client, None
        self._producer = self._consumer = None
        await _close(client)

    # ---- private

    def _use_client(self) -> Client:
        if self._client is None:
            self._client = self._open_client()
        return self._client

    async def _open_producer(self) -> Producer[_Fields]:
        async with self._opening:
            if self._producer is None:
                producer: Producer[_Fields] = await self._use_client().create_producer(
                    str(self._name), schema=AvroSchema(schema_definition=SCHEMA), batching_enabled=False
                )
                if not isinstance(producer, EntryProducer):
                    await _close(producer)
                    raise UnavailableError(f"{self._name} is partitioned: expected a topic without partitions")
                self._producer = producer
            return self._producer

    async def _open_consumer(self) -> Consumer[_Fields]:
        # Before a subscription makes the topic, its producer brings the schema, and finds out what it is.
        await self._open_producer()
        async with self._opening:
            if self._consumer is None:
                self._consumer = await self._use_client().subscribe(
                    str(self._name),
                    SUBSCRIPTION,
                    schema=AvroSchema(schema_definition=SCHEMA),
                    consumer_type=ConsumerType.Failover,
                    initial_position=InitialPosition.Earliest,
                    receiver_queue_size=PREFETCHED_MAX,
                    receiver_queue_bytes=PREFETCHED_BYTES_MAX,
                    ack_receipt_enabled=True,
                )
            return self._consumer

    async def _close_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        await _close(consumer)

    def _unavailable(self, what: str, error: BaseException) -> UnavailableError:
        return UnavailableError(f"{self._name} can not be {what} now: {error or 'no answer in time'}")


def _received(message: Message[_Fields]) -> Received:
    size_bytes = len(message.data())
    if size_bytes > MESSAGE_BYTES_MAX:
        return Received({}, {}, f"it has {size_bytes} bytes, more than {MESSAGE_BYTES_MAX}", message)
    try:
        fields = message.value()
    except PulsarException as error:
        return Received({}, {}, f"it can not be read: {error}"[:300], message)
    if not isinstance(fields, Mapping):
        return Received({}, {}, "it has no value", message)
    return Received(fields, message.properties(), "", message)


async def _close(opened: Client | Producer[_Fields] | Consumer[_Fields] | None) -> None:
    if opened is None:
        return
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await opened.close()
    except (PulsarException, TimeoutError):
        pass  # its connection is gone, and it with that
