"""What administrators do in a broker story: unload, expire, change policies; a crash may cut any of it off."""

from __future__ import annotations

from typing import Final

from geminga.broker.subscription import seek
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import is_halted
from support.stories.broker_model import Rules
from support.stories.story_ground import StoryGround
from support.worlds.policy_levels import set_namespace, set_topic

RETENTIONS: Final = ((0, 0), (0, 0), (-1, -1), (10, -1), (-1, 1), (60, 1))
TTLS_S: Final = (0, 0, 120, 3600)
EVICTIONS: Final = (0, 0, 0, 3000, 40_000)
EVICTION_AGES_S: Final = (0, 0, 0, 600)
EXPIRIES_MIN: Final = (0, 0, 30)


class StoryPolicies(StoryGround):
    """Rules that are in force, and those that may be after a change that was cut off."""

    async def unload(self, name: str) -> None:
        try:
            await self.broker_world.broker.registry.unload(TopicName.parse(name))
            self.tell("unloaded", name)
        except GemingaError:
            return
        if not is_halted():
            left = []
            for item in self.plain_acks:
                if item[1] == name:
                    left.append((0, *item[1:]))
                else:
                    left.append(item)
            self.plain_acks = left
            self.settle_plain_acks(0)

    async def expire(self, topic: str) -> None:
        """An administrator expires what is older than so many seconds, as over HTTP."""
        model = self.topics[topic]
        if not model.subscriptions or not model.exists:
            return
        known = model.subscriptions[self.rng.choice(sorted(model.subscriptions))]
        age_s = self.rng.choice((1, 60, 600))
        model.expired(known, age_s, self.now_ms)
        try:
            loaded = await self.broker_world.broker.registry.get(TopicName.parse(topic), create=False)
            if known.name in loaded.subscriptions:
                await seek.expire(loaded.subscriptions[known.name], age_s * 1000)
        except GemingaError:
            return
        self.tell("expired", topic, known.name, age_s)
        model.expired(known, age_s, self.now_ms)

    async def change_policies(self, name: str) -> None:
        if self.rng.random() < 0.25:
            await self.change_topic_policy(name)
            return
        action = self.rng.choice(("consumer_backlog_eviction", "producer_exception", "producer_request_hold"))
        size, age = self.rng.choice(EVICTIONS), self.rng.choice(EVICTION_AGES_S)
        evicts = action == "consumer_backlog_eviction"
        rules = Rules(
            retention=self.rng.choice(RETENTIONS),
            ttl_s=self.rng.choice(TTLS_S),
            evict_bytes=size if evicts else 0,
            evict_s=age if evicts else 0,
            expiry_min=self.rng.choice(EXPIRIES_MIN),
        )
        minutes, mebibytes = rules.retention
        quotas: dict[str, object] = {}
        if size:
            quotas["destination_storage"] = {"limitSize": size, "limitTime": -1, "policy": action}
        if age:
            quotas["message_age"] = {"limitSize": -1, "limitTime": age, "policy": action}
        old = self.namespace_rules[-1]
        changes = {
            "retention_policies": {"retentionTimeInMinutes": minutes, "retentionSizeInMB": mebibytes},
            "message_ttl_in_seconds": rules.ttl_s,
            "backlog_quota_map": quotas,
            "subscription_expiration_time_minutes": rules.expiry_min,
        }
        # One field after the other: on the way any mixture may be in force.
        between = [
            rules._replace(retention=old.retention),
            old._replace(retention=rules.retention),
            old._replace(retention=rules.retention, ttl_s=rules.ttl_s),
        ]
        self.namespace_rules = [*self.namespace_rules, *between, rules]
        self.lapse()
        try:
            for key, value in changes.items():
                await set_namespace(self.broker_world, key, value)
        except GemingaError:
            return
        if not is_halted():
            self.tell(rules, quotas)
            self.lapse()
            self.namespace_rules = [rules]

    async def change_topic_policy(self, name: str) -> None:
        """Retention of the topic's own; only where the topic is there, as the REST path demands."""
        if not await self.broker_world.broker.registry.exists(TopicName.parse(name)):
            return
        retention = self.rng.choice([None, *RETENTIONS])
        value = None
        if retention is not None:
            value = {"retentionTimeInMinutes": retention[0], "retentionSizeInMB": retention[1]}
        self.topic_retention[name].append(retention)
        self.lapse()
        try:
            whole = TopicName.parse(name).partitioned_topic
            await set_topic(self.broker_world, "retentionPolicies", value, whole)
        except GemingaError:
            return
        if not is_halted():
            self.tell("retention of", name, retention)
            self.lapse()
            self.topic_retention[name] = [retention]
