"""Deletion of topics that nobody uses (``brokerDeleteInactiveTopicsEnabled``); what holds one: ``core.deletion``.

A topic is judged twice. First by what is in memory; then it is closed, so that no client can come any more, its
ledger is claimed, and it is judged again by policies that are read from where they are stored. What may not go then
is merely unloaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.deletion import USES, Hold, why_topic_stays
from geminga.broker.policies.core.deletion_rows import INACTIVE_TOPICS
from geminga.model.errors import ConflictError, GemingaError, NotFoundError
from geminga.runtime import Contained, Part, get_logger, next_turn, spawn

if TYPE_CHECKING:
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.policies.rules import TopicRules
    from geminga.broker.topic.base import Topic
    from geminga.broker.upkeep.ports import LoadedTopics
    from geminga.model.topic_name import TopicName

_log = get_logger(__name__)

#: Topics that are looked at in one turn of the loop.
TOPICS_PER_TURN: Final = 64


class Topics(Protocol):
    """The topics of the broker, and how they are deleted."""

    @property
    def loaded(self) -> LoadedTopics:
        """By full name."""

    async def delete_unless(self, topic: Topic, why_it_stays: Callable[[Topic], Awaitable[Hold | None]]) -> Hold | None:
        """Delete a loaded topic that nobody uses; what held it, else None. Raises GemingaError."""


class InactiveTopics:
    """Looks at every loaded topic at the configured frequency; one timer for all of them."""

    __slots__ = ("_config", "_delete_if_empty", "_part", "_rules_now", "_timer", "_topics")

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        *,
        rules_now: Callable[[TopicName], Awaitable[TopicRules | None]],
        delete_if_empty: Callable[[TopicName], Awaitable[bool]],
        part: Part,
    ) -> None:
        """``rules_now``: by policies that are read where they are stored.

        ``delete_if_empty``: a partitioned topic, if none of its partitions is there; whether it was.
        """
        self._config = config
        self._topics = topics
        self._rules_now = rules_now
        self._delete_if_empty = delete_if_empty
        self._part = part
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look: namespaces and topics may ask for it where the broker does not."""
        self._arm()

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def settings_changed(self) -> None:
        """The frequency may be another: count from now on. While a sweep is under way it is told by itself."""
        if self._timer is not None and self._timer.when() > asyncio.get_running_loop().time():
            self._timer.cancel()
            self._arm()

    def why_it_stays(self, topic: Topic) -> Hold | None:
        """By what is in memory; None: nothing holds it."""
        if topic.is_closing:
            return Hold.CLOSING
        return self._judge(topic, topic.rules)

    async def sweep(self) -> int:
        """Delete what nothing holds; how many were."""
        deleted = 0
        for number, topic in enumerate(list(self._topics.loaded.values()), 1):
            hold: Hold | None = Hold.UNKNOWN
            with Contained(topic, "the look whether it is used"):
                hold = self.why_it_stays(topic)
            if hold in USES:
                topic.life.touch()
            elif hold is None:
                # Nothing happens between the look and the closing of the topic.
                deleted += await self._delete(topic)
            if not number % TOPICS_PER_TURN:
                await next_turn()
        return deleted

    async def _delete(self, topic: Topic) -> bool:
        try:
            hold = await self._topics.delete_unless(topic, self._why_it_stays_after_all)
            if hold is not None:
                _log.info("inactive topic %s was unloaded and not deleted: %s", topic.name, hold.value)
                return False
            _log.info("deleted inactive topic %s", topic.name)
            if topic.name.is_partition and self._config.delete_inactive_partitioned_topics:
                await self._delete_partitioned(topic.name.partitioned_topic)
        except GemingaError as error:
            _log.warning("inactive topic %s could not be deleted: %s", topic.name, error)
            return False
        return True

    async def _why_it_stays_after_all(self, topic: Topic) -> Hold | None:
        """The topic is closed: by what is stored. Raises GemingaError."""
        rules = await self._rules_now(topic.name)
        # Its namespace is not there any more, or left this cluster: nobody knows what was to be kept.
        return Hold.UNKNOWN if rules is None else self._judge(topic, rules)

    @staticmethod
    def _judge(topic: Topic, rules: TopicRules) -> Hold | None:
        inactivity = rules[INACTIVE_TOPICS]
        return why_topic_stays(
            topic.deletion_facts(),
            is_wanted=inactivity.is_deleted,
            mode=inactivity.mode,
            idle_min_ms=inactivity.after_s * 1000,
            retention_ms=rules.retention.limits[0] if topic.name.is_persistent else 0,
        )

    async def _delete_partitioned(self, name: TopicName) -> None:
        """The last of its partitions may be gone: then it goes too, unless it changed meanwhile."""
        try:
            if await self._delete_if_empty(name):
                _log.info("deleted partitioned topic %s, whose partitions were all inactive", name)
        except (ConflictError, NotFoundError) as error:
            _log.info("partitioned topic %s was not deleted: %s", name, error)

    def _arm(self) -> None:
        frequency_s = self._config.delete_inactive_topics_frequency_s
        self._timer = asyncio.get_running_loop().call_later(frequency_s, self._due)

    def _due(self) -> None:
        spawn(self._sweep_and_rearm(), name="delete inactive topics", part=self._part)

    async def _sweep_and_rearm(self) -> None:
        with Contained(self._part, "deleting inactive topics"):
            await self.sweep()
        if self._timer is not None:
            self._arm()
