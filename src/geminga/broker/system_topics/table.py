"""A table kept in one of the broker's own topics, as Pulsar keeps them: the newest message of each key counts.

The topic is read once and the table is kept in memory by who uses it. Others may write to it, too, as producers
(another make of broker does): what they stored is read when it is told (:meth:`Table.told`), in the order of the log. A
cursor of the broker's own keeps the messages
from being trimmed; when most of them are superseded, the live ones are written again and it moves on. A crash in
between leaves both, which means the same. Values are Avro; the schema each was written with is in the registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import SchemaRegistry, schema_id_of
from geminga.broker.topic.base import Topic
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.retention import Retention
from geminga.managed_ledger import AppendResult, ManagedCursor
from geminga.model.errors import MetadataError, NotAllowedError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import COMPACTION_CURSOR, TopicName
from geminga.runtime import Clock, Turns, again
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry, split_entry, text_of
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, decode_version, encode_version

#: One read of the messages.
READ_ENTRIES: Final = 500
READ_BYTES: Final = 4 << 20
#: Of what was compacted: as many at a time, of which each may be as large as a message.
COMPACTED_ENTRIES: Final = 16
#: Messages applied in one turn of the loop, where that takes no longer than a turn may.
MESSAGES_PER_TURN: Final = 50
#: Superseded messages that are not worth writing the live ones again.
SUPERSEDED_MAX: Final = 1000
#: The same in bytes, of a table whose user knows those of what is live.
SUPERSEDED_BYTES_MAX: Final = 16 << 20
#: Name in the metadata of the broker's own messages.
PRODUCER_NAME: Final = "geminga-broker"

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


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


#: Takes a message as the next of its table; may raise GemingaError.
Take = Callable[[TableMessage], Awaitable[None]]


class Table(Protocol[S_co]):
    """A table, whoever serves its topic; what is awaited may raise GemingaError.

    ``S`` is a schema that is ready to read with.
    """

    @property
    def name(self) -> TopicName:
        """Its topic."""
        ...

    async def read(self, take: Take, heard: Callable[[], None] | None = None) -> None:
        """Give every message in order to ``take``, and later ones when they are known of.

        ``heard`` is called when later ones were taken. What ``take`` raises is raised; then nothing is known.
        """
        ...

    @property
    def was_compacted(self) -> bool:
        """Whether what was read is not all in the topic: :meth:`rewrite` puts it there."""
        ...

    def told(self) -> None:
        """Others wrote: :meth:`catch_up` has something to do."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether it is known that there is something to be read."""
        ...

    async def catch_up(self) -> None:
        """Give all that is stored now."""
        ...

    async def at(self, positions: Sequence[Position]) -> dict[Position, TableMessage]:
        """The messages of these entries, as far as there are any."""
        ...

    async def schema(self, encoded_version: bytes) -> S_co:
        """The schema of a version as messages have it; raises CorruptionError if there is none."""
        ...

    async def append(self, values: Sequence[TableValue]) -> bool:
        """Store messages, all or (after a GemingaError) nobody knows.

        True: they are the next ones, and count as read; so it is where nothing was ever read. False: others were
        stored before them, and all were taken.
        """
        ...

    def is_worn(self, live: int, live_bytes: int | None = None) -> bool:
        """Whether most messages are superseded, where ``live`` keys have a value, or most bytes, if theirs are told."""
        ...

    async def rewrite(self, values: Sequence[TableValue]) -> None:
        """Store all that is live once more, and let go of everything before; nothing where others just wrote."""
        ...

    def end(self) -> None:
        """Nothing is given any more."""
        ...


class TableSource(Generic[S]):
    """What a table is of: its topic, and the schemas of what is in it."""

    __slots__ = ("_parse", "_schemas", "exists", "name", "own_schema", "registry", "schema_name")

    def __init__(
        self,
        name: TopicName,
        exists: Callable[[TopicName], Awaitable[bool]],
        registry: SchemaRegistry,
        *,
        schema_name: str,
        own_schema: bytes,
        parse: Callable[[bytes], S],
    ) -> None:
        """``own_schema``: what Geminga writes with. ``parse`` makes a schema of the registry ready; it may raise
        CorruptionError."""
        self.name = name
        self.exists = exists
        self.registry = registry
        self.schema_name = schema_name
        self.own_schema = own_schema
        self._parse = parse
        #: By version.
        self._schemas: dict[int, S] = {}

    async def schema(self, encoded_version: bytes) -> S:
        """The schema of a version as messages have it; raises CorruptionError if there is none, MetadataError."""
        version = decode_version(encoded_version)
        known = self._schemas.get(version)
        if known is None:
            definition = await self.registry.definition(schema_id_of(self.name), version, self.own_schema)
            known = self._schemas[version] = self._parse(definition)
        return known


class TablesElsewhere(Protocol):
    """Tables whose topics other brokers serve."""

    def open(self, source: TableSource[S]) -> Table[S]:
        """As of :class:`TopicTable`."""
        ...


class TopicTable(Generic[S]):
    """See the module; :class:`Table`, of a topic that this broker serves."""

    __slots__ = (
        "_bytes",
        "_clock",
        "_cursor",
        "_cursor_name",
        "_heard",
        "_messages",
        "_open_topic",
        "_reading",
        "_seen",
        "_source",
        "_take",
        "_told",
        "_told_read",
        "_topic",
        "was_compacted",
    )

    def __init__(self, source: TableSource[S], *, cursor: str, open_topic: OpenTopic, clock: Clock) -> None:
        self._source = source
        self._cursor_name = cursor
        self._open_topic = open_topic
        self._clock = clock
        #: Loaded when there is something in it.
        self._topic: PersistentTopic | None = None
        self._cursor: ManagedCursor | None = None
        #: That are not trimmed.
        self._messages = 0
        #: Of their data.
        self._bytes = 0
        self._take: Take | None = None
        self._heard: Callable[[], None] | None = None
        #: Up to here all messages were taken; None: none is known of.
        self._seen: Position | None = None
        #: How often others wrote, and how often of it was read.
        self._told = self._told_read = 0
        #: Some of what was read is not in the topic itself: it is to be written again, for whoever reads only that.
        self.was_compacted = False
        #: One reads at a time.
        self._reading = asyncio.Lock()

    @property
    def name(self) -> TopicName:
        """As of :class:`Table`."""
        return self._source.name

    # ---- reading

    async def read(self, take: Take, heard: Callable[[], None] | None = None) -> None:
        """As of :class:`Table`."""
        self._take, self._heard = take, heard
        if not await self._source.exists(self.name):
            return
        async with self._reading:
            await self._read_on()

    def told(self) -> None:
        """As of :class:`Table`."""
        self._told += 1

    @property
    def is_behind(self) -> bool:
        """As of :class:`Table`: so it is until what was told of has been read."""
        return self._told != self._told_read

    async def catch_up(self) -> None:
        """As of :class:`Table`; nothing where nobody said that there is more."""
        if not self.is_behind:
            return
        async with self._reading:
            if self.is_behind:
                await self._read_on()
        if self._heard is not None:
            self._heard()

    async def _read_on(self) -> None:
        """Who calls it holds the lock."""
        assert self._take is not None
        told = self._told
        # As it is there it is not created, so that it can be read in a namespace that is being deleted, too.
        topic = await self._open(create=False)
        ledger = topic.ledger
        turns = Turns(self._clock, steps_max=MESSAGES_PER_TURN)
        if self._seen is None:
            self._seen = await self._read_compacted(topic, turns)
        position = ledger.ledgers.next_position(self._begin())
        while entries := await ledger.reader.read_range(position, READ_ENTRIES, READ_BYTES):
            for entry in entries:
                if turns.is_over():
                    await turns.next()
                message = message_of(entry.data, entry.position)
                if message is not None:
                    self._bytes += len(message.data)
                    await self._take(message)
            self._messages += len(entries)
            self._seen = entries[-1].position
            position = ledger.ledgers.next_position(self._seen)
        self._told_read = told

    async def _read_compacted(self, topic: PersistentTopic, turns: Turns) -> Position | None:
        """What another make of broker compacted, and may have trimmed; up to where. None: nothing that is needed."""
        assert self._take is not None
        assert self._cursor is not None
        log = topic.ledger
        # It stands at the last message that another make of broker compacted.
        compaction = log.cursors.get(COMPACTION_CURSOR)
        if compaction is None:
            return None
        from geminga.wire.pulsar.compacted import COMPACTED_LEDGER, decode_compacted

        # By what follows: where all before was trimmed, both may stand at its end, in whichever ledger.
        if log.ledgers.next_position(compaction.mark_delete_position) < log.ledgers.next_position(
            self._cursor.mark_delete_position
        ):
            return None
        ledger_id = compaction.properties.get(COMPACTED_LEDGER)
        if ledger_id is None:
            return None
        ledger = await topic.services.ledgers.bookkeeper.open_ledger(ledger_id, recover=False)
        first, last = 0, ledger.last_add_confirmed
        while first <= last:
            entries = await ledger.read_entries(first, min(last, first + COMPACTED_ENTRIES - 1))
            for data in entries:
                if turns.is_over():
                    await turns.next()
                kept = decode_compacted(data)
                message = message_of(kept.entry, kept.position)
                if message is not None:
                    await self._take(message)
            first += len(entries)
        self.was_compacted = True
        return compaction.mark_delete_position

    def _begin(self) -> Position:
        if self._seen is None:
            assert self._cursor is not None
            self._seen = self._cursor.mark_delete_position
        return self._seen

    def end(self) -> None:
        """As of :class:`Table`: nobody tells it any more."""
        self._heard = None

    async def at(self, positions: Sequence[Position]) -> dict[Position, TableMessage]:
        """The messages of these entries, as far as there are any. Raises GemingaError."""
        if not await self._source.exists(self.name):
            return {}
        entries = await (await self._open(create=False)).ledger.reader.read(positions)
        found = {entry.position: message_of(entry.data, entry.position) for entry in entries}
        return {position: message for position, message in found.items() if message is not None}

    async def schema(self, encoded_version: bytes) -> S:
        """As of :class:`Table`."""
        return await self._source.schema(encoded_version)

    # ---- writing

    async def append(self, values: Sequence[TableValue]) -> bool:
        """As of :class:`Table`."""
        topic, entries = await self._encoded(values)
        first, last = await self._append(topic, entries)
        if self._take is None:
            return True
        async with self._reading:
            is_next = not self.is_behind and topic.ledger.ledgers.next_position(self._begin()) == first
            if is_next:
                self._seen = last
                self._messages += len(entries)
                self._bytes += _size(values)
            else:
                await self._read_on()
        if not is_next and self._heard is not None:
            self._heard()
        return is_next

    async def _encoded(self, values: Sequence[TableValue]) -> tuple[PersistentTopic, list[bytes]]:
        topic = await self._open(create=True)
        versions: dict[bytes, int] = {}
        entries = []
        for value in values:
            if value.schema not in versions:
                versions[value.schema] = await self._version_of(value.schema)
            entries.append(self._encode(value, versions[value.schema]))
        return topic, entries

    @staticmethod
    async def _append(topic: PersistentTopic, entries: list[bytes]) -> tuple[Position, Position]:
        """Where the first and the last one are."""
        stored: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        results: list[AppendResult] = []
        left = len(entries)

        def done(result: AppendResult) -> None:
            nonlocal left
            left -= result.count
            results.append(result)
            if (result.error is not None or not left) and not stored.done():
                stored.set_result(result)

        topic.ledger.append(entries, done)
        result = await stored
        if result.error is not None:
            # A copy: the error's frames have the future, and so all the entries.
            raise again(result.error)
        first = Position(results[0].ledger_id, results[0].first_entry_id)
        return first, Position(result.ledger_id, result.first_entry_id + result.count - 1)

    def is_worn(self, live: int, live_bytes: int | None = None) -> bool:
        """As of :class:`Table`."""
        if self.was_compacted or self._messages > 2 * live + SUPERSEDED_MAX:
            return True
        return live_bytes is not None and self._bytes > 2 * live_bytes + SUPERSEDED_BYTES_MAX

    async def rewrite(self, values: Sequence[TableValue]) -> None:
        """As of :class:`Table`."""
        if self._cursor is None or not values:
            return
        topic, entries = await self._encoded(values)
        if self.is_behind or topic.publishing.pending_batches:
            # What somebody else is writing of one of the keys would be older than what is written of it now.
            return
        seen = self._begin()
        first, last = await self._append(topic, entries)
        async with self._reading:
            if topic.ledger.ledgers.next_position(seen) != first:
                # Another change of ours was between: all is read, and the messages before it are kept until next time.
                await self._read_on()
                return
            self._seen = max(self._seen or last, last)
        self._cursor.acknowledge_cumulative(topic.ledger.ledgers.previous_position(first))
        self._messages, self._bytes = len(values), _size(values)
        self.was_compacted = False

    # ---- inside

    async def _open(self, *, create: bool) -> PersistentTopic:
        topic = self._topic
        if topic is None or topic.is_closing or topic.ledger.tenure.is_closed:
            found = await self._open_topic(self.name, create=create)
            if not isinstance(found, PersistentTopic):
                raise NotAllowedError(
                    f"{self.name} stores no messages: {self._source.schema_name} needs persistent topics"
                )
            cursor = await found.ledger.open_cursor(self._cursor_name, initial=EARLIEST)
            # Both at once: whoever fails or is cut off before leaves nothing that looks open.
            topic, self._cursor = found, cursor
            self._topic = topic
            # From now on the cursor holds what is needed, and nothing else is held.
            retention = topic.parts.find(Retention)
            if retention is not None:
                retention.policies_changed()
        return topic

    async def _version_of(self, schema: bytes) -> int:
        info = SchemaInfo(self._source.schema_name, SchemaType.AVRO, schema)
        schema_id = schema_id_of(self.name)
        try:
            return await self._source.registry.put_if_absent(schema_id, info, Strategy.ALWAYS_COMPATIBLE)
        except MetadataError:
            raise
        except StorageError:
            known = await self._source.registry.version_by_hash(schema_id, schema)
            if known is None:
                raise
            return known

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


def message_of(data: bytes, position: Position) -> TableMessage | None:
    """What an entry says; None: nothing of a table."""
    metadata, offset = split_entry(data)
    if metadata is None or metadata.marker_type:
        return None
    problem = ""
    if metadata.HasField("num_messages_in_batch") or metadata.compression or metadata.encryption_keys:
        problem = "it is batched, compressed or encrypted"
    return TableMessage(
        text_of(metadata.partition_key),
        metadata.null_value,
        data[offset:],
        metadata.schema_version,
        f"{position}",
        problem,
    )
