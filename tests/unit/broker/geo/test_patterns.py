"""Patterns of copying: what is said to each cluster decides where its topics go."""

from __future__ import annotations

import pytest

from support.worlds.cluster_mesh import ClusterMesh, run_mesh
from support.worlds.policy_levels import seconds
from unit.broker.geo.test_subscriptions import entries, loaded, publish

NAMESPACE = "public/default"


@pytest.mark.parametrize(
    ("goes_to", "has"),
    [
        # Full mesh: everything everywhere.
        (
            {"east": ["west", "north"], "west": ["east", "north"], "north": ["east", "west"]},
            {"east": "east north west", "west": "east north west", "north": "east north west"},
        ),
        # One way: a standby, which is written to by nobody else.
        ({"east": ["west"]}, {"east": "east", "west": "east west", "north": "north"}),
        # Aggregation: several sources, one target.
        ({"east": ["north"], "west": ["north"]}, {"east": "east", "west": "west", "north": "east north west"}),
        # A ring is no mesh: what came from elsewhere is not passed on.
        (
            {"east": ["west"], "west": ["north"], "north": ["east"]},
            {"east": "east north", "west": "east west", "north": "north west"},
        ),
    ],
    ids=["full mesh", "one way", "aggregation", "ring"],
)
def test_messages_go_where_each_cluster_is_told(goes_to: dict[str, list[str]], has: dict[str, str]) -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        for name, world in mesh.worlds.items():
            named = [name, *goes_to.get(name, [])]
            await world.resources.namespaces.set_policy(NAMESPACE, "replication_clusters", named)
            await world.broker.policies_changed(NAMESPACE)
        clients = await loaded(mesh)
        for client in clients.values():
            await publish(client, 0, 1)
        await seconds(5)
        for name in mesh.worlds:
            found = [where or name for _, where in await entries(mesh, name)]
            assert sorted(found) == sorted(2 * has[name].split()), name

    run_mesh(scenario, "east", "west", "north")
