"""Loaded topics follow the policies of their namespace: what was stored before the call holds when it returns."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.registry.policy_following import TOPICS_PER_TURN
from geminga.model.topic_name import TopicName
from geminga.runtime import SystemRng, next_turn, spawn
from support.house.weekly_sample import sampled
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import NAMESPACE, run_quietly


async def load_topics(world: BrokerWorld, count: int) -> None:
    for number in range(count):
        await world.broker.registry.get(TopicName.parse(f"persistent://{NAMESPACE}/t{number}"), create=True)


def limits(world: BrokerWorld) -> set[int]:
    """``maxProducersPerTopic`` as the loaded topics hold it."""
    return {topic.limits.producers for topic in world.broker.topics.values()}


async def set_limit(world: BrokerWorld, value: int) -> None:
    await world.resources.namespaces.set_policy(NAMESPACE, "max_producers_per_topic", value)


def test_all_topics_follow_on_return_and_others_get_turns_meanwhile() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topics = 5 * TOPICS_PER_TURN
        await load_topics(world, topics)
        await set_limit(world, 7)
        turns = 0
        is_over = False

        async def count_turns() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await next_turn()

        counting = spawn(count_turns(), name="count turns")
        await world.broker.policies_changed(NAMESPACE)
        is_over = True
        await counting
        assert limits(world) == {7}
        assert turns >= topics // TOPICS_PER_TURN

    run_quietly(scenario)


def test_metadata_watch_alone_is_enough() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await load_topics(world, 3)
        await set_limit(world, 7)
        async with asyncio.timeout(60):
            while limits(world) != {7}:
                await next_turn()

    run_quietly(scenario)


@pytest.mark.parametrize("seed", sampled("following", range(20), 7))
def test_whoever_asks_at_any_moment_gets_at_least_what_was_stored_before(seed: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await load_topics(world, 2 * TOPICS_PER_TURN)
        rng = SystemRng(seed)
        stored = 0
        calls = 0

        async def ask() -> None:
            nonlocal calls
            before = stored
            await world.broker.policies_changed(NAMESPACE)
            assert min(limits(world)) >= before
            calls += 1

        asking = []
        for value in range(1, 30):
            await set_limit(world, value)
            stored = value
            asking += [spawn(ask(), name=f"ask {value}") for _ in range(rng.below(3))]
            for _ in range(rng.below(6)):
                await next_turn()
        for task in asking:
            await task
        assert calls == len(asking) > 0

    run_quietly(scenario)


def test_who_gives_up_does_not_stop_the_topics_from_following() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await load_topics(world, 3)
        await set_limit(world, 7)
        first = spawn(world.broker.policies_changed(NAMESPACE), name="gives up")
        second = spawn(world.broker.policies_changed(NAMESPACE), name="waits")
        await next_turn()
        first.cancel()
        await second
        assert limits(world) == {7}

    run_quietly(scenario)
