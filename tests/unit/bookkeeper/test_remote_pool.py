"""A pool of bookies behind a network: who is listed, who can be reached, and what is heard of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.bookie.serving import BookieServer
from geminga.bookkeeper import MemoryBookie
from geminga.bookkeeper.core.addresses import BookieAddress
from geminga.bookkeeper.remote import ListedBookie, RemoteBookiePool, pool
from geminga.bookkeeper.remote.kept_connection import RECONNECT_S_MAX
from geminga.model.bookie_port import Availability, BookiePool
from geminga.model.errors import StorageError
from geminga.runtime import answer_of, real_runtime
from geminga.sim import SimNode, SimWorld
from support.worlds.bookies import KEY, InNode, entries_of

PORT = 3181
W, R, D = Availability.WRITABLE, Availability.READ_ONLY, Availability.DOWN


class Place:
    """Bookies b0, b1, ... on nodes of these names, and a pool on another node."""

    def __init__(self, world: SimWorld, count: int) -> None:
        self.world = world
        self.stores = {f"b{i}": MemoryBookie() for i in range(count)}
        self.nodes = {name: world.node(name) for name in self.stores}
        self.client = world.node("client")
        self.heard: list[tuple[str, Availability]] = []
        self.pool: RemoteBookiePool

    async def begin(self) -> None:
        self.client.start()
        for name in self.nodes:
            await self.up(name)

        async def make(node: SimNode) -> RemoteBookiePool:
            return RemoteBookiePool(node.runtime)

        self.pool = await self.client.run(make)
        self.pool.watch(lambda bookie_id, now: self.heard.append((bookie_id, now)))

    async def up(self, name: str) -> None:
        async def serve(node: SimNode) -> BookieServer:
            return await BookieServer.listen(node.runtime, self.stores[name], "0.0.0.0", PORT)

        if not self.nodes[name].is_up:
            self.nodes[name].start()
        await self.nodes[name].run(serve)

    def down(self, name: str) -> None:
        self.world.crash(self.nodes[name])

    async def list(self, **listed: bool) -> None:
        """These by name, True: read-only."""

        async def run(_: SimNode) -> None:
            self.pool.set_listed(
                {f"{name}:{PORT}": ListedBookie(BookieAddress(name, PORT), read) for name, read in listed.items()}
            )

        await self.client.run(run)

    async def settled(self) -> list[str]:
        """Who takes entries, once every connection was tried again."""
        await self.world.sleep(RECONNECT_S_MAX + 1)
        return list(self.pool.available())

    def calls(self, bookie_id: str) -> InNode:
        return InNode(self.pool.get(bookie_id), self.client)


def run(main: Callable[[Place], Awaitable[None]], count: int = 3) -> None:
    async def scenario(world: SimWorld) -> None:
        place = Place(world, count)
        await place.begin()
        await main(place)

    sim.run(scenario, seed=17)


def test_who_takes_entries_and_what_is_heard() -> None:
    async def main(place: Place) -> None:
        assert isinstance(place.pool, RemoteBookiePool)
        pool: BookiePool = place.pool
        assert pool.available() == []
        await place.list(b1=False, b0=False, b2=True)
        assert await place.settled() == ["b0:3181", "b1:3181"]
        assert place.heard == [("b0:3181", W), ("b1:3181", W), ("b2:3181", R)]
        assert pool.read_only() == ["b2:3181"]
        place.heard.clear()
        place.down("b0")
        # One that was never there, and one that takes entries again.
        await place.list(b0=False, b1=False, b2=False, nobody=False)
        assert await place.settled() == ["b1:3181", "b2:3181"]
        assert {("nobody:3181", W), ("nobody:3181", D), ("b0:3181", D)} <= set(place.heard)
        assert ("b2:3181", W) in place.heard
        await place.up("b0")
        await place.list(b0=False, b2=False)
        assert await place.settled() == ["b0:3181", "b2:3181"]
        assert set(place.heard[-2:]) == {("b1:3181", D), ("b0:3181", W)}

    run(main)


def test_bookie_that_is_not_listed_is_still_asked() -> None:
    async def main(place: Place) -> None:
        await place.list(b0=False)
        assert await place.calls("b0:3181").add(3, 0, entries_of(3, 0, 1)) is None
        await place.list()
        assert await place.calls("b0:3181").read(3, 0) == entries_of(3, 0, 1)
        assert await place.calls("b1:3181").add(3, 0, entries_of(3, 0, 1)) is None
        assert place.pool.available() == []
        found = await place.calls("a name").read(3, 0)
        # Not an absence.
        assert type(found[0]) is StorageError

    run(main)


def test_bookie_that_moved_is_found_where_it_is() -> None:
    async def main(place: Place) -> None:
        async def listed(host: str) -> None:
            async def run(_: SimNode) -> None:
                place.pool.set_listed({"bookie-7": ListedBookie(BookieAddress(host, PORT))})

            await place.client.run(run)

        await listed("b0")
        assert await place.calls("bookie-7").add(3, 0, entries_of(3, 0, 1)) is None
        place.down("b0")
        place.stores["b1"] = place.stores["b0"]
        place.down("b1")
        await place.up("b1")
        await listed("b1")
        assert await place.calls("bookie-7").read(3, 0) == entries_of(3, 0, 1)
        assert await place.settled() == ["bookie-7"]

    run(main)


def test_those_that_are_asked_without_being_listed_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(pool, "UNLISTED_MAX", 2)

    async def main(place: Place) -> None:
        for name in ("b0", "b1"):
            assert await place.calls(f"{name}:{PORT}").add(3, 0, entries_of(3, 0, 1)) is None
        refused = await place.calls(f"b2:{PORT}").add(3, 0, entries_of(3, 0, 1))
        assert isinstance(refused, StorageError)
        # Those that are listed do not count.
        await place.list(b0=False)
        assert await place.calls(f"b2:{PORT}").add(3, 0, entries_of(3, 0, 1)) is None

    run(main)


def test_closed_pool_has_nobody() -> None:
    async def main(place: Place) -> None:
        await place.list(b0=False)

        async def close(_: SimNode) -> None:
            await place.pool.close()

        await place.client.run(close)
        assert place.pool.available() == []
        assert isinstance(await place.calls("b0:3181").add(3, 0, entries_of(3, 0, 1)), StorageError)

    run(main)


def test_id_that_is_no_address_is_never_connected_to():
    """A bookie of a standalone looks like one of this machine; whoever listens there is another's."""

    async def scenario(world: SimWorld) -> None:
        node = world.node("host")

        async def story(node: SimNode) -> None:
            strangers = MemoryBookie()
            await BookieServer.listen(node.runtime, strangers, "127.0.0.1", PORT)
            pool = RemoteBookiePool(node.runtime, asks_unlisted=False)
            error = await InNode(pool.get(f"127.0.0.1:{PORT}"), node).add(1, 0, entries_of(1, 0, 1))
            assert isinstance(error, StorageError)
            assert await InNode(strangers, node).listed(1) != [range(1)]
            await pool.close()

        await node.run(story)

    sim.run(scenario, seed=3)


def test_those_that_left_the_list_for_good_are_forgotten(monkeypatch) -> None:
    kept_s, idle_s = 90.0, 60.0
    monkeypatch.setattr(pool, "UNLISTED_MAX", 2)
    monkeypatch.setattr(pool, "UNLISTED_KEPT_S", kept_s)
    monkeypatch.setattr(pool, "UNLISTED_IDLE_S", idle_s)

    async def main(place: Place) -> None:
        await place.list(b0=False, b1=False, b2=False)
        assert await place.settled() == ["b0:3181", "b1:3181", "b2:3181"]
        await place.list()
        place.down("b1")
        await place.world.sleep(kept_s + RECONNECT_S_MAX)
        await place.list()
        # Who can be reached is kept.
        assert sorted(place.pool._bookies) == ["b0:3181", "b2:3181"]
        await place.up("b1")
        await place.world.sleep(2 * RECONNECT_S_MAX)
        assert place.world.network.connections(place.nodes["b1"]) == []
        place.down("b2")
        await place.world.sleep(kept_s - 1)
        # Who is asked is kept, reached or not.
        assert isinstance(await place.calls("b2:3181").add(3, 0, entries_of(3, 0, 1)), StorageError)
        await place.world.sleep(2 * RECONNECT_S_MAX)
        await place.list()
        assert sorted(place.pool._bookies) == ["b0:3181", "b2:3181"]
        await place.up("b2")
        await place.world.sleep(2 * RECONNECT_S_MAX)
        assert await place.calls("b2:3181").add(3, 0, entries_of(3, 0, 1)) is None
        # They are as many as are kept: another one takes the place of one that is out of reach, and of no other.
        assert isinstance(await place.calls("b1:3181").add(3, 0, entries_of(3, 0, 1)), StorageError)
        place.down("b2")
        await place.world.sleep(idle_s + 1)
        assert await place.calls("b1:3181").add(3, 0, entries_of(3, 0, 1)) is None
        assert sorted(place.pool._bookies) == ["b0:3181", "b1:3181"]

    run(main)


def test_registered_bookie_whose_host_can_be_none_is_out_of_reach_and_ends_nobody() -> None:
    async def main() -> None:
        failed: list[BaseException] = []
        bookies = RemoteBookiePool(real_runtime(lambda _, error: failed.append(error)))
        bookies.set_listed({"odd": ListedBookie(BookieAddress("bookie..example", PORT))})
        with pytest.raises(StorageError, match=r"not reachable at bookie\.\.example:3181"):
            await answer_of(lambda done: bookies.get("odd").fence(1, master_key=KEY, done=done))
        assert bookies.available() == []
        assert failed == []
        await bookies.close()

    asyncio.run(main())
