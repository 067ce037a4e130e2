"""Whose directories they are: a bookie starts in its own and in new ones, in no others; a refusal loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from geminga import sim
from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookie.core.identity import DirectoryState, Stamping, judge
from geminga.bookie.identity import REMEMBERED, STAMPED, open_identified
from geminga.bookie.recovery import VERSION_NAME
from geminga.model.errors import DataDirectoryError, GemingaError
from geminga.runtime import Runtime, real_runtime
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.sim.disk_media import Inode
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie, encode_bookie_cookie
from support.house.real_runtimes import close_runtime
from support.worlds.bookies import SMALL_JOURNALS, Calls, Listed, entries_of

CLUSTER = "6a9d2ed3-9f3c-4be2-a0be-b0ea2a7fd3fd"
J, L = "/data/journal", "/data/ledgers"
OWN = BookieCookie("b:1", (J,), (L,), CLUSTER)
ALONE = OWN._replace(instance_id="")

# ---- what is judged


def states(
    journal: BookieCookie | None, ledgers: BookieCookie | None, *, identity: bool = True
) -> list[DirectoryState]:
    return [DirectoryState(J, journal, identity), DirectoryState(L, ledgers, identity)]


@pytest.mark.parametrize(
    ("own", "remembered", "found", "stamping"),
    [
        # All new, with a store and without.
        (OWN, None, states(None, None, identity=False), Stamping((J, L), True, True)),
        (ALONE, None, states(None, None, identity=False), Stamping((J, L), False, True)),
        # As it was left.
        (OWN, OWN, states(OWN, OWN), Stamping((), False, False)),
        (ALONE, None, states(ALONE, ALONE), Stamping((), False, False)),
        # A first start that was cut off: before the second file, before the node.
        (OWN, None, states(OWN, None), Stamping((L,), True, True)),
        (OWN, None, states(OWN, OWN), Stamping((), True, True)),
    ],
)
def test_what_is_written(own, remembered, found, stamping) -> None:
    assert judge(own, remembered, found, has_store=bool(own.instance_id)) == stamping


def test_moved_directories_are_told_and_written_anew() -> None:
    before = OWN._replace(journal_directories=("/old",))
    stamping = judge(OWN, before, states(before, before), has_store=True)
    assert stamping[:3] == ((J, L), True, False)
    assert "it was in /old and" in stamping.warnings[0]
    # Cut off on the way: the rest follows.
    assert judge(OWN, before, states(OWN, before), has_store=True)[:3] == ((L,), True, False)


OTHER = OWN._replace(bookie_id="b:2")
ELSEWHERE = OWN._replace(instance_id="other")


@pytest.mark.parametrize(
    ("own", "remembered", "found", "says"),
    [
        (OWN, None, states(OTHER, OTHER), f"{J} belongs to bookie b:2, and this one is b:1.*bookieId=b:2, on port 2"),
        (OWN, OWN, states(OWN, OTHER), f"{L} belongs to bookie b:2"),
        (OWN, None, states(ELSEWHERE, ELSEWHERE), "cluster other, and the metadata store is that of cluster 6a9d"),
        (OWN, ELSEWHERE, states(OWN, OWN), "the metadata store belongs to a bookie of cluster other"),
        (OWN, None, states(ALONE, ALONE), "of no cluster, and the metadata store is that of cluster 6a9d"),
        (ALONE, None, states(OWN, OWN), "start it with that cluster's metadata store"),
        (OWN, OWN, states(None, OWN), f"{J} was emptied"),
        (OWN, OWN, states(None, None, identity=False), f"{J} was emptied"),
        (OWN, OWN, states(OWN, OWN, identity=False), f"{J} was emptied"),
        (OWN, None, [DirectoryState(J, OWN, True), DirectoryState(L, None, False)], f"{L} was emptied"),
    ],
)
def test_what_is_refused(own, remembered, found, says: str) -> None:
    with pytest.raises(DataDirectoryError, match=says):
        judge(own, remembered, found, has_store=bool(own.instance_id))


# ---- a standalone's bookie that becomes one of a cluster

FILES = "0f" * 16
FORMER = OWN._replace(instance_id=FILES)


def former(journal: BookieCookie | None = None, ledgers: BookieCookie | None = None, *, of: str = FILES):
    return [DirectoryState(J, journal, True, FILES), DirectoryState(L, ledgers, bool(of), of)]


def test_bookie_of_a_standalone_gets_the_cookies_of_its_cluster() -> None:
    stamping = judge(OWN, FORMER, former(), has_store=True)
    assert stamping[:3] == ((J, L), True, False)
    assert "was that of a standalone, and is of cluster 6a9d" in stamping.warnings[0]
    # Cut off on the way: the rest follows.
    assert judge(OWN, FORMER, former(OWN), has_store=True)[:3] == ((L,), True, False)
    assert judge(OWN, FORMER, former(OWN, OWN), has_store=True)[:3] == ((), True, False)
    # From then on it is as any.
    assert judge(OWN, OWN, former(OWN, OWN), has_store=True) == Stamping((), False, False)


@pytest.mark.parametrize(
    ("own", "found", "says"),
    [
        (OWN, former(of="ee" * 16), f"whose files are those of {FILES}, and {L} holds those of {'ee' * 16}"),
        (OWN, former(of=""), f"{L} holds none, or is not mounted"),
        (OWN, former(OTHER), f"{J} belongs to bookie b:2"),
        (OWN, former(ELSEWHERE), "bookie of cluster other"),
        (OWN._replace(ledger_directories=(L, "/x")), former(), "keeps the number and the order"),
    ],
)
def test_other_directories_do_not_become_those_of_a_standalones_bookie(own, found, says: str) -> None:
    with pytest.raises(DataDirectoryError, match=says):
        judge(own, FORMER, found, has_store=True)


# ---- what is done


class Place:
    """Directories on a simulated disk, and what a metadata store remembers."""

    def __init__(self, world: SimWorld, *, has_store: bool, name: str = "bookie") -> None:
        self.world = world
        self.node = world.node(name)
        self.has_store = has_store
        self.remembered: BookieCookie | None = None
        self.own = OWN if has_store else ALONE

    async def _remember(self, cookie: BookieCookie) -> None:
        self.remembered = cookie

    async def start(self, node: SimNode) -> Calls:
        async def open_bookie() -> LocalBookie:
            return await LocalBookie.open(node.runtime, "/data", SMALL_JOURNALS, ledgers=Listed())

        remember = self._remember if self.has_store else None
        bookie = await open_identified(
            node.runtime, self.own, open_bookie, remembered=self.remembered, remember=remember
        )
        return Calls(bookie)

    async def adds(self) -> None:
        assert await (await self.start(self.node)).add(3, 0, entries_of(3, 0, 2)) is None

    async def add(self) -> None:
        await self.node.run(lambda _: self.adds())

    async def holds(self) -> bool:
        """Whether the entries are there after a power loss."""

        async def run(node: SimNode) -> list[Any]:
            return await (await self.start(node)).read(3, 0, 1)

        return await self.world.restart(self.node, run) == entries_of(3, 0, 2)

    async def refused(self, *, is_untouched: bool = True) -> str:
        """The error of a start after a power loss, which changed no file, or lost none of the entries."""
        self.world.crash(self.node)
        before = self.files()
        with pytest.raises(GemingaError) as caught:
            await self.world.restart(self.node, self.start)
        assert not is_untouched or self.files() == before
        return str(caught.value)

    def files(self) -> Mapping[str, bytes]:
        return {path: self.node.disk.contents(path) for path in self.node.disk.paths()}

    def put(self, path: str, data: bytes | None) -> None:
        """Change a file on the medium, or remove it."""
        self.world.crash(self.node)
        parent, _, name = path.rpartition("/")
        inode = None if data is None else Inode()
        if inode is not None and data is not None:
            inode.written[:] = inode.synced[:] = data
        directory = self.node.disk.directory(parent)
        directory.change({name: inode})
        self.node.disk.sync_directory(directory)


def run(main: Callable[[Place], Awaitable[None]], *, has_store: bool = True, seed: int = 3) -> None:
    sim.run(lambda world: main(Place(world, has_store=has_store)), seed=seed)


both = pytest.mark.parametrize("has_store", [True, False])


@both
def test_comes_back(has_store: bool) -> None:
    async def main(place: Place) -> None:
        await place.add()
        assert place.remembered == (OWN if has_store else None)
        assert await place.holds()

    run(main, has_store=has_store)


@both
@pytest.mark.parametrize("fault", ["other id", "half written", "empty", "newer", "removed"])
def test_version_file_that_is_not_its_own(has_store: bool, fault: str) -> None:
    async def main(place: Place) -> None:
        await place.add()
        place.world.crash(place.node)
        path = f"{L}/{VERSION_NAME}"
        good = place.files()[path]
        data = {
            "other id": encode_bookie_cookie(place.own._replace(bookie_id="b:9")),
            "half written": good[: len(good) // 2],
            "empty": b"",
            "newer": b"6" + good[1:],
            "removed": None,
        }[fault]
        place.put(path, data)
        story = await place.refused(is_untouched=has_store or fault != "removed")
        assert L in story
        place.put(path, good)
        assert await place.holds()

    run(main, has_store=has_store)


def test_store_that_forgot_the_bookie_and_one_of_another_cluster() -> None:
    async def main(place: Place) -> None:
        await place.add()
        place.remembered = None
        assert "the metadata store has no cookie of bookie b:1" in await place.refused(is_untouched=False)
        place.own = ELSEWHERE
        assert "cluster 6a9d2ed3" in await place.refused()
        place.remembered, place.own = OWN, OWN
        assert await place.holds()

    run(main)


@both
def test_wiped_directory_is_refused(has_store: bool) -> None:
    async def main(place: Place) -> None:
        await place.add()
        place.world.crash(place.node)
        kept = {path: data for path, data in place.files().items() if path.startswith(J)}
        for path in kept:
            place.put(path, None)
        assert f"{J} was emptied" in await place.refused()
        for path, data in kept.items():
            place.put(path, data)
        assert await place.holds()

    run(main, has_store=has_store)


@both
@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.long)])
def test_first_start_cut_off_at_any_step_of_the_disk_is_made_good(has_store: bool, stride: int) -> None:
    async def main(world: SimWorld) -> int:
        steps = 1 - stride
        while True:
            steps += stride
            place = Place(world, has_store=has_store, name=f"bookie-{steps}")
            world.crash_at_disk_step(place.node, steps)
            try:
                await place.node.run(place.start)
            except NodeCrashedError:
                await place.world.restart(place.node, lambda _, place=place: place.adds())
                assert await place.holds()
            else:
                return steps

    cut = sim.run(main, seed=5)
    # Both identities, both VERSION files and the journal were on the way.
    assert cut > 20


@both
@pytest.mark.parametrize(("point", "nth"), [(STAMPED, 1), (STAMPED, 2), (REMEMBERED, 1)])
def test_first_start_cut_off_between_cookies(has_store: bool, point: str, nth: int) -> None:
    async def main(place: Place) -> None:
        place.world.crash_at(point, nth)
        if point == REMEMBERED and not has_store:
            await place.add()
        else:
            with pytest.raises(NodeCrashedError):
                await place.node.run(place.start)
            await place.world.restart(place.node, lambda _: place.adds())
        assert await place.holds()

    run(main, has_store=has_store)


@pytest.mark.parametrize(("point", "nth"), [(STAMPED, 1), (STAMPED, 2), (REMEMBERED, 1)])
def test_take_over_from_a_standalone_cut_off_between_cookies_loses_nothing(point: str, nth: int) -> None:
    async def alone(node: SimNode, known: str | None = None) -> LocalBookie:
        bookie = await LocalBookie.open(
            node.runtime, "/data", SMALL_JOURNALS, ledgers=Listed(), expected_instance_id=known
        )
        assert await Calls(bookie).add(3, 0, entries_of(3, 0, 2)) is None
        return bookie

    async def main(place: Place) -> None:
        bookie = await place.node.run(alone)
        instance_id = bookie.instance_id
        place.world.crash(place.node)
        # Nobody else's, and not one that is forgotten.
        place.remembered = FORMER
        assert f"whose files are those of {FILES}" in await place.refused()
        place.remembered = None
        assert "are they those of a standalone" in await place.refused(is_untouched=False)
        place.remembered = FORMER._replace(instance_id=instance_id)
        place.world.crash_at(point, nth)
        with pytest.raises(NodeCrashedError):
            await place.world.restart(place.node, place.start)
        assert await place.holds()
        assert place.remembered == OWN
        assert await place.holds()
        # The standalone has it no more, whatever its metadata say.
        place.world.crash(place.node)
        with pytest.raises(DataDirectoryError, match="are those of a bookie of a cluster since"):
            await place.world.restart(place.node, lambda node: alone(node, instance_id))

    run(main)


def test_directory_in_use_and_one_that_can_not_be_made(tmp_path) -> None:
    async def main() -> None:
        first, second = real_runtime(lambda *_: None), real_runtime(lambda *_: None)
        own = BookieCookie("b:1", (f"{tmp_path}/j",), (f"{tmp_path}/l",))

        async def start(runtime: Runtime, cookie: BookieCookie) -> LocalBookie:
            config = BookieConfig(journal_directory=cookie.journal_directories[0])
            config = replace(config, ledger_directory=cookie.ledger_directories[0])

            async def open_bookie() -> LocalBookie:
                return await LocalBookie.open(runtime, str(tmp_path), config, ledgers=Listed())

            return await open_identified(runtime, cookie, open_bookie)

        bookie = await start(first, own)
        with pytest.raises(DataDirectoryError, match="in use by another bookie"):
            await start(second, own)
        (tmp_path / "file").write_bytes(b"")
        below = own._replace(journal_directories=(f"{tmp_path}/file/j",))
        with pytest.raises(DataDirectoryError, match="file/j: "):
            await start(second, below)
        await bookie.close()
        for runtime in (first, second):
            await close_runtime(runtime)

    asyncio.run(main())
