"""Namespaces that are created while their tenant goes."""

from __future__ import annotations

import asyncio

from geminga.broker.resources import Resources
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import ConflictError, NotFoundError
from geminga.sim import SimWorld, run
from support.worlds.policy_levels import seconds

#: Seconds that the deletion of the tenant begins after the creation, which takes some tenths.
LEADS_S = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)


def test_a_namespace_is_never_left_without_its_tenant() -> None:
    """Nobody could list or delete it, and its tenant would be in lists and nowhere else."""

    def outcome(lead_s: float, seed: int) -> str:
        async def scenario(world: SimWorld) -> str:
            metadata = MemoryMetadataStore(world.node("a").runtime)
            resources = Resources(metadata)
            await resources.clusters.create("standalone", {})
            await resources.tenants.create("some", {"allowedClusters": ["standalone"]})
            metadata.faults.delay_ms_max = 100
            creation = asyncio.ensure_future(resources.namespaces.create("some/new"))
            await seconds(lead_s)
            deletion = asyncio.ensure_future(resources.tenants.delete("some"))
            results = await asyncio.gather(creation, deletion, return_exceptions=True)
            assert all(result is None or isinstance(result, NotFoundError | ConflictError) for result in results)
            created, deleted = (result is None for result in results)
            assert created == await resources.tenants.exists("some") != deleted
            assert await resources.namespaces.all() == ["some/new"] * created
            assert await resources.tenants.list() == ["some"] * created
            return "created" if created else "deleted"

        return run(scenario, seed=seed)

    outcomes = {outcome(lead_s, seed) for lead_s in LEADS_S for seed in range(10)}
    assert outcomes == {"created", "deleted"}
