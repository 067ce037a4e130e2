"""Groups of anti-affinity in local policies, beside whoever else changes them."""

from __future__ import annotations

import json

import pytest

from geminga.broker.ownership.core.local_policies import local_policies_path
from geminga.broker.resources import Resources
from geminga.metadata import MemoryMetadataStore
from geminga.model.errors import NotFoundError
from support.worlds.cluster_resources import run_with_resources, stored

NAMESPACE = "public/default"


def test_all_else_in_local_policies_stays() -> None:
    async def story(resources: Resources, store: MemoryMetadataStore) -> None:
        groups, path = resources.anti_affinity, local_policies_path(NAMESPACE)
        await groups.set(NAMESPACE, None)
        assert await store.get(path) is None
        assert await groups.get(NAMESPACE) is None
        await groups.set(NAMESPACE, "Racks")
        # As a cluster makes them: with the bundles that the namespace's policies have.
        first = await stored(store, path)
        assert first["namespaceAntiAffinityGroup"] == "Racks"
        assert first["bundles"]["numBundles"] == 4
        await store.put(path, json.dumps({**first, "later": 1}).encode(), expected_version=None)
        await groups.set(NAMESPACE, "other")
        assert await stored(store, path) == {**first, "later": 1, "namespaceAntiAffinityGroup": "other"}
        assert await groups.namespaces_of("public", "OTHER") == [NAMESPACE]
        await groups.set(NAMESPACE, None)
        assert "namespaceAntiAffinityGroup" not in await stored(store, path)
        assert await groups.namespaces_of("public", "other") == []
        for call in (groups.get("public/nowhere"), groups.set("public/nowhere", "x")):
            with pytest.raises(NotFoundError):
                await call

    run_with_resources(story)
