"""What was acknowledged is told until it is stored, and not of a subscription that is gone meanwhile."""

from __future__ import annotations

import pytest

from geminga.broker.geo.updates import Updates
from geminga.wire.pulsar.subscription_markers import UPDATE
from support.worlds.cluster_mesh import ClusterMesh, run_mesh
from support.worlds.policy_levels import seconds
from unit.broker.geo.test_subscriptions import acknowledge, entries, part_of, publish, receive, refuse, replicated


@pytest.mark.parametrize("goes", [False, True])
def test_an_update_that_was_not_stored_is_told_again_unless_its_subscription_went(*, goes: bool) -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        refused = refuse(mesh.worlds["east"].bookie, UPDATE, 1)
        await publish(client, *range(3))
        acknowledge(consumer, *await receive(consumer, 3))
        updates = part_of(mesh, "east")._updates  # whether it waits
        assert isinstance(updates, Updates)
        while not updates.are_waiting:
            await seconds(0.01)
        if goes:
            consumer.lose()
            await mesh.topic("east").delete_subscription("sub", force=True)
        await seconds(20)
        assert (refused(), updates.are_waiting) == (1, False)
        told = [kind for kind, where in await entries(mesh, "east") if kind == UPDATE and not where]
        assert len(told) == (0 if goes else 1)
        assert ("sub" in mesh.topic("west").subscriptions) is not goes

    run_mesh(scenario, "east", "west")
