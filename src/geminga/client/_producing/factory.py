"""Makes producers: options checked, schema bound, partitions looked up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

from geminga.client._crypto import CryptoKeyReader, KeySource, MessageEncryptor
from geminga.client._interceptors import ProducerInterceptor
from geminga.client._options import (
    BatchingType,
    CompressionType,
    CryptoFailureAction,
    HashingScheme,
    OutgoingMessage,
    PartitionsRoutingMode,
    ProducerAccessMode,
    ProducerOptions,
    check_argument,
    options_from,
)
from geminga.client._producing.intercepting_producer import InterceptingProducer
from geminga.client._producing.messages import MessageBuilder
from geminga.client._producing.partitioned_producer import PartitionedProducer
from geminga.client._producing.producer import Producer
from geminga.client._producing.topic_producer import TopicProducer
from geminga.client.core.option_kinds import NOTHING, Either, With
from geminga.client.schema._protocol import MessageEncoder, TopicSchema
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.client._client import Client

T = TypeVar("T")

_SCHEMA: Final = Either(NOTHING, With("a schema", "bind_producer"))


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
    batching_type: BatchingType
    chunking_enabled: bool
    chunk_max_message_size: int
    message_routing_mode: PartitionsRoutingMode
    hashing_scheme: HashingScheme
    message_router: Callable[[OutgoingMessage, int], int] | None
    lazy_start_partitioned_producers: bool
    auto_update_partitions_interval_ms: int
    properties: Mapping[str, str]
    access_mode: ProducerAccessMode
    encryption_key: str | Sequence[str]
    crypto_key_reader: CryptoKeyReader | None
    crypto_failure_action: CryptoFailureAction
    interceptors: Sequence[ProducerInterceptor]
    initial_subscription_name: str


async def create_producer(
    client: Client, topic_name: str, schema: TopicSchema[T] | None, arguments: ProducerArguments
) -> Producer[T]:
    """See :meth:`Client.create_producer`."""
    client.check_usable()
    topic = client.parse_topic(topic_name)
    options = options_from(ProducerOptions, arguments)
    options.check()
    check_argument("schema", schema, _SCHEMA)
    encoder: MessageEncoder[T] | None = None
    if schema is not None:
        encoder = await schema.bind_producer(str(topic.partitioned_topic), client)
    encrypt: MessageEncryptor | None = None
    if options.crypto_key_reader is not None:
        names = [options.encryption_key] if isinstance(options.encryption_key, str) else options.encryption_key
        runtime = client.runtime
        source = KeySource(runtime.threads, options.crypto_key_reader, client.options.operation_timeout_ms / 1000)
        encrypt = MessageEncryptor(runtime.clock, source, names, options.crypto_failure_action)
        await encrypt.begin()
    builder = MessageBuilder(client.runtime.clock, encoder, encrypt)
    partitions = 0 if topic.is_partition else await client.lookup.partitions(str(topic))
    if partitions:
        made: Producer[T] = await _create_partitioned(client, topic, partitions, options, builder)
    else:
        single = TopicProducer(client, str(topic), options, builder, partition=topic.partition)
        client.remember_producer(single)
        await single.connect()
        made = single
    if options.interceptors:
        made = InterceptingProducer(made, options.interceptors)
    return made


async def _create_partitioned(
    client: Client, topic: TopicName, partitions: int, options: ProducerOptions, builder: MessageBuilder[T]
) -> Producer[T]:
    across = options.max_pending_messages_across_partitions
    if across:
        share = max(across // partitions, 1)
        limit = min(options.max_pending_messages, share) if options.max_pending_messages else share
        options = dataclasses.replace(options, max_pending_messages=limit)

    def make(index: int) -> TopicProducer[T]:
        name = str(topic.with_partition(index))
        return TopicProducer(client, name, options, builder, partition=index)

    producer = PartitionedProducer(client, str(topic), partitions, options, make)
    client.remember_producer(producer)
    await producer.connect()
    return producer
