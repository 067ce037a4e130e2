"""Policies of topics, kept as events in the system topic ``__change_events`` of their namespace, as in Pulsar.

The newest event of a topic holds all its policies. A namespace's events are read once, when one of its topics is
first loaded, and kept in memory; a change is on stable storage before it holds. A cursor of the broker's own keeps
the events from being trimmed; when most of them are superseded, the live ones are written again and it moves on.

Events are written by the broker that owns their topic. Another one, which serves topics of that namespace, reads them
there (:mod:`.event_reader`) and goes on listening; when their topic changes hands, both begin anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from geminga.broker.ownership.ports import Here, Topics
from geminga.broker.policies import events
from geminga.broker.policies.event_reader import PolicyEvent
from geminga.broker.policies.ports import EventsBroker
from geminga.broker.resources.documents import Document
from geminga.broker.resources.topic_policies import NO_TOPIC_POLICIES, TopicPolicies
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
from geminga.runtime import Contained, Turns, get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry, split_entry, text_of
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, decode_version, encode_version

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

    __slots__ = (
        "_broker",
        "_busy",
        "_changed",
        "_cursor",
        "_end",
        "_events",
        "_kept",
        "_schemas",
        "_topic",
        "name",
        "policies",
    )

    def __init__(self, broker: EventsBroker, namespace: str, changed: Callable[[TopicName], Awaitable[None]]) -> None:
        """``changed``: another broker stored policies of the (partitioned) topic."""
        self._broker = broker
        self._changed = changed
        #: What ends the reading of another broker's events.
        self._end: Callable[[], None] | None = None
        self.name = TopicName.parse(f"persistent://{namespace}/{CHANGE_EVENTS}")
        #: By full name of the (partitioned) topic.
        self.policies: dict[str, TopicPolicies] = {}
        #: Loaded when there are events.
        self._topic: PersistentTopic | None = None
        self._cursor: ManagedCursor | None = None
        self._events = 0
        self._schemas: dict[int, events.EventSchema] = {}
        #: By key, events that somebody wrote: what we do not know of them is written again with each change.
        self._kept: dict[str, events.Kept] = {}
        #: One change at a time: each begins with what the one before it left.
        self._busy = asyncio.Lock()

    async def load(self) -> None:
        """Read what is stored. Raises GemingaError; then nothing is known and the next call begins again."""
        reader = self._broker.event_reader
        if reader is not None and not isinstance(await self._broker.ownership.owner_of(self.name), Here):
            self._end = await reader.follow(self.name, self._heard)
            return
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
                await self._apply_entry(entry, policies)
            self._events += len(entries)
            position = topic.ledger.next_position(entries[-1].position)
        self.policies = policies

    def end(self) -> None:
        """Nothing is heard any more."""
        if self._end is not None:
            self._end()
            self._end = None

    async def _heard(self, event: PolicyEvent) -> None:
        name = await self._apply(event, self.policies)
        if name is not None and self._end is not None:
            await self._changed(name)

    async def update(self, name: TopicName, change: Callable[[Document], Document], *, is_all: bool = False) -> None:
        """Change the policies of one topic; on return the change is on stable storage. Raises GemingaError.

        ``is_all``: those for all clusters go.
        """
        async with self._busy:
            before = self.policies.get(str(name)) or NO_TOPIC_POLICIES
            changed: Document = {k: v for k, v in change(dict(before.document)).items() if v is not None}
            changes = [self._change(name, changed)] if changed != before.document else []
            if is_all and before.for_all:
                changes.append(self._change(name, {}, is_global=True))
            if not changes:
                return
            await self._append(changes)
            for one in changes:
                self._put(self.policies, one)
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

    def _change(self, name: TopicName, document: Document, *, is_global: bool = False) -> events.PolicyChange:
        return events.PolicyChange(
            name, is_global, document, self._kept.get(events.event_key(name, is_global=is_global))
        )

    async def _append(self, changes: list[events.PolicyChange]) -> Position:
        """Store events, all or (after an error) nobody knows; the position of the first."""
        topic = await self._open()
        versions: dict[bytes, int] = {}
        entries = []
        for one in changes:
            schema = events.schema_to_write(one.kept)
            if schema.definition not in versions:
                versions[schema.definition] = await self._version_of(schema)
            entries.append(self._encode(one, schema, versions[schema.definition]))
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

    async def _version_of(self, schema: events.EventSchema) -> int:
        info = SchemaInfo("PulsarEvent", SchemaType.AVRO, schema.definition)
        registry = self._broker.schemas.registry
        return await registry.put_if_absent(schema_id_of(self.name), info, Strategy.ALWAYS_COMPATIBLE)

    def _encode(self, change: events.PolicyChange, schema: events.EventSchema, version: int) -> bytes:
        metadata = pb.MessageMetadata(
            producer_name=PRODUCER_NAME,
            sequence_id=self._events,
            publish_time=self._broker.runtime.clock.wall_ms(),
            partition_key=events.event_key(change.name, is_global=change.is_global),
            replicate_to=events.clusters_of(change.kept),
        )
        if not change.policies:
            metadata.null_value = True
            return encode_entry(metadata, b"")
        metadata.schema_version = encode_version(version)
        return encode_entry(metadata, events.encode_update(change.name, change.policies, change.kept, schema))

    async def _rewrite(self) -> None:
        live = []
        for key, found in self.policies.items():
            name = TopicName.parse(key)
            for is_global, document in ((False, found.document), (True, found.for_all)):
                if document:
                    live.append(self._change(name, dict(document), is_global=is_global))
        if self._cursor is None or not live:
            return
        first = await self._append(live)
        topic = await self._open()
        self._cursor.acknowledge_cumulative(topic.ledger.previous_position(first))
        self._events = len(live)

    async def _apply_entry(self, entry: Entry, policies: dict[str, TopicPolicies]) -> None:
        metadata, offset = split_entry(entry.data)
        if metadata is None or metadata.marker_type:
            return
        if metadata.HasField("num_messages_in_batch") or metadata.compression or metadata.encryption_keys:
            _log.warning(
                "%s %s: a policy event that is batched, compressed or encrypted is passed over", self.name, entry
            )
            return
        key = text_of(metadata.partition_key) if metadata.null_value else ""
        event = PolicyEvent(key, metadata.null_value, entry.data[offset:], metadata.schema_version, f"{entry.position}")
        await self._apply(event, policies)

    async def _apply(self, event: PolicyEvent, policies: dict[str, TopicPolicies]) -> TopicName | None:
        """Take note of an event; whose policies it holds."""
        try:
            if event.is_null:
                found: events.PolicyChange | None = events.removed(event.key)
            else:
                schema = await self._schema(decode_version(event.schema_version))
                found = events.decode(event.data, schema)
        except (CorruptionError, InvalidTopicNameError, ValueError) as error:
            # Anybody who may publish here can have written it: the other topics' policies count all the same.
            _log.warning("%s %s: passed over: %s", self.name, event.place, error)
            return None
        if found is None:
            return None
        found = found._replace(name=found.name.partitioned_topic)
        self._put(policies, found)
        return found.name

    async def _schema(self, version: int) -> events.EventSchema:
        known = self._schemas.get(version)
        if known is None:
            stored = await self._broker.schemas.registry.get(schema_id_of(self.name), version)
            if stored is None:
                raise CorruptionError(f"its schema version {version} is not in the registry")
            known = self._schemas[version] = events.schema_of(stored.info.schema)
        return known

    def _put(self, policies: dict[str, TopicPolicies], change: events.PolicyChange) -> None:
        name, event = str(change.name), events.event_key(change.name, is_global=change.is_global)
        before = policies.get(name) or NO_TOPIC_POLICIES
        own, for_all = (before.document, change.policies) if change.is_global else (change.policies, before.for_all)
        if own or for_all:
            policies[name] = TopicPolicies(own, for_all)
        else:
            policies.pop(name, None)
        if change.policies and change.kept is not None:
            self._kept[event] = change.kept
        else:
            self._kept.pop(event, None)


class TopicPolicyStore:
    """Policies of all topics, namespace by namespace."""

    __slots__ = ("_broker", "_loading", "_moves", "_namespaces", "changes")

    def __init__(self, broker: EventsBroker) -> None:
        self._broker = broker
        self._namespaces: dict[str, NamespaceEvents] = {}
        self._loading: dict[str, asyncio.Lock] = {}
        #: Counts changes, of whichever topic.
        self.changes = 0
        #: Counts topics of events that changed hands: what was read meanwhile is not kept.
        self._moves = 0
        broker.ownership.listen(self)

    def given(self, topics: Topics) -> None:
        """What another broker stored is in our own log now."""
        self._forget_moved(topics)

    async def taken(self, topics: Topics) -> None:
        """Another broker stores what comes next."""
        self._forget_moved(topics)

    def _forget_moved(self, topics: Topics) -> None:
        self._moves += 1
        for namespace, known in list(self._namespaces.items()):
            if topics(known.name):
                self.forget_namespace(namespace)

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
        await self._changed(whole)

    async def _changed(self, whole: TopicName) -> None:
        """Loaded topics follow."""
        self.changes += 1
        for topic in list(self._broker.topics.values()):
            if topic.name.partitioned_topic == whole and not topic.is_closing:
                await topic.apply_policies()

    async def _heard(self, whole: TopicName) -> None:
        """Another broker changed them."""
        try:
            with Contained(self._broker, "following policies"):
                await self._changed(whole)
        except GemingaError as error:
            _log.warning("%s: changed policies could not be applied: %s", whole, error)

    async def judged(self, name: TopicName) -> Document:
        """What a topic has of its own, to be given to :meth:`forget_topic`. Raises GemingaError."""
        found = await self.get(name) or NO_TOPIC_POLICIES
        # Those for all clusters go too: they are part of the judgement.
        return {**found.document, "": dict(found.for_all)} if found else {}

    async def forget_topic(self, name: TopicName, *, judged: Document | None = None) -> None:
        """The topic is being deleted: so are its policies. Raises GemingaError.

        ``judged``: by which it was decided to delete it; ConflictError if they are others by now.
        """
        if not self._broker.config.topic_policies or name.is_system:
            return

        known = await self._namespace(name.namespace)
        whole = name.partitioned_topic

        def forget(_: Document) -> Document:
            found = known.policies.get(str(whole)) or NO_TOPIC_POLICIES
            present: Document = {**found.document, "": dict(found.for_all)} if found else {}
            if judged is not None and present != judged:
                raise ConflictError(f"the policies of {name} changed while it was to be deleted")
            return {}

        await known.update(whole, forget, is_all=True)
        self.changes += 1

    def forget_namespace(self, namespace: str) -> None:
        """The namespace was deleted, with its events."""
        known = self._namespaces.pop(namespace, None)
        if known is not None:
            known.end()

    async def _namespace(self, namespace: str) -> NamespaceEvents:
        known = self._namespaces.get(namespace)
        if known is not None:
            return known
        lock = self._loading.setdefault(namespace, asyncio.Lock())
        async with lock:
            known = self._namespaces.get(namespace)
            while known is None:
                moves, read = self._moves, NamespaceEvents(self._broker, namespace, self._heard)
                try:
                    await read.load()
                except GemingaError as error:
                    _log.warning("policies of the topics of %s could not be read: %s", namespace, error)
                    raise
                if moves == self._moves:
                    known = self._namespaces[namespace] = read
                else:
                    read.end()
        self._loading.pop(namespace, None)
        return known
