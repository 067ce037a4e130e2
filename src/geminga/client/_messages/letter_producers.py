"""Producers of letters: one for each topic and schema, made when first needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from geminga.client._api.errors import AlreadyClosed, IncompatibleSchema, ProducerBusy, PulsarException
from geminga.client._api.producer import Producer
from geminga.client._messages.message import Message
from geminga.client.schema._base import SchemaSerializationError, SchemaVersions
from geminga.client.schema._protocol import SchemaInfo, SchemaSource, SchemaType
from geminga.model import TopicName
from geminga.runtime import get_logger, spawn

_log = get_logger(__name__)

#: (topic, a subscription to be created with it or empty, what the payloads are of) -> a producer of single messages,
#: chunked where they must be.
MakeProducer = Callable[[str, str, SchemaInfo | None], Awaitable[Producer[bytes]]]
#: Topics with the type and definition of a schema, if there is one.
_Place = tuple[str, SchemaType | None, bytes]
#: Producers of one consumer's letters; that used longest ago goes first.
PRODUCERS_MAX: Final = 1000
#: ... and of those of one topic: letters may name any number of versions of a schema.
PRODUCERS_OF_TOPIC_MAX: Final = 10
#: Topics whose versions of schemas are known; the oldest is forgotten first.
TOPICS_MAX: Final = 1000


class LetterProducers:
    """See the module. One call of :meth:`find` at a time."""

    __slots__ = ("_is_closed", "_make", "_producers")

    def __init__(self, make: MakeProducer) -> None:
        self._make = make
        self._producers: dict[_Place, Producer[bytes]] = {}
        self._is_closed = False

    async def find(self, topic: str, initial: str, schema: SchemaInfo | None) -> Producer[bytes]:
        """Connected. Raises what ``create_producer`` does, AlreadyClosed."""
        place = (topic, None, b"") if schema is None else (topic, schema.type, schema.schema)
        producer = self._producers.pop(place, None)
        if producer is None:
            await self._make_room(topic, PRODUCERS_OF_TOPIC_MAX - 1)
            try:
                producer = await self._made(topic, initial, schema)
            except ProducerBusy:
                # The topic takes no more producers: those of its other schemas are ours to close.
                if not await self._make_room(topic, 0):
                    raise
                producer = await self._made(topic, initial, schema)
            if self._is_closed:
                await producer.close()
                raise AlreadyClosed("the consumer was closed")
            if len(self._producers) >= PRODUCERS_MAX:
                _let_go(topic, self._producers.pop(next(iter(self._producers))))
        self._producers[place] = producer
        return producer

    async def _make_room(self, topic: str, left: int) -> bool:
        """Close all producers of a topic but ``left``, those used longest ago; whether there were any to close."""
        places = [place for place in self._producers if place[0] == topic]
        gone = [self._producers.pop(place) for place in places[: max(0, len(places) - left)]]
        for producer in gone:
            await producer.close()
        return bool(gone)

    async def _made(self, topic: str, initial: str, schema: SchemaInfo | None) -> Producer[bytes]:
        if schema is not None:
            try:
                return await self._make(topic, initial, schema)
            except IncompatibleSchema as error:
                # Letters of several topics may share one: they are kept there all the same, unless that is refused.
                _log.warning("letters in %s are stored without a schema: %s", topic, error)
        return await self._make(topic, initial, None)

    async def drop(self, producer: Producer[bytes]) -> None:
        """It may be one that has failed for good; whoever comes next gets another."""
        for place, other in self._producers.items():
            if other is producer:
                del self._producers[place]
                _let_go(place[0], producer)
                return

    async def close(self) -> None:
        """No more."""
        self._is_closed = True
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            await producer.close()


def _let_go(topic: str, producer: Producer[bytes]) -> None:
    # Its broker may not answer, and letters wait for this one.
    spawn(producer.close(), name=f"close the producer of letters in {topic}")


class WrittenSchemas:
    """What messages were written with, so that their letters can be read as they could."""

    __slots__ = ("_source", "_versions")

    def __init__(self, source: SchemaSource) -> None:
        self._source = source
        self._versions: dict[str, SchemaVersions] = {}

    async def of(self, message: Message[Any]) -> SchemaInfo | None:
        """The writer's, else the consumer's; None: bytes. Raises the client's errors."""
        version = message.schema_version()
        if not version:
            source = message._entry.source
            told = None if source is None or source.decoder is None else source.decoder.info
            return None if told is None or told.type is SchemaType.AUTO_CONSUME else told
        topic = str(TopicName.parse(message.topic_name()).partitioned_topic)
        versions = self._versions.get(topic)
        if versions is None:
            if len(self._versions) >= TOPICS_MAX:
                del self._versions[next(iter(self._versions))]
            versions = self._versions[topic] = SchemaVersions(topic, self._source)
        try:
            if not versions.is_known(version):
                await versions.fetch(version)
            return versions.get(version)
        except SchemaSerializationError:
            return None  # it was deleted: nobody can say any more
        except PulsarException as error:
            if error.retriable:
                raise
            # Who may consume may bury, whether schemas may be looked at or not.
            _log.warning("letters of %s are stored without a schema: %s", topic, error)
            return None
