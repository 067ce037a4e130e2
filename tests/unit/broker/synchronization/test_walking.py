"""A walk over all that is kept alike."""

from __future__ import annotations

import pytest

from geminga.broker.synchronization import walking, watched_tree
from geminga.broker.synchronization.synchronizer import WALK_S
from geminga.broker.synchronization.walking import AT_ONCE
from support.worlds.event_topics import Alike, run_alike

GROUP = "/admin/resourcegroups/g"


def test_more_paths_than_are_looked_at_at_once_or_watched_are_all_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_tree, "WATCHES_MAX", 40)
    count = 2 * AT_ONCE + 3

    async def before(alike: Alike) -> None:
        for number in range(count):
            await alike["east"].set(f"{GROUP}{number}", n=number)

    async def story(alike: Alike) -> None:
        west = alike["west"]
        await alike.rest()
        assert [await west.get(f"{GROUP}{number}") for number in range(count)] == [{"n": n} for n in range(count)]
        await alike["east"].set(f"{GROUP}{count - 1}", n=-1)
        await alike["east"].set("/admin/resourcegroups/new", n=1)
        await alike.rest(WALK_S + 60)
        assert await west.get(f"{GROUP}{count - 1}") == {"n": -1}
        assert await west.get("/admin/resourcegroups/new") == {"n": 1}

    run_alike(story, before=before)


def test_deletions_are_forgotten_when_they_are_old_or_too_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(walking, "DELETIONS_KEPT_MS", 4_000_000)
    monkeypatch.setattr(walking, "DELETIONS_MAX", 3)

    async def story(alike: Alike) -> None:
        east = alike["east"]
        names = [f"{GROUP}{number}" for number in range(5)]
        for name in names:
            await east.set(name, a=1)
        await alike.rest()
        for name in names[:3]:
            await east.delete(name)
            await alike.rest(1)
        await alike.rest(WALK_S + 60)
        assert [await east.record(name) is None for name in names] == [False] * 5
        for name in names[3:]:
            await east.delete(name)
            await alike.rest(1)
        await alike.rest(WALK_S + 60)
        assert [await east.record(name) is None for name in names] == [True] * 2 + [False] * 3
        assert "more than 3: the oldest are forgotten" in caplog.text
        await alike.rest(5_000)
        for place in alike.places.values():
            assert [await place.record(name) for name in names] == [None] * 5

    run_alike(story)


def test_place_with_many_names_is_listed_a_few_times_while_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    count, listed = 1_500, list[int]()
    held_off = watched_tree.WatchedTree.listed

    def note(tree: watched_tree.WatchedTree, path: str, names: int, now_s: float) -> None:
        if path == "/admin/resourcegroups":
            listed.append(names)
        held_off(tree, path, names, now_s)

    monkeypatch.setattr(watched_tree.WatchedTree, "listed", note)

    async def story(alike: Alike) -> None:
        for number in range(count):
            await alike["east"].set(f"{GROUP}{number}", n=number)
            if number % 10 == 0:
                await alike.rest(0.01)
        await alike.rest(20)
        assert await alike["west"].get(f"{GROUP}{count - 1}") == {"n": count - 1}
        assert len(await alike["west"].metadata.children("/admin/resourcegroups")) == count
        assert 0 < len(listed) < 200

    run_alike(story)
