"""What topics need from time to time: expiry of messages and subscriptions, and the upkeep of their parts.

One timer each for all topics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from geminga.broker.core.deletion import Hold, SubscriptionFacts, why_subscription_stays
from geminga.broker.geo.part import GeoReplication
from geminga.broker.policies.rules import MINUTE_MS
from geminga.broker.subscription import seek
from geminga.broker.subscription.seek import is_replicated
from geminga.broker.subscription.stats import oldest_stored_ms
from geminga.broker.system_topics.ports import UpkeepBroker
from geminga.broker.topic.parts import TopicPart
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.upkeep.timers import Timers
from geminga.model.errors import GemingaError
from geminga.runtime import Contained, again, get_logger

if TYPE_CHECKING:
    from geminga.broker.subscription.subscription import Subscription

_log = get_logger(__name__)

_MINUTE_S = MINUTE_MS // 1000
#: The last use of a subscription with consumers is noted when this part of its expiry has passed since it was; where
#: none is in force, after so many milliseconds: one may be set tomorrow.
NOTES_PER_EXPIRY: Final = 10
NOTED_EACH_MS: Final = 60 * MINUTE_MS


class PolicyUpkeep:
    """See the module."""

    __slots__ = ("_broker", "_timers")

    def __init__(self, broker: UpkeepBroker) -> None:
        self._broker = broker
        self._timers = Timers(broker)

    def start(self) -> None:
        """Begin; the first look comes after an interval."""
        config = self._broker.config
        self._timers.repeat("expire messages", config.message_expiry_check_minutes * _MINUTE_S, self._expire_messages)
        self._timers.repeat(
            "expire subscriptions", config.subscription_expiry_check_minutes * _MINUTE_S, self._expire_subscriptions
        )
        for kind in self._broker.topic_services.parts:
            interval_s = kind.upkeep_s(config)
            if interval_s is not None:
                self._timers.repeat(f"upkeep of {kind.name}", interval_s, partial(self._keep_parts, kind, interval_s))

    def keep_now(self, name: str) -> None:
        """Do what the parts of this name do from time to time."""
        for kind in self._broker.topic_services.parts:
            if kind.name == name:
                self._keep(kind)

    def close(self) -> None:
        """Stop."""
        self._timers.close()

    async def expire_messages(self, topic: PersistentTopic) -> None:
        """Acknowledge what is older than the topic's time to live, for every subscription and every other cluster.

        Raises StorageError.
        """
        ttl_ms = topic.rules.ttl_ms
        if not ttl_ms:
            return
        failed: GemingaError | None = None
        for subscription in list(topic.subscriptions.values()):
            try:
                # One read tells that there is nothing to do, which is so nearly always.
                oldest_ms = await oldest_stored_ms(subscription)
                if oldest_ms is not None and subscription.now_ms() - oldest_ms > ttl_ms:
                    await seek.expire(subscription, ttl_ms, is_wanted=lambda: topic.rules.ttl_ms == ttl_ms)
            except GemingaError as error:
                # What one of them can not read keeps no other from its turn.
                failed = again(error)
        copied = topic.parts.find(GeoReplication)
        if copied is not None:
            await copied.expire(ttl_ms)
        if failed is not None:
            raise again(failed)

    async def expire_subscriptions(self, topic: PersistentTopic) -> None:
        """Delete durable subscriptions that nobody used for too long. Raises GemingaError.

        Time while the broker was down counts. Nothing is deleted within an interval of the topic being loaded, so that
        consumers can come back first: Pulsar looks an interval after its own start, at once at a topic loaded later.
        """
        failed: GemingaError | None = None
        for subscription in list(topic.subscriptions.values()):
            try:
                await self._keep_or_delete(topic, subscription)
            except GemingaError as error:
                failed = again(error)
        if failed is not None:
            raise again(failed)

    async def _keep_or_delete(self, topic: PersistentTopic, subscription: Subscription) -> None:
        expiry_ms = topic.rules.subscription_expiry_ms
        if subscription.consumers and subscription.is_durable:
            noted_ms_ago = subscription.now_ms() - subscription.cursor.noted_active_ms
            if noted_ms_ago >= (expiry_ms / NOTES_PER_EXPIRY if expiry_ms else NOTED_EACH_MS):
                await subscription.cursor.note_use()
        elif self.why_it_stays(topic, subscription, expiry_ms) is None:
            # Once more by the policies as they are stored, and with nothing awaited before the deletion begins.
            rules = await self._broker.policies.rules_now(topic.name)
            expiry_ms = rules.subscription_expiry_ms if rules is not None else 0
            if self.why_it_stays(topic, subscription, expiry_ms) is None:
                idle_min = (subscription.now_ms() - subscription.last_active_ms) // MINUTE_MS
                await topic.delete_subscription(subscription.name)
                _log.info("%s: deleted subscription %s, unused for %d min", topic.name, subscription.name, idle_min)

    def why_it_stays(self, topic: PersistentTopic, subscription: Subscription, expiry_ms: int) -> Hold | None:
        """What keeps a subscription from being deleted; None: it has expired."""
        if topic.is_closing or topic.subscriptions.get(subscription.name) is not subscription:
            return Hold.CLOSING
        now_ms = subscription.now_ms()
        facts = SubscriptionFacts(
            idle_ms=now_ms - subscription.last_active_ms,
            loaded_ms=now_ms - topic.loaded_ms,
            is_durable=subscription.is_durable,
            consumers=len(subscription.consumers),
            is_moving=subscription.is_moving,
            is_replicated=is_replicated(subscription),
        )
        settle_ms = self._broker.config.subscription_expiry_check_minutes * MINUTE_MS
        return why_subscription_stays(facts, expiry_ms=expiry_ms, settle_ms=settle_ms)

    # ---- private

    def _topics(self) -> Iterator[PersistentTopic]:
        for topic in list(self._broker.topics.values()):
            if isinstance(topic, PersistentTopic) and not topic.is_closing:
                yield topic

    async def _expire_messages(self) -> float:
        await self._expire("messages", self.expire_messages)
        return self._broker.config.message_expiry_check_minutes * _MINUTE_S

    async def _expire_subscriptions(self) -> float:
        await self._expire("subscriptions", self.expire_subscriptions)
        return self._broker.config.subscription_expiry_check_minutes * _MINUTE_S

    async def _expire(self, what: str, expire: Callable[[PersistentTopic], Awaitable[None]]) -> None:
        for topic in self._topics():
            try:
                with Contained(topic, "expiry"):
                    await expire(topic)
            except GemingaError as error:
                _log.warning("%s: %s could not be expired: %s", topic.name, what, error)

    async def _keep_parts(self, kind: type[TopicPart], interval_s: float) -> float:
        self._keep(kind)
        return interval_s

    def _keep(self, kind: type[TopicPart]) -> None:
        for topic in self._topics():
            part = topic.parts.find(kind)
            if part is not None:
                with Contained(topic, f"upkeep of {kind.name}"):
                    part.upkeep()
