"""Backlog quotas by size and age, at each level, with each of the three actions, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.quota_guard import BacklogQuotas
from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import (
    LEVELS,
    SMALL_LEDGERS,
    Publisher,
    refused,
    run_quietly,
    seconds,
    set_namespace,
    set_topic,
    topic_of,
)

ACTIONS = {
    "producer_request_hold": pb.ProducerBlockedQuotaExceededError,
    "producer_exception": pb.ProducerBlockedQuotaExceededException,
}
SIZE = 2000
AGE_S = 60
PAYLOAD = b"x" * 400


def broker_settings(level: str, *, action: str, size: int = -1, age_s: int = -1) -> dict[str, object]:
    """Settings of the broker, which say something else where the quota is that of another level."""
    if level != "broker":
        return {"backlog_quota_action": "consumer_backlog_eviction", "backlog_quota_bytes": 1}
    return {"backlog_quota_action": action, "backlog_quota_bytes": size, "backlog_quota_s": age_s}


async def set_quota(world: BrokerWorld, level: str, *, action: str, size: int = -1, age_s: int = -1) -> None:
    """The quota at ``level``; what the broker has of the other kind is switched off."""
    quotas = {
        "destination_storage": {"limitSize": size, "policy": action},
        "message_age": {"limitTime": age_s, "policy": action},
    }
    if level == "namespace":
        await set_namespace(world, "backlog_quota_map", quotas)
    elif level == "topic":
        await set_topic(world, "backLogQuotaMap", quotas)


async def prepared(world: BrokerWorld, level: str, **quota: object) -> Publisher:
    topic = await topic_of(world)
    await set_quota(world, level, **quota)
    await topic.create_subscription("sub", EARLIEST)
    return await Publisher.open(world)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("action", ACTIONS)
def test_size_quota_stops_producers_as_soon_as_it_is_used_up(level: str, action: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, level, action=action, size=SIZE)
        topic = await topic_of(world)
        began = world.runtime.clock.monotonic()
        while topic.ledger.ledgers.size_bytes < SIZE:
            assert topic.producers, "disconnected before the quota was used up"
            await publisher.publish(PAYLOAD)
        assert await publisher.was_disconnected()
        # Pulsar looks each 60 s only.
        assert world.runtime.clock.monotonic() - began < 1
        assert await refused(world) == ACTIONS[action]
        # Not one message more than until the quota was used up, and room again as soon as something is acknowledged.
        assert topic.ledger.ledgers.size_bytes < SIZE + 500
        await topic.subscriptions["sub"].cursor.skip(1)
        assert await refused(world) is None

    run_quietly(scenario, ledger_config=SMALL_LEDGERS, **broker_settings(level, action=action, size=SIZE))


def test_who_waits_for_exclusive_access_does_not_publish_beyond_a_quota_either() -> None:
    """It got access when who had it was sent away, and went on where that one had to stop."""

    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, "broker", action="producer_exception", size=SIZE)
        topic = await topic_of(world)
        waiting = await world.client()
        request_id = waiting.request_producer(producer_name="next", producer_access_mode=pb.WaitForExclusive)
        await waiting.wait_for_news()
        assert not waiting.received.popleft()[0].producer_success.producer_ready
        while topic.ledger.ledgers.size_bytes < SIZE:
            await publisher.publish(PAYLOAD)
        assert await publisher.was_disconnected()
        await waiting.wait_for_news()
        error = waiting.received.popleft()[0].error
        assert (error.request_id, error.error) == (request_id, pb.ServiceNotReady)
        assert not topic.attendance.all()

    run_quietly(
        scenario,
        ledger_config=SMALL_LEDGERS,
        **broker_settings("broker", action="producer_exception", size=SIZE),
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("action", ACTIONS)
def test_age_quota_is_enforced_at_its_time_though_no_ledger_was_closed(level: str, action: str) -> None:
    """apache/pulsar#19210: a quota of 60 s did nothing after five minutes."""

    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, level, action=action, age_s=AGE_S)
        topic = await topic_of(world)
        began = world.runtime.clock.monotonic()
        await publisher.publish()
        await seconds(AGE_S - 1)
        assert topic.producers
        assert await refused(world) is None
        assert await publisher.was_disconnected()
        assert world.runtime.clock.monotonic() - began < AGE_S + 0.1
        assert await refused(world) == ACTIONS[action]
        await topic.subscriptions["sub"].cursor.clear_backlog()
        assert await refused(world) is None

    run_quietly(scenario, **broker_settings(level, action=action, age_s=AGE_S))


def test_age_quota_lets_producers_in_when_only_a_closed_ledger_is_old() -> None:
    """apache/pulsar#15663: a ledger closed long ago kept producers out though all of it was acknowledged."""

    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, "namespace", action="producer_exception", age_s=AGE_S)
        topic = await topic_of(world)
        for _ in range(4):
            await publisher.publish()
        await topic.subscriptions["sub"].cursor.clear_backlog()
        await seconds(AGE_S * 5)
        assert topic.producers
        assert await refused(world) is None

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


@pytest.mark.parametrize("level", LEVELS)
def test_size_quota_with_eviction_keeps_the_newest_messages_that_fit(level: str) -> None:
    action = "consumer_backlog_eviction"

    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, level, action=action, size=SIZE)
        topic = await topic_of(world)
        subscription = topic.subscriptions["sub"]
        for count in range(1, 31):
            await publisher.publish(PAYLOAD)
            await seconds(0.01)
            entry_bytes = topic.ledger.ledgers.size_bytes // topic.ledger.ledgers.entry_count
            # The oracle: a backlog that reached the limit goes down to nine tenths of it, in whole entries.
            assert subscription.cursor.backlog_count * entry_bytes < SIZE
            if count * entry_bytes >= SIZE:
                assert (subscription.cursor.backlog_count + 2) * entry_bytes > SIZE * 0.9
        assert topic.producers

    run_quietly(scenario, **broker_settings(level, action=action, size=SIZE))


@pytest.mark.parametrize("level", LEVELS)
def test_age_quota_with_eviction_skips_what_is_too_old_and_nothing_else(level: str) -> None:
    action = "consumer_backlog_eviction"

    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, level, action=action, age_s=AGE_S)
        topic = await topic_of(world)
        subscription = topic.subscriptions["sub"]
        for _ in range(40):
            await publisher.publish()
            await seconds(5)
            now_ms = world.runtime.clock.wall_ms()
            kept = publisher.times[len(publisher.times) - subscription.cursor.backlog_count :]
            # The oracle: nothing as old as the limit stays, nothing younger than nine tenths of it goes.
            assert all(now_ms - time < AGE_S * 1000 + 10 for time in kept)
            assert len(kept) >= sum(now_ms - time < AGE_S * 900 for time in publisher.times)

    run_quietly(scenario, ledger_config=SMALL_LEDGERS, **broker_settings(level, action=action, age_s=AGE_S))


def test_quota_counts_the_subscription_that_is_furthest_behind() -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, "broker", action="producer_exception", size=SIZE)
        topic = await topic_of(world)
        ahead = await topic.create_subscription("ahead", EARLIEST)
        while topic.producers:
            await publisher.publish(PAYLOAD)
            await ahead.cursor.clear_backlog()
            await seconds(0.01)
        assert await refused(world) == pb.ProducerBlockedQuotaExceededException

    run_quietly(scenario, **broker_settings("broker", action="producer_exception", size=SIZE))


def test_topic_without_durable_subscriptions_has_no_backlog() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        publisher = await Publisher.open(world)
        for _ in range(20):
            await publisher.publish(PAYLOAD)
        await seconds(100)
        assert await refused(world) is None

    settings = broker_settings("broker", action="producer_exception", size=SIZE, age_s=AGE_S)
    run_quietly(scenario, **settings)


async def with_a_backlog_by_a_seek_back(world: BrokerWorld) -> PersistentTopic:
    """Nobody has looked at it since."""
    publisher = await prepared(world, "broker", action="producer_exception", size=SIZE)
    topic = await topic_of(world)
    cursor = topic.subscriptions["sub"].cursor
    for _ in range(10):
        await publisher.publish(PAYLOAD)
        await cursor.clear_backlog()
    assert topic.producers
    await cursor.reset(EARLIEST)
    return topic


def run_with_a_quota_of_the_broker(scenario: Callable[[BrokerWorld], Awaitable[None]]) -> None:
    settings = broker_settings("broker", action="producer_exception", size=SIZE)
    run_quietly(scenario, default_retention_minutes=-1, default_retention_mb=-1, **settings)


def test_backlog_made_by_a_seek_back_is_found_by_the_regular_look() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await with_a_backlog_by_a_seek_back(world)
        await seconds(61)
        assert not topic.producers

    run_with_a_quota_of_the_broker(scenario)


def test_backlog_is_found_at_once_when_an_administrator_asks_for_a_look() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await with_a_backlog_by_a_seek_back(world)
        await seconds(1)
        assert topic.producers
        world.broker.check_backlog_quotas()
        await seconds(1)
        assert not topic.producers

    run_with_a_quota_of_the_broker(scenario)


def test_quota_that_is_taken_away_lets_producers_in_at_once() -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, "topic", action="producer_exception", size=SIZE)
        while (await topic_of(world)).producers:
            await publisher.publish(PAYLOAD)
            await seconds(0.01)
        assert await refused(world) is not None
        await set_topic(
            world, "backLogQuotaMap", {"destination_storage": {"limitSize": -1, "policy": "producer_exception"}}
        )
        assert await refused(world) is None

    run_quietly(scenario)


def test_quotas_are_not_looked_at_when_switched_off() -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, "broker", action="producer_exception", size=SIZE)
        for _ in range(20):
            await publisher.publish(PAYLOAD)
        assert (await topic_of(world)).parts.find(BacklogQuotas) is None

    settings = broker_settings("broker", action="producer_exception", size=SIZE)
    run_quietly(scenario, backlog_quota_check=False, **settings)


@pytest.mark.parametrize("action", [*ACTIONS, "consumer_backlog_eviction"])
def test_size_quota_holds_though_the_oldest_entry_of_the_open_ledger_can_not_be_read(action: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher = await prepared(world, "broker", action=action, size=SIZE, age_s=AGE_S)
        topic = await topic_of(world)
        world.ledgers.cache.resize(0)
        world.bookie.read_error = StorageError("a disk is gone")
        while topic.producers and topic.ledger.ledgers.size_bytes < 2 * SIZE:
            await publisher.publish(PAYLOAD)
            await seconds(0.01)
        if action in ACTIONS:
            assert topic.ledger.ledgers.size_bytes < SIZE + 500
            assert await refused(world) == ACTIONS[action]
        else:
            backlog = topic.subscriptions["sub"].cursor.backlog_count
            assert backlog * topic.ledger.ledgers.size_bytes // topic.ledger.ledgers.entry_count < SIZE

    settings = broker_settings("broker", action=action, size=SIZE, age_s=AGE_S)
    run_quietly(scenario, **settings)
