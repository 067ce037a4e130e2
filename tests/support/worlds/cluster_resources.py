"""Resources of a cluster in memory, on a simulated node."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.metadata import MemoryMetadataStore
from geminga.sim import SimNode, SimWorld, run


def run_with_resources(story: Callable[[Resources, MemoryMetadataStore], Awaitable[None]]) -> None:
    """Run ``story`` with the resources of a cluster that was just initialized, and the store that they are in."""

    async def on_node(node: SimNode) -> None:
        store = MemoryMetadataStore(node.runtime)
        resources = Resources(store)
        await initialize_cluster(resources, ClusterSetup("c", {"serviceUrl": "http://a:8080"}))
        await story(resources, store)

    async def main(world: SimWorld) -> None:
        await world.node("b").run(on_node)

    run(main, seed=1)


async def stored(store: MemoryMetadataStore, path: str) -> dict[str, object]:
    """The document at ``path``, which must be there."""
    node = await store.get(path)
    assert node is not None
    return json.loads(node.value)
