"""Policies of topics, kept as events in the system topic ``__change_events`` of their namespace, as in Pulsar.

The newest event of a topic holds all its policies. A namespace's events are read once, when one of its topics is
first loaded, and kept in memory; a change is on stable storage before it holds. A cursor of the broker's own keeps
the events from being trimmed; when most of them are superseded, the live ones are written again and it moves on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from geminga.broker.policies import events
from geminga.broker.resources.documents import Document
from geminga.broker.resources.topic_policies import TopicPolicies
from geminga.broker.schema.core.compatibility import Strategy
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.retention import INTERNAL_CURSOR_PREFIX
from geminga.managed_ledger import AppendResult, Entry, ManagedCursor
from geminga.model.errors import (
    ConflictError,
    CorruptionError,
    GemingaError,
    InvalidTopicNameError,
    NotAllowedError,
)
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import CHANGE_EVENTS, TopicName
from geminga.runtime import Turns, get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry, split_entry, text_of
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, decode_version, encode_version

if TYPE_CHECKING:
    from fastavro.types import Schema

    from geminga.broker.service import Broker

_log = get_logger(__name__)

#: Keeps the events from being trimmed.
EVENTS_CURSOR: Final = f"{INTERNAL_CURSOR_PREFIX}topic-policies"
#: One read of the events.
READ_ENTRIES: Final = 500
#: Events applied in one turn of the loop, where that takes no longer than a turn may.
EVENTS_PER_TURN: Final = 50
READ_BYTES: Final = 4 << 20
#: Superseded events that are not worth rewriting the live ones.
SUPERSEDED_MAX: Final = 1000
#: Name in the metadata of the broker's own messages.
PRODUCER_NAME: Final = "geminga-broker"


class NamespaceEvents:
    """The policies of one namespace's topics, read from its events."""

    __slots__ = ("_broker", "_busy", "_cursor", "_events", "_schemas", "_topic", "name", "policies")

    def __init__(self, broker: Broker, namespace: str) -> None:
        self._broker = broker
        self.name = TopicName.parse(f"persistent://{namespace}/{CHANGE_EVENTS}")
        #: By full name of the (partitioned) topic.
        self.policies: dict[str, TopicPolicies] = {}
        #: Loaded when there are events.
        self._topic: PersistentTopic | None = None
        self._cursor: ManagedCursor | None = None
        self._events = 0
        self._schemas: dict[int, Schema] = {}
        #: One change at a time: each begins with what the one before it left.
        self._busy = asyncio.Lock()

    async def load(self) -> None:
        """Read what is stored. Raises GemingaError; then nothing is known and the next call begins again."""
        if not await self._broker.topic_exists(self.name):
            return
        # As it is there it is not created, so that it can be read in a namespace that is being deleted, too.
        topic = await self._open(create=False)
        policies: dict[str, TopicPolicies] = {}
        position = topic.ledger.first_position
        self._events = 0
        turns = Turns(self._broker.runtime.clock, steps_max=EVENTS_PER_TURN)
        while entries := await topic.ledger.read_range(position, READ_ENTRIES, READ_BYTES):
            for entry in entries:
                if turns.is_over():
                    await turns.next()
                await self._apply(entry, policies)
            self._events += len(entries)
            position = topic.ledger.next_position(entries[-1].position)
        self.policies = policies

    async def update(self, name: TopicName, change: Callable[[Document], Document]) -> None:
        """Change the policies of one topic; on return the change is on stable storage. Raises GemingaError."""
        async with self._busy:
            key = str(name)
            before = self.policies.get(key)
            document: Document = {
                k: v for k, v in change(dict(before.document if before else {})).items() if v is not None
            }
            if document == (before.document if before else {}):
                return
            await self._append([(name, document)])
            self._put(self.policies, name, document)
            if self._events > 2 * len(self.policies) + SUPERSEDED_MAX:
                await self._rewrite()

    # ---- private

    async def _open(self, *, create: bool = True) -> PersistentTopic:
        topic = self._topic
        if topic is None or topic.is_closing or topic.ledger.is_closed:
            found = await self._broker.get_topic(self.name, create=create)
            if not isinstance(found, PersistentTopic):
                raise NotAllowedError(f"{self.name} stores no messages: policies of topics need persistent topics")
            topic = self._topic = found
            self._cursor = await topic.ledger.open_cursor(EVENTS_CURSOR, initial=EARLIEST)
            # From now on the cursor holds what is needed, and nothing else is held.
            topic.apply_retention()
        return topic

    async def _append(self, changes: list[tuple[TopicName, Document]]) -> Position:
        """Store events, all or (after an error) nobody knows; the position of the first."""
        topic = await self._open()
        info = SchemaInfo("PulsarEvent", SchemaType.AVRO, events.SCHEMA)
        registry = self._broker.schemas.registry
        version = await registry.put_if_absent(schema_id_of(self.name), info, Strategy.ALWAYS_COMPATIBLE)
        entries = [self._encode(name, document, version) for name, document in changes]
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
        self._events += len(entries)
        return Position(first[0].ledger_id, first[0].first_entry_id)

    def _encode(self, name: TopicName, document: Document, version: int) -> bytes:
        metadata = pb.MessageMetadata(
            producer_name=PRODUCER_NAME,
            sequence_id=self._events,
            publish_time=self._broker.runtime.clock.wall_ms(),
            partition_key=str(name),
        )
        if not document:
            metadata.null_value = True
            return encode_entry(metadata, b"")
        metadata.schema_version = encode_version(version)
        return encode_entry(metadata, events.encode_update(name, document))

    async def _rewrite(self) -> None:
        live = [(TopicName.parse(key), dict(found.document)) for key, found in self.policies.items()]
        if self._cursor is None or not live:
            return
        first = await self._append(live)
        topic = await self._open()
        self._cursor.acknowledge_cumulative(topic.ledger.previous_position(first))
        self._events = len(live)

    async def _apply(self, entry: Entry, policies: dict[str, TopicPolicies]) -> None:
        metadata, offset = split_entry(entry.data)
        if metadata is None or metadata.marker_type:
            return
        if metadata.HasField("num_messages_in_batch") or metadata.compression or metadata.encryption_keys:
            _log.warning(
                "%s %s: a policy event that is batched, compressed or encrypted is passed over", self.name, entry
            )
            return
        found: tuple[TopicName, Document | None] | None
        try:
            if metadata.null_value:
                found = TopicName.parse(text_of(metadata.partition_key)), None
            else:
                schema = await self._schema(decode_version(metadata.schema_version))
                found = events.decode(entry.data[offset:], schema)
        except (CorruptionError, InvalidTopicNameError, ValueError) as error:
            # Anybody who may publish here can have written it: the other topics' policies count all the same.
            _log.warning("%s %s: passed over: %s", self.name, entry.position, error)
            return
        if found is not None:
            self._put(policies, found[0].partitioned_topic, found[1] or {})

    async def _schema(self, version: int) -> Schema:
        known = self._schemas.get(version)
        if known is None:
            stored = await self._broker.schemas.registry.get(schema_id_of(self.name), version)
            if stored is None:
                raise CorruptionError(f"its schema version {version} is not in the registry")
            known = self._schemas[version] = events.parse(stored.info.schema)
        return known

    @staticmethod
    def _put(policies: dict[str, TopicPolicies], name: TopicName, document: Document) -> None:
        if document:
            policies[str(name)] = TopicPolicies(document)
        else:
            policies.pop(str(name), None)


class TopicPolicyStore:
    """Policies of all topics, namespace by namespace."""

    __slots__ = ("_broker", "_loading", "_namespaces", "changes")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._namespaces: dict[str, NamespaceEvents] = {}
        self._loading: dict[str, asyncio.Lock] = {}
        #: Counts changes, of whichever topic.
        self.changes = 0

    async def get(self, name: TopicName) -> TopicPolicies | None:
        """What the topic (of a partition: its partitioned topic) has of its own; None: nothing. Raises GemingaError."""
        if not self._broker.config.topic_policies or name.is_system:
            return None
        events_of = await self._namespace(name.namespace)
        return events_of.policies.get(str(name.partitioned_topic)) if events_of.policies else None

    async def update(self, name: TopicName, change: Callable[[Document], Document]) -> None:
        """Change the topic's policies; on return it is durable and loaded topics follow it. Raises GemingaError."""
        if not self._broker.config.topic_policies:
            raise NotAllowedError(
                "Topic level policies is disabled, to enable the topic level policy: set topicLevelPoliciesEnabled=true"
            )
        if name.is_system:
            raise NotAllowedError(f"{name} is the broker's own: it has no policies")
        whole = name.partitioned_topic
        await (await self._namespace(name.namespace)).update(whole, change)
        self.changes += 1
        for topic in list(self._broker.topics.values()):
            if topic.name.partitioned_topic == whole and not topic.is_closing:
                await topic.apply_policies()

    async def judged(self, name: TopicName) -> Document:
        """What a topic has of its own, to be given to :meth:`forget_topic`. Raises GemingaError."""
        found = await self.get(name)
        return dict(found.document) if found is not None else {}

    async def forget_topic(self, name: TopicName, *, judged: Document | None = None) -> None:
        """The topic is being deleted: so are its policies. Raises GemingaError.

        ``judged``: by which it was decided to delete it; ConflictError if they are others by now.
        """
        if not self._broker.config.topic_policies or name.is_system:
            return

        def forget(present: Document) -> Document:
            if judged is not None and present != judged:
                raise ConflictError(f"the policies of {name} changed while it was to be deleted")
            return {}

        await (await self._namespace(name.namespace)).update(name.partitioned_topic, forget)

    def forget_namespace(self, namespace: str) -> None:
        """The namespace was deleted, with its events."""
        self._namespaces.pop(namespace, None)

    async def _namespace(self, namespace: str) -> NamespaceEvents:
        known = self._namespaces.get(namespace)
        if known is not None:
            return known
        lock = self._loading.setdefault(namespace, asyncio.Lock())
        async with lock:
            known = self._namespaces.get(namespace)
            if known is None:
                known = NamespaceEvents(self._broker, namespace)
                try:
                    await known.load()
                except GemingaError as error:
                    _log.warning("policies of the topics of %s could not be read: %s", namespace, error)
                    raise
                self._namespaces[namespace] = known
        self._loading.pop(namespace, None)
        return known
