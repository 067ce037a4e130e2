"""GET_TOPICS_OF_NAMESPACE, WATCH_TOPIC_LIST and WATCH_TOPIC_LIST_CLOSE: pattern subscriptions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from geminga.broker.connection import Connection, Handler
from geminga.broker.namespaces import LEDGERS_PREFIX, TopicMode, compile_pattern, matches
from geminga.metadata.ports import ChangeKind, Notification
from geminga.model.errors import GemingaError, NotAllowedError
from geminga.runtime import spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands

#: Watches of one connection.
WATCHERS_PER_CONNECTION_MAX: Final = 1000

_MODES: Final = {
    pb.CommandGetTopicsOfNamespace.PERSISTENT: TopicMode.PERSISTENT,
    pb.CommandGetTopicsOfNamespace.NON_PERSISTENT: TopicMode.NON_PERSISTENT,
    pb.CommandGetTopicsOfNamespace.ALL: TopicMode.ALL,
}


def handle_get_topics(connection: Connection, command: pb.BaseCommand) -> None:
    """GET_TOPICS_OF_NAMESPACE -> the names, filtered by the pattern if there is one that is short enough."""
    request = command.getTopicsOfNamespace
    connection.run(_get_topics(connection, request), f"topics of {request.namespace}")


async def _get_topics(connection: Connection, request: pb.CommandGetTopicsOfNamespace) -> None:
    config = connection.broker.config
    try:
        topics = await connection.broker.list_topics(request.namespace, mode=_MODES[request.mode])
    except GemingaError as error:
        connection.send_error(request.request_id, error)
        return
    pattern = None
    text = request.topics_pattern
    if text and config.pattern_evaluation and len(text) <= config.pattern_length_max:
        pattern = compile_pattern(text)
    if pattern is not None:
        topics = [topic for topic in topics if matches(pattern, topic)]
    topics_hash = commands.topics_hash(topics)
    is_changed = request.topics_hash != topics_hash
    answer = pb.CommandGetTopicsOfNamespaceResponse(
        request_id=request.request_id,
        topics=topics if is_changed else [],
        filtered=pattern is not None,
        topics_hash=topics_hash,
        changed=is_changed,
    )
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)
    )


class TopicListWatch:
    """One watch of a connection: compares the namespace's topics whenever one of them comes or goes."""

    __slots__ = (
        "_connection",
        "_is_dirty",
        "_is_looking",
        "_known",
        "_namespace",
        "_pattern",
        "_unwatch",
        "_watcher_id",
    )

    def __init__(self, connection: Connection, watcher_id: int, namespace: str, pattern: re.Pattern[str]) -> None:
        self._connection = connection
        self._watcher_id = watcher_id
        self._namespace = namespace
        self._pattern = pattern
        #: Names the client was told.
        self._known: frozenset[str] = frozenset()
        self._is_looking = False
        self._is_dirty = False
        self._unwatch: Callable[[], None] | None = None

    async def open(self) -> list[str]:
        """Begin to watch; the matching topics now."""
        prefix = f"{LEDGERS_PREFIX}{self._namespace}/persistent"
        self._is_looking = True
        self._unwatch = self._connection.broker.metadata.watch(prefix, self._on_change)
        try:
            topics = await self._matching()
        finally:
            self._is_looking = False
        self._known = frozenset(topics)
        return topics

    def close(self) -> None:
        """Stop watching."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    async def _matching(self) -> list[str]:
        topics = await self._connection.broker.list_topics(self._namespace)
        return [topic for topic in topics if matches(self._pattern, topic)]

    def _on_change(self, notification: Notification) -> None:
        if notification.kind not in (ChangeKind.CREATED, ChangeKind.DELETED):
            return
        self._is_dirty = True
        self.look()

    def look(self) -> None:
        """Compare now, unless that is under way."""
        if self._is_dirty and not self._is_looking and self._unwatch is not None:
            self._is_looking = True
            spawn(self._compare(), name=f"watch topics of {self._namespace}")

    async def _compare(self) -> None:
        self._is_dirty = False
        try:
            topics = frozenset(await self._matching())
        except GemingaError:
            # The next change is looked at again; the client also asks by itself from time to time.
            topics = self._known
        self._is_looking = False
        if topics != self._known and self._unwatch is not None and not self._connection.is_closed:
            update = pb.CommandWatchTopicUpdate(
                watcher_id=self._watcher_id,
                new_topics=sorted(topics - self._known),
                deleted_topics=sorted(self._known - topics),
                topics_hash=commands.topics_hash(sorted(topics)),
            )
            self._known = topics
            self._connection.send_command(
                pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_UPDATE, watchTopicUpdate=update)
            )
        self.look()


def handle_watch(connection: Connection, command: pb.BaseCommand) -> None:
    """WATCH_TOPIC_LIST -> WATCH_TOPIC_LIST_SUCCESS, then WATCH_TOPIC_UPDATEs until the watch is closed."""
    request = command.watchTopicList
    config = connection.broker.config
    error: GemingaError | None = None
    pattern = compile_pattern(request.topics_pattern)
    if not config.topic_list_watcher:
        error = NotAllowedError("Topic list watcher is not enabled")
    elif len(request.topics_pattern) > config.pattern_length_max or pattern is None:
        error = NotAllowedError("Unable to create topic list watcher: the pattern is too long or none")
    elif len(connection.watchers) >= WATCHERS_PER_CONNECTION_MAX:
        error = NotAllowedError(f"{WATCHERS_PER_CONNECTION_MAX} topic list watches on this connection already")
    if error is not None or pattern is None:
        connection.send_error(request.request_id, error or NotAllowedError("no pattern"))
        return
    previous = connection.watchers.pop(request.watcher_id, None)
    if previous is not None:
        previous()
    watch = TopicListWatch(connection, request.watcher_id, request.namespace, pattern)
    connection.watchers[request.watcher_id] = watch.close
    connection.run(_watch(connection, request, watch), f"watch topics of {request.namespace}")


async def _watch(connection: Connection, request: pb.CommandWatchTopicList, watch: TopicListWatch) -> None:
    try:
        topics = await watch.open()
    except GemingaError as error:
        watch.close()
        if connection.watchers.get(request.watcher_id) == watch.close:
            del connection.watchers[request.watcher_id]
        connection.send_error(request.request_id, error)
        return
    if connection.watchers.get(request.watcher_id) != watch.close:
        watch.close()
        return
    topics_hash = commands.topics_hash(topics)
    answer = pb.CommandWatchTopicListSuccess(
        request_id=request.request_id,
        watcher_id=request.watcher_id,
        topic=topics if request.topics_hash != topics_hash else [],
        topics_hash=topics_hash,
    )
    connection.send_command(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watchTopicListSuccess=answer))
    watch.look()


def handle_watch_close(connection: Connection, command: pb.BaseCommand) -> None:
    """WATCH_TOPIC_LIST_CLOSE -> SUCCESS."""
    request = command.watchTopicListClose
    end_watch = connection.watchers.pop(request.watcher_id, None)
    if end_watch is not None:
        end_watch()
    connection.send_success(request.request_id)


HANDLERS: Final[dict[int, Handler]] = {
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE: handle_get_topics,
    pb.BaseCommand.WATCH_TOPIC_LIST: handle_watch,
    pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE: handle_watch_close,
}
