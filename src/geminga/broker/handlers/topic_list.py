"""GET_TOPICS_OF_NAMESPACE, WATCH_TOPIC_LIST and WATCH_TOPIC_LIST_CLOSE: pattern subscriptions."""

from __future__ import annotations

from typing import Final

from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.services import CommandServices
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.registry.topic_watches import WATCHERS_PER_CONNECTION_MAX, TopicListWatcher, matching_topics
from geminga.model.errors import GemingaError, NotAllowedError, TooManyRequestsError
from geminga.runtime import Turns
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.topic_pattern import LinearPattern

#: Requests for a list that wait on one connection, which gets one answer after the other, as fast as it takes them.
LISTS_PENDING_MAX: Final = 1000

_MODES: Final = {
    pb.CommandGetTopicsOfNamespace.PERSISTENT: TopicMode.PERSISTENT,
    pb.CommandGetTopicsOfNamespace.NON_PERSISTENT: TopicMode.NON_PERSISTENT,
    pb.CommandGetTopicsOfNamespace.ALL: TopicMode.ALL,
}


def handle_get_topics(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """GET_TOPICS_OF_NAMESPACE -> the names, filtered by the pattern if it is one to be evaluated here."""
    request = command.getTopicsOfNamespace
    if len(connection.members.list_requests) >= LISTS_PENDING_MAX:
        error = TooManyRequestsError(f"{LISTS_PENDING_MAX} requests for topic lists on this connection already")
        connection.send_error(request.request_id, error)
        return
    connection.members.list_requests.append(request)
    if len(connection.members.list_requests) == 1:
        _answer_next(services, connection)


def _answer_next(services: CommandServices, connection: Connection) -> None:
    if not connection.members.list_requests or connection.is_closed:
        return
    if connection.output.is_writable:
        request = connection.members.list_requests[0]
        connection.run(_answer(services, connection, request), f"topics of {request.namespace}")
    else:
        connection.output.on_writable(lambda: _answer_next(services, connection))


async def _answer(services: CommandServices, connection: Connection, request: pb.CommandGetTopicsOfNamespace) -> None:
    try:
        async with services.long_work:
            if not connection.is_closed:
                await _get_topics(services, connection, request)
    except GemingaError as error:
        connection.send_error(request.request_id, error)
    finally:
        connection.members.list_requests.popleft()
    _answer_next(services, connection)


async def _get_topics(
    services: CommandServices, connection: Connection, request: pb.CommandGetTopicsOfNamespace
) -> None:
    config = services.config
    topics = await services.topics.list(request.namespace, mode=_MODES[request.mode])
    pattern = None
    text = request.topics_pattern
    if text and config.pattern_evaluation and len(text) <= config.pattern_length_max:
        pattern = LinearPattern.compile(text)
    if pattern is not None:
        topics = await matching_topics(pattern, topics, Turns(services.clock))
    topics_hash = commands.topics_hash(topics)
    is_changed = request.topics_hash != topics_hash
    answer = pb.CommandGetTopicsOfNamespaceResponse(
        request_id=request.request_id,
        topics=topics if is_changed else [],
        filtered=pattern is not None,
        topics_hash=topics_hash,
        changed=is_changed,
    )
    size_bytes = answer.ByteSize()
    if size_bytes > config.message_bytes_max:
        raise NotAllowedError(f"the list of {len(topics)} topics has {size_bytes} bytes, too many for one frame")
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)
    )


def handle_watch(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """WATCH_TOPIC_LIST -> WATCH_TOPIC_LIST_SUCCESS, then WATCH_TOPIC_UPDATEs until the watch is closed.

    NotAllowedError for a pattern that is not to be evaluated here: the client asks from time to time then.
    """
    request = command.watchTopicList
    config = services.config
    text = request.topics_pattern
    error: GemingaError | None = None
    if not config.topic_list_watcher:
        error = NotAllowedError("Topic list watcher is not enabled")
    elif len(text) > config.pattern_length_max:
        error = NotAllowedError("Unable to create topic list watcher: the pattern is too long")
    elif LinearPattern.compile(text) is None:
        error = NotAllowedError("Unable to create topic list watcher: the pattern is none that the broker evaluates")
    elif (
        len(connection.members.watchers) >= WATCHERS_PER_CONNECTION_MAX
        and request.watcher_id not in connection.members.watchers
    ):
        error = NotAllowedError(f"{WATCHERS_PER_CONNECTION_MAX} topic list watches on this connection already")
    if error is not None:
        connection.send_error(request.request_id, error)
        return
    previous = connection.members.watchers.pop(request.watcher_id, None)
    if previous is not None:
        previous()
    watcher = TopicListWatcher(connection, request, text)
    connection.members.watchers[request.watcher_id] = watcher
    services.watch_topics(watcher)


def handle_watch_close(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """WATCH_TOPIC_LIST_CLOSE -> SUCCESS."""
    request = command.watchTopicListClose
    end_watch = connection.members.watchers.pop(request.watcher_id, None)
    if end_watch is not None:
        end_watch()
    connection.send_success(request.request_id)
