"""Makes consumers from what :meth:`Client.subscribe` was given: a topic, several, or a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from geminga.client._consuming.consumer import Consumer
from geminga.client._consuming.dead_letter import DeadLetters
from geminga.client._consuming.entries import Decryptor
from geminga.client._consuming.multi_consumer import TopicSet
from geminga.client._consuming.options import ConsumerArguments, ConsumerOptions
from geminga.client._consuming.pattern_consumer import PatternTopics
from geminga.client._crypto import KeySource, MessageDecryptor
from geminga.client._errors import InvalidConfiguration, InvalidTopicName
from geminga.client._message_id import MessageId
from geminga.client._options import check_argument, options_from
from geminga.client.core.option_kinds import NOTHING, TEXT, Either, Instance, Many, With
from geminga.client.core.topic_pattern import TopicPattern
from geminga.client.schema._protocol import TopicSchema
from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError

if TYPE_CHECKING:
    from geminga.client._client import Client

T = TypeVar("T")

#: One topic, several, or a pattern over the topics of a namespace.
Topics = str | Sequence[str] | re.Pattern[str]

_TOPICS: Final = Either(TEXT, Many(TEXT), Instance(re.Pattern, "a compiled pattern"))
_PATTERN: Final = Instance(str, "a pattern of text, not of bytes")
_SCHEMA: Final = Either(NOTHING, With("a schema", "bind_consumer"))


async def subscribe_with(
    client: Client,
    topic: Topics,
    subscription_name: str,
    schema: TopicSchema[T] | None,
    arguments: ConsumerArguments,
) -> Consumer[T]:
    """See :meth:`Client.subscribe`."""
    client.check_usable()
    return await subscribe(client, topic, subscription_name, schema, options_from(ConsumerOptions, arguments))


async def subscribe(
    client: Client,
    topic: Topics,
    subscription_name: str,
    schema: TopicSchema[T] | None,
    options: ConsumerOptions,
) -> Consumer[T]:
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
        names = [client.parse_topic(one) for one in ([topic] if isinstance(topic, str) else topic)]
        names = list(dict.fromkeys(names))
        if not names:
            raise InvalidConfiguration("topic: an empty list")
        text = ",".join(map(str, names))
    decryptor = _decryptor(client, options)
    consumer: Consumer[T] = Consumer(client, text, subscription_name, options, decryptor=decryptor)
    if options.dead_letter_policy is not None or options.retry_enabled:
        first = str(names[0]) if names else f"persistent://{pattern.namespace if pattern else ''}/pattern"
        consumer.dead_letters = DeadLetters(
            client,
            first,
            subscription_name,
            options.dead_letter_policy,
            # As in the Java client: a retry-letter topic is one for all, and so is the dead-letter topic behind it.
            is_one_for_all=options.retry_enabled and pattern is None,
        )
    try:
        await _open(client, consumer, names, pattern, schema)
    except BaseException:
        await consumer.close()
        raise
    client.remember(consumer)
    consumer.start_listening()
    return consumer


async def _open(
    client: Client,
    consumer: Consumer[T],
    names: list[TopicName],
    pattern: TopicPattern | None,
    schema: TopicSchema[T] | None,
) -> None:
    options = consumer.options
    topics = TopicSet(consumer, schema, _start(options))
    consumer.topic_set = topics
    if options.retry_enabled and consumer.dead_letters is not None:
        names = [*names, client.parse_topic(consumer.dead_letters.retry_letter_topic)]
    await topics.add(names)
    if pattern is not None:
        discovery = PatternTopics(consumer, topics, pattern)
        consumer.discovery = discovery
        await discovery.discover()
        discovery.start()
    topics.start_updates()


def _start(options: ConsumerOptions) -> MessageId | None:
    if options.is_durable:
        return None
    return options.start_message_id


def _decryptor(client: Client, options: ConsumerOptions) -> Decryptor | None:
    if options.crypto_key_reader is None:
        return None
    limit_s = client.options.operation_timeout_ms / 1000
    runtime = client.runtime
    return MessageDecryptor(runtime.clock, KeySource(runtime.threads, options.crypto_key_reader, limit_s))
