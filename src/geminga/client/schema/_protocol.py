"""What producers and consumers know of schemas: small protocols, and the values they exchange.

A schema given to ``create_producer`` or ``subscribe`` is a :class:`TopicSchema`: something that can be *bound* to a
topic. Binding may ask the broker (AUTO_PRODUCE needs the topic's schema), so it is awaited, once per topic, before
PRODUCER or SUBSCRIBE is sent. What comes back is used without awaiting:

- a producer sends ``encoder.info`` (if not None) with PRODUCER, calls ``encode`` for every value, and ``encode_key``
  if ``sets_key``; it puts the schema version of PRODUCER_SUCCESS into ``MessageMetadata.schema_version``;
- a consumer sends ``decoder.info`` (if not None) with SUBSCRIBE; before it hands a message out it awaits ``prepare``
  unless ``is_ready`` says that the message's schema version needs none; ``Message.value()`` is then ``decode``.

None as a value is a tombstone (``null_value``): it never reaches a schema.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType

__all__ = [
    "MessageDecoder",
    "MessageEncoder",
    "SchemaInfo",
    "SchemaSource",
    "SchemaType",
    "TopicSchema",
    "VersionedSchema",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class VersionedSchema(NamedTuple):
    """A stored schema and its version (8 bytes, big-endian)."""

    info: SchemaInfo
    version: bytes


class SchemaSource(Protocol):
    """Where stored schemas come from: the client, asking a broker."""

    async def get_schema(self, topic: str, version: bytes | None = None) -> VersionedSchema | None:
        """The schema of a version, or the newest; None if there is none. Raises the client's errors."""
        ...


class MessageEncoder(Protocol[T_contra]):
    """The producer's side of a schema, bound to a topic."""

    @property
    def info(self) -> SchemaInfo | None:
        """Sent with PRODUCER; None: messages are bytes, nothing is sent."""
        ...

    @property
    def sets_key(self) -> bool:
        """Whether the message's key comes from the value (KeyValue, separated)."""
        ...

    def encode(self, value: T_contra) -> bytes:
        """The payload. Raises ``SchemaSerializationError`` for a value that does not fit."""
        ...

    def encode_key(self, value: T_contra) -> bytes:
        """The message's key; only if ``sets_key``. Goes out as base64 with ``partition_key_b64_encoded``."""
        ...


class MessageDecoder(Protocol[T_co]):
    """The consumer's side of a schema, bound to a topic."""

    @property
    def info(self) -> SchemaInfo | None:
        """Sent with SUBSCRIBE; None: nothing is sent."""
        ...

    def is_ready(self, schema_version: bytes) -> bool:
        """Whether a message of that version (empty: none) can be decoded now. Cheap."""
        ...

    async def prepare(self, schema_version: bytes) -> None:
        """Fetch what decoding needs; afterwards it is ready.

        That a version can not be had is told by ``decode``; raises only where asking again may help.
        """
        ...

    def decode(self, payload: bytes, *, schema_version: bytes = b"", key: bytes | None = None) -> T_co:
        """The value; ``key``: the message's key, decoded from base64. Raises ``SchemaSerializationError``."""
        ...


class TopicSchema(Protocol[T]):
    """What a user gives as ``schema``."""

    async def bind_producer(self, topic: str, source: SchemaSource) -> MessageEncoder[T]:
        """The encoder for one topic (one partition counts as its partitioned topic).

        What it raises is raised by ``create_producer``.
        """
        ...

    async def bind_consumer(self, topic: str, source: SchemaSource) -> MessageDecoder[T]:
        """The decoder for one topic; what it raises is raised by ``subscribe``."""
        ...
