"""Subscriptions that nobody uses expire, over restarts and kills of the broker, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from geminga import sim
from geminga.bookkeeper import MemoryBookie
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.memory import MemoryMetadata
from geminga.model.position import EARLIEST
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import NAMESPACE, seconds, set_namespace, topic_of

MINUTE_S = 60
CHECK_MINUTES = 5
DAYS_MINUTES = 3 * 24 * 60

Life = Callable[[BrokerWorld], Awaitable[None]]


def run_lives(*lives: Life, expiry_minutes: int, down_minutes: float = 0, is_killed: bool = False) -> None:
    """One broker after another on the same storage; each ends in order, or is killed."""
    server, bookie = MemoryMetadata(), MemoryBookie()
    config = BrokerConfig(
        keep_alive_interval_s=1_000_000,
        delete_inactive_topics=False,
        subscription_expiry_minutes=expiry_minutes,
        subscription_expiry_check_minutes=CHECK_MINUTES,
    )

    async def main(world: sim.SimWorld) -> None:
        node = world.node("broker")
        for life in lives:

            async def on_node(node: sim.SimNode, life: Life = life) -> None:
                broker = BrokerWorld(node.runtime, config, ManagedLedgerConfig(), server=server, bookie=bookie)
                await broker.start()
                await life(broker)
                if not is_killed:
                    await broker.stop()

            node.start()
            await node.run(on_node)
            world.crash(node)
            if life is not lives[-1]:
                await world.sleep(down_minutes * MINUTE_S)

    sim.run(main)


async def minutes(count: float) -> None:
    await seconds(count * MINUTE_S)


async def names(broker: BrokerWorld) -> set[str]:
    return set((await topic_of(broker)).subscriptions)


def test_time_without_use_adds_up_over_restarts() -> None:
    async def first(broker: BrokerWorld) -> None:
        await (await topic_of(broker)).create_subscription("idle", EARLIEST)
        await minutes(20)

    async def second(broker: BrokerWorld) -> None:
        await topic_of(broker)
        await minutes(20)
        assert await names(broker) == {"idle"}

    async def third(broker: BrokerWorld) -> None:
        await topic_of(broker)
        await minutes(18)
        assert await names(broker) == {"idle"}, "58 of 60 minutes"
        await minutes(2 + CHECK_MINUTES + 1)
        assert not await names(broker)

    for is_killed in (False, True):
        run_lives(first, second, third, expiry_minutes=60, is_killed=is_killed)


def test_consumers_of_a_broker_that_was_down_for_days_find_their_subscription() -> None:
    async def first(broker: BrokerWorld) -> None:
        for name in ("back", "gone"):
            await (await broker.client()).subscribe(subscription=name)
        await minutes(30)

    async def second(broker: BrokerWorld) -> None:
        # The broker looks once an interval: this topic is loaded just before.
        await minutes(2 * CHECK_MINUTES - 0.1)
        assert await names(broker) == {"back", "gone"}
        await minutes(CHECK_MINUTES - 1)
        assert await names(broker) == {"back", "gone"}
        await (await broker.client()).subscribe(subscription="back")
        await minutes(CHECK_MINUTES + 2)
        assert await names(broker) == {"back"}
        await minutes(1000)
        assert await names(broker) == {"back"}

    for is_killed in (False, True):
        run_lives(first, second, expiry_minutes=60, down_minutes=DAYS_MINUTES, is_killed=is_killed)


def test_use_until_the_broker_stopped_counts_though_nothing_was_acknowledged() -> None:
    async def first(broker: BrokerWorld) -> None:
        await (await broker.client()).subscribe(subscription="used")
        await minutes(5 * 1000)

    async def second(broker: BrokerWorld) -> None:
        await topic_of(broker)
        await minutes(990)
        assert await names(broker) == {"used"}
        await minutes(10 + CHECK_MINUTES + 1)
        assert not await names(broker)

    run_lives(first, second, expiry_minutes=1000)


def test_use_until_the_broker_was_killed_is_known_to_a_tenth_of_the_expiry() -> None:
    async def first(broker: BrokerWorld) -> None:
        await (await broker.client()).subscribe(subscription="used")
        await minutes(5 * 1000 + 77)

    async def second(broker: BrokerWorld) -> None:
        await topic_of(broker)
        await minutes(900 - CHECK_MINUTES)
        assert await names(broker) == {"used"}
        await minutes(100 + 2 * CHECK_MINUTES + 1)
        assert not await names(broker)

    run_lives(first, second, expiry_minutes=1000, is_killed=True)


def test_subscription_in_use_writes_its_node_at_most_ten_times_an_expiry() -> None:
    async def life(broker: BrokerWorld) -> None:
        await (await broker.client()).subscribe(subscription="used")
        cursor = (await topic_of(broker)).subscriptions["used"].cursor
        noted = {cursor.noted_active_ms}
        for _ in range(1000):
            await minutes(1)
            noted.add(cursor.noted_active_ms)
        assert 9 <= len(noted) <= 11

    run_lives(life, expiry_minutes=1000)


def test_subscription_used_until_its_broker_was_killed_does_not_expire_when_it_is_loaded() -> None:
    """A consumer that stayed for seconds was not noted: the subscription passed for unused since it was made."""

    async def before(broker: BrokerWorld) -> None:
        await (await topic_of(broker)).create_subscription("used", EARLIEST)
        await minutes(500)
        await (await broker.client()).subscribe(subscription="used")
        await minutes(1 / 6)

    async def after(broker: BrokerWorld) -> None:
        await set_namespace(broker, "subscription_expiration_time_minutes", 100)
        await topic_of(broker)
        await minutes(90)
        assert await names(broker) == {"used"}
        await minutes(60)
        assert await names(broker) == set()

    run_lives(before, after, expiry_minutes=0, is_killed=True)


def test_expiry_that_another_broker_switched_off_deletes_nothing() -> None:
    """No watch told of it: what is stored counts, not what is remembered."""

    async def life(broker: BrokerWorld) -> None:
        await set_namespace(broker, "subscription_expiration_time_minutes", 60)
        await (await topic_of(broker)).create_subscription("idle", EARLIEST)
        await minutes(30)
        broker.metadata.faults.watch_lost_percent = 100
        await broker.resources.namespaces.set_policy(NAMESPACE, "subscription_expiration_time_minutes", 0)
        assert (await topic_of(broker)).rules.subscription_expiry_ms == 60 * MINUTE_S * 1000
        await minutes(500)
        assert await names(broker) == {"idle"}

    run_lives(life, expiry_minutes=0)


def test_consumer_that_comes_while_policies_are_read_again_keeps_its_subscription() -> None:
    async def life(broker: BrokerWorld) -> None:
        topic = await topic_of(broker)
        await topic.create_subscription("idle", EARLIEST)
        subscription = topic.subscriptions["idle"]
        await minutes(CHECK_MINUTES + 61)
        broker.broker.policy_upkeep.close()
        await minutes(1)
        assert topic.subscriptions.get("idle") is subscription, "the story comes before the timer"
        broker.metadata.faults.delay_ms_max = 100
        sweep = asyncio.ensure_future(broker.broker.policy_upkeep.expire_subscriptions(topic))
        await seconds(0.001)
        await (await broker.client()).subscribe(subscription="idle")
        broker.metadata.faults.delay_ms_max = 0
        await sweep
        assert topic.subscriptions.get("idle") is subscription

    run_lives(life, expiry_minutes=67)
