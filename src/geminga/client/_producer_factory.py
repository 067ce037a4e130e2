"""Makes producers: options checked, schema bound, partitions looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, TypeVar

from geminga.client._options import (
    CompressionType,
    ProducerAccessMode,
    ProducerOptions,
)
from geminga.client._producer import Producer
from geminga.client._producer_messages import MessageBuilder
from geminga.client._topic_producer import TopicProducer
from geminga.client.schema._protocol import MessageEncoder, TopicSchema
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.client._client import Client

T = TypeVar("T")


class ProducerArguments(TypedDict, total=False):
    """The options of ``create_producer``: the fields of :class:`ProducerOptions`."""

    producer_name: str
    initial_sequence_id: int | None
    send_timeout_millis: int
    compression_type: CompressionType
    max_pending_messages: int
    max_pending_messages_across_partitions: int
    block_if_queue_full: bool
    batching_enabled: bool
    batching_max_messages: int
    batching_max_allowed_size_in_bytes: int
    batching_max_publish_delay_ms: int
    chunking_enabled: bool
    chunk_max_message_size: int
    properties: Mapping[str, str]
    access_mode: ProducerAccessMode
    initial_subscription_name: str


async def create_producer(
    client: Client, topic: TopicName, schema: TopicSchema[T] | None, arguments: ProducerArguments
) -> Producer[T]:
    """See :meth:`Client.create_producer`."""
    options = ProducerOptions(**arguments)
    options.check()
    encoder: MessageEncoder[T] | None = None
    if schema is not None:
        encoder = await schema.bind_producer(str(topic.partitioned_topic), client)
    builder = MessageBuilder(client.runtime.clock, encoder)
    producer = TopicProducer[T](client, str(topic), options, builder, partition=topic.partition)
    client.remember_producer(producer)
    await producer.connect()
    return producer
