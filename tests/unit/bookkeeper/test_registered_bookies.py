"""A pool that learns of its bookies by their registrations, whatever becomes of watches and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from geminga import sim
from geminga.bookkeeper.core.addresses import BookieAddress
from geminga.bookkeeper.remote import ListedBookie, RemoteBookiePool
from geminga.bookkeeper.remote.registered import REFRESH_S, RegisteredBookies
from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import MetadataError
from geminga.runtime import Runtime, wait_ms
from geminga.sim import SimNode, SimWorld
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH, READ_ONLY_PATH, encode_service_info


class NotedPool(RemoteBookiePool):
    """Keeps what it was told last."""

    listed: Mapping[str, ListedBookie] = {}

    def set_listed(self, listed: Mapping[str, ListedBookie]) -> None:
        super().set_listed(listed)
        self.listed = dict(listed)


class Place:
    def __init__(self, runtime: Runtime) -> None:
        server = MemoryMetadata()
        self.bookies = MemoryMetadataStore(runtime, server)
        self.store = MemoryMetadataStore(runtime, server)
        self.pool = NotedPool(runtime)

    async def put(self, path: str, value: bytes) -> None:
        await self.bookies.put(path, value, expected_version=None, ephemeral=True)


def run(main: Callable[[Place], Awaitable[None]]) -> None:
    async def scenario(world: SimWorld) -> None:
        async def in_node(node: SimNode) -> None:
            place = Place(node.runtime)
            await main(place)
            await place.pool.close()

        await world.node("broker").run(in_node)

    sim.run(scenario, seed=29)


INFO = encode_service_info("host", 1)
THERE = ListedBookie(BookieAddress("host", 1))


def test_comes_goes_and_becomes_read_only() -> None:
    async def main(place: Place) -> None:
        await place.put(f"{AVAILABLE_PATH}/bookie-7", INFO)
        registered = await RegisteredBookies.follow(place.store, place.pool)
        assert place.pool.listed == {"bookie-7": THERE}
        # Without bytes the id is the address, as of older bookies.
        await place.put(f"{AVAILABLE_PATH}/old:3181", b"")
        await place.put(f"{READ_ONLY_PATH}/bookie-7", INFO)
        await wait_ms(100)
        # In both it is on its way.
        old = ListedBookie(BookieAddress("old", 3181))
        assert place.pool.listed == {"bookie-7": THERE, "old:3181": old}
        await place.bookies.delete(f"{AVAILABLE_PATH}/bookie-7")
        await wait_ms(100)
        assert place.pool.listed == {"bookie-7": THERE._replace(is_read_only=True), "old:3181": old}
        place.bookies.expire_session()
        await wait_ms(100)
        assert place.pool.listed == {}
        await registered.close()
        await place.put(f"{AVAILABLE_PATH}/bookie-7", INFO)
        await wait_ms(int(REFRESH_S * 2000))
        assert place.pool.listed == {}

    run(main)


def test_what_tells_no_address_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def main(place: Place) -> None:
        await place.put(f"{AVAILABLE_PATH}/bookie-7", INFO)
        await place.put(f"{AVAILABLE_PATH}/a-name", b"")
        await place.put(f"{AVAILABLE_PATH}/damaged:1", INFO[:9])
        registered = await RegisteredBookies.follow(place.store, place.pool)
        await registered.read()
        assert place.pool.listed == {"bookie-7": THERE}
        await registered.close()

    run(main)
    assert [record.args[0] for record in caplog.records if record.args] == ["a-name", "damaged:1"]


def test_lost_watches_are_made_good_for() -> None:
    async def main(place: Place) -> None:
        place.store.faults.watch_lost_percent = 100
        registered = await RegisteredBookies.follow(place.store, place.pool)
        await place.put(f"{AVAILABLE_PATH}/bookie-7", INFO)
        await wait_ms(1000)
        assert place.pool.listed == {}
        await wait_ms(int(REFRESH_S * 1000))
        assert place.pool.listed == {"bookie-7": THERE}
        await registered.close()

    run(main)


def test_close_waits_for_no_metadata_store_that_is_away() -> None:
    async def main(place: Place) -> None:
        registered = await RegisteredBookies.follow(place.store, place.pool)
        place.store.faults.delay_ms_max = 10_000_000
        await place.put(f"{AVAILABLE_PATH}/bookie-7", INFO)
        await wait_ms(100)
        clock = asyncio.get_running_loop().time
        began_s = clock()
        await registered.close()
        assert clock() - began_s < 1

    run(main)


def test_list_stays_while_the_store_can_not_be_read(caplog: pytest.LogCaptureFixture) -> None:
    async def main(place: Place) -> None:
        await place.put(f"{AVAILABLE_PATH}/bookie-7", INFO)
        registered = await RegisteredBookies.follow(place.store, place.pool)
        place.store.expire_session(outage_ms=100_000)
        place.bookies.expire_session()
        await wait_ms(90_000)
        assert place.pool.listed == {"bookie-7": THERE}
        # It was a line a second.
        assert len([line for line in caplog.messages if "can not be read now" in line]) == 2
        await wait_ms(20_000)
        assert place.pool.listed == {}
        await registered.close()
        await place.store.close()
        with pytest.raises(MetadataError):
            await RegisteredBookies.follow(place.store, place.pool)

    run(main)


@pytest.mark.parametrize("places", [(AVAILABLE_PATH, READ_ONLY_PATH), (READ_ONLY_PATH, AVAILABLE_PATH)])
def test_bookie_that_goes_from_one_list_to_the_other_is_always_listed(places: tuple[str, str]) -> None:
    """Whenever it goes while they are read, here each millisecond."""

    async def main(place: Place) -> None:
        old, new = (f"{path}/bookie-7" for path in places)
        place.store.faults.delay_ms_max = 8
        registered = await RegisteredBookies.follow(place.store, place.pool)
        await registered.close()
        for after_ms in range(80):
            await place.put(old, INFO)
            reading = asyncio.ensure_future(registered.read())
            await wait_ms(after_ms)
            await place.put(new, INFO)
            await place.bookies.delete(old)
            await reading
            assert set(place.pool.listed) == {"bookie-7"}, f"it went after {after_ms} ms"
            await place.bookies.delete(new)

    run(main)
