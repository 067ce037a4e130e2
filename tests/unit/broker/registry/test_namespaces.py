"""Remembered policies."""

from __future__ import annotations

import asyncio

from support.broker_world import BrokerWorld, run_with_broker
from support.policy_levels import NAMESPACE, run_quietly, seconds


def test_policies_are_remembered_until_they_change() -> None:
    async def scenario(world: BrokerWorld) -> None:
        namespaces = world.broker.namespaces
        first = await namespaces.policies("public/default")
        assert first is not None
        assert await namespaces.policies("public/default") is first
        assert await namespaces.policies("public/missing") is None
        await world.resources.namespaces.create("public/missing", {})
        assert await namespaces.policies("public/missing") is not None
        namespaces.forget("public/default")
        assert await namespaces.policies("public/default") is not first

    run_with_broker(scenario)


def test_policies_whose_reading_began_before_they_changed_are_not_remembered() -> None:
    """The answer to a slow read comes after the change was told: it holds for who asked, and for nobody else."""

    async def scenario(world: BrokerWorld) -> None:
        namespaces = world.broker.namespaces
        world.metadata.faults.delay_ms_max = 200
        for round_number in range(100):
            namespaces.forget(NAMESPACE)
            change = world.resources.namespaces.set_policy(NAMESPACE, "message_ttl_in_seconds", round_number)
            changing = asyncio.ensure_future(change)
            await seconds(0.01 * (round_number % 50))
            old = asyncio.ensure_future(namespaces.policies(NAMESPACE))
            await changing
            namespaces.forget(NAMESPACE)
            await old
            found = await namespaces.policies(NAMESPACE)
            assert found is not None
            assert found.document["message_ttl_in_seconds"] == round_number

    run_quietly(scenario)
