"""Snapshots of transaction buffers: messages of ``__transaction_buffer_snapshot`` of their namespace, as in Pulsar.

The newest message of a topic counts. A namespace's messages are read once, when it is first asked for, and kept in
memory as they are stored (:mod:`geminga.broker.system_topics.table`); long ones are written and read in turns.
What Pulsar wrote in segments (``..._indexes``, ``..._segments``) is read, too; what is written here is always in one
piece.
Format: docs/formats/transactions.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from geminga.broker.ownership.ports import Ownership, Topics, is_served_here
from geminga.broker.schema.registry import SchemaRegistry
from geminga.broker.system_topics.table import Table, TableMessage, TablesElsewhere, TableSource, TableValue, TopicTable
from geminga.broker.topic.base import Topic
from geminga.broker.transactions.snapshot_records import (
    INDEXES_SCHEMA,
    SEGMENT_SCHEMA,
    SNAPSHOT_SCHEMA,
    SnapshotReader,
    decode_indexes,
    decode_segment,
    decode_snapshot,
    encode_aborts,
    parse_schema,
    snapshot_head,
    snapshot_tail,
)
from geminga.model.errors import CorruptionError, GemingaError, NotInThisClusterError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import (
    SNAPSHOTS_CURSOR,
    TRANSACTION_SNAPSHOT_INDEXES,
    TRANSACTION_SNAPSHOT_SEGMENTS,
    TRANSACTION_SNAPSHOTS,
    TopicName,
)
from geminga.model.txn_id import TxnId
from geminga.runtime import Clock, Turns, get_logger
from geminga.transaction.core.segments import Segment, SegmentedSnapshot, prefers_segments, whole
from geminga.transaction.ports import BufferSnapshot

if TYPE_CHECKING:
    from fastavro.types import Schema

_log = get_logger(__name__)

#: Of the tables' records in the registry, by local name of their topics.
SCHEMA_NAMES: Final = {
    TRANSACTION_SNAPSHOTS: "TransactionBufferSnapshot",
    TRANSACTION_SNAPSHOT_INDEXES: "TransactionBufferSnapshotIndexes",
    TRANSACTION_SNAPSHOT_SEGMENTS: "TransactionBufferSnapshotSegment",
}
#: And what Geminga writes there.
OWN_SCHEMAS: Final = {
    TRANSACTION_SNAPSHOTS: SNAPSHOT_SCHEMA,
    TRANSACTION_SNAPSHOT_INDEXES: INDEXES_SCHEMA,
    TRANSACTION_SNAPSHOT_SEGMENTS: SEGMENT_SCHEMA,
}
#: Aborted transactions that are written or read in one step of a turn, and such steps.
ABORTS_AT_ONCE: Final = 200
STEPS_PER_TURN: Final = 5


class Stored(NamedTuple):
    """A snapshot as it is stored."""

    data: bytes
    #: Of the schema it was written with, as in message metadata; empty: :data:`SNAPSHOT_SCHEMA`.
    schema_version: bytes = b""
    #: Why it can not be taken as it is; empty: it can.
    problem: str = ""


class OpenTopics(Protocol):
    """The topics of the cluster. All of it may raise GemingaError."""

    async def get(self, name: TopicName, *, create: bool, is_for_client: bool = True) -> Topic:
        """The topic, loaded."""
        ...

    async def exists(self, name: TopicName) -> bool:
        """Whether it is there."""
        ...


class SnapshotTables:
    """The tables of snapshots, each where its topic is served."""

    __slots__ = ("_clock", "_elsewhere", "_ownership", "_registry", "_topics")

    def __init__(
        self,
        topics: OpenTopics,
        registry: SchemaRegistry,
        clock: Clock,
        ownership: Ownership,
        elsewhere: TablesElsewhere | None,
    ) -> None:
        """``elsewhere``: those of topics that other brokers serve; None: they are refused."""
        self._topics = topics
        self._registry = registry
        self._clock = clock
        self._ownership = ownership
        self._elsewhere = elsewhere

    async def open(self, name: TopicName) -> Table[Schema]:
        """Raises StorageError, UnavailableError."""
        source = TableSource(
            name,
            self._topics.exists,
            self._registry,
            schema_name=SCHEMA_NAMES[name.local_name],
            own_schema=OWN_SCHEMAS[name.local_name],
            parse=parse_schema,
        )
        if self._elsewhere is not None and not await is_served_here(self._ownership, name):
            return self._elsewhere.open(source)
        return TopicTable(source, cursor=SNAPSHOTS_CURSOR, open_topic=self._open_topic, clock=self._clock)

    async def _open_topic(self, name: TopicName, *, create: bool) -> Topic:
        try:
            return await self._topics.get(name, create=create)
        except NotInThisClusterError:
            # The namespace left the cluster: its topics, and what is known of their transactions, are there still.
            return await self._topics.get(name, create=False, is_for_client=False)


class NamespaceSnapshots:
    """The snapshots of one namespace's topics."""

    __slots__ = ("_busy", "_bytes", "_clock", "_indexes", "_segmented", "_segments", "_stored", "_table", "name")

    def __init__(self, table: Table[Schema], indexes: Table[Schema], segments: Table[Schema], clock: Clock) -> None:
        """Of :data:`SCHEMA_NAMES`."""
        self._table = table
        self._indexes = indexes
        self._segments = segments
        self._clock = clock
        self.name = self._table.name
        #: By full name of the topic.
        self._stored: dict[str, Stored] = {}
        #: Bytes of those.
        self._bytes = 0
        #: By full name of the topic, those in segments: Pulsar's.
        self._segmented: dict[str, SegmentedSnapshot] = {}
        #: One write at a time, so that the newest is the last.
        self._busy = asyncio.Lock()

    async def load(self) -> None:
        """Read what is stored. Raises GemingaError; then nothing is known and the next call begins again."""
        await self._table.read(self._take)
        await self._indexes.read(self._take_index)

    def end(self) -> None:
        """Nothing is heard any more."""
        for table in (self._table, self._indexes, self._segments):
            table.end()

    def told(self, name: TopicName) -> None:
        """Somebody else published in one of the topics."""
        for table in (self._table, self._indexes):
            if table.name == name:
                table.told()

    async def _catch_up(self) -> None:
        """Read what others stored since. Raises GemingaError."""
        for table in (self._table, self._indexes):
            if table.is_behind:
                await table.catch_up()

    async def find(self, topic: str) -> BufferSnapshot | None:
        """The newest of a topic; None: it never had a transaction. Raises GemingaError."""
        await self._catch_up()
        stored, segmented = self._stored.get(topic), self._segmented.get(topic)
        single = None if stored is None else await self._decoded(topic, stored)
        if segmented is None or not prefers_segments(single, segmented):
            return single
        segments: dict[Position, Segment] = {}
        # One at a time: each may be as large as a message.
        for place in dict.fromkeys(each.position for each in segmented.segments):
            segment = await self._segment(place)
            if segment is None:
                break
            segments[place] = segment
        found = whole(segmented, segments)
        if found.position != segmented.position:
            _log.warning("%s: a segment of its aborted transactions is missing: it is read as a whole", topic)
            return single or found
        return found

    async def _segment(self, place: Position) -> Segment | None:
        """None: it is not there, or can not be read."""
        message = (await self._segments.at([place])).get(place)
        if message is None:
            return None
        try:
            _check_plain(message)
            return decode_segment(message.data, await self._segments.schema(message.schema_version))
        except CorruptionError as error:
            _log.warning("%s %s: read as if it said nothing: %s", self._segments.name, message.place, error)
            return None

    async def put(self, topic: str, snapshot: BufferSnapshot | None) -> None:
        """Keep it instead of the last one; None: the topic is gone. On return it is on stable storage."""
        async with self._busy:
            if snapshot is None:
                await self._remove(topic)
                return
            data = await self._encoded(topic, snapshot)
            if await self._table.append([TableValue(topic, data, SNAPSHOT_SCHEMA)]):
                self._keep(topic, Stored(data))
            if self._table.is_worn(len(self._stored), self._bytes):
                await self._table.rewrite([await self._value(*each) for each in list(self._stored.items())])

    def _keep(self, topic: str, stored: Stored | None) -> None:
        before = self._stored.pop(topic, None)
        self._bytes -= len(before.data) if before is not None else 0
        if stored is not None:
            self._stored[topic] = stored
            self._bytes += len(stored.data)

    async def _value(self, topic: str, stored: Stored) -> TableValue:
        """To be stored once more, with the schema of today."""
        if stored.schema_version or stored.problem:
            stored = Stored(await self._encoded(topic, await self._decoded(topic, stored)))
        return TableValue(topic, stored.data, SNAPSHOT_SCHEMA)

    async def _encoded(self, topic: str, snapshot: BufferSnapshot) -> bytes:
        aborts, turns = snapshot.aborts, Turns(self._clock, steps_max=STEPS_PER_TURN)
        pieces = [snapshot_head(len(aborts))]
        for first in range(0, len(aborts), ABORTS_AT_ONCE):
            if turns.is_over():
                await turns.next()
            pieces.append(encode_aborts(aborts[first : first + ABORTS_AT_ONCE]))
        return b"".join([*pieces, snapshot_tail(topic, snapshot.position)])

    async def _decoded(self, topic: str, stored: Stored) -> BufferSnapshot:
        """What can not be read says nothing: its topic is read as a whole instead, which tells the same."""
        try:
            if stored.problem:
                raise CorruptionError(stored.problem)
            if stored.schema_version:
                schema = await self._table.schema(stored.schema_version)
                if schema != parse_schema(SNAPSHOT_SCHEMA):
                    return decode_snapshot(stored.data, schema)[1]
            reader, turns = SnapshotReader(stored.data), Turns(self._clock, steps_max=STEPS_PER_TURN)
            aborts: list[tuple[TxnId, Position]] = []
            while some := reader.some(ABORTS_AT_ONCE):
                aborts += some
                if turns.is_over():
                    await turns.next()
            return BufferSnapshot(reader.rest()[1], tuple(aborts))
        except (CorruptionError, ValueError) as error:
            _log.warning("%s, %s: read as if it said nothing: %s", self.name, topic, error)
            return BufferSnapshot(EARLIEST)

    async def _remove(self, topic: str) -> None:
        await self._catch_up()
        segmented = self._segmented.get(topic)
        if segmented is not None:
            keys = [f"multiple-{each.sequence_id}-{topic}" for each in segmented.segments]
            if keys:
                await self._segments.append([TableValue(key, None, SEGMENT_SCHEMA) for key in keys])
            await self._indexes.append([TableValue(topic, None, INDEXES_SCHEMA)])
            self._segmented.pop(topic, None)
        if topic in self._stored and await self._table.append([TableValue(topic, None, SNAPSHOT_SCHEMA)]):
            self._keep(topic, None)

    async def _take(self, message: TableMessage) -> None:
        if message.is_null and not message.problem:
            self._keep(message.key, None)
        elif message.key:
            self._keep(message.key, Stored(message.data, message.schema_version, message.problem))

    async def _take_index(self, message: TableMessage) -> None:
        found = self._segmented
        try:
            _check_plain(message)
            if message.is_null:
                found.pop(message.key, None)
                return
            index = decode_indexes(message.data, await self._indexes.schema(message.schema_version))
            found[index.topic] = index
        except (CorruptionError, ValueError) as error:
            # As above.
            _log.warning("%s %s: read as if it said nothing: %s", self._indexes.name, message.place, error)
            if message.key:
                found[message.key] = SegmentedSnapshot(message.key, EARLIEST)


class TopicSnapshots:
    """The snapshots of all topics: :class:`BufferSnapshots` by what is in the tables, whoever serves their topics."""

    __slots__ = ("_clock", "_loading", "_moves", "_namespaces", "_tables")

    def __init__(self, tables: SnapshotTables, clock: Clock, ownership: Ownership) -> None:
        self._tables = tables
        self._clock = clock
        self._namespaces: dict[str, NamespaceSnapshots] = {}
        self._loading: dict[str, asyncio.Lock] = {}
        #: Counts topics of snapshots that changed hands: what was read meanwhile is not kept.
        self._moves = 0
        ownership.listen(self)

    async def find(self, topic: str) -> BufferSnapshot | None:
        """As :class:`BufferSnapshots` says."""
        return await (await self._of(topic)).find(topic)

    async def put(self, topic: str, snapshot: BufferSnapshot) -> None:
        """As :class:`BufferSnapshots` says."""
        await (await self._of(topic)).put(topic, snapshot)

    async def remove(self, topic: str) -> None:
        """As :class:`BufferSnapshots` says."""
        await (await self._of(topic)).put(topic, None)

    def forget(self, namespace: str) -> None:
        """The namespace is deleted."""
        self._moves += 1
        self._drop(namespace)

    def told(self, name: TopicName) -> None:
        """Others published in a topic of snapshots here."""
        # What is being read is read again.
        self._moves += name.namespace in self._loading
        known = self._namespaces.get(name.namespace)
        if known is not None:
            known.told(name)

    def _drop(self, namespace: str) -> None:
        known = self._namespaces.pop(namespace, None)
        if known is not None:
            known.end()

    def given(self, topics: Topics) -> None:
        """What another broker stored is read anew."""
        self._forget_moved(topics)

    async def taken(self, topics: Topics) -> None:
        """Another broker stores what comes next."""
        self._forget_moved(topics)

    def _forget_moved(self, topics: Callable[[TopicName], bool]) -> None:
        self._moves += 1
        for namespace in list(self._namespaces):
            if any(topics(name) for name in _names(namespace)):
                self._drop(namespace)

    async def _of(self, topic: str) -> NamespaceSnapshots:
        namespace = TopicName.parse(topic).namespace
        known = self._namespaces.get(namespace)
        if known is not None:
            return known
        async with self._loading.setdefault(namespace, asyncio.Lock()):
            known = self._namespaces.get(namespace)
            while known is None:
                moves = self._moves
                table, indexes, segments = [await self._tables.open(name) for name in _names(namespace)]
                read = NamespaceSnapshots(table, indexes, segments, self._clock)
                try:
                    await read.load()
                except GemingaError:
                    read.end()
                    raise
                if moves == self._moves:
                    known = self._namespaces[namespace] = read
                else:
                    read.end()
        self._loading.pop(namespace, None)
        return known


def _names(namespace: str) -> list[TopicName]:
    return [TopicName.parse(f"persistent://{namespace}/{local_name}") for local_name in SCHEMA_NAMES]


def _check_plain(message: TableMessage) -> None:
    if message.problem:
        raise CorruptionError(message.problem)
