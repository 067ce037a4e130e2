"""Topics of one cluster move to another one, while clients work and links, brokers, bookies, owners and clocks change.

In the end, when all is healed: every topic moved; what was acknowledged to a producer is stored in one of the two and
was received by each subscription that was there before it; a producer's messages are in order through both clusters;
who comes then is led to the other cluster. Some moves are undone half-way and begun again: then clients of both
clusters work at the same time, and what is said of order holds within each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import geminga.client as gc
from geminga.broker.composition.service import Broker
from geminga.broker.geo.migration import Stage, TopicMigration
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn
from geminga.sim import SimNode, SimWorld
from support.clusters.mesh_log import Said, StoreLog
from support.clusters.mesh_strikes import Kind, MeshStrikes
from support.clusters.mesh_traffic import Book, Sending
from support.clusters.mesh_world import NAMES, Mesh, MeshCluster
from support.clusters.migration_traffic import EARLY, LATE, MovingTraffic
from support.worlds.client_world import CLIENT

BLUE, GREEN = "k", "l"
#: Virtual seconds in which things happen.
CHANGES_S: Final = 8.0
#: ... and in which all must be well afterwards: a topic that failed often waits a minute before it tries again.
HEALED_S: Final = 150.0
UNDONE_CHANCE: Final = 0.4
CLIENTS_S: Final = 60.0


class MigrationStory:
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("story")
        self.mesh = Mesh(world, (BLUE, GREEN))
        self.blue, self.green = self.mesh.clusters[BLUE], self.mesh.clusters[GREEN]
        self.book = Book()
        self.logs = {
            name: StoreLog(cluster.bookies.values(), cluster.server.tree)
            for name, cluster in self.mesh.clusters.items()
        }
        self.is_undone = False
        self.strikes = MeshStrikes(world, self.rng)
        self.kinds: list[Kind] = [
            ("cut", self._cut),
            ("reset", self._reset),
            ("clients cut off", self._cut_clients),
            *self.strikes.kinds,
            ("uncertain", self.strikes.be_uncertain),
        ]

    async def run(self) -> None:
        for cluster in self.mesh.clusters.values():
            await cluster.start()
        await self.blue.set_up({BLUE: {"serviceUrl": self.blue.web_url, "brokerServiceUrl": self.blue.url}})
        until_s = self.world.now + CHANGES_S
        traffic = MovingTraffic(self.blue, self.book, until_s)
        working = spawn(traffic.run(), name="clients")
        moving = spawn(self._move(), name="an administrator")
        changing = [
            spawn(self._change(cluster, until_s), name=f"changes of {cluster.name}")
            for cluster in self.mesh.clusters.values()
        ]
        await asyncio.gather(moving, *changing)
        self.world.network.heal()
        await self._settle(traffic, working)
        traffic.is_over = True
        await asyncio.wait_for(working, CLIENTS_S)
        self._check_order(traffic)
        await self.world.node("newcomer").run(self._come_new)

    # ---- what happens

    async def _move(self) -> None:
        """All of the cluster; some change their mind."""
        await self.world.sleep(self.rng.uniform(0, 4))
        await self._say(is_moved=True)
        if self.rng.random() < UNDONE_CHANCE:
            self.is_undone = True
            await self.world.sleep(self.rng.choice([self.rng.uniform(0, 0.5), self.rng.uniform(0, 3)]))
            await self._say(is_moved=False)
            self.world.points.hits["migration.undone"] += 1
            await self.world.sleep(self.rng.uniform(0, 3))
            await self._say(is_moved=True)

    async def _say(self, *, is_moved: bool) -> None:
        path = f"clusters/{BLUE}/migrate?migrated={'true' if is_moved else 'false'}"
        place = {"serviceUrl": self.green.web_url, "brokerServiceUrl": self.green.url}
        while not 200 <= await self.blue.administer("POST", path, place) < 300:
            await self.world.sleep(0.1)

    async def _change(self, cluster: MeshCluster, until_s: float) -> None:
        while self.world.now < until_s:
            await self.strikes.change(cluster, "migration", self.kinds)

    async def _cut(self, _: MeshCluster) -> None:
        await self._part(self.mesh.pairs_of(BLUE, GREEN))

    async def _part(self, pairs: Iterable[tuple[SimNode, SimNode]]) -> None:
        for one, other in pairs:
            self.world.network.partition(one, other, one_way=self.rng.random() < 0.3)
        await self.world.sleep(self.rng.choice([0.2, 2.0, 5.0]))
        for one, other in pairs:
            self.world.network.heal(one, other)

    def _to_clients(self, cluster: MeshCluster) -> list[tuple[SimNode, SimNode]]:
        clients = self.world.node(f"clients of {BLUE}")
        return [(clients, self.world.node(node)) for node in cluster.nodes]

    async def _cut_clients(self, cluster: MeshCluster) -> None:
        await self._part(self._to_clients(cluster))

    async def _reset(self, cluster: MeshCluster) -> None:
        for one, other in [*self._to_clients(cluster), *self.mesh.pairs_of(BLUE, GREEN)]:
            self.world.network.reset_connections(one, other)

    # ---- what must hold

    async def _settle(self, traffic: MovingTraffic, working: asyncio.Task[None]) -> None:
        """Until all moved, and all that was acknowledged was received."""
        until_s = self.world.now + HEALED_S
        while True:
            if working.done():
                working.result()
            stays = [f"{name}: {found}" for name in NAMES if (found := await self._stage(name)) != Stage.MOVED.value]
            missing = self._missing(traffic)
            if traffic.is_sent and not stays and not missing:
                return
            assert self.world.now < until_s, (
                f"{HEALED_S} s after all is healed these stay: {stays}; sent: {traffic.is_sent}; "
                f"missing {len(missing)}: {missing[:5]}"
            )
            await self.world.sleep(1)

    async def _stage(self, name: TopicName) -> Any:
        async def look(broker: Broker) -> object:
            part = (await broker.registry.get(name, create=True)).parts.find(TopicMigration)
            if part is None:
                return "no move"
            found = part.stats()
            return found["stage"] if not found["reason"] else found

        return await self.blue.at_owner(name, look)

    def _missing(self, traffic: MovingTraffic) -> list[str]:
        found = []
        for log in self.logs.values():
            log.read()
        there = {one.said for log in self.logs.values() for messages in log.listed().values() for one in messages}
        received = {key: set(those) for key, those in traffic.received.items()}
        for one, sending in self.book.sendings.items():
            if sending.acknowledged_s is None:
                continue
            assert one in there, f"{one} is stored nowhere"
            # Who was led away before a move was undone knows nothing of what came here since.
            is_due = one.topic in traffic.early_here or not self.is_undone
            if is_due and one not in received[EARLY, one.topic]:
                found.append(f"{one} at {EARLY}, {self._place(one)}")
            late_s = traffic.late_s.get(one.topic)
            if late_s is None or self.is_undone or sending.began_s <= late_s:
                continue
            if one not in received[LATE, one.topic]:
                found.append(f"{one} at {LATE}, {self._place(one)}")
        return found

    def _place(self, one: Said) -> str:
        return " and ".join(name for name, log in self.logs.items() if one in log.there)

    def _check_order(self, traffic: MovingTraffic) -> None:
        """Of each producer: in the logs, one after the other, and as each subscription got it."""
        for log in self.logs.values():
            log.read()
        stored = {
            cluster: {topic: [one.said for one in those] for topic, those in log.listed().items()}
            for cluster, log in self.logs.items()
        }
        for topic in sorted({*stored[BLUE], *stored[GREEN]}):
            blue, green = stored[BLUE].get(topic, []), stored[GREEN].get(topic, [])
            runs = {BLUE: blue, GREEN: green} if self.is_undone else {"both": [*blue, *green]}
            for where, those in runs.items():
                _check_producers(f"{topic} in {where}", those)
        if not self.is_undone:
            for (subscription, topic), those in traffic.received.items():
                _check_producers(f"{topic} at {subscription}", those)

    async def _come_new(self, node: SimNode) -> None:
        """Somebody who knows the old address alone publishes where the topics are now."""
        async with gc.connect(self.blue.url, runtime=node.runtime, **CLIENT) as client:
            for name in NAMES:
                last = Said(name.local_name, f"{BLUE}.{name.local_name}.last", 0)
                self.book.sendings[last] = Sending(self.world.now, None)
                until_s = self.world.now + HEALED_S
                while True:
                    try:
                        producer = await client.create_producer(str(name), producer_name=last.producer)
                        break
                    except gc.PulsarException as error:
                        # What was sent before is read again after a pause where it could not be.
                        if not error.retriable or self.world.now > until_s:
                            raise
                await producer.send(last.encode())
                for log in self.logs.values():
                    log.read()
                assert self._place(last) == GREEN, f"{last} is in {self._place(last)}"


def _check_producers(where: str, those: Iterable[Said]) -> None:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for one in dict.fromkeys(those):
        numbers[one.producer].append(one.number)
    for producer, found in numbers.items():
        assert found == sorted(found), f"{producer} of {where} is not in order: {found}"


async def migration(world: SimWorld) -> None:
    """One story; raises where a promise was broken."""
    await MigrationStory(world).run()
