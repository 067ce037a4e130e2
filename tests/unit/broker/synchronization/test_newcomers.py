"""Clusters that the topic is copied to from now on."""

from __future__ import annotations

from collections.abc import Sequence

from geminga import sim
from geminga.broker.synchronization.newcomers import LOOK_S, NAMED_S, NewClusters
from geminga.broker.synchronization.stored_records import StoredRecords
from geminga.metadata.memory import MemoryMetadataStore


class Told:
    """What is told, instead of a walk; whose topic goes where."""

    def __init__(self) -> None:
        self.clusters: list[str] = []
        self.calls: list[tuple[list[str], bool]] = []

    async def others(self) -> Sequence[str]:
        return self.clusters

    async def knows(self, cluster: str) -> bool:
        return cluster != "unknown"

    async def tell_all(self, clusters: Sequence[str], with_deletions: bool) -> None:
        self.calls.append(([*clusters], with_deletions))


def test_each_is_told_once_when_it_has_been_named_for_a_while() -> None:
    async def main(world: sim.SimWorld) -> None:
        runtime = world.node("a").runtime
        records = StoredRecords(MemoryMetadataStore(runtime))
        await records.joined_ms()
        told = Told()
        new = NewClusters(records, told, runtime.clock, told.tell_all)  # type: ignore[arg-type]

        async def look() -> None:
            while (next_s := await new.look()) and world.now < end_s:
                await world.sleep(next_s - runtime.clock.monotonic())

        # Nobody listens there yet.
        end_s = 3 * NAMED_S
        await look()
        for _ in range(2):
            for name in ("north", "south", "unknown", "west"):
                await new.hear(name)
        assert (await records.told()).heard == {"north", "south", "west"}
        end_s += NAMED_S - LOOK_S
        told.clusters = ["west"]
        await look()
        assert told.calls == []
        end_s += NAMED_S + 2 * LOOK_S
        await look()
        assert told.calls == [(["west"], False)]
        told.clusters = ["north"]
        end_s += NAMED_S + 2 * LOOK_S
        await look()
        told.clusters = ["north", "south", "west"]
        end_s += NAMED_S + 2 * LOOK_S
        await look()
        assert told.calls[1:] == [(["north"], False), (["west"], True), (["south"], False)]
        found = await records.told()
        assert (found.clusters, found.former) == ({"north", "south", "west"}, set())
        # Another leader tells them no more.
        new = NewClusters(records, told, runtime.clock, told.tell_all)  # type: ignore[arg-type]
        end_s += NAMED_S + 2 * LOOK_S
        await look()
        assert len(told.calls) == 4

    sim.run(main)
