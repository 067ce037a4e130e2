"""Expiry of messages and of subscriptions, and retention, at each level, in virtual time against plain lists."""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from typing import ClassVar

import pytest

from geminga.broker.compaction.part import TopicCompaction
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.policies.config import PolicyConfig
from geminga.broker.policies.core.deletion_rows import MESSAGE_TTL
from geminga.broker.policies.rules import TopicRules
from geminga.broker.topic.deduplication import TopicDeduplication
from geminga.broker.topic.offload import Offload
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.quota_guard import BacklogQuotas
from geminga.broker.topic.registered_parts import PARTS
from geminga.broker.upkeep.policies import PolicyUpkeep
from geminga.metadata import MetadataFaults
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.runtime import SystemRng, next_turn
from support.worlds.broker_world import BrokerWorld
from support.worlds.holding_part import with_parts
from support.worlds.policy_levels import (
    LEVELS,
    NAME,
    SMALL_LEDGERS,
    Publisher,
    run_quietly,
    seconds,
    set_namespace,
    set_topic,
    topic_of,
)

TTL_S = 1000
MINUTE_S = 60


def settings_of(level: str, **settings: object) -> dict[str, object]:
    return settings if level == "broker" else {}


async def set_level(world: BrokerWorld, level: str, namespace_key: str, topic_key: str, value: object) -> None:
    if level == "namespace":
        await set_namespace(world, namespace_key, value)
    elif level == "topic":
        await set_topic(world, topic_key, value)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("level", LEVELS)
def test_messages_expire_for_every_subscription_after_their_time_to_live(level: str, seed: int) -> None:
    rng = SystemRng(seed)

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_level(world, level, "message_ttl_in_seconds", "messageTTLInSeconds", TTL_S)
        slow = await topic.create_subscription("slow", EARLIEST)
        quick = await topic.create_subscription("quick", EARLIEST)
        publisher = await Publisher.open(world)
        upkeep = PolicyUpkeep(world.broker)
        acknowledged: set[int] = set()
        for _ in range(60):
            await publisher.publish()
            if rng.below(2):
                await quick.cursor.skip(1)
                acknowledged.add(min(set(range(len(publisher.times))) - acknowledged))
            await seconds(1 + rng.below(80_000) / 1000)
            await upkeep.expire_messages(topic)
            now_ms = world.runtime.clock.wall_ms()
            # The oracle: what is older than the time to live is gone, everything else is there.
            alive = {i for i, time in enumerate(publisher.times) if now_ms - time <= TTL_S * 1000}
            assert slow.cursor.backlog_count == len(alive)
            acknowledged |= set(range(len(publisher.times))) - alive
            assert quick.cursor.backlog_count == len(alive - acknowledged)

    run_quietly(
        scenario,
        message_expiry_check_minutes=10_000,
        ledger_config=SMALL_LEDGERS,
        **settings_of(level, message_ttl_s=TTL_S),
    )


def test_messages_expire_by_the_timer() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        subscription = await topic.create_subscription("sub", EARLIEST)
        await (await Publisher.open(world)).publish()
        await seconds(4 * MINUTE_S)
        assert subscription.cursor.backlog_count == 1
        await seconds(2 * MINUTE_S)
        assert subscription.cursor.backlog_count == 0
        assert subscription.entries_expired == 1

    run_quietly(scenario, message_ttl_s=30)


def test_a_subscription_before_an_entry_that_can_not_be_read_keeps_no_other_from_expiring() -> None:
    """The others of its topic kept what had expired until the ledger of that entry was closed, hours later."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        first = await topic.create_subscription("first", EARLIEST)
        slow = await topic.create_subscription("slow", EARLIEST)
        publisher = await Publisher.open(world)
        for _ in range(4):
            await publisher.publish()
        await seconds(2 * TTL_S)
        for _ in range(5):
            await publisher.publish()
        await first.cursor.skip(8)
        last = topic.ledger.extent.last_confirmed_position
        world.bookie.forget_entry(last.ledger_id, last.entry_id)
        with pytest.raises(StorageError):
            await PolicyUpkeep(world.broker).expire_messages(topic)
        assert (first.cursor.backlog_count, slow.cursor.backlog_count) == (1, 5)

    run_quietly(scenario, message_expiry_check_minutes=10_000, message_ttl_s=TTL_S, ledger_config=SMALL_LEDGERS)


class KeptPart(TopicPart):
    """Counts how often it was kept up."""

    name: ClassVar[str] = "kept"

    def __init__(self, topic: PartTopic) -> None:
        self.times = 0

    @classmethod
    def upkeep_s(cls, config: PolicyConfig) -> float | None:
        return 7

    def upkeep(self) -> None:
        self.times += 1


class UnkeptPart(KeptPart):
    """Does not ask for it."""

    name: ClassVar[str] = "unkept"

    @classmethod
    def upkeep_s(cls, config: PolicyConfig) -> float | None:
        return None


def test_parts_are_kept_up_as_often_as_their_kind_asks_for() -> None:
    async def scenario(world: BrokerWorld) -> None:
        with_parts(world.broker, KeptPart, UnkeptPart)
        topic = await topic_of(world)
        other = await world.broker.registry.get(TopicName.parse("persistent://public/default/other"), create=True)
        assert isinstance(other, PersistentTopic)
        await seconds(6)
        part, unkept = topic.parts.find(KeptPart), topic.parts.find(UnkeptPart)
        assert part is not None
        assert unkept is not None
        assert part.times == 0
        await seconds(2)
        assert part.times == 1
        await seconds(14)
        assert (part.times, unkept.times) == (3, 0)
        another = other.parts.find(KeptPart)
        assert another is not None
        assert another.times == 3
        world.broker.policy_upkeep.close()
        await seconds(20)
        assert part.times == 3

    run_quietly(scenario)


def test_kinds_that_ask_for_upkeep_are_registered_from_the_beginning() -> None:
    # The transaction buffer comes later, and with its package.
    importlib.import_module("geminga.broker.topic.transaction_buffer")
    kinds = [kind for kind in TopicPart.__subclasses__() if kind.__module__.startswith("geminga.")]
    keeping = {kind for kind in kinds if "upkeep_s" in vars(kind)}
    assert keeping == {TopicDeduplication, BacklogQuotas, Offload, TopicCompaction}
    assert keeping <= {*PARTS, TopicCompaction}
    assert keeping == {kind for kind in kinds if "upkeep" in vars(kind)}


def test_quotas_are_not_looked_at_where_the_broker_does_not() -> None:
    assert BacklogQuotas.upkeep_s(BrokerConfig(backlog_quota_check_interval_s=9)) == 9
    assert BacklogQuotas.upkeep_s(BrokerConfig(backlog_quota_check=False)) is None
    assert TopicDeduplication.upkeep_s(BrokerConfig(deduplication_check_s=11)) == 11


def test_time_to_live_of_zero_at_the_topic_keeps_messages_for_ever() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        subscription = await topic.create_subscription("sub", EARLIEST)
        await set_namespace(world, "message_ttl_in_seconds", 60)
        await set_topic(world, "messageTTLInSeconds", 0)
        await (await Publisher.open(world)).publish()
        await seconds(100 * MINUTE_S)
        assert subscription.cursor.backlog_count == 1

    run_quietly(scenario)


@pytest.mark.parametrize("level", ["broker", "namespace"])
def test_subscription_nobody_uses_expires_and_one_in_use_stays(level: str) -> None:
    minutes = 30

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_level(world, level, "subscription_expiration_time_minutes", "", minutes)
        await topic.create_subscription("idle", EARLIEST)
        user = await world.subscriber(subscription="used")
        await seconds((minutes - 1) * MINUTE_S)
        assert set(topic.subscriptions) == {"idle", "used"}
        await seconds(7 * MINUTE_S)
        assert set(topic.subscriptions) == {"used"}
        user.lose()
        await seconds((minutes - 1) * MINUTE_S)
        assert set(topic.subscriptions) == {"used"}
        await seconds(7 * MINUTE_S)
        assert not topic.subscriptions

    run_quietly(scenario, **settings_of(level, subscription_expiry_minutes=minutes))


def test_a_subscription_that_can_not_be_deleted_keeps_no_other_one() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        for name in ("first", "second", "third"):
            await topic.create_subscription(name, EARLIEST)
        await seconds(31 * MINUTE_S)
        # More than are tried again.
        world.metadata.faults = MetadataFaults(next_writes=deque([WriteFault.UNKNOWN_BEFORE] * 8))
        await seconds(5 * MINUTE_S)
        assert set(topic.subscriptions) == {"first"}
        await seconds(5 * MINUTE_S)
        assert not topic.subscriptions

    run_quietly(scenario, subscription_expiry_minutes=30)


def test_subscriptions_never_expire_unless_asked_for() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await topic.create_subscription("idle", EARLIEST)
        await seconds(10_000 * MINUTE_S)
        assert set(topic.subscriptions) == {"idle"}

    run_quietly(scenario)


@pytest.mark.parametrize("minutes", [10, -1])
@pytest.mark.parametrize("level", LEVELS)
def test_consumed_ledgers_stay_for_the_retention_time_of_each_level(level: str, minutes: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        document = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}
        await set_level(world, level, "retention_policies", "retentionPolicies", document)
        publisher = await Publisher.open(world)
        for _ in range(60):
            await publisher.publish()
            await seconds(30)
            await topic.ledger.trimmer.trim()
            now_ms = world.runtime.clock.wall_ms()
            # The oracle: ledgers of four entries; one goes when its last entry is older than the retention time.
            whole = len(publisher.times) // 4
            closed_ms = [publisher.times[4 * index + 3] for index in range(whole)]
            gone = 0 if minutes < 0 else sum(now_ms - time >= minutes * 60_000 for time in closed_ms)
            # A ledger is closed by the first entry of the next one, up to 30 s later.
            assert gone - 1 <= (len(publisher.times) - topic.ledger.ledgers.entry_count) / 4 <= gone

    run_quietly(
        scenario,
        ledger_config=SMALL_LEDGERS,
        retention_check_interval_s=1_000_000,
        **settings_of(level, default_retention_minutes=minutes, default_retention_mb=-1),
    )


@pytest.mark.parametrize("level", LEVELS)
def test_consumed_ledgers_stay_up_to_the_retention_size_of_each_level(level: str) -> None:
    payload = b"x" * (300 << 10)

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        document = {"retentionTimeInMinutes": -1, "retentionSizeInMB": 3}
        await set_level(world, level, "retention_policies", "retentionPolicies", document)
        publisher = await Publisher.open(world)
        for count in range(1, 41):
            await publisher.publish(payload)
            await topic.ledger.trimmer.trim()
            # The oracle: ledgers of four entries of 300 KiB go while those behind them hold 3 MiB.
            ledger_bytes = topic.ledger.ledgers.size_bytes * 4 // topic.ledger.ledgers.entry_count
            kept = topic.ledger.ledgers.size_bytes
            assert kept >= min(3 << 20, count * len(payload))
            assert kept < (3 << 20) + 2 * ledger_bytes

    run_quietly(
        scenario,
        ledger_config=SMALL_LEDGERS,
        retention_check_interval_s=1_000_000,
        **settings_of(level, default_retention_minutes=-1, default_retention_mb=3),
    )


def test_retention_never_lets_go_what_a_subscription_needs() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        subscription = await topic.create_subscription("sub", EARLIEST)
        publisher = await Publisher.open(world)
        for _ in range(20):
            await publisher.publish()
        await seconds(3600)
        assert topic.ledger.ledgers.entry_count == 20
        await subscription.cursor.skip(9)
        await seconds(600)
        assert topic.ledger.ledgers.entry_count == 12
        assert topic.ledger.ledgers.first_position <= subscription.cursor.mark_delete_position
        assert topic.name == NAME

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


def test_time_to_live_that_is_switched_off_while_messages_are_looked_for_expires_none() -> None:
    """The change comes at each moment of the look: either all was done before, or nothing is done any more."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_namespace(world, "message_ttl_in_seconds", TTL_S)
        subscription = await topic.create_subscription("sub", EARLIEST)
        publisher = await Publisher.open(world)
        outcomes = set()
        for turns in range(60):
            topic.rules = TopicRules({MESSAGE_TTL: TTL_S})
            for _ in range(9):
                await publisher.publish()
            await seconds(2 * TTL_S)
            look = asyncio.ensure_future(PolicyUpkeep(world.broker).expire_messages(topic))
            for _ in range(turns):
                await next_turn()
            before = subscription.cursor.backlog_count
            topic.rules = TopicRules()
            await look
            await seconds(1)
            assert subscription.cursor.backlog_count == before
            outcomes.add(before)
            await subscription.cursor.clear_backlog()
        assert outcomes == {0, 9}

    run_quietly(scenario, message_expiry_check_minutes=1_000_000, ledger_config=SMALL_LEDGERS)
