"""A broker that deletes by itself in every way it has, and a model that says what must still be there.

The model knows messages, what each policy promises and who is to read what. It never looks at how the broker decides:
a message is *released* for good as soon as nothing promised it at the end of some step, and a topic must exist while
something uses it. Whatever is not released must be readable from the log; what a subscription has not acknowledged, and
no time to live has released, must be in its backlog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from geminga.broker.subscription.messages import entry_timestamp_ms
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import AppendResult, ManagedLedgerConfig
from geminga.model.position import EARLIEST, Position
from geminga.runtime import SystemRng
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry, split_entry
from support.worlds.broker_world import BrokerWorld, Client, run_with_broker
from support.worlds.policy_levels import NAME, seconds, set_namespace, set_topic

STEPS = 40
MINUTE_MS = 60_000
#: Settings of the stories' broker, in their own units.
IDLE_S, TTL_CHECK_MINUTES, EXPIRY_CHECK_MINUTES = 60, 1, 1
#: How long a step of waiting takes, seconds.
WAITS_S = (1, 30, 61, 150, 400, 1800, 4000)
#: Pulsar's retention: minutes, MB. None: not set on that level.
RETENTIONS = (None, (0, 0), (5, -1), (60, -1), (-1, -1), (-1, 1), (60, 1))
TTLS_S = (None, None, 120, 3600)
EXPIRIES_MIN = (0, 0, 10, 120)
PAYLOADS = (10, 10, 100_000, 400_000)


@dataclass
class Message:
    number: int
    stored_ms: int
    size: int


@dataclass
class ModelSubscription:
    #: What it must still be given.
    owed: dict[int, Message]
    last_used_ms: int
    client: Client | None = None


@dataclass
class Model:
    """What was promised."""

    messages: dict[int, Message] = field(default_factory=dict)
    subscriptions: dict[str, ModelSubscription] = field(default_factory=dict)
    #: Of those the present step has released: they may be there or not.
    doubtful: set[str] = field(default_factory=set)
    retention: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    ttl_s: int | None = None
    expiry_minutes: int = 0
    last_used_ms: int = 0
    reader: Client | None = None
    #: The topic may be gone: at the end of some step nothing held it.
    is_topic_released: bool = True

    def retention_in_force(self) -> tuple[int, int]:
        for level in ("topic", "namespace", "broker"):
            found = self.retention.get(level)
            if found is not None:
                return found
        return (0, 0)

    def release(self, now_ms: int) -> None:
        """Everything that nothing promises now is released for good."""
        for name, subscription in list(self.subscriptions.items()):
            if self.ttl_s is not None:
                limit_ms = now_ms - self.ttl_s * 1000
                subscription.owed = {n: m for n, m in subscription.owed.items() if m.stored_ms > limit_ms}
            unused_ms = now_ms - subscription.last_used_ms
            if self.expiry_minutes and not subscription.client and unused_ms > self.expiry_minutes * MINUTE_MS:
                del self.subscriptions[name]
                self.doubtful.add(name)
        minutes, mb = self.retention_in_force()
        owed: set[int] = set()
        for subscription in self.subscriptions.values():
            owed.update(subscription.owed)
        newer_bytes = 0
        for message in sorted(self.messages.values(), key=lambda m: -m.number):
            newer_bytes += message.size
            is_young = minutes < 0 or now_ms - message.stored_ms < minutes * MINUTE_MS
            is_small = mb < 0 or newer_bytes <= mb << 20
            if message.number not in owed and not (is_young and is_small):
                del self.messages[message.number]
        self.is_topic_released = self.is_topic_released or not self.is_topic_held(now_ms)

    def is_topic_held(self, now_ms: int) -> bool:
        """Whether something uses the topic now, or did so a short time ago."""
        minutes, _ = self.retention_in_force()
        hold_ms = max(IDLE_S * 1000, minutes * MINUTE_MS)
        is_recent = minutes < 0 or now_ms - self.last_used_ms < hold_ms
        return bool(self.subscriptions or self.reader is not None or is_recent)

    def forget(self) -> None:
        """The topic is gone, as it might, and its own policies with it."""
        self.retention.pop("topic", None)
        self.messages.clear()
        self.doubtful.clear()


class Story:
    """One broker's life under random policies and clients."""

    def __init__(self, world: BrokerWorld, rng: SystemRng, broker_retention: tuple[int, int]) -> None:
        self.world = world
        self.rng = rng
        self.model = Model(retention={"broker": broker_retention})
        self.number = 0
        self.deleted = 0
        self.trimmed = 0

    @property
    def now_ms(self) -> int:
        return self.world.runtime.clock.wall_ms()

    def pick(self, choices):
        return choices[self.rng.below(len(choices))]

    async def topic(self) -> PersistentTopic:
        """Loaded, which is a use of it; created anew if it was deleted."""
        await self.settle()
        if not await self.world.broker.registry.exists(NAME):
            assert self.model.is_topic_released, f"the topic is gone: {self.model}"
            assert not self.model.messages, f"gone with {sorted(self.model.messages)}"
            self.deleted += 1
            self.model.forget()
        loaded = self.world.broker.topics.get(str(NAME))
        topic = await self.world.broker.registry.get(NAME, create=True)
        assert isinstance(topic, PersistentTopic)
        if topic is not loaded:
            self.used()
        self.model.is_topic_released = not self.model.is_topic_held(self.now_ms)
        return topic

    async def settle(self) -> None:
        """What was begun in the background before is done."""
        await seconds(0.5)
        self.model.release(self.now_ms)

    def used(self) -> None:
        self.model.last_used_ms = self.now_ms
        self.model.is_topic_released = False

    # ---- steps

    async def publish(self) -> None:
        topic = await self.topic()
        for _ in range(1 + self.rng.below(12)):
            size, number, now_ms = self.pick(PAYLOADS), self.number, self.now_ms
            self.number += 1
            metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=now_ms)
            await _append(topic, encode_entry(metadata, b"%d" % number + bytes(size)))
            message = Message(number, now_ms, size)
            self.model.messages[number] = message
            for subscription in self.model.subscriptions.values():
                subscription.owed[number] = message
        topic.life.touch()
        self.used()

    async def subscribe(self) -> None:
        topic = await self.topic()
        name = self.pick(("a", "b", "c"))
        if name in self.model.doubtful and name in topic.subscriptions:
            # May expire any time: not one that a consumer could count on.
            await topic.delete_subscription(name)
        self.model.doubtful.discard(name)
        if name not in self.model.subscriptions:
            there = await _numbers(topic)
            await topic.create_subscription(name, EARLIEST)
            owed = {n: m for n, m in self.model.messages.items() if n in there}
            self.model.subscriptions[name] = ModelSubscription(owed, self.now_ms)
        self.used()

    async def unsubscribe(self) -> None:
        topic = await self.topic()
        for name in list(self.model.subscriptions)[:1]:
            subscription = self.model.subscriptions.pop(name)
            if subscription.client is not None:
                subscription.client.lose()
                await seconds(0.1)
            await topic.delete_subscription(name)
            self.used()

    async def consume(self) -> None:
        """A consumer comes, or goes; it acknowledges nothing."""
        topic = await self.topic()
        for name, subscription in self.model.subscriptions.items():
            if name not in topic.subscriptions:
                continue
            if subscription.client is None:
                subscription.client = await self.world.client()
                await subscription.client.subscribe(str(NAME), subscription=name, permits=0)
            else:
                subscription.client.lose()
                subscription.client = None
                await seconds(0.1)
            subscription.last_used_ms = self.now_ms
            self.used()
            return

    async def acknowledge(self) -> None:
        topic = await self.topic()
        for name, subscription in self.model.subscriptions.items():
            cursor = topic.subscriptions[name].cursor
            for _ in range(self.rng.below(10)):
                numbers = await _backlog(topic, name)
                if numbers:
                    await cursor.skip(1)
                    subscription.owed.pop(numbers[0], None)

    async def read(self) -> None:
        """A Reader comes, or goes."""
        await self.topic()
        if self.model.reader is None:
            self.model.reader = await self.world.client()
            await self.model.reader.subscribe(str(NAME), subscription="reader", durable=False, permits=0)
        else:
            self.model.reader.lose()
            self.model.reader = None
            await seconds(0.1)
        self.used()

    async def set_retention(self) -> None:
        await self.topic()
        level, value = self.pick(("namespace", "topic")), self.pick(RETENTIONS)
        document = None if value is None else {"retentionTimeInMinutes": value[0], "retentionSizeInMB": value[1]}
        if level == "namespace":
            await set_namespace(self.world, "retention_policies", document)
        else:
            await set_topic(self.world, "retentionPolicies", document)
        self.model.retention[level] = value

    async def set_expiry(self) -> None:
        await self.settle()
        ttl_s, expiry = self.pick(TTLS_S), self.pick(EXPIRIES_MIN)
        await set_namespace(self.world, "message_ttl_in_seconds", ttl_s)
        await set_namespace(self.world, "subscription_expiration_time_minutes", expiry or None)
        self.model.ttl_s, self.model.expiry_minutes = ttl_s, expiry

    async def unload(self) -> None:
        await self.topic()
        for client in [self.model.reader, *(s.client for s in self.model.subscriptions.values())]:
            if client is not None:
                client.lose()
        self.model.reader = None
        for subscription in self.model.subscriptions.values():
            if subscription.client is not None:
                subscription.client, subscription.last_used_ms = None, self.now_ms
        await seconds(0.1)
        await self.world.broker.registry.unload(NAME)
        await self.topic()

    async def sweep(self) -> None:
        """Everything at once, in any order, beside the timers."""
        broker = self.world.broker
        upkeep = broker.policy_upkeep
        works: list[Callable] = [
            broker._inactive_topics.sweep,
            upkeep._expire_messages,
            upkeep._expire_subscriptions,
            broker.ledger_upkeep.trim_all,
        ]
        while works:
            await works.pop(self.rng.below(len(works)))()

    async def wait(self) -> None:
        await seconds(self.pick(WAITS_S))
        for subscription in self.model.subscriptions.values():
            if subscription.client is not None:
                subscription.last_used_ms = self.now_ms
        if self.model.reader is not None:
            self.model.last_used_ms = self.now_ms

    # ---- the judge

    async def check(self) -> None:
        """Whatever was promised is there."""
        await self.settle()
        loaded = self.world.broker.topics.get(str(NAME))
        if loaded is None and not await self.world.broker.registry.exists(NAME):
            await self.topic()
            return
        topic = await self.topic()
        there = await _numbers(topic)
        missing = sorted(set(self.model.messages) - there)
        assert not missing, f"messages {missing} are gone under {self.model.retention_in_force()}"
        self.trimmed += self.number - len(there)
        for name, subscription in self.model.subscriptions.items():
            assert name in topic.subscriptions, f"subscription {name} is gone"
            owed = sorted(set(subscription.owed) - set(await _backlog(topic, name)))
            assert not owed, f"messages {owed} are not in the backlog of {name}"

    async def run(self) -> Story:
        await self.topic()
        self.used()
        often = [self.publish, self.wait, self.wait, self.sweep, self.set_retention]
        steps = [*often, self.subscribe, self.unsubscribe, self.consume, self.acknowledge, self.read, self.unload]
        steps.append(self.set_expiry)
        for _ in range(STEPS):
            await self.pick(steps)()
            await self.check()
        return self


async def _append(topic: PersistentTopic, entry: bytes) -> None:
    stored: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    topic.ledger.append([entry], stored.set_result)
    assert (await stored).error is None


def _number(entry: bytes) -> int:
    metadata, offset = split_entry(entry)
    assert metadata is not None
    assert entry_timestamp_ms(entry)
    return int(entry[offset:].partition(b"\0")[0])


async def _numbers(topic: PersistentTopic) -> set[int]:
    """Messages that can be read from the log."""
    found: set[int] = set()
    position = Position(-1, -1)
    while entries := await topic.ledger.reader.read_range(position, 1000, 1 << 30):
        found.update(_number(entry.data) for entry in entries)
        position = topic.ledger.ledgers.next_position(entries[-1].position)
    return found


async def _backlog(topic: PersistentTopic, name: str) -> list[int]:
    """Messages that a subscription has not acknowledged, in order."""
    cursor = topic.subscriptions[name].cursor
    found: list[int] = []
    position = topic.ledger.ledgers.next_position(cursor.mark_delete_position)
    while entries := await topic.ledger.reader.read_range(position, 1000, 1 << 30):
        found += [_number(entry.data) for entry in await cursor.unacknowledged(entries)]
        position = topic.ledger.ledgers.next_position(entries[-1].position)
    return found


def run_story(seed: int) -> Story:
    """A story by its seed; raises AssertionError where something promised is not there."""
    rng = SystemRng(seed)
    minutes, mb = RETENTIONS[1 + rng.below(len(RETENTIONS) - 1)] or (0, 0)
    return run_with_broker(
        lambda world: Story(world, rng, (minutes, mb)).run(),
        ledger_config=ManagedLedgerConfig(max_entries_per_ledger=4, min_rollover_minutes=0),
        keep_alive_interval_s=1_000_000,
        delete_inactive_topics_frequency_s=30,
        delete_inactive_topics_after_s=IDLE_S,
        default_retention_minutes=minutes,
        default_retention_mb=mb,
        message_expiry_check_minutes=TTL_CHECK_MINUTES,
        subscription_expiry_check_minutes=EXPIRY_CHECK_MINUTES,
    )
