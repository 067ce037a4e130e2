"""Watches on what is kept alike, as many as may be."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.broker.synchronization import watched_tree
from geminga.broker.synchronization.watched_tree import LISTED_MIN, WatchedTree
from geminga.metadata.memory import MemoryMetadataStore


def test_changes_are_remembered_in_their_order_and_told() -> None:
    async def main(world: sim.SimWorld) -> None:
        store = MemoryMetadataStore(world.node("a").runtime)
        heard: list[None] = []
        tree = WatchedTree(store, lambda: heard.append(None))
        for path in ("/a", "/b"):
            tree.watch(path)
            tree.watch(path)
            await store.put(path, b"1", expected_version=-1)
        await store.put("/a/c", b"1", expected_version=-1)
        await world.sleep(1)
        assert tree.waiting == 2
        assert len(heard) >= 3
        assert (tree.next(0), tree.next(0), tree.next(0)) == ("/a", "/b", None)
        tree.forget("/a")
        assert (tree.is_watched("/a"), tree.is_watched("/b")) == (False, True)
        tree.forget("/a")
        await store.put("/a", b"2", expected_version=None)
        await world.sleep(1)
        assert tree.next(0) is None
        tree.close()
        await store.put("/b", b"2", expected_version=None)
        await world.sleep(1)
        assert tree.waiting == 0

    sim.run(main)


def test_of_more_than_may_be_watched_or_remembered_all_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_tree, "WATCHES_MAX", 5)
    monkeypatch.setattr(watched_tree, "CHANGED_MAX", 2)

    async def main(world: sim.SimWorld) -> None:
        tree = WatchedTree(MemoryMetadataStore(world.node("a").runtime), lambda: None)
        assert not tree.is_full
        for path in ("/a", "/admin/policies/t/n", "/b", "/c"):
            tree.watch(path)
        # A namespace has nothing below it: one watch.
        assert tree.is_full
        assert [tree.is_watched(path) for path in ("/admin/policies/t/n", "/b", "/c")] == [True, True, False]
        tree.forget("/b")
        assert not tree.is_full
        for path in ("/a", "/b", "/b"):
            tree.add(path)
        assert not tree.is_walk_due
        tree.add("/c")
        assert tree.is_walk_due
        assert tree.waiting == 2

    sim.run(main)


def test_place_with_many_names_is_not_listed_again_at_once() -> None:
    async def main(world: sim.SimWorld) -> None:
        tree = WatchedTree(MemoryMetadataStore(world.node("a").runtime), lambda: None)
        assert tree.due_s(0) is None
        tree.listed("/few", LISTED_MIN - 1, 10)
        tree.listed("/many", 2000, 10)
        tree.add("/many")
        assert tree.due_s(10) == 12
        assert tree.next(11) is None
        tree.add("/few")
        assert (tree.due_s(11), tree.next(11), tree.next(12), tree.next(12)) == (11, "/few", "/many", None)
        tree.listed("/many", 2000, 12)
        tree.listed("/many", 1, 12)
        tree.add("/many")
        assert tree.next(12) == "/many"

    sim.run(main)
