"""The blocking ``Client``.

Generated from ``client/_client.py`` by ``tools/generate_blocking.py``: do not edit.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, Unpack, overload

from geminga.client._client import Client as AsyncClient
from geminga.client._client import T
from geminga.client._producer import Producer as AsyncProducer
from geminga.client._producer_factory import ProducerArguments
from geminga.client.blocking._facade import Facade
from geminga.client.blocking._producer import Producer
from geminga.client.schema._protocol import TopicSchema, VersionedSchema


class Client(Facade[AsyncClient]):
    """Connections to one cluster; made by :func:`geminga.client.blocking.connect`.

    ``with`` closes it at the end, and with it every producer and consumer.
    """

    __slots__ = ()

    @overload
    def create_producer(
        self, topic: str, *, schema: None = None, **options: Unpack[ProducerArguments]
    ) -> Producer[bytes]: ...

    @overload
    def create_producer(
        self, topic: str, *, schema: TopicSchema[T], **options: Unpack[ProducerArguments]
    ) -> Producer[T]: ...

    def create_producer(
        self, topic: str, *, schema: TopicSchema[T] | None = None, **options: Unpack[ProducerArguments]
    ) -> Producer[T] | Producer[bytes]:
        """A producer on ``topic``, connected. ``schema`` encodes the contents; without one they are bytes.

        The options are those of :class:`ProducerOptions`. Raises InvalidConfiguration, InvalidTopicName, the broker's
        error (TopicNotFound, ProducerBusy, ProducerFenced, ...), or Timeout after ``operation_timeout_ms``.
        """
        made: AsyncProducer[Any] = self._run(lambda: self._target.create_producer(topic, schema=schema, **options))
        return Producer[Any](made, self._thread)

    def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of the topic's partitions, or the topic itself if it has none."""
        return self._run(lambda: self._target.get_topic_partitions(topic))

    def get_schema(self, topic: str, version: bytes | None = None) -> VersionedSchema | None:
        """The topic's schema of ``version``, or the newest; None if it has none."""
        return self._run(lambda: self._target.get_schema(topic, version))

    def close(self) -> None:
        """Close producers (what they sent gets its receipts first), consumers and connections; harmless twice."""
        self._run(lambda: self._target.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
