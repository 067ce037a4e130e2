"""Who is registered: of a cluster by its nodes, of a process by its bookies."""

from __future__ import annotations

import asyncio

import pytest

from geminga.metadata.core.faults import MetadataFaults
from geminga.replication.registry import LiveBookies, LocalBookieRegistry, MetadataBookieRegistry
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH, READ_ONLY_PATH
from support.worlds.replication_world import ReplicationWorld, run_replication


def test_nodes_of_a_cluster():
    async def main(world: ReplicationWorld) -> None:
        registry = MetadataBookieRegistry(world.store)
        heard: list[int] = []
        unsubscribe = registry.watch(lambda: heard.append(1))
        assert await registry.registered() == LiveBookies(())
        for path in (f"{AVAILABLE_PATH}/b", f"{AVAILABLE_PATH}/a", f"{READ_ONLY_PATH}/c", f"{READ_ONLY_PATH}/b"):
            await world.store.put(path, b"", expected_version=None, ephemeral=True)
        assert await registry.registered() == LiveBookies(("a", "b"), ("c",))
        assert (await registry.registered()).all == {"a", "b", "c"}
        await world.world.sleep(1)
        assert heard
        unsubscribe()
        heard.clear()
        await world.store.delete(f"{AVAILABLE_PATH}/a")
        await world.world.sleep(1)
        assert not heard

    run_replication(main)


@pytest.mark.parametrize("places", [(AVAILABLE_PATH, READ_ONLY_PATH), (READ_ONLY_PATH, AVAILABLE_PATH)])
def test_a_bookie_that_goes_from_one_list_to_the_other_is_never_in_none(places):
    """Whenever it goes while they are read, here each millisecond."""

    async def main(world: ReplicationWorld) -> None:
        registry = MetadataBookieRegistry(world.session(MetadataFaults(delay_ms_max=8)))
        old, new = (f"{place}/b" for place in places)
        seen = set()
        for after_ms in range(60):
            await world.store.put(old, b"", expected_version=None, ephemeral=True)
            reading = asyncio.ensure_future(registry.registered())
            await world.world.sleep(after_ms / 1000)
            await world.store.put(new, b"", expected_version=None, ephemeral=True)
            await world.store.delete(old)
            found = await reading
            assert found.all == {"b"}, f"it went after {after_ms} ms"
            seen.add(found)
            await world.store.delete(new)
        assert seen == {LiveBookies(("b",)), LiveBookies((), ("b",))}

    run_replication(main)


def test_bookies_of_a_process():
    async def main(world: ReplicationWorld) -> None:
        registry = LocalBookieRegistry(world.bookies)
        heard: list[int] = []
        unsubscribe = registry.watch(lambda: heard.append(1))
        world.lose("b1")
        world.bookies["b2"].is_writable = False
        assert await registry.registered() == LiveBookies(("b0", "b3", "b4"), ("b2",))
        assert len(heard) == 2
        unsubscribe()
        world.bookies["b1"].come_back()
        assert len(heard) == 2
        assert (await registry.registered()).writable == ("b0", "b1", "b3", "b4")

    run_replication(main)
