"""Clusters that carry each other's messages, while links, brokers, bookies, owners, clocks and policies change.

What holds all the time: what a replicator's cursor has acknowledged is stored over there. In the end, when all is
healed: nothing that was acknowledged, and is meant for a cluster, is missing there; nothing is there that is not meant
for it, comes from a third cluster, or came back; a producer's messages are in order, and once where deduplication is
on; and there is a cursor for each cluster that the policies name, and for no other.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.broker.composition.service import Broker
from geminga.model.errors import GemingaError
from geminga.model.position import Position
from geminga.model.topic_name import REPLICATOR_PREFIX, TopicName
from geminga.runtime import spawn
from geminga.sim import SimWorld
from support.clusters.mesh_alike import AlikeStory
from support.clusters.mesh_log import Said, Stored, StoreLog
from support.clusters.mesh_policies import MeshPolicies
from support.clusters.mesh_strikes import Kind, MeshStrikes
from support.clusters.mesh_traffic import Book, MeshTraffic
from support.clusters.mesh_world import EXACT, NAMES, Mesh, MeshCluster

#: Topics that deduplicate, as messages name them.
EXACT_TOPICS: Final = frozenset(name.local_name for name in NAMES if name.namespace == EXACT)
#: Virtual seconds in which things happen.
CHANGES_S: Final = 10.0
#: Between two looks at what came to the clusters.
LOOK_S: Final = 0.5
#: ... and in which all must be well afterwards: a replicator that failed often waits a minute, then a request has
#: another.
HEALED_S: Final = 200.0
#: Of stories after whose end all brokers of a cluster begin again: what they had stored says the same.
AGAIN_CHANCE: Final = 0.4
#: Rests of the seeds of clusters whose configuration is kept alike by a topic, and in one store.
_ALIKE: Final = (3, 4)
#: Seconds that clients have to end.
CLIENTS_S: Final = 100.0


class MeshStory:
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("story")
        self.mesh = Mesh(world)
        self.book = Book()
        self.policies = {name: MeshPolicies(cluster) for name, cluster in self.mesh.clusters.items()}
        self.logs = {
            name: StoreLog(cluster.bookies.values(), cluster.server.tree)
            for name, cluster in self.mesh.clusters.items()
        }
        self.strikes = MeshStrikes(world, self.rng)
        self.kinds: list[Kind] = [
            ("policy", self._change_policy),
            ("policy", self._change_policy),
            ("policy", self._change_policy),
            ("allowed", self._allow),
            ("cut", self._cut),
            ("cut one way", self._cut_one_way),
            ("slow", self._slow),
            ("reset", self._reset),
            *self.strikes.kinds,
            ("refused", self._refuse),
            ("uncertain", self.strikes.be_uncertain),
        ]

    async def run(self) -> None:
        await self.mesh.start()
        watching = spawn(self._watch(), name="what is stored where")
        until_s = self.world.now + CHANGES_S
        traffics = [MeshTraffic(cluster, self.book, until_s) for cluster in self.mesh.clusters.values()]
        working = [spawn(traffic.run(), name=f"traffic of {traffic.cluster.name}") for traffic in traffics]
        changing = [
            spawn(self._change(cluster, until_s), name=f"changes of {cluster.name}")
            for cluster in self.mesh.clusters.values()
        ]
        await asyncio.gather(*changing)
        self.world.network.heal()
        _, late = await asyncio.wait(working, timeout=CLIENTS_S)
        assert not late, f"clients did not follow: {late}"
        for task in working:
            task.result()
        await self._settle()
        self._check()
        if self.rng.random() < AGAIN_CHANCE:
            await self._begin_again()
            await self._settle()
            self._check()
        watching.cancel()

    # ---- what happens

    async def _change(self, cluster: MeshCluster, until_s: float) -> None:
        while self.world.now < until_s:
            await self.strikes.change(cluster, "mesh", self.kinds)
            await self._check_cursors(cluster)

    async def _change_policy(self, cluster: MeshCluster) -> None:
        await self.policies[cluster.name].change()

    async def _allow(self, cluster: MeshCluster) -> None:
        await self.policies[cluster.name].allow()

    def _other(self, cluster: MeshCluster) -> str:
        return self.rng.choice([name for name in self.mesh.names if name != cluster.name])

    async def _cut(self, cluster: MeshCluster, *, one_way: bool = False) -> None:
        pairs = self.mesh.pairs_of(cluster.name, self._other(cluster))
        for one, other in pairs:
            self.world.network.partition(one, other, one_way=one_way)
        await self.world.sleep(self.rng.choice([0.2, 2.0, 6.0]))
        for one, other in pairs:
            self.world.network.heal(one, other)

    async def _cut_one_way(self, cluster: MeshCluster) -> None:
        await self._cut(cluster, one_way=True)

    async def _slow(self, cluster: MeshCluster) -> None:
        delay_s = self.rng.choice([0.02, 0.2])
        for one, other in self.mesh.pairs_of(cluster.name, self._other(cluster)):
            self.world.network.set_delay(one, other, delay_s / 2, delay_s)

    async def _reset(self, cluster: MeshCluster) -> None:
        for one, other in self.mesh.pairs_of(cluster.name, self._other(cluster)):
            self.world.network.reset_connections(one, other)

    async def _refuse(self, cluster: MeshCluster) -> None:
        """It takes no large messages on a topic for a while, or hardly any producers."""
        if self.rng.random() < 0.5:
            name = self.rng.choice(NAMES[:2])
            path = f"{name.domain}/{name.namespace}/{name.local_name}/maxMessageSize"
            value = 150
        else:
            path, value = f"namespaces/{self.rng.choice(NAMES).namespace}/maxProducersPerTopic", 1
        status = await cluster.administer("POST", path, value)
        self.world.points.hits[f"mesh.refused {status}"] += 1
        await self.world.sleep(self.rng.uniform(0, 3))
        while not 200 <= await cluster.administer("DELETE", path) < 300:
            await self.world.sleep(0.1)

    async def _begin_again(self) -> None:
        """All brokers of a cluster die and begin again with what is stored."""
        cluster = self.mesh.clusters[self.rng.choice(self.mesh.names)]
        for node in cluster.nodes:
            cluster.crash(node)
        for node in cluster.nodes:
            await cluster.boot(node)

    # ---- what must hold

    async def _cursor(self, cluster: MeshCluster, name: TopicName, other: str) -> tuple[Position, int] | None:
        """How far the topic is copied, and how much is left; None: there is no cursor, or nobody to ask."""

        async def look(broker: Broker) -> tuple[Position, int] | None:
            cursor = (await broker.registry.get(name, create=True)).ledger.cursors.get(REPLICATOR_PREFIX + other)
            return None if cursor is None else (cursor.mark_delete_position, cursor.backlog_count)

        found: tuple[Position, int] | None = await cluster.at_owner(name, look)
        return found

    async def _check_cursors(self, cluster: MeshCluster) -> None:
        """What a cursor has acknowledged is stored over there."""
        for name in NAMES:
            for other in self.policies[cluster.name].others:
                found = await self._cursor(cluster, name, other)
                if found is not None:
                    self._check_cursor(cluster.name, name.local_name, other, found[0])

    def _check_cursor(self, origin: str, topic: str, other: str, done: Position) -> None:
        self.logs[origin].read()
        self.logs[other].read()
        there = self.logs[other].there
        for position, one, copied_from in self.logs[origin].messages.get(topic, ()):
            if copied_from or position > done or one in there:
                continue
            sending = self.book.sendings[one]
            assert not self.policies[origin].must_go(one, sending, other), (
                f"{one} at {position} is not in {other}, and the cursor of {origin} is at {done}"
            )

    def _missing(self) -> list[tuple[Said, str]]:
        found = []
        there: dict[str, set[Said]] = {}
        for name, log in self.logs.items():
            log.read()
            there[name] = {one.said for messages in log.listed().values() for one in messages}
        for one, sending in self.book.sendings.items():
            policies = self.policies[one.origin]
            for other in policies.others:
                if one not in there[other] and policies.must_go(one, sending, other):
                    found.append((one, other))
        return found

    async def _settle(self) -> None:
        """Until all is where it should be."""
        patience_s = HEALED_S + self.strikes.back_s
        until_s = self.world.now + patience_s
        while True:
            left = await self._left()
            if not left and not self._missing():
                return
            missing = self._missing()
            assert self.world.now < until_s, f"left after {patience_s} s: {left}; missing {len(missing)}: {missing[:5]}"
            await self.world.sleep(1)

    async def _left(self) -> list[str]:
        found = []
        for origin, cluster in self.mesh.clusters.items():
            policies = self.policies[origin]
            for name in NAMES:
                if not await policies.is_followed(name) or policies.stored_cursors(name) != policies.wanted(name):
                    found.append(f"cursors of {name} in {origin} are not for {sorted(policies.wanted(name))}")
                for other in policies.wanted(name):
                    cursor = await self._cursor(cluster, name, other)
                    if cursor is None or cursor[1]:
                        why = await self._reason(cluster, name, other)
                        found.append(f"{name} of {origin} to {other}: {cursor}, {why}")
        return found

    async def _reason(self, cluster: MeshCluster, name: TopicName, other: str) -> object:
        from geminga.broker.geo.part import GeoReplication

        async def look(broker: Broker) -> object:
            part = (await broker.registry.get(name, create=True)).parts.find(GeoReplication)
            return None if part is None else part.stats().get(other)

        try:
            return await cluster.at_owner(name, look)
        except GemingaError as error:
            return error

    async def _watch(self) -> None:
        """Soon, for what goes round never ends."""
        while True:
            await self.world.sleep(LOOK_S)
            self._check_news()

    def _check_news(self) -> None:
        for name, log in self.logs.items():
            log.read()
            for position, one, copied_from in log.news:
                self._check_here(f"{one} at {position} of {name}", name, one, copied_from)
            log.news.clear()

    def _check(self) -> None:
        self._check_news()
        for name, log in self.logs.items():
            for topic, messages in log.listed().items():
                self._check_order(f"{topic} of {name}", messages, is_exact=topic in EXACT_TOPICS)

    def _check_here(self, what: str, name: str, one: Said, copied_from: str) -> None:
        if one.origin == name:
            assert not copied_from, f"{what} came back from {copied_from}"
            return
        assert copied_from == one.origin, f"{what} is said to be of {copied_from}"
        sending = self.book.sendings[one]
        assert self.policies[one.origin].may_go(one, sending, name), f"{what} is not meant for {name}: {sending}"

    def _check_order(self, where: str, messages: list[Stored], *, is_exact: bool) -> None:
        last: dict[str, list[int]] = {}
        for _, one, _ in messages:
            last.setdefault(one.producer, []).append(one.number)
        for producer, numbers in last.items():
            first = list(dict.fromkeys(numbers))
            if is_exact:
                assert len(first) == len(numbers), f"{producer} in {where} has messages twice: {numbers}"
            if not producer.endswith("by-key"):
                assert first == sorted(first), f"{producer} in {where} is not in order: {first}"


async def mesh(world: SimWorld) -> None:
    """One story; raises where a promise was broken. Of five seeds two are of clusters whose configuration is one."""
    if world.seed % 5 in _ALIKE:
        await AlikeStory(world, by_topic=world.seed % 5 == _ALIKE[0]).run()
    else:
        await MeshStory(world).run()
