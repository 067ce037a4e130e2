"""A bookie over several pairs of directories: where a ledger lies, what a full disk means, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from geminga import sim
from geminga.bookie import BookieConfig
from geminga.bookie.spread import SpreadBookie
from geminga.model.bookie_port import Availability, BookieInfo
from geminga.model.errors import DataDirectoryError, DiskFullError
from geminga.runtime import real_runtime
from geminga.sim import SimNode, SimWorld
from support.house.real_runtimes import close_runtime
from support.worlds.bookies import PAIRS, SMALL_JOURNALS, Calls, Listed, entries_of


async def opened(node: SimNode) -> SpreadBookie:
    return await SpreadBookie.open(node.runtime, PAIRS, SMALL_JOURNALS, ledgers=Listed())


def on_node(main: Callable[[SimWorld, SimNode, SpreadBookie], Awaitable[Any]]) -> Any:
    async def run(world: SimWorld) -> Any:
        node = world.node("bookie")
        bookie = await node.run(opened)
        return await node.run(lambda _: main(world, node, bookie))

    return sim.run(run, seed=3)


def test_a_ledger_lies_in_one_pair_and_nowhere_else() -> None:
    async def main(world: SimWorld, node: SimNode, bookie: SpreadBookie) -> None:
        calls = Calls(bookie)
        for ledger_id in range(7):
            assert await calls.add(ledger_id, 0, entries_of(ledger_id, 0, 2)) is None
        held = [sorted(part.storage.states.master_keys) for part in bookie.parts]
        assert held == [[0, 3, 6], [1, 4], [2, 5]]
        assert [part.journal.directory for part in bookie.parts] == ["/j/1", "/j/2", "/j/3"]
        assert [part.storage.directory for part in bookie.parts] == ["/a", "/b", "/c"]
        assert bookie.has_ledgers

    on_node(main)


def test_what_is_bounded_is_shared_by_the_parts() -> None:
    async def main(world: SimWorld, node: SimNode, bookie: SpreadBookie) -> None:
        whole = BookieConfig()
        assert sum(part.storage.cache.half_bytes_max for part in bookie.parts) <= whole.write_cache_half_bytes
        assert sum(part.storage.config.open_file_limit for part in bookie.parts) <= whole.open_file_limit

    on_node(main)


def test_one_that_is_to_stay_read_only_does_whatever_room_there_is_and_serves_what_it_has() -> None:
    async def main(world: SimWorld, node: SimNode, bookie: SpreadBookie) -> None:
        heard: list[Availability] = []
        bookie.watch(heard.append)
        calls = Calls(bookie)
        assert await calls.add(1, 0, entries_of(1, 0, 2)) is None
        bookie.stay_read_only()
        for part in bookie.parts:
            await part.probe_disk()
        refused = await calls.add(2, 0, entries_of(2, 0, 1))
        assert isinstance(refused, DiskFullError)
        assert "started read-only" in str(refused)
        assert await calls.read(1, 0, 1) == entries_of(1, 0, 2)
        await bookie.close()
        assert heard == [Availability.READ_ONLY, Availability.DOWN]

    on_node(main)


def test_it_takes_new_entries_only_while_all_parts_do() -> None:
    """A new ledger may belong to any of them; the others go on serving what is theirs."""

    async def main(world: SimWorld, node: SimNode, bookie: SpreadBookie) -> None:
        heard: list[Availability] = []
        bookie.watch(heard.append)
        calls = Calls(bookie)
        assert await calls.add(1, 0, entries_of(1, 0, 2)) is None
        bookie.parts[1].room.became_full(DiskFullError("full"))
        assert (bookie.availability, bookie.is_writable) == (Availability.READ_ONLY, False)
        assert isinstance(await calls.add(1, 2, entries_of(1, 2, 1)), DiskFullError)
        assert await calls.add(2, 0, entries_of(2, 0, 1)) is None
        assert await calls.read(1, 0, 1) == entries_of(1, 0, 2)
        await bookie.parts[1].probe_disk()
        assert bookie.is_writable
        assert await calls.add(1, 2, entries_of(1, 2, 1)) is None
        await bookie.close()
        assert heard[:2] == [Availability.READ_ONLY, Availability.WRITABLE]
        assert heard[-1] is Availability.DOWN

    on_node(main)


def test_room_is_that_of_all_parts() -> None:
    async def main(world: SimWorld, node: SimNode, bookie: SpreadBookie) -> None:
        together = await Calls(bookie).info()
        apart = [await Calls(part).info() for part in bookie.parts]
        assert isinstance(together, BookieInfo)
        assert together.total_bytes == sum(info.total_bytes for info in apart if isinstance(info, BookieInfo))
        assert together.free_bytes > 0

    on_node(main)


@pytest.mark.parametrize(
    ("pairs", "refusal"),
    [
        ([("j1", "b"), ("j2", "a"), ("j3", "c")], "cookie of a ledgers-2-of-3 directory, not of ledgers-1-of-3"),
        ([("j2", "a"), ("j1", "b"), ("j3", "c")], "cookie of a journal-2-of-3 directory, not of journal-1-of-3"),
        ([("j1", "a"), ("j2", "b")], "cookie of a journal-1-of-3 directory, not of journal-1-of-2"),
        ([("j1", "a")], "cookie of a journal-1-of-3 directory, not of journal"),
        ([("j1", "a"), ("j2", "b"), ("new", "c")], "no cookie but there is data"),
        ([("j1", "a"), ("j2", "b"), ("j3", "new")], "no cookie but there is data"),
    ],
)
def test_directories_that_moved_to_another_place_are_refused_and_lose_nothing(
    tmp_path: Path, pairs: list[tuple[str, str]], refusal: str
) -> None:
    def places(names: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(str(tmp_path / journal), str(tmp_path / ledgers)) for journal, ledgers in names]

    own = places([("j1", "a"), ("j2", "b"), ("j3", "c")])

    async def life(of: list[tuple[str, str]], use: Callable[[Calls], Awaitable[None]]) -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        try:
            bookie = await SpreadBookie.open(runtime, of, SMALL_JOURNALS, ledgers=Listed())
            await use(Calls(bookie))
            await bookie.close()
        finally:
            await close_runtime(runtime)

    async def fill(calls: Calls) -> None:
        for ledger_id in range(3):
            assert await calls.add(ledger_id, 0, entries_of(ledger_id, 0, 2)) is None

    async def look(calls: Calls) -> None:
        for ledger_id in range(3):
            assert await calls.read(ledger_id, 0, 1) == entries_of(ledger_id, 0, 2)

    asyncio.run(life(own, fill))
    with pytest.raises(DataDirectoryError, match=refusal):
        asyncio.run(life(places(pairs), look))
    asyncio.run(life(own, look))
