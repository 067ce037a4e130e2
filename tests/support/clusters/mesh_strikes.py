"""What happens to one of several clusters, whatever the story: owners change, brokers and bookies die, clocks jump."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random

from geminga.model.errors import StorageError
from geminga.model.topic_name import TopicName
from geminga.sim import SimWorld
from support.clusters.mesh_world import NAMES, MeshCluster

#: A change by its name, as the points of a story count it.
Kind = tuple[str, Callable[[MeshCluster], Awaitable[None]]]


class MeshStrikes:
    """See the module; drawn from the ``rng`` of the story."""

    def __init__(self, world: SimWorld, rng: Random, names: Sequence[TopicName] = NAMES) -> None:
        """``names``: of the topics that change their owners."""
        self.world = world
        self.rng = rng
        self.names = names
        #: By how much clocks were set back: when a transaction is over that nobody ends is a time of day.
        self.back_s = 0.0

    @property
    def kinds(self) -> list[Kind]:
        """All of them, each as likely as another."""
        return [
            ("given", self.give),
            ("seized", self.seize),
            ("unloaded", self.unload),
            ("crashed", self.crash),
            ("bookie down", self.bookie),
            ("clock", self.clock),
        ]

    async def change(self, cluster: MeshCluster, story: str, kinds: Sequence[Kind]) -> None:
        """One of ``kinds`` after a while, counted among the points of ``story``."""
        await self.world.sleep(self.rng.uniform(0, 2.5))
        label, change = self.rng.choice(kinds)
        self.world.points.hits[f"{story}.{label}"] += 1
        await change(cluster)

    async def give(self, cluster: MeshCluster) -> None:
        await cluster.table.give(self._some(), self.rng.choice(cluster.nodes))

    async def seize(self, cluster: MeshCluster) -> None:
        """The owner before hears of it late."""
        tell = await cluster.table.seize(self._some(), self.rng.choice(cluster.nodes))
        await self.world.sleep(self.rng.choice([0, 0.1, 1.0]))
        await tell()

    def _some(self) -> list[TopicName]:
        return self.rng.sample(self.names, self.rng.randrange(1, len(self.names) + 1))

    async def unload(self, cluster: MeshCluster) -> None:
        for name in self._some():
            await cluster.at_owner(name, lambda broker, name=name: broker.registry.unload(name))

    async def crash(self, cluster: MeshCluster) -> None:
        node = self.rng.choice(cluster.nodes)
        cluster.crash(node)
        others = [one for one in cluster.nodes if one != node]
        await self.world.sleep(self.rng.uniform(0, 1))
        if others:
            held = [name for name in self.names if cluster.table.owner(name) == node]
            await cluster.table.seize(held, self.rng.choice(others))
        await self.world.sleep(self.rng.uniform(0, 1))
        await cluster.boot(node)

    async def bookie(self, cluster: MeshCluster) -> None:
        name = self.rng.choice(sorted(cluster.bookies))
        cluster.bookies[name].go_down(StorageError(f"{name} is down"))
        await self.world.sleep(self.rng.uniform(0, 2))
        cluster.bookies[name].come_back()

    async def clock(self, cluster: MeshCluster) -> None:
        node, jump_ms = self.rng.choice(cluster.nodes), self.rng.choice([-60_000, -500, 500, 60_000])
        self.world.node(node).clock.jump(jump_ms)
        self.back_s += max(0, -jump_ms) / 1000

    async def be_uncertain(self, cluster: MeshCluster) -> None:
        """What brokers write to the metadata ends without an answer, done or not."""
        stores = [*cluster.stores.values()]
        for store in stores:
            store.faults.unknown_before_percent = store.faults.unknown_after_percent = 10
        await self.world.sleep(self.rng.uniform(0, 2))
        for store in stores:
            store.faults.unknown_before_percent = store.faults.unknown_after_percent = 0
