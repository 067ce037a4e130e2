"""Watches of topic lists: who is told of a namespace's topics that come and go, by pattern.

One look at a namespace serves all its watchers: what came and went since the look before is matched once per pattern,
in several turns of the loop. Looks follow each other with a pause, and share ``long_work`` with everything
else that takes long, so that many watchers of many topics take their time, and nobody else's.

Notifications of the metadata store only say that it is time to look: they may come late, or never; clients ask for
the whole list from time to time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from geminga.broker.core.watched_topics import TopicChange, WatchedTopics
from geminga.broker.registry.namespaces import LEDGERS_PREFIX
from geminga.metadata.ports import MetadataStore, Notification
from geminga.model.errors import GemingaError, NotAllowedError
from geminga.runtime import Clock, Contained, Part, Turns, get_logger, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.topic_pattern import LinearPattern

_log = get_logger(__name__)

#: Watches of one connection.
WATCHERS_PER_CONNECTION_MAX: Final = 1000
#: Watches of a broker.
WATCHERS_MAX: Final = 10_000
#: Names that are kept for the watched patterns, each pattern's list counted by itself; a watch that would need more is
#: refused. Topics that come later are told all the same.
WATCHED_NAMES_MAX: Final = 1_000_000
#: Watches begun in one look, so that those that stand are told of changes in between.
BEGUN_PER_LOOK_MAX: Final = 16
#: Milliseconds between two looks at a namespace, and after one that failed.
LOOK_PAUSE_MS: Final = 100
LOOK_RETRY_MS: Final = 1000


class Watching(Protocol):
    """Watches of a connection."""

    #: Watcher id -> what ends the watch.
    watchers: dict[int, Callable[[], None]]


class WatchingConnection(Protocol):
    """The connection of a client that watches."""

    @property
    def members(self) -> Watching:
        """What it watches."""

    def send_command(self, command: pb.BaseCommand) -> None:
        """Send it."""

    def send_error(self, request_id: int, error: GemingaError) -> None:
        """Answer a request with an error."""


class TopicListWatcher:
    """One watch of a connection, until it is closed."""

    __slots__ = ("_watches", "connection", "is_closed", "namespace", "pattern", "request")

    def __init__(self, connection: WatchingConnection, request: pb.CommandWatchTopicList, pattern: str) -> None:
        self.connection = connection
        #: What its client wants to know, and knows.
        self.request = request
        self.namespace = request.namespace
        #: The pattern's text.
        self.pattern = pattern
        self.is_closed = False
        self._watches: TopicWatches | None = None

    def attached(self, watches: TopicWatches) -> None:
        """It is counted there."""
        self._watches = watches

    def close(self) -> None:
        """Nothing is told any more."""
        if not self.is_closed:
            self.is_closed = True
            if self._watches is not None:
                self._watches.closed(self)

    #: As one of its connection's watches.
    __call__ = close

    def disconnect(self) -> None:
        """It ends here: the protocol has no word for that, and a client that asks for it again hears why."""
        watchers, watcher_id = self.connection.members.watchers, self.request.watcher_id
        if watchers.get(watcher_id) is self:
            del watchers[watcher_id]
        self.close()

    def refuse(self, error: GemingaError) -> None:
        """It could not begin."""
        if self.is_closed:
            return
        connection = self.connection
        self.disconnect()
        connection.send_error(self.request.request_id, error)

    def begun(self, topics: WatchedTopics) -> None:
        """Tell the list, unless the client has that very one; refuse what fits no frame."""
        answer = pb.CommandWatchTopicListSuccess(
            request_id=self.request.request_id,
            watcher_id=self.request.watcher_id,
            topic=topics.names if self.request.topics_hash != topics.hash else [],
            topics_hash=topics.hash,
        )
        size_bytes = answer.ByteSize()
        if self._watches is not None and size_bytes > self._watches.frame_bytes_max:
            text = f"the list of {len(topics.names)} topics has {size_bytes} bytes, too many for one frame"
            self.refuse(NotAllowedError(text))
            return
        kind = pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS
        self.connection.send_command(pb.BaseCommand(type=kind, watchTopicListSuccess=answer))

    def tell(self, change: TopicChange) -> None:
        """Tell what came and went."""
        update = pb.CommandWatchTopicUpdate(
            watcher_id=self.request.watcher_id,
            new_topics=change.came,
            deleted_topics=change.went,
            topics_hash=change.hash,
        )
        self.connection.send_command(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_UPDATE, watchTopicUpdate=update))


class TopicWatches:
    """All watches of a broker."""

    __slots__ = (
        "_is_closed",
        "_namespaces",
        "clock",
        "count",
        "frame_bytes_max",
        "list_topics",
        "long_work",
        "metadata",
        "names_count",
        "part",
    )

    def __init__(
        self,
        clock: Clock,
        metadata: MetadataStore,
        list_topics: Callable[[str], Awaitable[list[str]]],
        *,
        frame_bytes_max: int,
        long_work: asyncio.Semaphore,
        part: Part,
    ) -> None:
        """``list_topics``: the full names of a namespace's topics, sorted. ``long_work``: held by each look.

        ``frame_bytes_max``: clients take no larger command, and close the connection for one.
        """
        self.clock = clock
        self.metadata = metadata
        self.list_topics = list_topics
        self.frame_bytes_max = frame_bytes_max
        self.long_work = long_work
        self.part = part
        self._is_closed = False
        #: Watches that stand or are about to.
        self.count = 0
        #: Names kept for them.
        self.names_count = 0
        self._namespaces: dict[str, _NamespaceWatch] = {}

    def open(self, watcher: TopicListWatcher) -> None:
        """Begin to watch: the answer, and what is to be told, go to its connection."""
        if self.count >= WATCHERS_MAX or self._is_closed:
            watcher.refuse(NotAllowedError(f"the broker is closing, or has {WATCHERS_MAX} topic list watches already"))
            return
        namespace = self._namespaces.get(watcher.namespace)
        if namespace is None:
            try:
                namespace = _NamespaceWatch(self, watcher.namespace)
            except GemingaError as error:
                watcher.refuse(error)
                return
            self._namespaces[watcher.namespace] = namespace
        self.count += 1
        watcher.attached(self)
        namespace.add(watcher)

    def closed(self, watcher: TopicListWatcher) -> None:
        """The watcher was closed."""
        self.count -= 1
        namespace = self._namespaces.get(watcher.namespace)
        if namespace is not None:
            namespace.remove(watcher)

    def forget(self, namespace: str) -> None:
        """Nobody watches the namespace any more."""
        del self._namespaces[namespace]

    def close(self) -> None:
        """End all of them; none begins any more."""
        self._is_closed = True
        for namespace in list(self._namespaces.values()):
            namespace.close()
        self._namespaces.clear()


class _Group:
    """The watchers of one pattern."""

    __slots__ = ("topics", "watchers")

    def __init__(self, topics: WatchedTopics) -> None:
        self.topics = topics
        self.watchers: dict[TopicListWatcher, None] = {}


class _NamespaceWatch:
    """The watchers of one namespace."""

    __slots__ = (
        "_groups",
        "_is_closed",
        "_is_dirty",
        "_is_looking",
        "_known",
        "_name",
        "_names",
        "_next_look_s",
        "_pending",
        "_timer",
        "_unwatch",
        "_watches",
    )

    def __init__(self, watches: TopicWatches, name: str) -> None:
        self._watches = watches
        self._name = name
        #: By the pattern's text.
        self._groups: dict[str, _Group] = {}
        #: Not begun yet, in the order in which they came.
        self._pending: dict[TopicListWatcher, None] = {}
        #: Full names of the namespace's topics at the last look: sorted, and as a set.
        self._names: list[str] = []
        self._known: set[str] = set()
        self._is_looking = self._is_dirty = self._is_closed = False
        self._next_look_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        prefix = f"{LEDGERS_PREFIX}{name}/persistent"
        self._unwatch: Callable[[], None] = watches.metadata.watch_children(prefix, self._on_change)

    def add(self, watcher: TopicListWatcher) -> None:
        """Begin with the next look."""
        self._pending[watcher] = None
        self._wake()

    def remove(self, watcher: TopicListWatcher) -> None:
        """It is closed."""
        self._pending.pop(watcher, None)
        group = self._groups.get(watcher.pattern)
        if group is not None and watcher in group.watchers:
            del group.watchers[watcher]
            if not group.watchers:
                del self._groups[watcher.pattern]
                self._watches.names_count -= len(group.topics.names)
        self._end_if_unused()

    def close(self) -> None:
        """Nobody is told anything any more."""
        self._is_closed = True
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()

    def _end_if_unused(self) -> None:
        if not self._groups and not self._pending and not self._is_looking and not self._is_closed:
            self.close()
            self._watches.forget(self._name)

    def _on_change(self, _: Notification) -> None:
        # The metadata store tells: what fails here is not its failure.
        with Contained(self._watches.part, "a topic list watch", is_last=True):
            self._is_dirty = True
            self._wake()

    def _wake(self) -> None:
        """Look when it is time to."""
        if self._is_looking or self._is_closed or not (self._pending or self._is_dirty):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delay_s = self._next_look_s - self._watches.clock.monotonic()
        if self._pending or delay_s <= 0:
            self._is_looking = True
            spawn(self._look(), name=f"look at the topics of {self._name}", part=self._watches.part)
        else:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    async def _look(self) -> None:
        watches = self._watches
        pause_ms = LOOK_PAUSE_MS
        begin = list(self._pending)[:BEGUN_PER_LOOK_MAX]
        try:
            async with watches.long_work:
                self._is_dirty = False
                came, went = await self._difference()
                await self._tell(came, went)
                for watcher in begin:
                    if watcher in self._pending:
                        await self._begin(watcher)
        except GemingaError as error:
            _log.warning("the topics of %s are not known: %s", self._name, error)
            for watcher in begin:
                watcher.refuse(error)
            self._is_dirty = True
            pause_ms = LOOK_RETRY_MS
        finally:
            self._is_looking = False
        self._next_look_s = watches.clock.monotonic() + pause_ms / 1000
        self._wake()
        self._end_if_unused()

    async def _difference(self) -> tuple[list[str], list[str]]:
        """The names that came and went since the last look; raises StorageError."""
        now = await self._watches.list_topics(self._name)
        turns = self._turns()
        came, went = [], []
        for name in now:
            if turns.is_over():
                await turns.next()
            if name not in self._known:
                came.append(name)
        if len(now) - len(came) < len(self._known):
            present = set(now)
            for name in self._names:
                if turns.is_over():
                    await turns.next()
                if name not in present:
                    went.append(name)
        self._known.difference_update(went)
        self._known.update(came)
        self._names = now
        return came, went

    async def _tell(self, came: list[str], went: list[str]) -> None:
        turns = self._turns()
        for text, group in list(self._groups.items()):
            if turns.is_over():
                await turns.next()
            matching = await _matching(text, came, turns)
            before = len(group.topics.names)
            change = group.topics.change(matching, went)
            if change is None:
                continue
            if self._groups.get(text) is group:
                self._watches.names_count += len(group.topics.names) - before
            pieces = change.pieces(self._watches.frame_bytes_max)
            for watcher in list(group.watchers):
                if turns.is_over():
                    await turns.next()
                for piece in pieces:
                    if not watcher.is_closed:
                        watcher.tell(piece)

    async def _begin(self, watcher: TopicListWatcher) -> None:
        group = self._groups.get(watcher.pattern)
        if group is None:
            matching = await _matching(watcher.pattern, self._names, self._turns())
            if watcher.is_closed:
                return
            if self._watches.names_count + len(matching) > WATCHED_NAMES_MAX:
                watcher.refuse(NotAllowedError(f"{WATCHED_NAMES_MAX} names of topics are watched already"))
                return
            group = self._groups[watcher.pattern] = _Group(WatchedTopics(matching))
            self._watches.names_count += len(matching)
        del self._pending[watcher]
        group.watchers[watcher] = None
        watcher.begun(group.topics)

    def _turns(self) -> Turns:
        return Turns(self._watches.clock)


async def _matching(text: str, names: list[str], turns: Turns) -> list[str]:
    pattern = LinearPattern.compile(text) if names else None
    return [] if pattern is None else await matching_topics(pattern, names, turns)


async def matching_topics(pattern: LinearPattern, names: list[str], turns: Turns) -> list[str]:
    """Those of the full names that match, in their order; takes several turns of the loop."""
    found = []
    for name in names:
        if turns.is_over():
            await turns.next()
        if pattern.matches(name):
            found.append(name)
    return found
