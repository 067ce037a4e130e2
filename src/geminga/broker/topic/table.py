"""A table kept in one of the broker's own topics, as Pulsar keeps them: the newest message of each key counts.

The topic is read once and the table is kept in memory by who uses it. A cursor of the broker's own keeps the messages
from being trimmed; when most of them are superseded, the live ones are written again and it moves on. A crash in
between leaves both, which means the same. Values are Avro; the schema each was written with is in the registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from geminga.broker.schema.core.compatibility import Strategy
from geminga.broker.schema.registry import SchemaRegistry, schema_id_of
from geminga.broker.topic.base import Topic
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import AppendResult, Entry, ManagedCursor
from geminga.model.errors import CorruptionError, NotAllowedError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName
from geminga.runtime import Clock, Turns
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry, split_entry, text_of
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, decode_version, encode_version

#: One read of the messages.
READ_ENTRIES: Final = 500
READ_BYTES: Final = 4 << 20
#: Messages applied in one turn of the loop, where that takes no longer than a turn may.
MESSAGES_PER_TURN: Final = 50
#: Superseded messages that are not worth writing the live ones again.
SUPERSEDED_MAX: Final = 1000
#: The same in bytes, of a table whose user knows those of what is live.
SUPERSEDED_BYTES_MAX: Final = 16 << 20
#: Name in the metadata of the broker's own messages.
PRODUCER_NAME: Final = "geminga-broker"

S = TypeVar("S")


class TableMessage(NamedTuple):
    """A message as it was read."""

    key: str
    #: The key has no value any more.
    is_null: bool
    #: As it was sent, decompressed.
    data: bytes
    #: Of the schema that it was written with, as in message metadata.
    schema_version: bytes
    #: Where it is, for the log.
    place: str
    #: Why its data can not be taken as they are; empty: they can.
    problem: str = ""


class TableValue(NamedTuple):
    """A message to be written."""

    key: str
    #: None: the key has no value any more.
    data: bytes | None
    #: The Avro schema of the data, as JSON text.
    schema: bytes
    #: The clusters that it is for; none: any.
    clusters: Sequence[str] = ()


class OpenTopic(Protocol):
    """Opens a topic of the cluster. Raises GemingaError."""

    def __call__(self, name: TopicName, *, create: bool) -> Awaitable[Topic]: ...


class TopicTable(Generic[S]):
    """See the module. ``S`` is a schema that is ready to read with."""

    __slots__ = (
        "_bytes",
        "_clock",
        "_cursor",
        "_cursor_name",
        "_exists",
        "_messages",
        "_open_topic",
        "_parse",
        "_registry",
        "_schema_name",
        "_schemas",
        "_topic",
        "name",
    )

    def __init__(
        self,
        name: TopicName,
        *,
        cursor: str,
        schema_name: str,
        parse: Callable[[bytes], S],
        open_topic: OpenTopic,
        exists: Callable[[TopicName], Awaitable[bool]],
        registry: SchemaRegistry,
        clock: Clock,
    ) -> None:
        """``parse`` makes a schema of the registry ready; it may raise CorruptionError."""
        self.name = name
        self._cursor_name = cursor
        self._schema_name = schema_name
        self._parse = parse
        self._open_topic = open_topic
        self._exists = exists
        self._registry = registry
        self._clock = clock
        #: Loaded when there is something in it.
        self._topic: PersistentTopic | None = None
        self._cursor: ManagedCursor | None = None
        #: That are not trimmed.
        self._messages = 0
        #: Of their data.
        self._bytes = 0
        self._schemas: dict[int, S] = {}

    # ---- reading

    async def read(self, take: Callable[[TableMessage], Awaitable[None]]) -> None:
        """Give every message in order. Raises GemingaError, also what ``take`` raises; then nothing is known."""
        if not await self._exists(self.name):
            return
        # As it is there it is not created, so that it can be read in a namespace that is being deleted, too.
        ledger = (await self._open(create=False)).ledger
        assert self._cursor is not None
        position, count, size = ledger.next_position(self._cursor.mark_delete_position), 0, 0
        turns = Turns(self._clock, steps_max=MESSAGES_PER_TURN)
        while entries := await ledger.read_range(position, READ_ENTRIES, READ_BYTES):
            for entry in entries:
                if turns.is_over():
                    await turns.next()
                message = message_of(entry)
                if message is not None:
                    size += len(message.data)
                    await take(message)
            count += len(entries)
            position = ledger.next_position(entries[-1].position)
        self._messages, self._bytes = count, size

    async def at(self, positions: Sequence[Position]) -> dict[Position, TableMessage]:
        """The messages of these entries, as far as there are any. Raises GemingaError."""
        if not await self._exists(self.name):
            return {}
        entries = await (await self._open(create=False)).ledger.read(positions)
        return {entry.position: message for entry in entries if (message := message_of(entry)) is not None}

    async def schema(self, encoded_version: bytes) -> S:
        """The schema of a version as messages have it; raises CorruptionError if there is none, MetadataError."""
        version = decode_version(encoded_version)
        known = self._schemas.get(version)
        if known is None:
            stored = await self._registry.get(schema_id_of(self.name), version)
            if stored is None:
                raise CorruptionError(f"its schema version {version} is not in the registry")
            known = self._schemas[version] = self._parse(stored.info.schema)
        return known

    # ---- writing

    async def append(self, values: Sequence[TableValue]) -> Position:
        """Store messages, all or (after a GemingaError) nobody knows; the position of the first."""
        topic = await self._open(create=True)
        versions: dict[bytes, int] = {}
        entries = []
        for value in values:
            if value.schema not in versions:
                versions[value.schema] = await self._version_of(value.schema)
            entries.append(self._encode(value, versions[value.schema]))
        stored: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        first: list[AppendResult] = []
        left = len(entries)

        def done(result: AppendResult) -> None:
            nonlocal left
            left -= result.count
            first.append(result)
            if (result.error is not None or not left) and not stored.done():
                stored.set_result(result)

        topic.ledger.append(entries, done)
        result = await stored
        if result.error is not None:
            raise result.error
        self._messages += len(entries)
        self._bytes += _size(values)
        return Position(first[0].ledger_id, first[0].first_entry_id)

    def is_worn(self, live: int, live_bytes: int | None = None) -> bool:
        """Whether most messages are superseded, where ``live`` keys have a value, or most bytes, if theirs are told."""
        if self._messages > 2 * live + SUPERSEDED_MAX:
            return True
        return live_bytes is not None and self._bytes > 2 * live_bytes + SUPERSEDED_BYTES_MAX

    async def rewrite(self, values: Sequence[TableValue]) -> None:
        """Store all that is live once more, and let go of everything before. Raises GemingaError."""
        if self._cursor is None or not values:
            return
        first = await self.append(values)
        topic = await self._open(create=True)
        self._cursor.acknowledge_cumulative(topic.ledger.previous_position(first))
        self._messages, self._bytes = len(values), _size(values)

    # ---- inside

    async def _open(self, *, create: bool) -> PersistentTopic:
        topic = self._topic
        if topic is None or topic.is_closing or topic.ledger.is_closed:
            found = await self._open_topic(self.name, create=create)
            if not isinstance(found, PersistentTopic):
                raise NotAllowedError(f"{self.name} stores no messages: {self._schema_name} needs persistent topics")
            topic = self._topic = found
            self._cursor = await topic.ledger.open_cursor(self._cursor_name, initial=EARLIEST)
            # From now on the cursor holds what is needed, and nothing else is held.
            topic.apply_retention()
        return topic

    async def _version_of(self, schema: bytes) -> int:
        info = SchemaInfo(self._schema_name, SchemaType.AVRO, schema)
        return await self._registry.put_if_absent(schema_id_of(self.name), info, Strategy.ALWAYS_COMPATIBLE)

    def _encode(self, value: TableValue, version: int) -> bytes:
        metadata = pb.MessageMetadata(
            producer_name=PRODUCER_NAME,
            sequence_id=self._messages,
            publish_time=self._clock.wall_ms(),
            partition_key=value.key,
            replicate_to=value.clusters,
        )
        if value.data is None:
            metadata.null_value = True
            return encode_entry(metadata, b"")
        metadata.schema_version = encode_version(version)
        return encode_entry(metadata, value.data)


def _size(values: Sequence[TableValue]) -> int:
    return sum(len(value.data) for value in values if value.data is not None)


def message_of(entry: Entry) -> TableMessage | None:
    """What an entry says; None: nothing of a table."""
    metadata, offset = split_entry(entry.data)
    if metadata is None or metadata.marker_type:
        return None
    problem = ""
    if metadata.HasField("num_messages_in_batch") or metadata.compression or metadata.encryption_keys:
        problem = "it is batched, compressed or encrypted"
    return TableMessage(
        text_of(metadata.partition_key),
        metadata.null_value,
        entry.data[offset:],
        metadata.schema_version,
        f"{entry.position}",
        problem,
    )
