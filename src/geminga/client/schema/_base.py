"""What every schema is: a description for the broker, and a way from values to bytes and back.

A schema is made once and may be given to any number of producers and consumers. Those that need the schema a message
was written with (Avro, KeyValue of Avro, AUTO_CONSUME) get it from the broker, once per topic and version.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final, Generic, TypeVar

from geminga.client._api.errors import PulsarException
from geminga.client.schema._protocol import (
    MessageDecoder,
    MessageEncoder,
    SchemaInfo,
    SchemaSource,
    TopicSchema,
)
from geminga.runtime import again

T = TypeVar("T")

#: Versions of one topic's schema that a consumer keeps; the oldest is forgotten first.
VERSIONS_MAX: Final = 1000
#: ... with as many bytes of names and definitions, or one: messages name versions as their senders like.
VERSIONS_BYTES_MAX: Final = 64 * 1024 * 1024
#: Bytes of a version that an error shows.
SHOWN_MAX: Final = 32


class SchemaSerializationError(PulsarException):
    """A value does not fit the schema, or bytes are not what the schema writes; the text names the field."""


class Schema(TopicSchema[T]):
    """Base of all schemas; subclasses give ``info``, ``encode`` and ``decode``."""

    #: Whether decoding needs the schema that the message was written with.
    needs_writer: ClassVar[bool] = False

    @property
    def info(self) -> SchemaInfo:
        """What the broker is told."""
        raise AssertionError(f"{type(self).__name__} has no info")

    @property
    def sets_key(self) -> bool:
        """Whether the message's key comes from the value."""
        return False

    def encode(self, value: T) -> bytes:
        """The payload of a value. Raises SchemaSerializationError."""
        raise AssertionError(f"{type(self).__name__} encodes nothing")

    def encode_key(self, value: T) -> bytes:
        """The key of a value; only if ``sets_key``. Raises SchemaSerializationError."""
        raise AssertionError(f"{type(self).__name__} sets no key")

    def decode(self, data: bytes, *, writer: SchemaInfo | None = None, key: bytes | None = None) -> T:
        """The value of a payload, written with ``writer`` (None: with this schema). Raises SchemaSerializationError."""
        raise AssertionError(f"{type(self).__name__} decodes nothing")

    @property
    def _told_info(self) -> SchemaInfo | None:
        """What producers and consumers send to the broker; None: nothing."""
        return self.info

    @property
    def _needs_writer(self) -> bool:
        return self.needs_writer

    async def bind_producer(self, topic: str, source: SchemaSource) -> MessageEncoder[T]:
        """The encoder for a topic; asks nobody and raises nothing."""
        return SchemaEncoder(self, self._told_info)

    async def bind_consumer(self, topic: str, source: SchemaSource) -> MessageDecoder[T]:
        """The decoder for a topic; asks nobody and raises nothing, for versions are looked up with messages."""
        if not self._needs_writer:
            return SchemaDecoder(self, self._told_info)
        return VersionedDecoder(self, self._told_info, SchemaVersions(topic, source))


class _BoundSchema(Generic[T]):
    """A schema, and what is sent of it with PRODUCER or SUBSCRIBE."""

    __slots__ = ("_info", "_schema")

    def __init__(self, schema: Schema[T], info: SchemaInfo | None) -> None:
        self._schema = schema
        self._info = info

    @property
    def info(self) -> SchemaInfo | None:
        """None: nothing is sent."""
        return self._info


class SchemaEncoder(_BoundSchema[T], MessageEncoder[T]):
    """A schema as producers use it."""

    __slots__ = ()

    @property
    def sets_key(self) -> bool:
        """Whether the key comes from the value."""
        return self._schema.sets_key

    def encode(self, value: T) -> bytes:
        """The payload."""
        return self._schema.encode(value)

    def encode_key(self, value: T) -> bytes:
        """The message's key."""
        return self._schema.encode_key(value)


class SchemaDecoder(_BoundSchema[T], MessageDecoder[T]):
    """A schema as consumers use it if it needs nothing but itself."""

    __slots__ = ()

    def is_ready(self, schema_version: bytes) -> bool:
        """Always."""
        return True

    async def prepare(self, schema_version: bytes) -> None:
        """There is nothing to fetch."""

    def decode(self, payload: bytes, *, schema_version: bytes = b"", key: bytes | None = None) -> T:
        """The value."""
        return self._schema.decode(payload, key=key)


class VersionedDecoder(SchemaDecoder[T]):
    """A schema as consumers use it if it needs what each message was written with."""

    __slots__ = ("_versions",)

    def __init__(self, schema: Schema[T], info: SchemaInfo | None, versions: SchemaVersions) -> None:
        super().__init__(schema, info)
        self._versions = versions

    def is_ready(self, schema_version: bytes) -> bool:
        """Whether the version was fetched (or found missing)."""
        return not schema_version or self._versions.is_known(schema_version)

    async def prepare(self, schema_version: bytes) -> None:
        """Fetch the version."""
        if not self.is_ready(schema_version):
            await self._versions.fetch(schema_version)

    def decode(self, payload: bytes, *, schema_version: bytes = b"", key: bytes | None = None) -> T:
        """The value; SchemaSerializationError also if the version does not exist."""
        writer = self._versions.get(schema_version) if schema_version else None
        return self._schema.decode(payload, writer=writer, key=key)


class SchemaVersions:
    """The versions of one topic's schema, fetched when first needed; concurrent needs share one request."""

    __slots__ = ("_failure", "_fetches", "_known", "_size_bytes", "_source", "_topic")

    def __init__(self, topic: str, source: SchemaSource) -> None:
        self._topic = topic
        self._source = source
        #: Why the last one that was asked for was not answered.
        self._failure = ""
        #: None: the broker said that there is no such version.
        self._known: dict[bytes, SchemaInfo | None] = {}
        self._size_bytes = 0
        #: Whether the broker answered, or its error; False: who asked was cut off, and the next one asks.
        self._fetches: dict[bytes, asyncio.Future[bool | PulsarException]] = {}

    def is_known(self, version: bytes) -> bool:
        """Whether :meth:`get` has an answer."""
        return version in self._known

    def get(self, version: bytes) -> SchemaInfo:
        """Raises SchemaSerializationError if there is no such version."""
        info = self._known.get(version)
        if info is None:
            why = "does not exist" if version in self._known else f"was not fetched{self._failure}"
            raise SchemaSerializationError(f"schema version {_number(version)} of {self._topic} {why}")
        return info

    async def fetch(self, version: bytes) -> None:
        """Ask the broker. Raises the client's errors."""
        while (fetch := self._fetches.get(version)) is not None:
            told = await asyncio.shield(fetch)
            if isinstance(told, PulsarException):
                # Others are told of it, too, and its frames have the future.
                raise again(told)
            if told:
                return
        fetch = self._fetches[version] = asyncio.get_running_loop().create_future()
        outcome: bool | PulsarException = False
        try:
            result = await self._source.get_schema(self._topic, version)
            self._keep(version, None if result is None else result.info)
            outcome = True
        except PulsarException as error:
            self._failure = f": {type(error).__name__}: {error}"
            outcome = error
            raise
        finally:
            del self._fetches[version]
            fetch.set_result(again(outcome) if isinstance(outcome, PulsarException) else outcome)
            del outcome, fetch  # see value_of

    def _keep(self, version: bytes, info: SchemaInfo | None) -> None:
        known = self._known
        if version not in known:
            self._size_bytes += _size_of(version, info)
            known[version] = info
        while len(known) > VERSIONS_MAX or (self._size_bytes > VERSIONS_BYTES_MAX and len(known) > 1):
            oldest = next(iter(known))
            self._size_bytes -= _size_of(oldest, known.pop(oldest))


def _size_of(version: bytes, info: SchemaInfo | None) -> int:
    return len(version) + (0 if info is None else len(info.schema))


def _number(version: bytes) -> str:
    if len(version) == 8:
        return str(int.from_bytes(version, "big"))
    return version.hex() if len(version) < SHOWN_MAX else f"{version[:SHOWN_MAX].hex()}... ({len(version)} bytes)"
