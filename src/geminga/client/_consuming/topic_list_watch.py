"""A watch of the topics of a namespace: the broker tells of topics that come and go, instead of being asked.

It lives on a connection to the service URL and ends with it; whoever wants to be told opens it again. What it tells is
kept in order until it is taken. Brokers say in CONNECTED whether they have watches; proxies have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from geminga.client._api.errors import NotAllowedError, OperationNotSupported, PulsarException
from geminga.client._transport.cluster import Cluster
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.lookup import any_topic_of
from geminga.wire._generated import pulsar_api_pb2 as pb

_Type = pb.BaseCommand

#: Updates that wait to be taken; beyond it the list of topics is to be asked for as a whole.
UPDATES_MAX: Final = 1000


class TopicListWatch:
    """See the module's docstring."""

    __slots__ = (
        "_cluster",
        "_connection",
        "_namespace",
        "_on_news",
        "_pattern",
        "_updates",
        "_watcher_id",
        "has_missed",
    )

    def __init__(self, cluster: Cluster, namespace: str, pattern: str, on_news: Callable[[], None]) -> None:
        """``pattern``: whole topic names, with or without domain. ``on_news``: there is an update, or the end."""
        self._cluster = cluster
        self._namespace = namespace
        self._pattern = pattern
        self._on_news = on_news
        self._watcher_id = next(cluster.consumer_ids)
        self._connection: ClientConnection | None = None
        self._updates: list[pb.CommandWatchTopicUpdate] = []
        #: Updates were lost, with the connection or for want of room: ask for the whole list.
        self.has_missed = False

    @property
    def is_open(self) -> bool:
        """Whether the broker tells of changes now."""
        return self._connection is not None

    async def open(self, topics_hash: str) -> bool:
        """Watch from now on; True if the topics are those of ``topics_hash``, False: ask for the list.

        Raises OperationNotSupported if the broker has no watches, NotAllowedError if it refuses this one, or what went
        wrong.
        """
        connection = await self._cluster.pool.service_connection(any_topic_of(self._namespace))
        if not connection.features.supports_topic_watchers:
            raise OperationNotSupported(f"the broker at {connection.url} does not tell of topics that come and go")
        request_id = connection.next_request_id()
        request = pb.CommandWatchTopicList(
            request_id=request_id,
            watcher_id=self._watcher_id,
            namespace=self._namespace,
            topics_pattern=self._pattern,
            topics_hash=topics_hash,
        )
        # Before the answer: an update may be in the same read.
        connection.listeners.register_watcher(self._watcher_id, self)
        self._updates.clear()
        self.has_missed = False
        try:
            answer = await connection.request(
                pb.BaseCommand(type=_Type.WATCH_TOPIC_LIST, watchTopicList=request),
                request_id,
                self._cluster.timeout_s,
            )
        except BaseException as error:
            connection.listeners.unregister_watcher(self._watcher_id)
            if not isinstance(error, NotAllowedError):
                self._say_close(connection)  # the broker may have made it, or be about to
            raise
        if not connection.is_closed:
            self._connection = connection
        return answer.watchTopicListSuccess.topics_hash == topics_hash

    def take(self) -> list[pb.CommandWatchTopicUpdate]:
        """What was told since the last time."""
        updates, self._updates = self._updates, []
        return updates

    def close(self) -> None:
        """Nothing is told any more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.listeners.unregister_watcher(self._watcher_id)
            self._say_close(connection)

    def _say_close(self, connection: ClientConnection) -> None:
        close = pb.CommandWatchTopicListClose(request_id=connection.next_request_id(), watcher_id=self._watcher_id)
        connection.send_unanswered(pb.BaseCommand(type=_Type.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=close))

    # ---- the connection's events

    def on_topic_update(self, update: pb.CommandWatchTopicUpdate) -> None:
        """Topics came or went."""
        if len(self._updates) >= UPDATES_MAX:
            self._updates.clear()
            self.has_missed = True
        else:
            self._updates.append(update)
        self._on_news()

    def on_connection_lost(self, error: PulsarException) -> None:
        """The watch ended with its connection."""
        self._connection = None
        self.has_missed = True
        self._on_news()
