"""Clients of a cluster whose topics move away: producers that follow, and consumers that write down what came."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final

import geminga.client as gc
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn
from geminga.sim import SimNode
from support.clusters.mesh_log import Said, said
from support.clusters.mesh_traffic import RECEIVE_MS, Book, MeshTraffic
from support.clusters.mesh_world import NAMES, MeshCluster
from support.worlds.client_world import CLIENT, insist

#: There from the beginning, and made at some time.
EARLY, LATE = "early", "late"
#: What is moved here is not compacted, in transactions or by key.
KINDS: Final = ("alone", "batched", "in parts")
#: What is left of a message whose sender was cut off in its midst is acknowledged then: later than cuts end.
INCOMPLETE_MS: Final = 8000
#: Every other pause of a subscription its consumer goes and comes again.
LEAVES_CHANCE: Final = 0.3


class MovingTraffic(MeshTraffic):
    """See the module; clients know the address of the first cluster alone."""

    def __init__(self, cluster: MeshCluster, book: Book, until_s: float) -> None:
        super().__init__(cluster, book, until_s)
        #: By subscription and topic, in the order of receiving.
        self.received: defaultdict[tuple[str, str], list[Said]] = defaultdict(list)
        #: By topic, when its late subscription was there.
        self.late_s: dict[str, float] = {}
        #: Topics whose early subscription was made in this cluster, before they moved.
        self.early_here: set[str] = set()
        #: All that they sent is answered.
        self.is_sent = False

    async def _run(self, node: SimNode) -> None:
        async with gc.connect(self.cluster.url, runtime=node.runtime, **CLIENT) as client:
            early = [await self._subscribe(client, name, EARLY) for name in NAMES]
            tree = self.cluster.server.tree
            self.early_here = {
                name.local_name
                for name in NAMES
                if tree.get(f"/managed-ledgers/{name.managed_ledger_name}/{EARLY}") is not None
            }
            consuming = [
                spawn(self._follow(client, name, EARLY, consumer), name=f"consume {name}")
                for name, consumer in zip(NAMES, early, strict=True)
            ]
            late = spawn(self._come_late(client), name="late subscriptions")
            chosen = [(name, kind) for name in NAMES for kind in self._kinds(name)]
            await asyncio.gather(*(self._produce(client, name, kind) for name, kind in chosen))
            self.is_sent = True
            await asyncio.gather(late, *consuming)

    def _kinds(self, name: TopicName) -> list[str]:
        return self.rng.sample(KINDS, self.rng.choice([1, 1, 2]))

    def _wanted(self) -> tuple[str, ...] | None:
        return None

    async def _come_late(self, client: gc.Client) -> None:
        await self.world.sleep(self.rng.uniform(0, self.until_s - self.world.now))
        name = self.rng.choice(NAMES)
        consumer = await self._subscribe(client, name, LATE)
        self.late_s[name.local_name] = self.world.now
        await self._follow(client, name, LATE, consumer)

    async def _subscribe(self, client: gc.Client, name: TopicName, subscription: str) -> gc.Consumer[bytes]:
        position = gc.InitialPosition.Earliest if subscription == EARLY else gc.InitialPosition.Latest
        return await insist(
            self.world,
            lambda: client.subscribe(
                str(name),
                subscription,
                initial_position=position,
                expire_time_of_incomplete_chunked_message_ms=INCOMPLETE_MS,
            ),
        )

    async def _follow(
        self, client: gc.Client, name: TopicName, subscription: str, consumer: gc.Consumer[bytes]
    ) -> None:
        """Acknowledge what comes, soon or late, until the story is over."""
        received = self.received[subscription, name.local_name]
        while not self.is_over:
            try:
                message = await consumer.receive(RECEIVE_MS)
                received.append(said(message.data()))
                if self.rng.random() < 0.1:
                    await self.world.sleep(self.rng.uniform(0, 0.5))
                await consumer.acknowledge(message)
                continue
            except gc.PulsarException:
                pass
            if self.rng.random() < LEAVES_CHANCE:
                await consumer.close()
                consumer = await self._subscribe(client, name, subscription)
        await consumer.close()
