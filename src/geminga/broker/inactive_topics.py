"""Deletion of topics that nobody uses (``brokerDeleteInactiveTopicsEnabled``)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from geminga.model.errors import GemingaError
from geminga.runtime import Contained, get_logger, spawn

if TYPE_CHECKING:
    from geminga.broker.service import Broker
    from geminga.broker.topic_base import Topic

_log = get_logger(__name__)


class InactiveTopics:
    """Looks at every loaded topic at the configured frequency; one timer for all of them."""

    __slots__ = ("_broker", "_timer")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look, if it is enabled."""
        if self._broker.config.delete_inactive_topics:
            self._arm()

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def is_inactive(self, topic: Topic, now_ms: int) -> bool:
        """Whether the topic was unused for long enough, in the sense of ``brokerDeleteInactiveTopicsMode``."""
        config = self._broker.config
        if topic.is_closing or topic.is_in_use or topic.name.is_system:
            return False
        if now_ms - topic.last_active_ms < config.inactive_topic_duration_s * 1000:
            return False
        if config.delete_inactive_topics_mode == "delete_when_no_subscriptions":
            return not topic.subscriptions
        return topic.backlog_count == 0

    async def sweep(self) -> int:
        """Delete what is inactive now; how many were."""
        now_ms = self._broker.runtime.clock.wall_ms()
        deleted = 0
        for topic in list(self._broker.topics.values()):
            if self.is_inactive(topic, now_ms):
                try:
                    await self._broker.delete_topic(topic.name)
                except GemingaError as error:
                    _log.warning("inactive topic %s could not be deleted: %s", topic.name, error)
                else:
                    deleted += 1
                    _log.info("deleted inactive topic %s", topic.name)
        return deleted

    def _arm(self) -> None:
        frequency_s = self._broker.config.delete_inactive_topics_frequency_s
        self._timer = asyncio.get_running_loop().call_later(frequency_s, self._due)

    def _due(self) -> None:
        spawn(self._sweep_and_rearm(), name="delete inactive topics", part=self._broker)

    async def _sweep_and_rearm(self) -> None:
        with Contained(self._broker, "deleting inactive topics"):
            await self.sweep()
        if self._timer is not None:
            self._arm()
