"""``geminga metadata copy``: what is refused before a ZooKeeper is even asked."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from geminga import Standalone
from geminga.app.storage.data_directory import MetadataMove, write_move
from geminga.app.storage.metadata_copy import Copied, copy_directory
from geminga.metadata import SqliteMetadataStore
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.model.errors import CorruptionError, DataDirectoryError, MetadataError
from geminga.runtime import ThreadedDisk, real_runtime
from support.house.real_runtimes import close_runtime

#: Nobody listens there.
NOWHERE = ZooKeeperAddress(("127.0.0.1:1",), "/c")


def copy(directory: Path) -> Copied:
    return asyncio.run(copy_directory(str(directory), NOWHERE, lambda what, done, of: None))


def test_directory_in_use_is_refused_with_the_holders_pid(tmp_path: Path) -> None:
    with Standalone(tmp_path / "data"), pytest.raises(DataDirectoryError, match="is in use by process"):
        copy(tmp_path / "data")


def test_what_is_no_data_directory_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="missing: No such file"):
        copy(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
    with pytest.raises(DataDirectoryError, match=r"is no data directory of a standalone: it holds no geminga\.json"):
        copy(tmp_path)
    (tmp_path / "geminga.json").write_text('{"format": 1}')
    with pytest.raises(DataDirectoryError, match=r"it holds no metadata\.sqlite"):
        copy(tmp_path)


def test_damaged_metadata_are_not_copied(tmp_path: Path) -> None:
    with Standalone(tmp_path / "data"):
        pass
    connection = sqlite3.connect(tmp_path / "data/metadata.sqlite")
    with connection:
        connection.execute("UPDATE node SET value = 'x' WHERE name = 'public'")
    connection.close()
    with pytest.raises(CorruptionError, match="fails its checksum"):
        copy(tmp_path / "data")


def test_nodes_too_large_for_a_zookeeper_and_names_it_refuses_are_named(tmp_path: Path) -> None:
    async def add() -> None:
        runtime = real_runtime(lambda part, error: None)
        store = await SqliteMetadataStore.open(runtime, str(tmp_path / "data/metadata.sqlite"))
        await store.put("/large", bytes(1 << 20), expected_version=None)
        await store.put("/odd/\ue000", b"", expected_version=None)
        await store.close()
        await close_runtime(runtime)

    with Standalone(tmp_path / "data"):
        pass
    asyncio.run(add())
    with pytest.raises(MetadataError, match=r"^2 nodes can not be kept by zk:127.0.0.1:1/c, and nothing was") as caught:
        copy(tmp_path / "data")
    assert "/c/large: value of 1048576 bytes, ZooKeeper takes at most" in str(caught.value)
    assert "/odd/" in str(caught.value)
    # It is a standalone's still.
    with Standalone(tmp_path / "data"):
        pass


def test_directory_that_was_moved_elsewhere_is_refused(tmp_path: Path) -> None:
    with Standalone(tmp_path / "data"):
        pass

    async def note() -> None:
        disk = ThreadedDisk()
        await write_move(disk, str(tmp_path / "data"), MetadataMove("zk:other:2181", "1", is_done=True))
        await disk.close()

    asyncio.run(note())
    with pytest.raises(DataDirectoryError, match=r"are in zk:other:2181 since, not in zk:127\.0\.0\.1:1/c"):
        copy(tmp_path / "data")
