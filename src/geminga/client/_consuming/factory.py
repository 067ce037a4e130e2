"""Makes consumers from what :meth:`Client.subscribe` was given: a topic, several, or a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from geminga.client._api.crypto import KeySource, MessageDecryptor
from geminga.client._api.errors import InvalidConfiguration, InvalidTopicName
from geminga.client._api.lifetime import Lifetime
from geminga.client._api.opening import close_unopened
from geminga.client._api.options import check_argument, options_from
from geminga.client._api.topic_names import parse_topic
from geminga.client._consuming.dead_letter import DeadLetters
from geminga.client._consuming.multi_consumer import TopicSet, check_start_of_several
from geminga.client._consuming.pattern_consumer import PatternTopics
from geminga.client._consuming.subscription import Subscription
from geminga.client._consuming.subscription_consumer import SubscriptionConsumer
from geminga.client._messages.consumer import Consumer
from geminga.client._messages.consumer_interceptors import Interceptors
from geminga.client._messages.consumer_options import ConsumerArguments, ConsumerOptions
from geminga.client._messages.letter_producers import MakeProducer
from geminga.client._transport.cluster import Cluster
from geminga.client.consumer_rules.chunk_assembly import LARGEST_HELD_MAX, ChunkBounds
from geminga.client.consumer_rules.topic_pattern import TopicPattern
from geminga.client.rules.option_kinds import NOTHING, TEXT, Either, Instance, Many, With
from geminga.client.rules.stats import ConsumerCounters
from geminga.client.schema._protocol import SchemaSource, TopicSchema
from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError

T = TypeVar("T")

#: What is subscribed to: one topic, several, or a compiled pattern over the topics of a namespace.
Topics = str | Sequence[str] | re.Pattern[str]

_TOPICS: Final = Either(TEXT, Many(TEXT), Instance(re.Pattern, "a compiled pattern"))
_PATTERN: Final = Instance(str, "a pattern of text, not of bytes")
_SCHEMA: Final = Either(NOTHING, With("a schema", "bind_consumer"))


@dataclass(frozen=True, slots=True)
class ConsumerFactory:
    """Makes the consumers of one client."""

    cluster: Cluster
    lifetime: Lifetime
    schemas: SchemaSource
    #: For dead-letter and retry-letter topics.
    make_producer: MakeProducer

    async def subscribe(
        self, topic: Topics, subscription_name: str, schema: TopicSchema[T] | None, options: ConsumerOptions
    ) -> SubscriptionConsumer[T]:
        """An open consumer; raises what went wrong, and then nothing of it is left."""
        options.check()
        check_argument("topic", topic, _TOPICS)
        check_argument("subscription_name", subscription_name, TEXT)
        check_argument("schema", schema, _SCHEMA)
        if not subscription_name:
            raise InvalidConfiguration("subscription_name: must not be empty")
        pattern: TopicPattern | None = None
        names: list[TopicName] = []
        if isinstance(topic, re.Pattern):
            check_argument("topic", topic.pattern, _PATTERN)
            try:
                pattern = TopicPattern.parse(topic.pattern)
            except InvalidTopicNameError as error:
                raise InvalidTopicName(str(error)) from None
            text = topic.pattern
        else:
            names = [parse_topic(one) for one in ([topic] if isinstance(topic, str) else topic)]
            names = list(dict.fromkeys(names))
            if not names:
                raise InvalidConfiguration("topic: an empty list")
            text = ",".join(map(str, names))
        subscription = self._subscription(subscription_name, options, names, pattern)
        consumer: SubscriptionConsumer[T] = SubscriptionConsumer(
            self.cluster, subscription, text, on_closed=self.lifetime.forget
        )
        try:
            await self._open(consumer, subscription, names, pattern, schema)
            self.lifetime.remember(consumer)
        except BaseException as error:
            await close_unopened(consumer.close(), error, name=f"close what was not opened of {text}")
            raise
        if consumer.listening is not None:
            consumer.listening.start(consumer)
        return consumer

    def _subscription(
        self, name: str, options: ConsumerOptions, names: list[TopicName], pattern: TopicPattern | None
    ) -> Subscription:
        decryptor: MessageDecryptor | None = None
        runtime = self.cluster.runtime
        if options.crypto_key_reader is not None:
            source = KeySource(runtime.threads, options.crypto_key_reader, self.cluster.timeout_s)
            decryptor = MessageDecryptor(runtime.clock, source)
        counters = ConsumerCounters()
        interceptors = Interceptors(options.interceptors) if options.interceptors else None
        consumer_name = options.consumer_name or runtime.rng.token(3)[:5]
        dead_letters: DeadLetters | None = None
        if options.dead_letter_policy is not None or options.retry_enabled:
            first = str(names[0]) if names else f"persistent://{pattern.namespace if pattern else ''}/pattern"
            dead_letters = DeadLetters(
                self.make_producer,
                self.schemas,
                first,
                name,
                options.dead_letter_policy,
                # As in the Java client: a retry-letter topic is one for all, and so is the dead-letter topic behind it.
                is_one_for_all=options.retry_enabled and pattern is None,
                counters=counters,
            )
        largest_bytes = options.chunked_message_bytes_max
        bounds = ChunkBounds(largest_bytes, largest_bytes * LARGEST_HELD_MAX)
        return Subscription(name, consumer_name, options, counters, interceptors, decryptor, dead_letters, bounds)

    async def _open(
        self,
        consumer: SubscriptionConsumer[T],
        subscription: Subscription,
        names: list[TopicName],
        pattern: TopicPattern | None,
        schema: TopicSchema[T] | None,
    ) -> None:
        options = subscription.options
        start = None if options.is_durable else options.start_message_id
        if pattern is not None:
            check_start_of_several(start)
        topics = TopicSet(
            self.cluster,
            subscription,
            held=consumer.held,
            delivery=consumer.receiving,
            condition=consumer.condition,
            schema=schema,
            schemas=self.schemas,
            start_message_id=start,
        )
        consumer.topic_set = topics
        dead_letters = subscription.dead_letters
        if dead_letters is not None:
            dead_letters.subscribed_topics = lambda: topics.topics
            if options.retry_enabled:
                names = [*names, parse_topic(dead_letters.retry_letter_topic)]
        await topics.add(names)
        if pattern is not None:
            discovery = PatternTopics(self.cluster, options, topics, pattern)
            consumer.discovery = discovery
            consumer.held.on_gone = discovery.on_topic_gone
            await discovery.discover()
            discovery.start()
        topics.start_updates()


async def subscribe_with(
    consumers: ConsumerFactory,
    topic: Topics,
    subscription_name: str,
    schema: TopicSchema[T] | None,
    arguments: ConsumerArguments,
) -> Consumer[T]:
    """See :meth:`Client.subscribe`; one that is never awaited warns by this name."""
    consumers.lifetime.check_usable()
    return await consumers.subscribe(topic, subscription_name, schema, options_from(ConsumerOptions, arguments))
