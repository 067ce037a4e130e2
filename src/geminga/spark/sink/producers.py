"""The sink's producers: one per topic or partition, without batches of their own, since entries come encoded."""

from __future__ import annotations

from typing import Final

from geminga.client import (
    Client,
    CompressionType,
    CryptoKeyReader,
    EntryProducer,
    HashingScheme,
    IncompatibleSchema,
    NotAllowedError,
    ProducerArguments,
    ProducerBusy,
    PulsarException,
)
from geminga.model.topic_name import TopicName
from geminga.spark.process.clients import ClientSession
from geminga.spark.sink.records import EncodedPayload
from geminga.spark.sink_rules.errors import SinkError
from geminga.spark.sink_rules.sink_options import ProducerSettings

#: Producers that a process keeps for the tasks that follow; of more, those that no task uses and that were used longest
#: ago are closed.
PRODUCERS_KEPT_MAX: Final = 512
#: Producers of one task: topics and partitions that it may write to.
TASK_PRODUCERS_MAX: Final = 10_000


async def open_producer(
    client: Client, topic: str, settings: ProducerSettings, schema: EncodedPayload | None, name: str = ""
) -> EntryProducer[bytes]:
    """A producer on a topic without partitions, or on one partition; raises what the broker says.

    Of a topic that has partitions it is the first one's: so may be the plans' topic, if the namespace makes topics so.
    """
    options: ProducerArguments = {
        "producer_name": name,
        "send_timeout_millis": 0,  # see sending.py: the task as a whole gives up
        "compression_type": CompressionType[settings.compression],
        "batching_enabled": False,
        "chunking_enabled": settings.is_chunking,
        "encryption_key": settings.encryption_keys,
        "crypto_key_reader": CryptoKeyReader(settings.public_key_path) if settings.encryption_keys else None,
        "initial_subscription_name": settings.initial_subscription,
        "hashing_scheme": HashingScheme.Murmur3_32Hash if settings.is_murmur3 else HashingScheme.JavaStringHash,
    }
    try:
        made = await client.create_producer(topic, schema=schema, **options)
    except IncompatibleSchema as error:
        raise SinkError(
            f"{topic}: the columns of the rows do not fit the versions of its schema ({error}). A column may be added; "
            "for others write to another topic, or change the topic's schemaCompatibilityStrategy"
        ) from error
    except NotAllowedError as error:
        if not settings.initial_subscription:
            raise of_topic(error, topic) from error
        raise SinkError(
            f"{topic}: {error}. The sink holds this topic with a subscription: create it (pulsar-admin topics "
            f"create-subscription --subscription {settings.initial_subscription} --messageId earliest {topic})"
        ) from error
    except ProducerBusy:
        raise  # which is waited for, and told with the topic
    except PulsarException as error:
        raise of_topic(error, topic) from error
    if isinstance(made, EntryProducer):
        return made
    await made.close()
    return await open_producer(client, str(TopicName.parse(topic).with_partition(0)), settings, schema, name)


def of_topic(error: PulsarException, topic: str) -> PulsarException:
    """The error with its topic: a broker that refuses one of many does not always name it."""
    name = str(TopicName.parse(topic))
    return error if name in str(error) else type(error)(f"{name}: {error}")


def partition_names(topic: str, partitions: int) -> list[str]:
    """The names of the partitions, or of the topic itself if it has none."""
    name = TopicName.parse(topic)
    return [str(name.with_partition(index)) for index in range(partitions)] or [topic]


class KeptProducer:
    """A producer that tasks use one after the other, and the next sequence id."""

    __slots__ = ("is_used", "next_sequence_id", "producer", "session")

    def __init__(self, session: ClientSession, producer: EntryProducer[bytes]) -> None:
        self.session = session
        self.producer = producer
        self.next_sequence_id = producer.last_sequence_id() + 1
        #: A task has rows for it: it is not closed for another one.
        self.is_used = False

    def is_usable(self, session: ClientSession) -> bool:
        """Whether it is of this session and neither closed nor failed."""
        return self.session is session and self.producer.is_usable


#: Whose it is comes first: sinks of two clusters may write to topics of one name in turns.
_Key = tuple[int, str, ProducerSettings, bytes]
_kept: dict[_Key, KeptProducer] = {}


def kept_producer(
    session: ClientSession, topic: str, settings: ProducerSettings, schema: EncodedPayload | None
) -> KeptProducer:
    """The process's producer for a topic without partitions or one partition, made if there is none."""
    definition = schema.info.schema if schema is not None and schema.info is not None else b""
    key = (id(session.client), topic, settings, definition)
    kept = _kept.pop(key, None)
    if kept is None or not kept.is_usable(session):
        _forget_unusable()
        _make_room(PRODUCERS_KEPT_MAX - 1)
        producer = session.run(lambda: open_producer(session.client, topic, settings, schema))
        kept = KeptProducer(session, producer)
    _kept[key] = kept
    return kept


def _forget_unusable() -> None:
    """Those of clients that were closed, or of the process that this one was forked from."""
    for key, kept in list(_kept.items()):
        if not (kept.session.thread.is_alive and kept.producer.is_usable):
            del _kept[key]


def _make_room(count_max: int) -> None:
    for key in [key for key, kept in _kept.items() if not kept.is_used][: max(0, len(_kept) - count_max)]:
        _drop(_kept.pop(key))


def release_producers(kept: list[KeptProducer]) -> None:
    """A task has ended that used them."""
    for one in kept:
        one.is_used = False
    _make_room(PRODUCERS_KEPT_MAX)


def forget_producers(kept: list[KeptProducer]) -> None:
    """Close producers after an error: the next task begins with new ones."""
    for key in [key for key, value in _kept.items() if value in kept]:
        del _kept[key]
    for one in kept:
        _drop(one)


def _drop(kept: KeptProducer) -> None:
    if kept.session.thread.is_alive and kept.producer.is_usable:
        kept.session.run(kept.producer.close)
