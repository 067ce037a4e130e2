"""A bookie in the metadata store: registered once, where it belongs, through lost sessions and unknown outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.bookie.registration import (
    END_S,
    STALE_WAIT_S,
    Registration,
    cluster_id,
    forget_cookie,
    prepare_cluster,
    registered_ids,
    remember_cookie,
    remembered_cookie,
)
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults
from geminga.model.bookie_port import Availability
from geminga.model.errors import CorruptionError, DataDirectoryError
from geminga.runtime import Runtime, spawn, wait_ms
from geminga.sim import SimNode, SimWorld
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie
from geminga.wire.bookkeeper.bookie_registration import (
    AVAILABLE_PATH,
    COOKIES_PATH,
    INSTANCE_ID_PATH,
    READ_ONLY_PATH,
    encode_service_info,
)
from geminga.wire.bookkeeper.ledger_path import HIERARCHICAL_LAYOUT, LAYOUT_PATH
from support.house.weekly_sample import sampled

WRITABLE, READ_ONLY = f"{AVAILABLE_PATH}/b:1", f"{READ_ONLY_PATH}/b:1"
INFO = encode_service_info("b", 1)


class Store:
    """A store that several sessions share, and one that looks."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.server = MemoryMetadata()
        self.looking = self.session()

    def session(self, faults: MetadataFaults | None = None) -> MemoryMetadataStore:
        return MemoryMetadataStore(self.runtime, self.server, faults)

    async def there(self) -> list[str]:
        return [path for path in (WRITABLE, READ_ONLY) if await self.looking.exists(path)]


def run(main: Callable[[Store], Awaitable[None]], seed: int = 23) -> None:
    async def scenario(world: SimWorld) -> None:
        async def in_node(node: SimNode) -> None:
            await main(Store(node.runtime))

        await world.node("bookie").run(in_node)

    sim.run(scenario, seed=seed)


def test_goes_where_it_belongs_and_leaves() -> None:
    async def main(store: Store) -> None:
        registration = Registration(store.session(), "b:1", INFO)
        await registration.begin(Availability.WRITABLE)
        assert await store.there() == [WRITABLE]
        node = await store.looking.get(WRITABLE)
        assert node is not None
        assert (node.value, node.stat.is_ephemeral) == (INFO, True)
        for state, path in ((Availability.READ_ONLY, READ_ONLY), (Availability.WRITABLE, WRITABLE)):
            registration.set(state)
            # Closed for good it ends by itself.
            registration.set(Availability.DOWN)
            await wait_ms(50)
            assert await store.there() == [path]
        await registration.end()
        assert await store.there() == []

    run(main)


@pytest.mark.parametrize("is_changing", [False, True])
def test_end_waits_for_no_metadata_store_that_is_away(is_changing: bool) -> None:
    """What is closed behind it has entries to flush, and less time than a session."""

    async def main(store: Store) -> None:
        session = store.session()
        registration = Registration(session, "b:1", INFO)
        await registration.begin(Availability.WRITABLE)
        session.faults.delay_ms_max = 10_000_000
        if is_changing:
            registration.set(Availability.READ_ONLY)
            await wait_ms(50)
        clock = asyncio.get_running_loop().time
        began_s = clock()
        await registration.end()
        assert clock() - began_s <= END_S

    run(main)


def test_is_never_missing_on_the_way() -> None:
    async def main(store: Store) -> None:
        registration = Registration(store.session(), "b:1", INFO)
        await registration.begin(Availability.WRITABLE)
        tree = store.server.tree
        missing = []

        def look(_: object) -> None:
            if tree.get(WRITABLE, session=0) is None and tree.get(READ_ONLY, session=0) is None:
                missing.append(True)

        for path in (AVAILABLE_PATH, READ_ONLY_PATH):
            store.looking.watch_children(path, look)
        for state in (Availability.READ_ONLY, Availability.WRITABLE) * 3:
            registration.set(state)
            await wait_ms(50)
        assert missing == []

    run(main)


def test_comes_back_after_its_session_expired() -> None:
    async def main(store: Store) -> None:
        session = store.session()
        registration = Registration(session, "b:1", INFO)
        await registration.begin(Availability.READ_ONLY)
        session.expire_session(outage_ms=3000)
        assert await store.there() == []
        await wait_ms(10_000)
        assert await store.there() == [READ_ONLY]
        await registration.end()

    run(main)


@pytest.mark.parametrize("seed", sampled("registration", range(6), 3))
def test_unknown_outcomes_are_found_out(seed: int) -> None:
    async def main(store: Store) -> None:
        session = store.session(MetadataFaults(unknown_before_percent=30, unknown_after_percent=30))
        registration = Registration(session, "b:1", INFO)
        await registration.begin(Availability.WRITABLE)
        assert await store.there() == [WRITABLE]
        registration.set(Availability.READ_ONLY)
        await wait_ms(60_000)
        assert await store.there() == [READ_ONLY]
        session.faults = MetadataFaults()
        await registration.end()
        assert await store.there() == []

    run(main, seed)


@pytest.mark.parametrize("state", [Availability.WRITABLE, Availability.READ_ONLY])
def test_node_of_an_earlier_session_is_waited_for_and_another_bookie_is_refused(state: Availability) -> None:
    async def main(store: Store) -> None:
        earlier = store.session()
        await Registration(earlier, "b:1", INFO).begin(state)
        second = Registration(store.session(), "b:1", INFO)
        with pytest.raises(DataDirectoryError, match="registered as b:1 already"):
            await second.begin(Availability.WRITABLE)
        waiting = asyncio.ensure_future(Registration(store.session(), "b:1", INFO).begin(Availability.WRITABLE))
        await wait_ms(int(STALE_WAIT_S * 500))
        assert not waiting.done()
        await earlier.close()
        await waiting
        assert await store.there() == [WRITABLE]

    run(main)


# ---- cookies and the cluster


COOKIE = BookieCookie("b:1", ("/j",), ("/l",), "c")


def test_cookie_is_remembered_and_never_written_over_anothers() -> None:
    async def main(store: Store) -> None:
        first, second = store.session(), store.session()
        assert await remembered_cookie(first, "b:1") is None
        await remember_cookie(first, COOKIE, None)
        assert await remembered_cookie(second, "b:1") == COOKIE
        # Its own once more, as after an unknown outcome.
        await remember_cookie(first, COOKIE, None)
        moved = COOKIE._replace(journal_directories=("/k",))
        with pytest.raises(DataDirectoryError, match="another bookie was registered as b:1"):
            await remember_cookie(second, moved, None)
        await remember_cookie(second, moved, COOKIE)
        assert await remembered_cookie(first, "b:1") == moved
        await first.put("/ledgers/cookies/b:2", b"what", expected_version=None)
        with pytest.raises(CorruptionError, match="metadata node /ledgers/cookies/b:2"):
            await remembered_cookie(first, "b:2")

    run(main)


def test_cluster_has_one_id_for_all() -> None:
    async def main(store: Store) -> None:
        first, second = store.session(), store.session()
        drawn = await cluster_id(first, store.runtime)
        assert [len(part) for part in drawn.split("-")] == [8, 4, 4, 4, 12]
        assert await cluster_id(second, store.runtime) == drawn
        await first.put(INSTANCE_ID_PATH, b"\xff", expected_version=None)
        with pytest.raises(CorruptionError):
            await cluster_id(second, store.runtime)

    run(main)


def test_cluster_that_never_had_an_id_gets_none() -> None:
    async def main(store: Store) -> None:
        await remember_cookie(store.session(), COOKIE._replace(instance_id=""), None)
        assert await cluster_id(store.session(), store.runtime) == ""
        assert not await store.looking.exists(INSTANCE_ID_PATH)

    run(main)


@pytest.mark.parametrize("seed", sampled("registration, 2", range(4), 2))
def test_first_bookie_makes_what_a_cluster_has_and_the_next_leave_it(seed: int) -> None:
    async def main(store: Store) -> None:
        faults = MetadataFaults(unknown_before_percent=30, unknown_after_percent=30)
        for _ in range(2):
            await asyncio.gather(*(prepare_cluster(store.session(faults)) for _ in range(3)))
        node = await store.looking.get(LAYOUT_PATH)
        assert node is not None
        assert (node.value, node.stat.version) == (HIERARCHICAL_LAYOUT, 0)
        assert await store.looking.exists(READ_ONLY_PATH)
        other = b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1"
        await store.looking.put(LAYOUT_PATH, other, expected_version=None)
        await prepare_cluster(store.session())
        node = await store.looking.get(LAYOUT_PATH)
        assert node is not None
        assert node.value == other

    run(main, seed)


def test_cookie_of_an_emptied_bookie_is_forgotten_and_of_no_other() -> None:
    cookie = BookieCookie("b:1", ("/j",), ("/l",), "one")

    async def main(store: Store) -> None:
        session = store.session()
        assert not await forget_cookie(session, cookie)
        await remember_cookie(session, cookie, None)
        with pytest.raises(DataDirectoryError, match="bookie of another cluster"):
            await forget_cookie(session, cookie._replace(instance_id="two"))
        registration = Registration(session, "b:1", INFO)
        await registration.begin(Availability.READ_ONLY)
        with pytest.raises(DataDirectoryError, match="does it run elsewhere"):
            await forget_cookie(session, cookie)
        await registration.end()
        assert await forget_cookie(session, cookie)
        assert await store.looking.children(COOKIES_PATH) == []

    run(main)


@pytest.mark.parametrize("places", [(WRITABLE, READ_ONLY), (READ_ONLY, WRITABLE)])
def test_a_bookie_that_goes_from_one_list_to_the_other_is_up_for_whoever_removes(places: tuple[str, str]) -> None:
    """Whenever it goes while they are read, here each millisecond."""

    async def main(store: Store) -> None:
        old, new = places
        cookie = BookieCookie("b:1", ("/j",), ("/l",), "one")
        await remember_cookie(store.looking, cookie, None)
        session = store.session(MetadataFaults(delay_ms_max=8))
        for after_ms in range(40):
            await store.looking.put(old, b"", expected_version=None, ephemeral=True)
            looks = [asyncio.ensure_future(registered_ids(session)), asyncio.ensure_future(refusal(session, cookie))]
            await wait_ms(after_ms)
            await store.looking.put(new, b"", expected_version=None, ephemeral=True)
            await store.looking.delete(old)
            assert await asyncio.gather(*looks) == [{"b:1"}, True], f"it went after {after_ms} ms"
            await store.looking.delete(new)

    async def refusal(session: MemoryMetadataStore, cookie: BookieCookie) -> bool:
        try:
            await forget_cookie(session, cookie)
        except DataDirectoryError:
            return True
        return False

    run(main)


@pytest.mark.parametrize("seed", range(4))
def test_bookies_that_begin_a_cluster_together_are_of_one_cluster(seed: int) -> None:
    async def main(store: Store) -> None:
        async def begun(name: str, faults: MetadataFaults) -> str:
            metadata = store.session(faults)
            found = await cluster_id(metadata, store.runtime)
            await remember_cookie(metadata, BookieCookie(name, ("j",), ("l",), found), None)
            return found

        # The other one's look at the id is over when the first begins, and the one at the cookies is not.
        slow = spawn(begun("b:2", MetadataFaults(delay_ms_max=5000)), name="slow")
        await wait_ms(5000)
        assert not slow.done()
        assert await begun("b:1", MetadataFaults()) == await slow != ""

    run(main, seed=seed)


def test_a_store_that_is_long_away_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def main(place: Store) -> None:
        mine = place.session()
        registration = Registration(mine, "b:1", INFO)
        await registration.begin(Availability.WRITABLE)
        mine.expire_session(outage_ms=300_000)
        await wait_ms(290_000)
        registration.set(Availability.READ_ONLY)
        told = [line for line in caplog.messages if "not registered as it should be" in line]
        assert len(told) == 5
        await wait_ms(20_000)
        assert await place.there() == [READ_ONLY]
        await registration.end()

    run(main)
