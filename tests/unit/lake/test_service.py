"""The lake as the loop sees it: lanes, manifests, errors that say what is wrong, waits that end."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pyarrow
import pytest

from geminga import sim
from geminga.lake.core.manifest import Manifest, ManifestLedger
from geminga.lake.ownership import OWNER_FILE, Owner
from geminga.lake.parquet import LedgerFacts
from geminga.lake.service import ROOTS_MAX, Lake, StopSignal
from geminga.model.errors import ConfigurationError, DiskFullError, DiskIOError, LedgerClosedError
from geminga.runtime import next_turn, spawn, wait_ms
from geminga.sim.threads import SimThreads
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.worlds.lake_world import PROPERTIES, MemoryLakeStore

DIRECTORY = "public/default/persistent/topic"


def ledger(number: int) -> ManifestLedger:
    return ManifestLedger(number, f"{number:032x}", f"{number}.parquet", 1, 1, 1, 1, 1, 1, None, None)


def manifest(version: int, *ledgers: int, created_ms: int = 5) -> Manifest:
    return Manifest("persistent://public/default/topic", created_ms, version, 1, tuple(map(ledger, ledgers)))


async def owner() -> Owner:
    return Owner("here", "0" * 32)


def run(scenario, **options) -> None:
    """``scenario(lake, store)`` with a lake over memory, whose threads run at once."""

    async def main(world: sim.SimWorld) -> None:
        runtime = replace(world.node("broker").runtime, threads=SimThreads(inline=True))
        store = MemoryLakeStore()
        given = {"offloads_max": 2, "readers": 2, "cache_bytes": 100, **options}
        await scenario(Lake(runtime, lambda driver, properties: store, owner, **given), store)

    sim.run(main)


def test_the_newest_manifest_counts_and_the_older_ones_go() -> None:
    async def scenario(lake, store):
        root = await lake.root("filesystem", PROPERTIES)
        assert await root.read_manifest(DIRECTORY) is None
        for version in (1, 2):
            await root.write_manifest(DIRECTORY, manifest(version, *range(version)))
        assert await root.read_manifest(DIRECTORY) == manifest(2, 0, 1)
        assert len(store.manifests) == 1
        # An owner that lost the topic writes what is older: it counts for nothing, and what counts stays.
        await root.write_manifest(DIRECTORY, manifest(1, 7))
        assert await root.read_manifest(DIRECTORY) == manifest(2, 0, 1)

    run(scenario)


def test_older_manifests_that_can_not_be_deleted_mean_nothing() -> None:
    async def scenario(lake, store):
        root = await lake.root("filesystem", PROPERTIES)
        await root.write_manifest(DIRECTORY, manifest(1))
        store.fail["delete"] = OSError(errno.EACCES, "not yours")
        await root.write_manifest(DIRECTORY, manifest(2, 3))
        assert await root.read_manifest(DIRECTORY) == manifest(2, 3)
        assert len(store.manifests) == 2

    run(scenario)


def test_a_file_that_goes_is_not_named_any_more_and_the_others_are() -> None:
    async def scenario(lake, store):
        root = await lake.root("filesystem", PROPERTIES)
        await root.write_manifest(DIRECTORY, manifest(1, 0, 1, 2))
        await root.forget(DIRECTORY, ledger(1).uid)
        assert await root.read_manifest(DIRECTORY) == manifest(1, 0, 2)
        written = store.calls.count("write")
        await root.forget(DIRECTORY, ledger(9).uid)
        assert store.calls.count("write") == written

    run(scenario)


def test_a_deleted_topic_takes_its_manifests_and_not_those_of_the_next_one_of_its_name() -> None:
    async def scenario(lake, store):
        root = await lake.root("filesystem", PROPERTIES)
        store.fail["delete"] = OSError(errno.EACCES, "later")
        await root.write_manifest(DIRECTORY, manifest(1, 0))
        await root.write_manifest(DIRECTORY, manifest(1, 1, created_ms=6))
        store.fail.clear()
        await root.delete_topic(DIRECTORY, 5)
        assert await root.read_manifest(DIRECTORY) == manifest(1, 1, created_ms=6)
        await root.delete_topic(DIRECTORY, 6)
        assert list(store.files) == [OWNER_FILE]

    run(scenario)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (OSError(errno.ENOSPC, "no room"), DiskFullError, "the lake is full"),
        (OSError(errno.EDQUOT, "quota"), DiskFullError, "the lake is full"),
        (OSError(errno.EIO, "broken"), DiskIOError, "the lake: .*broken"),
        (ConfigurationError("root: expected an address"), DiskIOError, "expected an address"),
        (ImportError("pyarrow"), DiskIOError, r"pip install 'geminga\[lake\]'"),
        (ZeroDivisionError("ours"), ZeroDivisionError, "ours"),
    ],
)
def test_what_a_store_raises_is_an_error_of_storage_that_says_what_is_wrong(error, kind, said: str) -> None:
    async def scenario(lake, store):
        def fail() -> None:
            raise error

        with pytest.raises(kind, match=said):
            await lake.call("lane", fail)

    run(scenario)


def test_as_many_offloads_run_at_a_time_as_there_are_lanes() -> None:
    async def scenario(lake, store):
        root = await lake.root("filesystem", PROPERTIES)
        lanes = [await lake.take_lane(root) for _ in range(2)]
        assert len(set(lanes)) == 2
        waiting = spawn(lake.take_lane(root), name="third")
        await wait_ms(10)
        assert not waiting.done()
        lake.give_lane(root, lanes[0])
        assert await waiting == lanes[0]

    run(scenario)


class HungLanes(SimThreads):
    """What is submitted to a lane that ``hung`` names never begins; the lanes that were used."""

    def __init__(self) -> None:
        super().__init__(inline=True)
        self.hung: set[str] = set()
        self.used: list[str] = []

    def submit(self, lane, function, done) -> None:
        self.used.append(lane)
        if lane not in self.hung:
            super().submit(lane, function, done)


def test_a_root_that_hangs_keeps_no_other_waiting() -> None:
    """A policy of one tenant that named a bucket without an answer held up the trimming and the reads of all others."""

    async def main(world: sim.SimWorld) -> None:
        threads, store = HungLanes(), MemoryLakeStore()
        runtime = replace(world.node("broker").runtime, threads=threads)
        lake = Lake(runtime, lambda driver, properties: store, owner, offloads_max=2, readers=2, cache_bytes=100)
        away = await lake.root("filesystem", {**PROPERTIES, "root": "memory://away"})
        await away.list(DIRECTORY)
        (lane,) = set(threads.used)
        threads.hung = {lane}
        calls = [spawn(away.list(DIRECTORY), name="hangs") for _ in range(3)]
        # Nor does one that can not even be opened, however often that is tried.
        root = await lake.root("filesystem", PROPERTIES)
        threads.used.clear()
        await root.list(DIRECTORY)
        threads.hung |= (ours := set(threads.used))
        calls += [spawn(lake.root("filesystem", {**PROPERTIES, "root": "memory://new"}), name="opens") for _ in "123"]
        threads.used.clear()
        await next_turn()
        (new,) = set(threads.used)
        assert new not in {lane, *ours}
        # Reads of one root have lanes of their own, too.
        threads.hung.clear()
        threads.used.clear()
        for one in (away, root):
            for _ in range(5):
                with pytest.raises(DiskIOError):
                    await one.open(DIRECTORY, 1, "0" * 32)
        assert len(set(threads.used)) == 4
        assert not any(call.done() for call in calls[:3])
        for call in calls:
            call.cancel()

    sim.run(main)


def test_a_root_is_opened_once() -> None:
    async def scenario(lake, store):
        root = await lake.root("filesystem", PROPERTIES)
        assert await lake.root("filesystem", dict(reversed(PROPERTIES.items()))) is root
        assert await lake.root("filesystem", {**PROPERTIES, "root": "memory://other"}) is not root

    run(scenario)


def test_only_so_many_roots_stay_open() -> None:
    """Policies may name any number of them; each kept its file system for as long as the broker lived."""

    async def scenario(lake, store):
        async def root(number):
            return await lake.root("filesystem", {**PROPERTIES, "root": f"memory://{number}"})

        first, second = await root(1), await root(2)
        await first.list(DIRECTORY)
        for number in range(3, ROOTS_MAX + 1):
            await root(number)
        assert await root(1) is first
        await root(ROOTS_MAX + 1)  # of which the second one was not asked for any more
        assert await root(1) is first
        assert await root(2) is not second
        # Who holds one that was put away goes on with it.
        await second.write_manifest(DIRECTORY, manifest(1, 0))
        assert await (await root(2)).read_manifest(DIRECTORY) == manifest(1, 0)
        assert all(len(kept) == ROOTS_MAX for kept in (lake._roots, lake._lanes_of))

    run(scenario)


def test_roots_that_can_not_be_opened_leave_so_many_lanes_at_most() -> None:
    async def main(world: sim.SimWorld) -> None:
        def fail(driver, properties):
            raise OSError(5, "away")

        runtime = replace(world.node("broker").runtime, threads=SimThreads(inline=True))
        lake = Lake(runtime, fail, owner, offloads_max=2, readers=2, cache_bytes=100)
        for number in range(ROOTS_MAX + 3):
            with pytest.raises(DiskIOError):
                await lake.root("filesystem", {**PROPERTIES, "root": f"memory://{number}"})
        assert (len(lake._roots), len(lake._lanes_of)) == (0, ROOTS_MAX)

    sim.run(main)


def test_a_stop_ends_every_wait_and_all_that_come() -> None:
    async def story() -> None:
        stop, begun = StopSignal(), []
        waiting = [asyncio.ensure_future(stop.wait(begun.append)) for _ in range(2)]
        await next_turn()
        begun[0]()
        await waiting[0]
        stop.set()
        with pytest.raises(LedgerClosedError):
            await waiting[1]
        begun[1]()  # unheard
        with pytest.raises(LedgerClosedError):
            await stop.wait(begun.append)
        assert len(begun) == 2

    asyncio.run(story())


def test_what_arrow_keeps_goes_back_behind_each_use_of_a_file(monkeypatch) -> None:
    """Whatever lane did it: each would keep tens of MiB."""
    released: list[int] = []

    class Pool:
        def release_unused(self) -> None:
            released.append(1)

    monkeypatch.setattr(pyarrow, "default_memory_pool", Pool)
    uid = f"{7:032x}"
    entry = encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x")
    facts = LedgerFacts("persistent://public/default/t", 7, uid, 1, 1, 2, 3, "CRC32C", 1, 1, 1, {})

    async def scenario(lake, store):
        root, stop = await lake.root("filesystem", PROPERTIES), StopSignal()

        async def begun():
            return await root.begin(DIRECTORY, facts, started_ms=1, writer="w", lane="lake-offload-0", stop=stop)

        def times() -> int:
            found = len(released)
            released.clear()
            return found

        (await begun()).discard()
        assert times() == 1
        file = await begun()
        await file.add([entry], frozenset())
        await file.finish([])
        assert times() == 1
        read = await root.open(DIRECTORY, 7, uid)
        assert list(await read.group(0)) == [entry]
        assert times() == 1
        assert await read.ask(lambda reader: reader.group_count) == 1
        assert times() == 1
        await read.compare(0, [entry], stop)
        assert times() == 1

    run(scenario)
