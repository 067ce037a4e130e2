"""Bookies as processes of their own, registered in a real ZooKeeper, and a ledger client that finds them there.

One is killed: it leaves the list when its session ends, and the ledger goes on with another. ZooKeeper is paused: what
is written goes on, and the bookies are registered again. A ledger is deleted: the bookies let go of it. Directories of
one bookie are emptied: it begins anew only when its cookie in ZooKeeper goes as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tools.zookeeper_server import ZooKeeperServer

from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.bookkeeper.remote import RegisteredBookies, RemoteBookiePool
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.model.bookie_port import Bookie
from geminga.model.errors import MetadataError, StorageError
from geminga.runtime import real_runtime, wait_ms
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH, COOKIES_PATH, INSTANCE_ID_PATH
from geminga.wire.bookkeeper.ledger_path import HIERARCHICAL_LAYOUT, LAYOUT_PATH
from support.house.real_runtimes import close_runtime
from support.processes.bookie_process import BookieProcess
from support.worlds.ledgers import Appends, payloads
from support.worlds.metadata_stores import zookeeper_address

pytestmark = pytest.mark.integration

QUORUMS = {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2}
BATCH = 5
TIMEOUT_S = 90
#: Of the bookies, and of the client.
SESSION_MS = 2000
#: Each takes longer than a quarter of a second.
FORMATS_MAX = 20


class Cluster:
    """Bookies b0, b1, ... that ``start`` starts."""

    def __init__(self, directory: Path, address: ZooKeeperAddress) -> None:
        self.address = address
        self.directory = directory
        self.bookies: dict[str, BookieProcess] = {}

    def start(self, name: str) -> BookieProcess:
        settings = {"bookieId": name, "zkTimeout": SESSION_MS, "gcWaitTime": 200, "flushInterval": 200}
        options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        process = self.bookies.get(name) or BookieProcess(
            self.directory / name, "--metadata", str(self.address), *options
        )
        self.bookies[name] = process
        process.start()
        return process


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperServer, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, zookeeper_address(zookeeper, request.node.name))
    try:
        yield made
    finally:
        zookeeper.resume()
        for process in made.bookies.values():
            if process.is_running:
                process.kill()


def in_loop(
    main: Callable[[ZooKeeperMetadataStore, RemoteBookiePool, BookKeeper], Awaitable[None]], cluster: Cluster
) -> None:
    """Run ``main`` with a ledger client that follows the registrations."""

    async def bounded() -> None:
        runtime = real_runtime(lambda part, error: os._exit(9))
        store = await ZooKeeperMetadataStore.open(runtime, cluster.address, session_timeout_ms=SESSION_MS)
        pool = RemoteBookiePool(runtime)
        registered = await RegisteredBookies.follow(store, pool)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await main(store, pool, BookKeeper(runtime, store, pool))
        finally:
            await registered.close()
            await pool.close()
            await store.close()
            await close_runtime(runtime)

    asyncio.run(bounded())


async def until_listed(store: ZooKeeperMetadataStore, names: list[str]) -> None:
    """Until exactly these bookies are registered as taking entries."""
    changed = asyncio.Event()
    ends = [
        store.watch_children(AVAILABLE_PATH, lambda _: changed.set()),
        store.on_session_event(lambda _: changed.set()),
    ]
    while True:
        changed.clear()
        try:
            if [name for name in await store.children(AVAILABLE_PATH) if name != "readonly"] == names:
                break
        except MetadataError:
            pass  # it is away
        await changed.wait()
    for end in ends:
        end()


async def append(appends: Appends, first: int, count: int) -> None:
    for at in range(first, first + count):
        appends.append(*payloads(at * BATCH, BATCH))
    await appends.has(first + count)


async def all_there(handle: LedgerHandle, count: int) -> None:
    found: list[bytes] = []
    while len(found) < count * BATCH:
        found += await handle.read_entries(len(found), count * BATCH - 1)
    assert found == payloads(0, count * BATCH)


def test_killed_bookie_leaves_the_list_and_the_ledger_goes_on_with_another(cluster: Cluster) -> None:
    for name in ("b0", "b1", "b2", "b3"):
        cluster.start(name)

    async def main(store: ZooKeeperMetadataStore, pool: RemoteBookiePool, client: BookKeeper) -> None:
        layout, instance = await store.get(LAYOUT_PATH), await store.get(INSTANCE_ID_PATH)
        assert layout is not None
        assert layout.value == HIERARCHICAL_LAYOUT
        assert instance is not None
        for name in cluster.bookies:
            cookie = await store.get(f"{COOKIES_PATH}/{name}")
            assert cookie is not None
            assert instance.value in cookie.value
        assert sorted(pool.available()) == ["b0", "b1", "b2", "b3"]
        handle = await client.create_ledger(**QUORUMS)
        appends = Appends(handle)
        await append(appends, 0, 20)
        victim = handle.metadata.fragments[-1].ensemble[1]
        others = sorted({"b0", "b1", "b2", "b3"} - {victim})
        cluster.bookies[victim].kill()
        await append(appends, 20, 20)
        assert [error for _, _, error in appends.done] == [None] * 40
        assert sorted(handle.metadata.fragments[-1].ensemble) == others
        await until_listed(store, others)
        while sorted(pool.available()) != others:
            await came(pool)
        await all_there(await client.open_ledger(handle.ledger_id), 40)
        # Back under its id, at another port, it is used again with what it had.
        cluster.bookies[victim].port = 0
        await asyncio.to_thread(cluster.start, victim)
        await until_listed(store, ["b0", "b1", "b2", "b3"])
        while victim not in pool.available():
            await came(pool)
        await all_there(await client.open_ledger(handle.ledger_id), 40)
        # A ledger that no list has any more is garbage.
        bookie = pool.get(others[0])
        assert await entries_of(bookie, handle.ledger_id)
        await client.delete_ledger(handle.ledger_id)
        other = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        for i in range(2000):
            assert await Appends(other).append_and_wait(b"%d" % i) is None
            if not await entries_of(bookie, handle.ledger_id):
                break
            await wait_ms(20)
        else:
            pytest.fail("the deleted ledger stays")

    in_loop(main, cluster)


def test_bookies_go_on_without_zookeeper_and_are_registered_again(cluster: Cluster, zookeeper: ZooKeeperServer) -> None:
    names = ["b0", "b1", "b2"]
    for name in names:
        cluster.start(name)

    async def main(store: ZooKeeperMetadataStore, pool: RemoteBookiePool, client: BookKeeper) -> None:
        handle = await client.create_ledger(**QUORUMS)
        appends = Appends(handle)
        await append(appends, 0, 5)
        zookeeper.pause()
        try:
            # Longer than their sessions live.
            for at in range(5, 25):
                await append(appends, at, 1)
                await wait_ms(3 * SESSION_MS // 40)
            for _ in range(SESSION_MS // 100):
                await wait_ms(100)
        finally:
            zookeeper.resume()
        assert [error for _, _, error in appends.done] == [None] * 25
        assert sorted(handle.metadata.fragments[-1].ensemble) == names
        await until_listed(store, names)
        await append(appends, 25, 5)
        await all_there(await client.open_ledger(handle.ledger_id), 30)
        for name in names:
            assert cluster.bookies[name].is_running

    in_loop(main, cluster)


def test_emptied_bookie_begins_anew_only_without_its_cookie(cluster: Cluster) -> None:
    process = cluster.start("b0")
    said = format_bookie(process, cluster, "--delete-cookie")
    assert "in use" in said
    assert process.stop() == 0
    (cluster.directory / "b0" / "ledgers" / "VERSION").unlink()
    (cluster.directory / "b0" / "journal" / "VERSION").unlink()
    assert "emptied" in process.refused("--port", "0")
    assert "no directory tells the bookie's id" in format_bookie(process, cluster, "--delete-cookie")


def test_format_with_the_cookie_lets_the_bookie_begin_anew(cluster: Cluster) -> None:
    process = cluster.start("b0")
    assert process.stop() == 0
    done = json.loads(format_bookie(process, cluster, "--delete-cookie"))
    assert done["removedCookie"] is True
    assert done["removedFiles"] > 0
    process.start()
    assert process.stop() == 0


def format_bookie(process: BookieProcess, cluster: Cluster, *more: str) -> str:
    command = [sys.executable, "-m", "geminga", "bookie", "format", "--data", str(process.data), "--force", "--json"]
    command += ["--set", f"metadataServiceUri={cluster.address}", *more]
    # A session whose end ZooKeeper did not hear lasts SESSION_MS: the bookie is registered so long, and is refused.
    for _ in range(FORMATS_MAX):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if "is registered as" not in ended.stderr:
            break
    return ended.stdout or ended.stderr


async def came(pool: RemoteBookiePool) -> None:
    """Until a bookie of the pool comes or goes."""
    heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    pool.watch(lambda *_: None if heard.done() else heard.set_result(None))
    await heard


async def entries_of(bookie: Bookie, ledger_id: int) -> bool:
    """Whether the bookie stores something of the ledger."""
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    bookie.list_entries(
        ledger_id, done=lambda found: answer.set_result(not isinstance(found, StorageError) and any(found))
    )
    return await answer
