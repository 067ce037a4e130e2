"""Policies of topics, kept as events in the system topic ``__change_events`` of their namespace, as in Pulsar.

The newest event of a topic holds all its policies. A namespace's events are read once, when one of its topics is
first loaded, and kept in memory (:mod:`geminga.broker.system_topics.namespace_events`); a change is on stable storage
before it holds.

The broker that owns their topic reads and writes its log. Another one, which serves topics of that namespace, follows
and writes them there as a client does; so does Apache's broker, whose events are heard by who owns the topic. When the
topic changes hands, what was read is forgotten; so it is when the namespace was deleted, or deleted and made again,
whichever broker did that: what a later namespace of the name has is what its own events say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from geminga.broker.policies.retries import PolicyRetries
from geminga.broker.resources.topic_policies import NO_TOPIC_POLICIES, TopicPolicies
from geminga.model.errors import ConflictError, GemingaError, NotAllowedError
from geminga.runtime import again, get_logger, spawn

if TYPE_CHECKING:
    from geminga.broker.ownership.ports import Topics
    from geminga.broker.resources.documents import Document
    from geminga.broker.system_topics.namespace_events import NamespaceEvents
    from geminga.broker.system_topics.ports import EventsBroker
    from geminga.model.topic_name import TopicName

_log = get_logger(__name__)


class TopicPolicyStore:
    """Policies of all topics, namespace by namespace."""

    __slots__ = ("_broker", "_failed", "_loading", "_moves", "_namespaces", "_told", "changes", "cluster", "retries")

    def __init__(self, broker: EventsBroker) -> None:
        self._broker = broker
        #: Of topics that can not follow their policies, and of events that can not be read, at that moment.
        self.retries = PolicyRetries(broker, broker.runtime.clock.monotonic)
        #: This one's name, said by who puts the levels together: policies of one cluster name it.
        self.cluster = ""
        self._namespaces: dict[str, NamespaceEvents] = {}
        self._loading: dict[str, asyncio.Lock] = {}
        #: How many attempts to read the events of a namespace failed in a row, and why the last one did.
        self._failed: dict[str, tuple[int, GemingaError]] = {}
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
        """Another broker stores what comes next; and who has nothing of a namespace does not follow its events."""
        self._forget_moved(topics)
        elsewhere = {namespace for namespace, known in self._namespaces.items() if not known.is_here}
        if elsewhere:
            kept = {topic.name.namespace for topic in self._broker.topics.values() if not topics(topic.name)}
            for namespace in elsewhere - kept:
                self.forget_namespace(namespace)

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

    def namespace_changed(self, namespace: str) -> None:
        """It may be gone, or another one of that name be there."""
        if namespace in self._namespaces:
            spawn(self._compare(namespace), name=f"look whether {namespace} is there still", part=self._broker)

    async def _compare(self, namespace: str) -> None:
        try:
            made_ms = await self._made_ms(namespace)
        except GemingaError:
            return  # who asks for policies next compares
        self._forget_unless(namespace, made_ms)

    def _forget_unless(self, namespace: str, made_ms: int) -> NamespaceEvents | None:
        """What is known of a namespace that was made then."""
        known = self._namespaces.get(namespace)
        if known is None or known.made_ms == made_ms:
            return known
        self.forget_namespace(namespace)
        return None

    async def _made_ms(self, namespace: str) -> int:
        """When it was made; 0: it is not there. Raises MetadataError, CorruptionError."""
        found = await self._broker.namespaces.policies(namespace)
        return 0 if found is None else found.created_ms

    async def _catch_up(self, known: NamespaceEvents) -> None:
        if self._namespaces.get(known.name.namespace) is not known:
            return  # the events changed hands, or their namespace is gone
        try:
            await known.catch_up()
        except GemingaError as error:
            # Whoever asks meanwhile reads them, or is told that they can not be read.
            what = "policies that others stored can not be read"
            self.retries.failed(f"{known.name}", what, error, lambda: self._catch_up(known))
        else:
            self.retries.succeeded(f"{known.name}")

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

    async def update(self, name: TopicName, change: Callable[[Document], Document], *, is_global: bool = False) -> None:
        """Change the topic's policies; on return it is durable and loaded topics follow it. Raises GemingaError.

        One that can not follow is tried again: the error is raised all the same, as it does not hold yet.
        ``is_global``: those for all clusters, which other clusters hear of where the namespace is copied to them.
        """
        if not self._broker.config.topic_policies:
            raise NotAllowedError(
                "Topic level policies is disabled, to enable the topic level policy: set topicLevelPoliciesEnabled=true"
            )
        if name.is_system:
            raise NotAllowedError(f"{name} is the broker's own: it has no policies")
        whole = name.partitioned_topic
        events_of = await self._namespace(name.namespace)
        await events_of.update(whole, change, is_global=is_global)
        self._stored_by(events_of)
        problems = await self._changed(whole)
        if problems:
            raise again(problems[0])

    async def _changed(self, whole: TopicName) -> list[GemingaError]:
        """Loaded topics follow; why some can not now."""
        self.changes += 1
        topics = [topic for topic in self._broker.registry.loaded_of(whole) if not topic.is_closing]
        tried = [await self.retries.follow(topic) for topic in topics]
        return [problem for problem in tried if problem is not None]

    def _heard(self, names: set[TopicName]) -> None:
        """Others changed them."""
        spawn(self._follow(names), name=f"apply policies of {len(names)} topics", part=self._broker)

    async def _follow(self, names: set[TopicName]) -> None:
        for whole in names:
            await self._changed(whole)

    async def judged(self, name: TopicName) -> Document:
        """What a topic has of its own, to be given to :meth:`forget_topic`. Raises GemingaError."""
        return _judgement(await self.get(name, is_exact=True) or NO_TOPIC_POLICIES)

    async def forget_topic(self, name: TopicName, *, judged: Document | None = None) -> None:
        """The topic is being deleted: so are its policies, in this cluster. Raises GemingaError.

        ``judged``: by which it was decided to delete it; ConflictError if they are others by now.
        """
        if not self._broker.config.topic_policies or name.is_system:
            return

        def check(found: TopicPolicies) -> None:
            if judged is not None and _judgement(found) != judged:
                raise ConflictError(f"the policies of {name} changed while it was to be deleted")

        events_of = await self._namespace(name.namespace)
        await events_of.forget(name.partitioned_topic, check)
        self._stored_by(events_of)
        self.changes += 1

    def _stored_by(self, events_of: NamespaceEvents) -> None:
        """Who read the events anew meanwhile, since they changed hands, may have done so before this was stored."""
        namespace = events_of.name.namespace
        if self._namespaces.get(namespace) is not events_of:
            self.told(namespace)

    def forget_namespace(self, namespace: str) -> None:
        """The namespace was deleted, with its events."""
        self._failed.pop(namespace, None)
        known = self._namespaces.pop(namespace, None)
        if known is not None:
            known.end()

    async def _namespace(self, namespace: str) -> NamespaceEvents:
        try:
            known = self._forget_unless(namespace, await self._made_ms(namespace))
        except GemingaError:
            known = self._namespaces.get(namespace)
            if known is None:
                raise
        if known is not None:
            return known
        lock = self._loading.setdefault(namespace, asyncio.Lock())
        before = self._failed.get(namespace)
        async with lock:
            failed = self._failed.get(namespace)
            if failed is not None and failed is not before:
                # As long as one attempt takes, not as long as those of all who wait.
                raise again(failed[1])
            # Loaded with the first topic.
            from geminga.broker.system_topics.namespace_events import NamespaceEvents

            known = self._namespaces.get(namespace)
            while known is None:
                made_ms, moves = await self._made_ms(namespace), self._moves
                read = NamespaceEvents(self._broker, namespace, self._heard, self.cluster, made_ms)
                try:
                    await read.load()
                except GemingaError as error:
                    read.end()
                    self._failed[namespace] = 1 + (0 if failed is None else failed[0]), error
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
        self._failed.pop(namespace, None)
        return known


def _judgement(found: TopicPolicies) -> Document:
    # Those for all clusters go too: they are part of it.
    return {**found.document, "": dict(found.for_all)} if found else {}
