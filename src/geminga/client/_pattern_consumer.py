"""Topics by pattern: looked up at the start and from time to time, added and removed as they come and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from geminga.client._errors import PulsarException
from geminga.client._multi_consumer import TopicSet
from geminga.client._waiting import wait_ms
from geminga.client.core.topic_pattern import TopicPattern, changes
from geminga.model import TopicName
from geminga.runtime import get_logger, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.client._consumer import Consumer

_log = get_logger(__name__)


class PatternTopics:
    """Keeps the topics of a consumer those that match."""

    __slots__ = ("_consumer", "_hash", "_pattern", "_task", "_topics")

    def __init__(self, consumer: Consumer[Any], topics: TopicSet, pattern: TopicPattern) -> None:
        self._consumer = consumer
        self._topics = topics
        self._pattern = pattern
        #: The broker's hash of the list seen last.
        self._hash = ""
        self._task: asyncio.Task[None] | None = None

    async def discover(self) -> None:
        """Look now, and subscribe to what matches and leave what is gone; raises what goes wrong."""
        consumer = self._consumer
        mode: int = consumer.options.regex_subscription_mode
        found = await consumer.client.lookup.topics_of_namespace(
            self._pattern.namespace, cast("pb.CommandGetTopicsOfNamespace.Mode", mode), topics_hash=self._hash
        )
        if not found.is_changed and self._hash:
            return
        came, went = changes(self._topics.topics, self._pattern.topics(found.topics))
        for topic in went:
            await self._topics.remove(topic)
        if came:
            await self._topics.add([TopicName.parse(topic) for topic in came])
        self._hash = found.topics_hash

    def start(self) -> None:
        """Look from time to time."""
        if self._consumer.options.pattern_auto_discovery_period_ms:
            self._task = spawn(self._repeat(), name=f"topics of {self._consumer.topic()}")

    def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _repeat(self) -> None:
        while True:
            await wait_ms(self._consumer.options.pattern_auto_discovery_period_ms)
            try:
                await self.discover()
            except PulsarException as error:
                _log.info("topics of %s: %s", self._consumer.topic(), error)
