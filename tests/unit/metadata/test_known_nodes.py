"""What is known of nodes without reading them, and what is not kept."""

from __future__ import annotations

import asyncio

import pytest

from geminga.metadata import MUST_NOT_EXIST, SqliteMetadataStore, sqlite_file
from geminga.metadata.core.known_nodes import (
    KNOWN_PATH_CHARACTERS_MAX,
    KNOWN_VALUE_BYTES_MAX,
    KnownNode,
    KnownNodes,
)
from geminga.metadata.ports import ChangeKind, Node, Notification, Stat
from geminga.model.errors import BadVersionError, MetadataError, UnknownOutcomeError
from support.house.real_runtimes import run_on_real


def node(value: bytes = b"v", *, is_ephemeral: bool = False) -> Node:
    return Node(value, Stat(0, 1, 1, is_ephemeral, is_ephemeral))


def changed(*paths: str) -> list[Notification]:
    return [Notification(ChangeKind.MODIFIED, path) for path in paths]


def test_a_node_and_that_there_is_none_are_known_until_they_change():
    known = KnownNodes()
    assert known.find("/a") is None
    known.keep("/a", node(), known.changes)
    known.keep("/b", None, known.changes)
    assert known.find("/a") == KnownNode(node())
    assert known.find("/b") == KnownNode(None)
    known.forget(changed("/b"))
    assert known.find("/a") == KnownNode(node())
    assert known.find("/b") is None
    known.forget_all()
    assert known.find("/a") is None


def test_what_was_read_while_something_changed_is_not_kept():
    known = KnownNodes()
    before = known.changes
    known.forget(changed("/other"))
    known.keep("/a", node(), before)
    assert known.find("/a") is None
    before = known.changes
    known.forget_all()
    known.keep("/a", node(), before)
    assert known.find("/a") is None


@pytest.mark.parametrize(
    ("path", "found", "is_kept"),
    [
        ("/a", node(is_ephemeral=True), False),
        ("/a", node(b"v" * KNOWN_VALUE_BYTES_MAX), True),
        ("/a", node(b"v" * (KNOWN_VALUE_BYTES_MAX + 1)), False),
        ("/" + "a" * (KNOWN_PATH_CHARACTERS_MAX - 1), None, True),
        ("/" + "a" * KNOWN_PATH_CHARACTERS_MAX, None, False),
    ],
)
def test_what_differs_by_session_or_is_large_is_not_kept(path, found, is_kept):
    known = KnownNodes()
    known.keep(path, found, known.changes)
    assert (known.find(path) is not None) is is_kept


def test_a_limit_holds_and_who_was_first_goes_first():
    known = KnownNodes(limit=2)
    for path in ("/a", "/b", "/a", "/c"):
        known.keep(path, None, known.changes)
    assert [path for path in ("/a", "/b", "/c") if known.find(path) is not None] == ["/b", "/c"]


# ---- in the store's file


#: What is not answered at once.
READ = object()


def at_once(reading):
    """What a read gives without a way to a thread; READ: it takes one."""
    try:
        reading.send(None)
    except StopIteration as found:
        return found.value
    reading.close()
    return READ


def test_a_node_that_was_read_is_known_until_it_changes(tmp_path):
    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(tmp_path / "metadata.db"))
        other = await store.open_session()
        try:
            await store.put("/a/b", b"1", expected_version=None)
            assert at_once(store.get("/a/b")) is READ
            first = await store.get("/a/b")
            assert at_once(store.get("/a/b")) == at_once(other.get("/a/b")) == first
            await other.put("/a/b", b"2", expected_version=0)
            assert at_once(store.get("/a/b")) is READ
            assert (await store.get("/a/b")).value == b"2"
            # Of a group in which one fails, the others are done.
            written, refused = await asyncio.gather(
                store.put("/a/b", b"3", expected_version=1),
                store.put("/a/b", b"4", expected_version=7),
                return_exceptions=True,
            )
            assert written.stat.version == 2
            assert isinstance(refused, MetadataError)
            assert (await store.get("/a/b")).value == b"3"
            # One that is refused has changed nothing.
            with pytest.raises(BadVersionError):
                await other.put("/a/b", b"4", expected_version=7)
            assert at_once(store.get("/a/b")).value == b"3"
            await store.delete("/a/b")
            assert at_once(store.get("/a/b")) is READ
            assert await store.get("/a/b") is None
            assert at_once(store.get("/a/b")) is None
            # Parents are made with a node, and an ephemeral one is its session's own.
            assert await store.get("/c") is None
            await other.put("/c/d/e", b"", expected_version=MUST_NOT_EXIST, ephemeral=True)
            assert await store.get("/c") is not None
            assert [(await one.get("/c/d/e")).stat.is_own for one in (other, store, other)] == [True, False, True]
            await other.close()
            assert await store.get("/c/d/e") is None
        finally:
            await store.close()

    run_on_real(main)


def test_what_is_known_is_forgotten_with_a_commit_that_may_have_failed(tmp_path, monkeypatch):
    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(tmp_path / "metadata.db"))
        try:
            await store.put("/a", b"1", expected_version=None)
            await store.get("/a")
            assert at_once(store.get("/a")) is not READ
            with monkeypatch.context() as patched:
                patched.setattr(sqlite_file, "_commit_once", no_room_after_commit)
                with pytest.raises(UnknownOutcomeError):
                    await store.put("/a", b"2", expected_version=None)
            assert at_once(store.get("/a")) is READ
            assert (await store.get("/a")).value == b"2"
        finally:
            await store.close()

    def no_room_after_commit(tree, group, fatal):
        tree.begin()
        for write in group:
            write.change(tree)
            write.outcome = UnknownOutcomeError("commit failed: no room")
        tree.commit()

    run_on_real(main)
