"""Remembered policies."""

from __future__ import annotations

from support.broker_world import BrokerWorld, run_with_broker


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
