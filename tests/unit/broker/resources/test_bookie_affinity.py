"""Bookie affinity in local policies: what a client may say, and that all else there stays."""

from __future__ import annotations

import json

import pytest

from geminga.broker.core.coercion import BodyError, Json
from geminga.broker.ownership.core.local_policies import local_policies_path
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.broker.resources.bookie_affinity import GROUPS_CHARACTERS_MAX, PRIMARY, SECONDARY, checked_affinity
from geminga.metadata import MemoryMetadataStore
from geminga.model.errors import NotFoundError, PreconditionFailedError
from geminga.sim import SimWorld, run
from geminga.wire.bookkeeper.isolation import IsolationGroups

NAMESPACE = "public/default"


def test_all_else_in_local_policies_stays() -> None:
    async def story(world: SimWorld) -> None:
        await world.node("b").run(lambda node: on_node(MemoryMetadataStore(node.runtime)))

    async def on_node(store: MemoryMetadataStore) -> None:
        resources = Resources(store)
        await initialize_cluster(resources, ClusterSetup("c", {"serviceUrl": "http://a:8080"}))
        affinity, path = resources.bookie_affinity, local_policies_path(NAMESPACE)

        async def stored() -> dict[str, object]:
            node = await store.get(path)
            assert node is not None
            return json.loads(node.value)

        await affinity.set(NAMESPACE, None)
        assert await store.get(path) is None
        assert (await affinity.get(NAMESPACE), await resources.namespaces.bookies(NAMESPACE)) == (None, None)
        await affinity.set(NAMESPACE, {PRIMARY: "a,b", SECONDARY: "c"})
        first = await stored()
        # As a cluster makes them: with the bundles that the namespace's policies have.
        assert first["bundles"]["numBundles"] == 4  # type: ignore[index]
        assert first["bookieAffinityGroup"] == {PRIMARY: "a,b", SECONDARY: "c"}
        assert await resources.namespaces.bookies(NAMESPACE) == IsolationGroups(("a", "b"), ("c",))
        await store.put(path, json.dumps({**first, "later": 1}).encode(), expected_version=None)
        await resources.anti_affinity.set(NAMESPACE, "racks")
        await affinity.set(NAMESPACE, {PRIMARY: "d"})
        others = {"later": 1, "namespaceAntiAffinityGroup": "racks"}
        assert await stored() == {**first, **others, "bookieAffinityGroup": {PRIMARY: "d"}}
        await affinity.set(NAMESPACE, None)
        del first["bookieAffinityGroup"]
        assert await stored() == {**first, **others}
        for call in (affinity.get("public/nowhere"), affinity.set("public/nowhere", {PRIMARY: "x"})):
            with pytest.raises(NotFoundError):
                await call
        await affinity.set(NAMESPACE, {PRIMARY: "d"})
        await resources.namespaces.delete(NAMESPACE)
        await resources.namespaces.create(NAMESPACE, {})
        assert await affinity.get(NAMESPACE) is None, "bookies of a namespace of before"

    run(story, seed=1)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        ({PRIMARY: "a", SECONDARY: None, "later": 1}, {PRIMARY: "a"}),
        ({PRIMARY: 3, SECONDARY: ""}, {PRIMARY: "3", SECONDARY: ""}),
        ({PRIMARY: "a" * GROUPS_CHARACTERS_MAX}, {PRIMARY: "a" * GROUPS_CHARACTERS_MAX}),
    ],
)
def test_what_a_client_says_is_kept(value: Json, kept: Json) -> None:
    assert checked_affinity(value) == kept


@pytest.mark.parametrize(
    "value",
    [{}, {PRIMARY: ""}, {PRIMARY: ",,"}, {SECONDARY: "a"}, {PRIMARY: "a" * (GROUPS_CHARACTERS_MAX + 1)}],
)
def test_what_names_no_group_is_refused(value: Json) -> None:
    with pytest.raises(PreconditionFailedError, match=PRIMARY):
        checked_affinity(value)


@pytest.mark.parametrize("value", ["a", 3, [], {PRIMARY: ["a"]}, {PRIMARY: "a", SECONDARY: {}}])
def test_what_is_of_another_shape_is_refused(value: Json) -> None:
    with pytest.raises(BodyError, match="must be"):
        checked_affinity(value)
