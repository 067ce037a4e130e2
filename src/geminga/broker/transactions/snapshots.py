"""Snapshots of transaction buffers: messages of ``__transaction_buffer_snapshot`` of their namespace, as in Pulsar.

The newest message of a topic counts. A namespace's messages are read once, when it is first asked for, and kept in
memory. A cursor of the broker's own keeps them from being trimmed; when most of them are superseded, the live ones are
written again and it moves on. Format: docs/formats/transactions.md.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from geminga.broker.schema.core.compatibility import Strategy
from geminga.broker.schema.registry import SchemaRegistry, schema_id_of
from geminga.broker.topic.base import Topic
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.retention import INTERNAL_CURSOR_PREFIX
from geminga.managed_ledger import AppendResult, Entry, ManagedCursor
from geminga.model.errors import CorruptionError, GemingaError, NotAllowedError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TRANSACTION_SNAPSHOTS, TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import Clock, Turns, get_logger
from geminga.transaction.ports import BufferSnapshot
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry, split_entry, text_of
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, decode_version, encode_version

if TYPE_CHECKING:
    from fastavro.types import Schema

_log = get_logger(__name__)

#: Keeps the snapshots from being trimmed.
SNAPSHOTS_CURSOR: Final = f"{INTERNAL_CURSOR_PREFIX}transaction-snapshots"
#: One read of the snapshots.
READ_ENTRIES: Final = 500
READ_BYTES: Final = 4 << 20
ENTRIES_PER_TURN: Final = 50
#: Superseded snapshots that are not worth writing the live ones again.
SUPERSEDED_MAX: Final = 1000
#: Name in the metadata of the broker's own messages.
PRODUCER_NAME: Final = "geminga-broker"

_LONGS: Final = ("txnIdMostBits", "txnIdLeastBits", "ledgerId", "entryId")
#: Names and nesting are those of Pulsar's classes.
SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "namespace": "org.apache.pulsar.broker.transaction.buffer.metadata",
        "name": "TransactionBufferSnapshot",
        "fields": [
            {"name": "topicName", "type": ["null", "string"], "default": None},
            {"name": "maxReadPositionLedgerId", "type": "long"},
            {"name": "maxReadPositionEntryId", "type": "long"},
            {
                "name": "aborts",
                "type": [
                    "null",
                    {
                        "type": "array",
                        "items": {
                            "type": "record",
                            "name": "AbortTxnMetadata",
                            "fields": [{"name": name, "type": "long"} for name in _LONGS],
                        },
                        "java-class": "java.util.List",
                    },
                ],
                "default": None,
            },
        ],
    },
    separators=(",", ":"),
).encode()


class OpenTopics(Protocol):
    """The topics of the cluster. All of it may raise GemingaError."""

    async def get(self, name: TopicName, *, create: bool) -> Topic:
        """The topic, loaded."""
        ...

    async def exists(self, name: TopicName) -> bool:
        """Whether it is there."""
        ...


def parse_schema(definition: bytes) -> Schema:
    """An Avro schema; raises CorruptionError."""
    from fastavro import parse_schema as parse
    from fastavro.schema import SchemaParseException

    try:
        return parse(json.loads(definition))
    except (SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"the schema of transaction snapshots can not be read: {error}") from error


def encode_snapshot(topic: str, snapshot: BufferSnapshot) -> bytes:
    """The value of a message."""
    from fastavro import schemaless_writer

    record = {
        "topicName": topic,
        "maxReadPositionLedgerId": snapshot.position.ledger_id,
        "maxReadPositionEntryId": snapshot.position.entry_id,
        "aborts": [
            {
                "txnIdMostBits": txn_id.coordinator,
                "txnIdLeastBits": txn_id.number,
                "ledgerId": marker.ledger_id,
                "entryId": marker.entry_id,
            }
            for txn_id, marker in snapshot.aborts
        ],
    }
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(SCHEMA), record)
    return out.getvalue()


def decode_snapshot(data: bytes, schema: Schema) -> tuple[str, BufferSnapshot]:
    """The topic and its snapshot, written with ``schema``; raises CorruptionError."""
    from fastavro import schemaless_reader

    try:
        record: Any = schemaless_reader(io.BytesIO(data), schema, None)
        aborts = tuple(
            (TxnId(each["txnIdMostBits"], each["txnIdLeastBits"]), Position(each["ledgerId"], each["entryId"]))
            for each in record["aborts"] or ()
        )
        position = Position(record["maxReadPositionLedgerId"], record["maxReadPositionEntryId"])
        return str(record["topicName"]), BufferSnapshot(position, aborts)
    except (EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise CorruptionError(f"a transaction snapshot can not be read: {error}") from error


class NamespaceSnapshots:
    """The snapshots of one namespace's topics."""

    __slots__ = (
        "_busy",
        "_clock",
        "_cursor",
        "_entries",
        "_registry",
        "_schemas",
        "_topic",
        "_topics",
        "name",
        "snapshots",
    )

    def __init__(self, namespace: str, topics: OpenTopics, registry: SchemaRegistry, clock: Clock) -> None:
        self._topics = topics
        self._registry = registry
        self._clock = clock
        self.name = TopicName.parse(f"persistent://{namespace}/{TRANSACTION_SNAPSHOTS}")
        #: By full name of the topic.
        self.snapshots: dict[str, BufferSnapshot] = {}
        #: Loaded when there are snapshots.
        self._topic: PersistentTopic | None = None
        self._cursor: ManagedCursor | None = None
        self._entries = 0
        self._schemas: dict[int, Schema] = {}
        #: One write at a time, so that the newest is the last.
        self._busy = asyncio.Lock()

    async def load(self) -> None:
        """Read what is stored. Raises GemingaError; then nothing is known and the next call begins again."""
        if not await self._topics.exists(self.name):
            return
        ledger = (await self._open(create=False)).ledger
        found: dict[str, BufferSnapshot] = {}
        position, count = ledger.first_position, 0
        turns = Turns(self._clock, steps_max=ENTRIES_PER_TURN)
        while entries := await ledger.read_range(position, READ_ENTRIES, READ_BYTES):
            for entry in entries:
                if turns.is_over():
                    await turns.next()
                await self._take(entry, found)
            count += len(entries)
            position = ledger.next_position(entries[-1].position)
        self.snapshots, self._entries = found, count

    async def put(self, topic: str, snapshot: BufferSnapshot | None) -> None:
        """Keep it instead of the last one; None: the topic is gone. On return it is on stable storage."""
        async with self._busy:
            if snapshot is None and topic not in self.snapshots:
                return
            await self._append([(topic, snapshot)])
            if snapshot is None:
                del self.snapshots[topic]
            else:
                self.snapshots[topic] = snapshot
            if self._entries > 2 * len(self.snapshots) + SUPERSEDED_MAX:
                await self._rewrite()

    async def _open(self, *, create: bool = True) -> PersistentTopic:
        topic = self._topic
        if topic is None or topic.is_closing or topic.ledger.is_closed:
            found = await self._topics.get(self.name, create=create)
            if not isinstance(found, PersistentTopic):
                raise NotAllowedError(f"{self.name} stores no messages: transactions need persistent topics")
            topic = self._topic = found
            self._cursor = await topic.ledger.open_cursor(SNAPSHOTS_CURSOR, initial=EARLIEST)
            # From now on the cursor holds what is needed, and nothing else is held.
            topic.apply_retention()
        return topic

    async def _append(self, snapshots: Sequence[tuple[str, BufferSnapshot | None]]) -> Position:
        topic = await self._open()
        info = SchemaInfo("TransactionBufferSnapshot", SchemaType.AVRO, SCHEMA)
        version = await self._registry.put_if_absent(schema_id_of(self.name), info, Strategy.ALWAYS_COMPATIBLE)
        entries = [self._encode(name, snapshot, version) for name, snapshot in snapshots]
        stored: asyncio.Future[GemingaError | None] = asyncio.get_running_loop().create_future()
        results: list[AppendResult] = []

        def done(result: AppendResult) -> None:
            results.append(result)
            is_last = sum(each.count for each in results) == len(entries)
            if (result.error is not None or is_last) and not stored.done():
                stored.set_result(result.error)

        topic.ledger.append(entries, done)
        error = await stored
        if error is not None:
            raise error
        self._entries += len(entries)
        return Position(results[0].ledger_id, results[0].first_entry_id)

    def _encode(self, topic: str, snapshot: BufferSnapshot | None, version: int) -> bytes:
        metadata = pb.MessageMetadata(
            producer_name=PRODUCER_NAME,
            sequence_id=self._entries,
            publish_time=self._clock.wall_ms(),
            partition_key=topic,
        )
        if snapshot is None:
            metadata.null_value = True
            return encode_entry(metadata, b"")
        metadata.schema_version = encode_version(version)
        return encode_entry(metadata, encode_snapshot(topic, snapshot))

    async def _rewrite(self) -> None:
        if self._cursor is None or not self.snapshots:
            return
        first = await self._append(list(self.snapshots.items()))
        topic = await self._open()
        self._cursor.acknowledge_cumulative(topic.ledger.previous_position(first))
        self._entries = len(self.snapshots)

    async def _take(self, entry: Entry, found: dict[str, BufferSnapshot]) -> None:
        metadata, offset = split_entry(entry.data)
        if metadata is None or metadata.marker_type:
            return
        try:
            if metadata.HasField("num_messages_in_batch") or metadata.compression or metadata.encryption_keys:
                raise CorruptionError("it is batched, compressed or encrypted")
            if metadata.null_value:
                found.pop(text_of(metadata.partition_key), None)
                return
            topic, snapshot = decode_snapshot(entry.data[offset:], await self._schema(metadata.schema_version))
            found[topic] = snapshot
        except (CorruptionError, ValueError) as error:
            # Its topic is read as a whole instead, which tells the same.
            _log.warning("%s %s: read as if it said nothing: %s", self.name, entry.position, error)
            if metadata.partition_key:
                found[text_of(metadata.partition_key)] = BufferSnapshot(EARLIEST)

    async def _schema(self, encoded: bytes) -> Schema:
        version = decode_version(encoded)
        known = self._schemas.get(version)
        if known is None:
            stored = await self._registry.get(schema_id_of(self.name), version)
            if stored is None:
                raise CorruptionError(f"its schema version {version} is not in the registry")
            known = self._schemas[version] = parse_schema(stored.info.schema)
        return known


class TopicSnapshots:
    """The snapshots of all topics: :class:`BufferSnapshots` for this broker's."""

    __slots__ = ("_clock", "_loading", "_namespaces", "_registry", "_topics")

    def __init__(self, topics: OpenTopics, registry: SchemaRegistry, clock: Clock) -> None:
        self._topics = topics
        self._registry = registry
        self._clock = clock
        self._namespaces: dict[str, NamespaceSnapshots] = {}
        self._loading: dict[str, asyncio.Lock] = {}

    async def find(self, topic: str) -> BufferSnapshot | None:
        """As :class:`BufferSnapshots` says."""
        return (await self._of(topic)).snapshots.get(topic)

    async def put(self, topic: str, snapshot: BufferSnapshot) -> None:
        """As :class:`BufferSnapshots` says."""
        await (await self._of(topic)).put(topic, snapshot)

    async def remove(self, topic: str) -> None:
        """As :class:`BufferSnapshots` says."""
        await (await self._of(topic)).put(topic, None)

    def forget(self, namespace: str) -> None:
        """The namespace is deleted, or another broker has its snapshots."""
        self._namespaces.pop(namespace, None)

    async def _of(self, topic: str) -> NamespaceSnapshots:
        namespace = TopicName.parse(topic).namespace
        known = self._namespaces.get(namespace)
        if known is not None:
            return known
        async with self._loading.setdefault(namespace, asyncio.Lock()):
            known = self._namespaces.get(namespace)
            if known is None:
                known = NamespaceSnapshots(namespace, self._topics, self._registry, self._clock)
                await known.load()
                self._namespaces[namespace] = known
        self._loading.pop(namespace, None)
        return known
