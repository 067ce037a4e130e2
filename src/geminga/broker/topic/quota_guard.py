"""Backlog quotas of one topic, carried out.

A quota by size is looked at as soon as what was published since the backlog was last measured may have used it up;
a quota by age at the moment the oldest message of the backlog comes of age. ``backlogQuotaCheckIntervalInSeconds``
is a safety net for what makes a backlog otherwise (a subscription at the beginning, a seek back).
A producer that asks to be connected is judged by the backlog of that moment, so that room is used as soon as it is
there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from geminga.broker.policies.config import PolicyConfig
from geminga.broker.policies.core.backlog_quota import RoomLeft, eviction_target, position_leaving
from geminga.broker.policies.rules import Quota, QuotaAction, TopicRules
from geminga.broker.publishing.producers import TOLD_A_TURN
from geminga.broker.subscription import seek
from geminga.broker.subscription.stats import backlog_bytes, oldest_stored_ms
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.publish import PublishBatch
from geminga.managed_ledger import AppendResult
from geminga.model.errors import BacklogQuotaExceededError, BacklogQuotaHoldError, GemingaError
from geminga.runtime import Turns, get_logger, spawn

if TYPE_CHECKING:
    from geminga.broker.subscription.subscription import Subscription
    from geminga.broker.topic.producer import Producer

_log = get_logger(__name__)


#: An eviction by age that left something too old (a cursor that is being moved, or read from disk) is done again then.
EVICTION_RETRY_MS: Final = 1000


class _UsedUp(NamedTuple):
    """A quota that is used up, and a word about it."""

    quota: Quota
    story: str


class QuotaGuard:
    """See the module."""

    __slots__ = ("_age", "_is_checking", "_is_closed", "_room", "_size", "_timer", "_topic")

    def __init__(self, topic: PartTopic, rules: TopicRules) -> None:
        """Begins to guard; the quotas are looked at soon."""
        self._topic = topic
        self._size = rules.size_quota
        self._age = rules.age_quota
        self._room = RoomLeft(rules.size_quota.limit) if rules.size_quota is not None else None
        #: Armed for the moment the oldest message comes of age.
        self._timer: asyncio.TimerHandle | None = None
        self._is_checking = False
        self._is_closed = False
        self.check_soon()

    def close(self) -> None:
        """Stop guarding."""
        self._is_closed = True
        self._stop_timer()

    def published(self, size_bytes: int) -> None:
        """Entries were stored."""
        if self._room is not None and self._room.published(size_bytes):
            self.check_soon()
        if self._timer is None and self._age is not None and not self._is_checking:
            self._arm(self._age.limit)

    async def admit(self) -> None:
        """Raise BacklogQuotaHoldError or BacklogQuotaExceededError if nothing may be published now."""
        self._admit(self._size_used_up())
        self._admit(await self._age_used_up())

    def check_soon(self) -> None:
        """Look at the quotas in the background; at most one look at a time."""
        if not self._is_checking and not self._is_closed:
            self._is_checking = True
            spawn(self._check_quietly(), name=f"backlog quota of {self._topic.name}", part=self._topic)

    async def check(self) -> None:
        """Look at the quotas and do what they ask for. Raises StorageError."""
        # One by one: where the oldest entry can not be read, the size counts all the same.
        await self._carry_out(self._size_used_up())
        await self._carry_out(await self._age_used_up())

    # ---- private

    async def _check_quietly(self) -> None:
        try:
            await self.check()
        except GemingaError as error:
            _log.warning("%s: backlog quota could not be checked: %s", self._topic.name, error)
        finally:
            self._is_checking = False

    def _durable(self) -> list[Subscription]:
        return [s for s in self._topic.subscriptions.values() if s.is_durable and s.cursor.backlog_count]

    def _stored_bytes(self) -> int:
        """Of the largest backlog, with what may not be read yet: it takes its place on the disk all the same."""
        durable = [each for each in self._topic.subscriptions.values() if each.is_durable]
        return max((backlog_bytes(each, is_limited=False) for each in durable), default=0)

    def _size_used_up(self) -> _UsedUp | None:
        """The quota by size, if it is used up."""
        if self._size is None or self._room is None:
            return None
        measured = self._stored_bytes()
        if not self._room.measured(measured):
            return None
        return _UsedUp(self._size, f"{measured} bytes of at most {self._size.limit}")

    async def _age_used_up(self) -> _UsedUp | None:
        """The quota by age, if it is used up; else its moment is waited for. Raises StorageError."""
        if self._age is None:
            return None
        age_ms = await self._oldest_age_ms()
        if age_ms is not None and age_ms < self._age.limit:
            self._arm(self._age.limit - age_ms)
            return None
        self._stop_timer()
        if age_ms is None:
            return None
        return _UsedUp(self._age, f"oldest message of {age_ms // 1000} s, at most {self._age.limit // 1000} s")

    @staticmethod
    def _admit(used_up: _UsedUp | None) -> None:
        if used_up is None:
            return
        text = f"Cannot create producer on topic with backlog quota exceeded: {used_up.story}"
        if used_up.quota.action is QuotaAction.HOLD:
            raise BacklogQuotaHoldError(text)
        if used_up.quota.action is QuotaAction.REFUSE:
            raise BacklogQuotaExceededError(text)

    async def _carry_out(self, used_up: _UsedUp | None) -> None:
        if used_up is None or self._is_closed or self._topic.is_closing:
            return
        quota, story = used_up
        if quota.action is QuotaAction.EVICT:
            if not self._durable():
                return  # all of it is held back: an eviction goes no further than readers
            _log.info("%s: backlog quota: %s; its oldest messages are skipped", self._topic.name, story)
            await self._evict(quota)
        elif producers := self._topic.attendance.all():
            _log.warning("%s: backlog quota: %s; producers are disconnected", self._topic.name, story)
            for producer in producers:
                producer.stop()  # all of them now: who is told last publishes no more than who is told first
            turns = Turns(self._topic.services.runtime.clock, steps_max=TOLD_A_TURN)
            await turns.with_each(lambda producer: producer.disconnect_soon(), producers)

    async def _oldest_age_ms(self) -> int | None:
        durable = self._durable()
        if not durable:
            return None
        slowest = min(durable, key=lambda item: item.cursor.mark_delete_position)
        published_ms = await oldest_stored_ms(slowest)
        return None if published_ms is None else max(0, slowest.now_ms() - published_ms)

    async def _evict(self, quota: Quota) -> None:
        target = eviction_target(quota.limit)
        if quota is self._age:
            for subscription in self._durable():
                await seek.expire(subscription, target, is_wanted=lambda: not self._is_closed)
            age_ms = await self._oldest_age_ms()
            if age_ms is not None:
                self._arm(max(EVICTION_RETRY_MS, quota.limit - age_ms))
        elif self._room is not None:
            position = position_leaving(self._topic.ledger.ledgers.infos, target)
            for subscription in self._durable():
                seek.expire_up_to(subscription, position)
            self._room.measured(self._stored_bytes())

    def _arm(self, after_ms: int) -> None:
        self._stop_timer()
        if not self._is_closed:
            # One more millisecond: a message is of age when its limit has passed in full.
            self._timer = asyncio.get_running_loop().call_later((after_ms + 1) / 1000, self._due)

    def _due(self) -> None:
        self._timer = None
        self.check_soon()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BacklogQuotas(TopicPart):
    """The guard that the rules of now want."""

    __slots__ = ("_topic", "guard")

    name: ClassVar[str] = "backlogQuotas"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        #: None: not before the first rules, and not when the topic closes.
        self.guard: QuotaGuard | None = None

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """If there is a quota, and the broker looks at quotas at all."""
        rules = topic.rules
        return topic.services.config.backlog_quota_check and bool(rules.size_quota or rules.age_quota)

    def policies_changed(self) -> None:
        """A new guard: an eviction under way for what was wanted before ends."""
        self.drop()
        if not self._topic.is_closing:
            self.guard = QuotaGuard(self._topic, self._topic.rules)

    @classmethod
    def upkeep_s(cls, config: PolicyConfig) -> float | None:
        """As often as configured, if the broker looks at quotas at all."""
        return config.backlog_quota_check_interval_s if config.backlog_quota_check else None

    def upkeep(self) -> None:
        """Look at the quotas: consumers may have fallen behind without a publish."""
        if self.guard is not None:
            self.guard.check_soon()

    async def admit_producer(self, producer: Producer) -> None:
        """Raises BacklogQuotaHoldError, BacklogQuotaExceededError."""
        del producer
        if self.guard is not None:
            await self.guard.admit()

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        """A batch that is stored whole counts."""
        del result
        if self.guard is not None and batch.is_answered and not batch.has_failed:
            self.guard.published(batch.size_bytes)

    async def close(self) -> None:
        """Stop guarding."""
        self.drop()

    def drop(self) -> None:
        """Stop guarding."""
        if self.guard is not None:
            self.guard.close()
            self.guard = None

    async def delete(self) -> None:
        """Stop guarding."""
        self.drop()
