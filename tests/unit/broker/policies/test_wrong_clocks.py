"""Messages whose publish time is wrong: they go, or stay, by themselves, and take no message of others along."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.statistics.topics import add_stored
from geminga.broker.subscription import seek
from geminga.broker.upkeep.policies import PolicyUpkeep
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.position import EARLIEST
from geminga.runtime import Turns, next_turn
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import (
    NAME,
    SMALL_LEDGERS,
    Publisher,
    refused,
    run_quietly,
    seconds,
    set_namespace,
    topic_of,
)

LIMIT_S = 600
HOUR_MS = 3_600_000
YEARS_MS = 1 << 50
ONE_LEDGER = ManagedLedgerConfig(max_entries_per_ledger=1000, min_rollover_minutes=0)


async def set_age_quota(world: BrokerWorld, action: str) -> None:
    await set_namespace(world, "backlog_quota_map", {"message_age": {"limitTime": LIMIT_S, "policy": action}})


@pytest.mark.parametrize("claimed_ms", [1, 0, -HOUR_MS])
@pytest.mark.parametrize("how", ["time to live", "eviction", "by hand"])
def test_messages_of_others_before_one_that_claims_to_be_old_are_kept(how: str, claimed_ms: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        if how == "time to live":
            await set_namespace(world, "message_ttl_in_seconds", LIMIT_S)
        elif how == "eviction":
            await set_age_quota(world, "consumer_backlog_eviction")
        subscription = await topic.create_subscription("sub", EARLIEST)
        publisher = await Publisher.open(world)
        await publisher.publish()
        await seconds(LIMIT_S - 100)
        now_ms = world.runtime.clock.wall_ms()
        for i in range(40):
            # Every second message from a producer with a wrong clock.
            claim = claimed_ms if claimed_ms >= 0 else now_ms + claimed_ms
            await publisher.publish(claimed_ms=claim if i % 2 else None)
        await seconds(101)
        if how == "time to live":
            await PolicyUpkeep(world.broker).expire_messages(topic)
        elif how == "by hand":
            assert await seek.expire(subscription, LIMIT_S * 1000)
        # The first one is of age, and the others are young: all from the first true one on are there.
        assert subscription.cursor.backlog_count == 40

    run_quietly(scenario, ledger_config=ONE_LEDGER, message_expiry_check_minutes=1_000_000)


def test_a_message_from_the_future_expires_when_its_ledger_does_and_those_behind_it_too() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_namespace(world, "message_ttl_in_seconds", LIMIT_S)
        subscription = await topic.create_subscription("sub", EARLIEST)
        publisher = await Publisher.open(world)
        await publisher.publish(claimed_ms=YEARS_MS)
        for _ in range(9):
            await publisher.publish()
        upkeep = PolicyUpkeep(world.broker)
        await seconds(LIMIT_S - 1)
        await upkeep.expire_messages(topic)
        assert subscription.cursor.backlog_count == 10
        await seconds(2)
        await upkeep.expire_messages(topic)
        assert subscription.cursor.backlog_count == 0
        assert subscription.entries_expired == 10

    run_quietly(scenario, ledger_config=SMALL_LEDGERS, message_expiry_check_minutes=1_000_000)


@pytest.mark.parametrize("action", ["producer_request_hold", "producer_exception"])
def test_one_message_that_claims_to_be_old_holds_no_producer_back(action: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_age_quota(world, action)
        await topic.create_subscription("sub", EARLIEST)
        publisher = await Publisher.open(world)
        await publisher.publish(claimed_ms=1)
        await seconds(LIMIT_S - 2)
        assert topic.producers, "one message with publish_time 1 sent the producers away"
        assert await refused(world) is None
        await seconds(3)
        assert not topic.producers
        assert await refused(world) is not None

    run_quietly(scenario)


def test_a_ledgers_own_beginning_is_known_after_the_topic_was_loaded_anew() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await (await Publisher.open(world)).publish(claimed_ms=1)
        topic = await topic_of(world)
        await topic.create_subscription("sub", EARLIEST)
        await world.broker.registry.unload(NAME)
        await seconds(LIMIT_S - 10)
        subscription = (await topic_of(world)).subscriptions["sub"]
        assert not await seek.expire(subscription, LIMIT_S * 1000)
        assert await seek.expire(subscription, (LIMIT_S - 20) * 1000)
        assert subscription.cursor.backlog_count == 0

    run_quietly(scenario)


def test_the_age_that_statistics_tell_is_the_one_that_quotas_see() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await topic.create_subscription("sub", EARLIEST)
        publisher = await Publisher.open(world)
        await publisher.publish(claimed_ms=1)
        await seconds(50)
        stats: dict[str, object] = {"subscriptions": {"sub": {}}}
        await add_stored(topic, stats, Turns(world.broker.runtime.clock), for_each=True)
        assert stats["oldestBacklogMessageAgeSeconds"] == 50
        # What the message says is told as it says it.
        assert stats["earliestMsgPublishTimeInBacklogs"] == 1

    run_quietly(scenario)


def test_acknowledged_messages_from_the_future_are_no_obstacle() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        subscription = await topic.create_subscription("sub", EARLIEST)
        publisher = await Publisher.open(world)
        for i in range(30):
            await publisher.publish(claimed_ms=YEARS_MS if i in (3, 20) else None)
        first = topic.ledger.ledgers.first_position
        subscription.cursor.acknowledge([first._replace(entry_id=3)], None)
        await seconds(100)
        assert await seek.expire(subscription, 50_000)
        assert subscription.cursor.mark_delete_position.entry_id == 19
        assert subscription.entries_expired == 19

    run_quietly(scenario, ledger_config=ONE_LEDGER)


def test_nothing_expires_by_a_look_during_which_the_cursor_was_moved() -> None:
    """A seek at each moment of the look: what it went back to is there, whatever the look had found before."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        subscription = await topic.create_subscription("sub", EARLIEST)
        publisher = await Publisher.open(world)
        for i in range(60):
            await publisher.publish(claimed_ms=YEARS_MS if i < 30 else None)
        await seconds(100)
        middle = topic.ledger.ledgers.first_position._replace(entry_id=30)
        outcomes = set()
        for turns in range(40):
            await seek.seek(subscription, middle)
            look = asyncio.ensure_future(seek.expire(subscription, 50_000))
            for _ in range(turns):
                await next_turn()
            expired = subscription.cursor.backlog_count == 0
            await seek.seek(subscription, EARLIEST)
            assert await look == expired
            await seconds(1)
            assert subscription.cursor.backlog_count == 60
            outcomes.add(expired)
        assert outcomes == {True, False}

    run_quietly(scenario, ledger_config=ONE_LEDGER)
