"""Bookie affinity in local policies: what a client may say, and that all else there stays."""

from __future__ import annotations

import json

import pytest

from geminga.broker.core.coercion import BodyError, Json
from geminga.broker.ownership.core.local_policies import local_policies_path
from geminga.broker.resources import Resources
from geminga.broker.resources.bookie_affinity import GROUPS_CHARACTERS_MAX, PRIMARY, SECONDARY, checked_affinity
from geminga.metadata import MemoryMetadataStore
from geminga.model.errors import NotFoundError, PreconditionFailedError
from geminga.wire.bookkeeper.isolation import IsolationGroups
from support.worlds.cluster_resources import run_with_resources, stored

NAMESPACE = "public/default"


def test_all_else_in_local_policies_stays() -> None:
    async def story(resources: Resources, store: MemoryMetadataStore) -> None:
        affinity, path = resources.bookie_affinity, local_policies_path(NAMESPACE)
        await affinity.set(NAMESPACE, None)
        assert await store.get(path) is None
        assert (await affinity.get(NAMESPACE), await resources.namespaces.bookies(NAMESPACE)) == (None, None)
        await affinity.set(NAMESPACE, {PRIMARY: "a,b", SECONDARY: "c"})
        first = await stored(store, path)
        # As a cluster makes them: with the bundles that the namespace's policies have.
        assert first["bundles"]["numBundles"] == 4  # type: ignore[index]
        assert first["bookieAffinityGroup"] == {PRIMARY: "a,b", SECONDARY: "c"}
        assert await resources.namespaces.bookies(NAMESPACE) == IsolationGroups(("a", "b"), ("c",))
        await store.put(path, json.dumps({**first, "later": 1}).encode(), expected_version=None)
        await resources.anti_affinity.set(NAMESPACE, "racks")
        await affinity.set(NAMESPACE, {PRIMARY: "d"})
        others = {"later": 1, "namespaceAntiAffinityGroup": "racks"}
        assert await stored(store, path) == {**first, **others, "bookieAffinityGroup": {PRIMARY: "d"}}
        await affinity.set(NAMESPACE, None)
        del first["bookieAffinityGroup"]
        assert await stored(store, path) == {**first, **others}
        for call in (affinity.get("public/nowhere"), affinity.set("public/nowhere", {PRIMARY: "x"})):
            with pytest.raises(NotFoundError):
                await call
        await affinity.set(NAMESPACE, {PRIMARY: "d"})
        await resources.namespaces.delete(NAMESPACE)
        await resources.namespaces.create(NAMESPACE, {})
        assert await affinity.get(NAMESPACE) is None, "bookies of a namespace of before"

    run_with_resources(story)


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
