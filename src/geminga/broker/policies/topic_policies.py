"""Policies of topics, kept as events in the system topic ``__change_events`` of their namespace, as in Pulsar.

The newest event of a topic holds all its policies. A namespace's events are read once, when one of its topics is
first loaded, and kept in memory (:mod:`geminga.broker.topic.table`); a change is on stable storage before it holds.

The broker that owns their topic reads and writes its log. Another one, which serves topics of that namespace, follows
and writes them there as a client does; so does Apache's broker, whose events are heard by who owns the topic. When the
topic changes hands, what was read is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from geminga.broker.ownership.ports import Here, Topics
from geminga.broker.policies import events
from geminga.broker.policies.ports import EventsBroker
from geminga.broker.resources.documents import Document
from geminga.broker.resources.topic_policies import NO_TOPIC_POLICIES, TopicPolicies
from geminga.broker.topic.table import Table, TableMessage, TableValue, TopicTable
from geminga.model.errors import (
    ConflictError,
    CorruptionError,
    GemingaError,
    InvalidTopicNameError,
    NotAllowedError,
)
from geminga.model.topic_name import CHANGE_EVENTS, EVENTS_CURSOR, TopicName
from geminga.runtime import Contained, get_logger, spawn

_log = get_logger(__name__)

#: Of the events, in the registry.
SCHEMA_NAME: Final = "PulsarEvent"


class NamespaceEvents:
    """The policies of one namespace's topics, read from its events."""

    __slots__ = (
        "_broker",
        "_busy",
        "_changed",
        "_heard",
        "_is_loaded",
        "_kept",
        "_table",
        "name",
        "policies",
    )

    def __init__(self, broker: EventsBroker, namespace: str, changed: Callable[[set[TopicName]], None]) -> None:
        """``changed``: somebody else stored policies of these (partitioned) topics."""
        self._broker = broker
        self._changed = changed
        #: Topics of which events came since the first ones were read, that nobody was told of.
        self._heard: set[TopicName] = set()
        self._is_loaded = False
        self.name = TopicName.parse(f"persistent://{namespace}/{CHANGE_EVENTS}")
        #: By full name of the (partitioned) topic.
        self.policies: dict[str, TopicPolicies] = {}
        self._table: Table[events.EventSchema] = self._own_table()
        #: By key, events that somebody wrote: what we do not know of them is written again with each change.
        self._kept: dict[str, events.Kept] = {}
        #: One change at a time: each begins with what the one before it left.
        self._busy = asyncio.Lock()

    def _own_table(self) -> Table[events.EventSchema]:
        broker = self._broker
        return TopicTable(
            self.name,
            cursor=EVENTS_CURSOR,
            schema_name=SCHEMA_NAME,
            parse=events.schema_of,
            open_topic=broker.get_topic,
            exists=broker.topic_exists,
            registry=broker.schemas.registry,
            clock=broker.runtime.clock,
        )

    async def load(self) -> None:
        """Read what is stored. Raises GemingaError; then nothing is known."""
        broker = self._broker
        elsewhere = broker.tables_elsewhere
        if elsewhere is not None and not isinstance(await broker.ownership.owner_of(self.name), Here):
            self._table = elsewhere.open(
                self.name,
                schema_name=SCHEMA_NAME,
                parse=events.schema_of,
                exists=_is_to_be,
                registry=broker.schemas.registry,
            )
        await self._table.read(self._take, self._tell)
        if self._table.was_compacted:
            await self._rewrite()
        self._is_loaded = True

    def end(self) -> None:
        """Nothing is heard any more."""
        self._table.end()

    def told(self) -> None:
        """Somebody else published events here."""
        self._table.told()

    @property
    def is_here(self) -> bool:
        """Whether this broker's own log has them."""
        return isinstance(self._table, TopicTable)

    @property
    def is_behind(self) -> bool:
        """Whether it is known that there are events that were not read; always, where another broker has them."""
        return self._table.is_behind

    async def catch_up(self) -> None:
        """Read all that is stored now. Raises GemingaError."""
        await self._table.catch_up()

    async def _take(self, event: TableMessage) -> None:
        name = await self._apply(event, self.policies)
        if name is not None and self._is_loaded:
            self._heard.add(name)

    def _tell(self) -> None:
        heard, self._heard = self._heard, set()
        if heard:
            self._changed(heard)

    async def update(self, name: TopicName, change: Callable[[Document], Document], *, is_all: bool = False) -> None:
        """Change the policies of one topic; on return the change is on stable storage. Raises GemingaError.

        ``is_all``: those for all clusters go.
        """
        async with self._busy:
            await self._table.catch_up()
            before = self.policies.get(str(name)) or NO_TOPIC_POLICIES
            changed: Document = {k: v for k, v in change(dict(before.document)).items() if v is not None}
            changes = [self._change(name, changed)] if changed != before.document else []
            if is_all and before.for_all:
                changes.append(self._change(name, {}, is_global=True))
            if not changes:
                return
            if await self._table.append([self._event(one) for one in changes]):
                for one in changes:
                    self._put(self.policies, one)
            if self._table.is_worn(len(self.policies)):
                await self._rewrite()

    # ---- private

    def _change(self, name: TopicName, document: Document, *, is_global: bool = False) -> events.PolicyChange:
        return events.PolicyChange(
            name, is_global, document, self._kept.get(events.event_key(name, is_global=is_global))
        )

    @staticmethod
    def _event(change: events.PolicyChange) -> TableValue:
        schema = events.schema_to_write(change.kept)
        key = events.event_key(change.name, is_global=change.is_global)
        data = events.encode_update(change.name, change.policies, change.kept, schema) if change.policies else None
        return TableValue(key, data, schema.definition, events.clusters_of(change.kept))

    async def _rewrite(self) -> None:
        live = []
        for key, found in self.policies.items():
            name = TopicName.parse(key)
            for is_global, document in ((False, found.document), (True, found.for_all)):
                if document:
                    live.append(self._event(self._change(name, dict(document), is_global=is_global)))
        await self._table.rewrite(live)

    async def _apply(self, event: TableMessage, policies: dict[str, TopicPolicies]) -> TopicName | None:
        """Take note of an event; whose policies it holds."""
        try:
            if event.problem:
                raise CorruptionError(event.problem)
            if event.is_null:
                found: events.PolicyChange | None = events.removed(event.key)
            else:
                found = events.decode(event.data, await self._table.schema(event.schema_version))
        except (CorruptionError, InvalidTopicNameError, ValueError) as error:
            # Anybody who may publish here can have written it: the other topics' policies count all the same.
            _log.warning("%s %s: passed over: %s", self.name, event.place, error)
            return None
        if found is None:
            return None
        found = found._replace(name=found.name.partitioned_topic)
        self._put(policies, found)
        return found.name

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


async def _is_to_be(_name: TopicName) -> bool:
    """Events elsewhere are followed before there are any: their topic is made, as Apache's brokers do."""
    return True


class TopicPolicyStore:
    """Policies of all topics, namespace by namespace."""

    __slots__ = ("_broker", "_loading", "_moves", "_namespaces", "_told", "changes")

    def __init__(self, broker: EventsBroker) -> None:
        self._broker = broker
        self._namespaces: dict[str, NamespaceEvents] = {}
        self._loading: dict[str, asyncio.Lock] = {}
        #: Namespaces in which others published events while they were being read.
        self._told: set[str] = set()
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

    def told(self, namespace: str) -> None:
        """Others published events of it here: loaded topics follow soon, and who asks is answered by them at once."""
        if namespace in self._loading:
            self._told.add(namespace)
        known = self._namespaces.get(namespace)
        if known is not None:
            known.told()
            spawn(self._catch_up(known), name=f"read policies of {namespace}", part=self._broker)

    @staticmethod
    async def _catch_up(known: NamespaceEvents) -> None:
        try:
            await known.catch_up()
        except GemingaError as error:
            # Whoever asks next reads them, or is told that they can not be read.
            _log.warning("policies that others stored in %s can not be read now: %s", known.name, error)

    async def get(self, name: TopicName, *, is_exact: bool = False) -> TopicPolicies | None:
        """What the topic (of a partition: its partitioned topic) has of its own; None: nothing. Raises GemingaError.

        ``is_exact``: with what was stored before the call wherever the events are; else what another broker has just
        stored may be missing, and loaded topics follow a moment later.
        """
        if not self._broker.config.topic_policies or name.is_system:
            return None
        events_of = await self._namespace(name.namespace)
        while events_of.is_behind and (is_exact or events_of.is_here):
            try:
                await events_of.catch_up()
                break
            except GemingaError:
                before, events_of = events_of, await self._namespace(name.namespace)
                if events_of is before:
                    raise
                # Their topic changed hands meanwhile.
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
        for topic in self._broker.topics_of(whole):
            if not topic.is_closing:
                await topic.apply_policies()

    def _heard(self, names: set[TopicName]) -> None:
        """Others changed them."""
        spawn(self._follow(names), name=f"apply policies of {len(names)} topics", part=self._broker)

    async def _follow(self, names: set[TopicName]) -> None:
        for whole in names:
            try:
                with Contained(self._broker, "following policies"):
                    await self._changed(whole)
            except GemingaError as error:
                _log.warning("%s: changed policies could not be applied: %s", whole, error)

    async def judged(self, name: TopicName) -> Document:
        """What a topic has of its own, to be given to :meth:`forget_topic`. Raises GemingaError."""
        found = await self.get(name, is_exact=True) or NO_TOPIC_POLICIES
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
                    read.end()
                    _log.warning("policies of the topics of %s could not be read: %s", namespace, error)
                    raise
                if moves == self._moves:
                    known = self._namespaces[namespace] = read
                    if namespace in self._told:
                        known.told()
                else:
                    read.end()
                self._told.discard(namespace)
        self._loading.pop(namespace, None)
        return known
