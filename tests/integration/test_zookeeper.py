"""The metadata store on a real ZooKeeper that is paused, killed, and cut off between a write and its reply.

1. What was sent and not answered is unknown, and settled by reading back. 2. A session survives the server's restart;
a long silence ends it, and a new one follows. 3. Watches miss no change meanwhile. 4. Nothing waits for ever.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest
from tools.zookeeper_server import ZooKeeperServer

from geminga.metadata import MUST_NOT_EXIST, SessionEvent, cas
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.zookeeper import ZooKeeperMetadataStore, store
from geminga.model.errors import MetadataError, MetadataUnavailableError, SessionExpiredError, UnknownOutcomeError
from geminga.runtime import real_runtime, wait_ms
from support.house.real_runtimes import close_runtime
from support.processes.cutting_proxy import CuttingProxy
from support.worlds.metadata_stores import Inbox, zookeeper_address

pytestmark = pytest.mark.integration

#: Where sessions are to expire, or requests to wait no longer.
SHORT_SESSION_MS = 1500
#: Where a third of it is waited for, and two thirds are left.
STARTING_SESSION_MS = 6000
#: Elsewhere, however slow the machine is.
SESSION_MS = 60_000
#: Writes until a reply was lost with the write done, and a write itself.
WRITES_MAX = 1000


class Place:
    """Stores of one test on one server, each closed at the end."""

    def __init__(self, server: ZooKeeperServer, name: str) -> None:
        self.server = server
        self.address: ZooKeeperAddress = zookeeper_address(server, name)
        self.runtime = real_runtime(lambda part, error: os._exit(9))
        self.closing = AsyncExitStack()

    async def store(self, host: str | None = None, session_ms: int = SESSION_MS) -> ZooKeeperMetadataStore:
        address = self.address if host is None else self.address._replace(hosts=(host,))
        opened = await ZooKeeperMetadataStore.open(self.runtime, address, session_timeout_ms=session_ms)
        self.closing.push_async_callback(opened.close)
        return opened


@pytest.fixture
def run(
    zookeeper: ZooKeeperServer, request: pytest.FixtureRequest
) -> Callable[[Callable[[Place], Awaitable[None]]], None]:
    def running(main: Callable[[Place], Awaitable[None]]) -> None:
        async def bounded() -> None:
            place = Place(zookeeper, request.node.name)
            async with asyncio.timeout(60), place.closing:
                await main(place)
            await close_runtime(place.runtime)

        asyncio.run(bounded())

    return running


def test_reply_that_is_cut_off_is_unknown_and_read_back(run, zookeeper):
    seed = 11
    print(f"seed {seed}")
    proxy = CuttingProxy(seed)
    proxy.target = ("127.0.0.1", zookeeper.port)

    async def main(place: Place) -> None:
        direct, cut = await place.store(), await place.store(f"127.0.0.1:{proxy.port}")
        outcomes = {True: 0, False: 0}
        for i in range(WRITES_MAX):
            try:
                await cut.put(f"/n/{i}", b"x" * 20, expected_version=MUST_NOT_EXIST)
            except UnknownOutcomeError:
                outcomes[await direct.exists(f"/n/{i}")] += 1
            else:
                assert await direct.exists(f"/n/{i}")
            if all(outcomes.values()):
                break
        assert all(outcomes.values()), outcomes

        async def add(token: int) -> None:
            mine = b"%d" % token

            def change(value: bytes | None) -> bytes | None:
                seen = value.split() if value else []
                return None if mine in seen else b" ".join([*seen, mine])

            for _ in range(WRITES_MAX):
                try:
                    await cas.update(cut, "/counter", change, attempts_max=WRITES_MAX)
                    return
                except MetadataUnavailableError:
                    continue  # a read that was cut off too often

        before = proxy.cuts
        for first in range(0, 60, 10):
            await asyncio.gather(*(add(token) for token in range(first, first + 10)))
        assert proxy.cuts > before
        node = await direct.get("/counter")
        assert node is not None
        assert sorted(map(int, node.value.split())) == list(range(60))
        proxy.is_hostile = False

    try:
        run(main)
    finally:
        proxy.close()


def test_server_that_is_killed_and_restarted_keeps_session_and_watches(run, zookeeper):
    async def main(place: Place) -> None:
        mine, events, changes = await place.store(), Inbox(), Inbox()
        mine.on_session_event(events)
        await mine.put("/e", b"", expected_version=None, ephemeral=True)
        await mine.put("/a/b", b"", expected_version=None)
        mine.watch_node("/a/b", changes)
        mine.watch_node("/never", changes)
        mine.watch_children("/a", changes)
        await mine.get("/a/b")
        zookeeper.kill()
        await events.comes(SessionEvent.CONNECTION_LOST)
        waiting = asyncio.ensure_future(mine.put("/later", b"x", expected_version=MUST_NOT_EXIST))
        zookeeper.launch()  # here: it dies with the thread that starts it
        assert await asyncio.to_thread(zookeeper.answers)
        other = await place.store()
        await other.put("/a/b", b"changed", expected_version=None)
        await other.put("/a/c", b"", expected_version=None)
        await events.comes(SessionEvent.RECONNECTED)
        await changes.has(2)
        assert sorted(changes.kinds_and_paths()) == [("children_changed", "/a"), ("modified", "/a/b")]
        assert (await waiting).stat.version == 0
        assert events.items == [SessionEvent.CONNECTION_LOST, SessionEvent.RECONNECTED]
        node = await mine.get("/e")
        assert node is not None
        assert node.stat.is_own

    try:
        run(main)
    finally:
        if not zookeeper.is_running:
            zookeeper.start()


@pytest.fixture
def proxy(zookeeper) -> Iterator[CuttingProxy]:
    """In front of the server; it cuts what it is told to."""
    proxy = CuttingProxy(1)
    proxy.is_hostile = False
    proxy.target = ("127.0.0.1", zookeeper.port)
    yield proxy
    proxy.close()


def test_server_that_forgets_a_connection_while_it_starts_costs_no_session(run, proxy):
    """ZooKeeper 3.9 has let one stand for ever, without an answer, that came before it served."""

    async def main(place: Place) -> None:
        mine, events = await place.store(f"127.0.0.1:{proxy.port}", session_ms=STARTING_SESSION_MS), Inbox()
        mine.on_session_event(events)
        await mine.put("/e", b"", expected_version=None, ephemeral=True)
        proxy.forgets = 1
        proxy.cut()
        await events.has(2)
        assert events.items == [SessionEvent.CONNECTION_LOST, SessionEvent.RECONNECTED]
        assert proxy.forgets == 0
        node = await mine.get("/e")
        assert node is not None
        assert node.stat.is_own

    run(main)


async def answered(mine: ZooKeeperMetadataStore) -> None:
    """A server that was silent takes a session back, and may end it at once: the first answer tells."""
    while True:
        try:
            await mine.get("/p")
            return
        except (SessionExpiredError, MetadataUnavailableError):
            await wait_ms(20)


def test_server_that_is_silent_for_long_ends_the_session_and_fails_what_waits(run, zookeeper):
    async def main(place: Place) -> None:
        mine, events, gone = await place.store(session_ms=SHORT_SESSION_MS), Inbox(), Inbox()
        mine.on_session_event(events)
        await mine.put("/e", b"", expected_version=None, ephemeral=True)
        await mine.put("/p", b"", expected_version=None)
        mine.watch_node("/e", gone)
        await mine.get("/e")
        zookeeper.pause()
        with pytest.raises(UnknownOutcomeError):
            await mine.put("/p", b"x", expected_version=None)
        await events.comes(SessionEvent.CONNECTION_LOST)
        with pytest.raises(MetadataUnavailableError):
            await mine.put("/p", b"y", expected_version=None)
        with pytest.raises(MetadataUnavailableError, match="can not be reached now"):
            await mine.get("/p")
        zookeeper.resume()
        await events.comes(SessionEvent.RECONNECTED)
        await answered(mine)
        if SessionEvent.EXPIRED in events.items:
            await gone.has(1)
            assert gone.kinds_and_paths() == [("deleted", "/e")]
        assert await mine.exists("/e") == (SessionEvent.EXPIRED not in events.items)
        assert (await mine.put("/e", b"", expected_version=None, ephemeral=True)).stat.is_own
        node = await mine.get("/p")
        assert node is not None
        assert node.value in (b"", b"x")  # and never b"y", which was not sent

    try:
        run(main)
    finally:
        zookeeper.resume()


def test_connection_that_is_cut_loses_no_change_of_what_is_watched(run, proxy):
    async def main(place: Place) -> None:
        other, mine = await place.store(), await place.store(f"127.0.0.1:{proxy.port}")
        told = asyncio.Event()
        mine.watch_node("/a", lambda _: told.set())
        mine.watch_children("/c", lambda _: told.set())
        for i in range(25):
            if i % 3 == 0:
                proxy.cut()
            told.clear()
            await other.put("/a", b"%d" % i, expected_version=None)
            await other.put(f"/c/{i}", b"", expected_version=None)
            while True:
                try:
                    node, children = await mine.get("/a"), await mine.children("/c")
                except MetadataError:
                    continue
                if node is not None and node.value == b"%d" % i and len(children) == i + 1:
                    break
                await told.wait()
                told.clear()

    run(main)


def test_close_does_not_wait_for_a_server_that_is_silent(run, zookeeper, monkeypatch):
    monkeypatch.setattr(store, "CLOSE_TIMEOUT_S", 0.2)

    async def main(place: Place) -> None:
        mine = await place.store(session_ms=SHORT_SESSION_MS)
        zookeeper.pause()
        writing = asyncio.ensure_future(mine.put("/p", b"x", expected_version=None))
        await asyncio.wait((writing,), timeout=0.05)
        clock = asyncio.get_running_loop().time
        before = clock()
        await mine.close()
        assert clock() - before < 5
        with pytest.raises(UnknownOutcomeError):
            await writing
        zookeeper.resume()

    try:
        run(main)
    finally:
        zookeeper.resume()


def test_open_says_that_nobody_is_there(run, zookeeper):
    async def main(place: Place) -> None:
        nobody = place.address._replace(hosts=("127.0.0.1:1",))
        with pytest.raises(MetadataUnavailableError, match=r"zk:127\.0\.0\.1:1/.*: not reached within 0\.3 s"):
            await ZooKeeperMetadataStore.open(place.runtime, nobody, connect_timeout_s=0.3)

    run(main)


def test_watches_that_end_leave_none_at_the_server(run, zookeeper):
    async def main(place: Place) -> None:
        mine, inbox = await place.store(), Inbox()
        before = zookeeper.watches()
        await mine.put("/there/child", b"", expected_version=None)
        ends = []
        for i in range(50):
            ends.append(mine.watch_node(f"/missing-{i}", inbox))
            ends.append(mine.watch_children(f"/missing-{i}", inbox))
        for path in ("/there", "/there/child"):
            ends.append(mine.watch_node(path, inbox))
            ends.append(mine.watch_children(path, inbox))
        await mine.get("/there")
        assert zookeeper.watches() == before + 52
        for end in ends:
            end()
        # Those that end before they stand.
        for i in range(50):
            mine.watch_node(f"/short-{i}", inbox)()
            mine.watch_children(f"/there/short-{i}", inbox)()
        for _ in range(5):
            await mine.get("/there")
        assert zookeeper.watches() == before
        assert not mine._connection._client._child_watchers
        again = Inbox()
        mine.watch_node("/there", again)
        await mine.put("/there", b"x", expected_version=None)
        await again.has(1)
        assert inbox.items == []

    run(main)


def test_parents_that_others_delete_all_the_time_are_made_again(run, zookeeper):
    async def main(place: Place) -> None:
        mine, other = await place.store(), await place.store()
        is_over = False

        async def delete_parents() -> None:
            while not is_over:
                for path in ("/p/q/r", "/p/q", "/p"):
                    try:
                        await other.delete(path)
                    except MetadataError:
                        continue

        deleting = asyncio.ensure_future(delete_parents())
        for i in range(50):
            await asyncio.gather(*(mine.put(f"/p/q/r/{i}-{j}", b"", expected_version=MUST_NOT_EXIST) for j in range(4)))
            await asyncio.gather(*(mine.delete(f"/p/q/r/{i}-{j}") for j in range(4)))
        is_over = True
        await deleting

    run(main)
