"""Makes producers: options checked, schema bound, partitions looked up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypedDict, TypeVar

from geminga.client._api.crypto import CryptoKeyReader, KeySource, MessageEncryptor
from geminga.client._api.interceptors import ProducerInterceptor
from geminga.client._api.lifetime import Lifetime
from geminga.client._api.options import (
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
from geminga.client._api.producer import Producer
from geminga.client._api.topic_names import parse_topic
from geminga.client._producing.intercepting_producer import InterceptingProducer
from geminga.client._producing.messages import MessageBuilder
from geminga.client._producing.partitioned_producer import PartitionedProducer
from geminga.client._producing.topic_producer import TopicProducer
from geminga.client._transport.cluster import Cluster
from geminga.client.producer_rules.memory_limit import MemoryLimit
from geminga.client.rules.option_kinds import NOTHING, Either, With
from geminga.client.schema._protocol import MessageEncoder, SchemaSource, TopicSchema
from geminga.model.topic_name import TopicName

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


@dataclass(frozen=True, slots=True)
class ProducerFactory:
    """Makes the producers of one client."""

    cluster: Cluster
    #: What all producers together hold.
    memory: MemoryLimit
    lifetime: Lifetime
    schemas: SchemaSource
    _ids: Iterator[int] = field(default_factory=count)

    async def create(self, topic_name: str, schema: TopicSchema[T] | None, arguments: ProducerArguments) -> Producer[T]:
        """See :meth:`Client.create_producer`."""
        self.lifetime.check_usable()
        topic = parse_topic(topic_name)
        options = options_from(ProducerOptions, arguments)
        options.check()
        check_argument("schema", schema, _SCHEMA)
        encoder: MessageEncoder[T] | None = None
        if schema is not None:
            encoder = await schema.bind_producer(str(topic.partitioned_topic), self.schemas)
        encrypt = await self._encryptor(options)
        builder = MessageBuilder(self.cluster.runtime.clock, encoder, encrypt)
        partitions = 0 if topic.is_partition else await self.cluster.lookup.partitions(str(topic))
        if partitions:
            made: TopicProducer[T] | PartitionedProducer[T] = await self._create_partitioned(
                topic, partitions, options, builder
            )
        else:
            single = self._single(topic, options, builder, topic.partition)
            self.lifetime.remember_producer(single)
            await single.connect()
            made = single
        if not options.interceptors:
            return made
        intercepting = InterceptingProducer(
            made, made.hand_over, options.interceptors, self.cluster.place, on_closed=self.lifetime.forget_producer
        )
        self.lifetime.remember_producer(intercepting)
        return intercepting

    async def _encryptor(self, options: ProducerOptions) -> MessageEncryptor | None:
        if options.crypto_key_reader is None:
            return None
        names = [options.encryption_key] if isinstance(options.encryption_key, str) else options.encryption_key
        runtime = self.cluster.runtime
        source = KeySource(runtime.threads, options.crypto_key_reader, self.cluster.timeout_s)
        encrypt = MessageEncryptor(runtime.clock, source, names, options.crypto_failure_action)
        await encrypt.begin()
        return encrypt

    def _single(
        self, topic: TopicName, options: ProducerOptions, builder: MessageBuilder[T], partition: int
    ) -> TopicProducer[T]:
        return TopicProducer(
            self.cluster,
            self.memory,
            str(topic),
            options,
            builder,
            producer_id=next(self._ids),
            partition=partition,
            on_closed=self.lifetime.forget_producer,
        )

    async def _create_partitioned(
        self, topic: TopicName, partitions: int, options: ProducerOptions, builder: MessageBuilder[T]
    ) -> PartitionedProducer[T]:
        across = options.max_pending_messages_across_partitions
        if across:
            share = max(across // partitions, 1)
            limit = min(options.max_pending_messages, share) if options.max_pending_messages else share
            options = dataclasses.replace(options, max_pending_messages=limit)

        def make(index: int) -> TopicProducer[T]:
            return self._single(topic.with_partition(index), options, builder, index)

        producer = PartitionedProducer(
            self.cluster,
            str(topic),
            partitions,
            options,
            make,
            key_of=builder.key_of,
            on_closed=self.lifetime.forget_producer,
        )
        self.lifetime.remember_producer(producer)
        await producer.connect()
        return producer


async def create_producer(
    producers: ProducerFactory, topic: str, schema: TopicSchema[T] | None, arguments: ProducerArguments
) -> Producer[T]:
    """See :meth:`Client.create_producer`; one that is never awaited warns by this name."""
    return await producers.create(topic, schema, arguments)
