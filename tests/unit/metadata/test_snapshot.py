"""What a store held at one moment, copied to a place that may hang, while it changes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from geminga.metadata import SqliteMetadataStore, snapshot
from geminga.metadata.sqlite_tree import WAL_BYTES_MAX
from geminga.model.errors import MetadataError
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime

Story = Callable[[SqliteMetadataStore], Awaitable[None]]


def tell(path: Path, story: Story) -> None:
    async def whole() -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"fatal in {part}: {error!r}"))
        try:
            store = await SqliteMetadataStore.open(runtime, str(path))
            await story(store)
            await store.close()
        finally:
            await close_runtime(runtime)

    asyncio.run(whole())


async def change(store: SqliteMetadataStore, megabytes: int) -> None:
    for number in range(megabytes):
        puts = (store.put(f"/n{each}", b"%d" % number + bytes(60_000), expected_version=None) for each in range(17))
        await asyncio.gather(*puts)


def test_a_place_that_hangs_does_not_let_the_log_grow(tmp_path: Path) -> None:
    """Nothing was cut off it until the copy was there."""
    path, pipe = tmp_path / "metadata.sqlite", tmp_path / "pipe"
    os.mkfifo(pipe)

    async def story(store: SqliteMetadataStore) -> None:
        await change(store, 1)
        made = store.snapshot()
        await change(store, 1)
        await made.take()
        # A pipe that nobody reads.
        writing = asyncio.ensure_future(made.write_to(str(pipe)))
        await change(store, 3 * WAL_BYTES_MAX >> 20)
        assert not writing.done()
        assert (tmp_path / "metadata.sqlite-wal").stat().st_size < 1.5 * WAL_BYTES_MAX
        await made.close()
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        with pytest.raises(BrokenPipeError):
            os.close(reading)
            await writing
        assert sorted(os.listdir(tmp_path)) == [
            "metadata.sqlite",
            "metadata.sqlite-reserve",
            "metadata.sqlite-shm",
            "metadata.sqlite-wal",
            "pipe",
        ]

    tell(path, story)


def test_a_copy_has_what_was_there_at_its_moment_and_nothing_is_left_beside_the_store(tmp_path: Path) -> None:
    path, target = tmp_path / "metadata.sqlite", tmp_path / "copies" / "copy"
    target.parent.mkdir()
    before = tmp_path / "metadata.sqlite-snapshot"

    async def story(store: SqliteMetadataStore) -> None:
        await store.put("/a", b"before", expected_version=None)
        made = store.snapshot()
        await store.put("/a", b"after", expected_version=None)
        await made.take()
        assert not before.exists()
        await made.write_to(str(target))
        await made.close()
        assert target.stat().st_mode & 0o777 == 0o600
        copy = sqlite3.connect(target)
        assert copy.execute("SELECT value FROM node WHERE name = 'a'").fetchall() == [(b"before",)]
        assert copy.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
        copy.close()
        # One that is given up before it is taken holds nothing either.
        await store.snapshot().close()

    for _ in range(2):
        before.write_bytes(b"left by one that was killed")
        tell(path, story)
        assert not before.exists()
        assert os.listdir(target.parent) == ["copy"]


def test_where_there_is_no_room_for_the_copy_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metadata.sqlite"
    monkeypatch.setattr(snapshot, "ROOM_BYTES_MIN", 1 << 62)

    async def story(store: SqliteMetadataStore) -> None:
        made = store.snapshot()
        with pytest.raises(MetadataError, match=r"metadata.sqlite-snapshot: it takes \d+ bytes .* are free: make room"):
            await made.take()
        await made.close()
        await store.put("/a", b"", expected_version=None)

    tell(path, story)
