"""The policies of one namespace's topics, read from its events (:mod:`geminga.broker.system_topics.topic_policies`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.ownership.ports import is_served_here
from geminga.broker.resources.topic_policies import NO_TOPIC_POLICIES, TopicPolicies
from geminga.broker.system_topics import events
from geminga.broker.system_topics.table import Table, TableMessage, TableSource, TableValue, TopicTable
from geminga.model.errors import CorruptionError, GemingaError, InvalidTopicNameError
from geminga.model.topic_name import CHANGE_EVENTS, EVENTS_CURSOR, TopicName
from geminga.runtime import get_logger

if TYPE_CHECKING:
    from geminga.broker.resources.documents import Document
    from geminga.broker.system_topics.ports import EventsBroker

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
        "_here",
        "_is_loaded",
        "_kept",
        "_table",
        "made_ms",
        "name",
        "policies",
    )

    def __init__(
        self,
        broker: EventsBroker,
        namespace: str,
        changed: Callable[[set[TopicName]], None],
        cluster: str = "",
        made_ms: int = 0,
    ) -> None:
        """``changed``: somebody else stored policies of these (partitioned) topics. ``cluster``: this one's name.

        ``made_ms``: when the namespace was made whose events they are.
        """
        self._broker = broker
        self.made_ms = made_ms
        #: Whom an event is for that goes nowhere else; none: nobody asked for a name.
        self._here: Sequence[str] = (cluster,) if cluster else ()
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
        source = self._source(broker.registry.exists)
        return TopicTable(source, cursor=EVENTS_CURSOR, open_topic=broker.registry.get, clock=broker.runtime.clock)

    def _source(self, exists: Callable[[TopicName], Awaitable[bool]]) -> TableSource[events.EventSchema]:
        return TableSource(
            self.name,
            exists,
            self._broker.schemas.registry,
            schema_name=SCHEMA_NAME,
            own_schema=events.SCHEMA,
            parse=events.schema_of,
        )

    async def load(self) -> None:
        """Read what is stored. Raises GemingaError; then nothing is known."""
        broker = self._broker
        elsewhere = broker.tables_elsewhere
        if elsewhere is not None and not await is_served_here(broker.ownership, self.name):
            self._table = elsewhere.open(self._source(self._is_to_be))
        await self._table.read(self._take, self._tell)
        if self._table.was_compacted:
            await self._rewrite()
        self._is_loaded = True

    async def _is_to_be(self, name: TopicName) -> bool:
        """Events elsewhere are followed before there are any: their topic is made, as Apache's brokers do."""
        return await self._broker.namespaces.policies(name.namespace) is not None

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

    async def update(self, name: TopicName, change: Callable[[Document], Document], *, is_global: bool = False) -> None:
        """Change the policies of one topic; on return the change is on stable storage. Raises GemingaError.

        ``is_global``: those for all clusters.
        """
        async with self._busy:
            await self._table.catch_up()
            found = self.policies.get(str(name)) or NO_TOPIC_POLICIES
            before = found.for_all if is_global else found.document
            changed: Document = {k: v for k, v in change(dict(before)).items() if v is not None}
            if not changed.keys() - {events.IS_GLOBAL}:
                changed = {}
            elif is_global:
                changed[events.IS_GLOBAL] = True
            if changed != before:
                await self._store([self._change(name, changed, is_global=is_global)])

    async def forget(self, name: TopicName, check: Callable[[TopicPolicies], None]) -> None:
        """The topic is deleted here: all its policies go, here alone. Raises what ``check`` does, GemingaError."""
        async with self._busy:
            await self._table.catch_up()
            found = self.policies.get(str(name)) or NO_TOPIC_POLICIES
            check(found)
            each = ((False, found.document), (True, found.for_all))
            changes = [self._change(name, {}, is_global=is_global) for is_global, document in each if document]
            if changes:
                await self._store(changes, is_here_alone=True)

    # ---- private

    async def _store(self, changes: Sequence[events.PolicyChange], *, is_here_alone: bool = False) -> None:
        """Who calls it holds the lock."""
        if await self._table.append([self._event(one, is_here_alone=is_here_alone) for one in changes]):
            for one in changes:
                self._put(self.policies, one)
        if self._table.is_worn(len(self.policies)):
            await self._rewrite()

    def _change(self, name: TopicName, document: Document, *, is_global: bool = False) -> events.PolicyChange:
        return events.PolicyChange(
            name, is_global, document, self._kept.get(events.event_key(name, is_global=is_global))
        )

    def _event(self, change: events.PolicyChange, *, is_here_alone: bool = False) -> TableValue:
        """``is_here_alone``: it goes to no other cluster, also where the policies are for all of them."""
        schema = events.schema_to_write(change.kept)
        key = events.event_key(change.name, is_global=change.is_global)
        clusters = () if change.is_global else events.clusters_of(change.kept) or self._here
        data = None
        if change.policies:
            data = events.encode_update(change.name, change.policies, change.kept, schema, clusters)
        return TableValue(key, data, schema.definition, self._here if is_here_alone else clusters)

    async def _rewrite(self) -> None:
        """What was stored before holds, whether this can be done now or with a later change."""
        try:
            await self._table.rewrite(self._live())
        except GemingaError as error:
            _log.warning("%s: its live events can not be written again now: %s", self.name, error)

    def _live(self) -> list[TableValue]:
        live = []
        for key, found in self.policies.items():
            name = TopicName.parse(key)
            for is_global, document in ((False, found.document), (True, found.for_all)):
                if document:
                    # What another cluster is setting anew would be undone there by what was read before.
                    one = self._change(name, dict(document), is_global=is_global)
                    live.append(self._event(one, is_here_alone=is_global))
        return live

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
