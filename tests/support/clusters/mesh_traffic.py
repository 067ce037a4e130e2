"""Producers and consumers of each cluster of a mesh, and what was promised of each message."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import geminga.client as gc
from geminga.client import TransactionState
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn
from geminga.sim import SimNode
from support.clusters.mesh_log import Said
from support.clusters.mesh_world import EXACT, NAMES, MeshCluster
from support.worlds.client_world import CLIENT, insist

KINDS: Final = ("alone", "batched", "by key", "in parts", "transacting")
CHUNK_BYTES: Final = 200
TIMEOUT_S: Final = 8.0
AGAIN_S: Final = 0.1
RECEIVE_MS: Final = 1500


@dataclass(slots=True)
class Sending:
    """One message: when, for whom, and what became of it."""

    began_s: float
    #: Clusters that its sender named; None: all.
    wanted: tuple[str, ...] | None
    #: When there was a receipt, and of a transaction when that was committed; None: nobody knows.
    acknowledged_s: float | None = None
    #: Its transaction was aborted.
    is_aborted: bool = False


class Book:
    """All messages of all clusters."""

    def __init__(self) -> None:
        self.sendings: dict[Said, Sending] = {}


class MeshTraffic:
    """The clients of one cluster, on a node of their own."""

    def __init__(self, cluster: MeshCluster, book: Book, until_s: float) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.book = book
        self.until_s = until_s
        self.rng = cluster.world.rng("traffic", cluster.name)
        self.is_over = False

    async def run(self) -> None:
        await self.world.node(f"clients of {self.cluster.name}").run(self._run)

    async def _run(self, node: SimNode) -> None:
        async with gc.connect(self.cluster.url, runtime=node.runtime, **CLIENT) as client:
            consuming = [spawn(self._consume(client, name), name=f"consume {name}") for name in NAMES]
            chosen = [(name, kind) for name in NAMES for kind in self._kinds(name)]
            await asyncio.gather(*(self._produce(client, name, kind) for name, kind in chosen))
            self.is_over = True
            for task in consuming:
                task.cancel()
            await asyncio.wait(consuming)

    def _kinds(self, name: TopicName) -> list[str]:
        # Batches by key are not in the order of sending, which is what deduplication goes by.
        able = [kind for kind in KINDS if kind != "by key" or name.namespace != EXACT]
        return self.rng.sample(able, self.rng.choice([1, 1, 2]))

    async def _produce(self, client: gc.Client, name: TopicName, kind: str) -> None:
        label = f"{self.cluster.name}.{name.local_name}.{kind.replace(' ', '-')}"
        options: gc.ProducerArguments = {
            "producer_name": label,
            "send_timeout_millis": 0,
            "batching_enabled": kind in ("batched", "by key"),
        }
        if kind == "by key":
            options["batching_type"] = gc.BatchingType.KeyBased
        if kind == "in parts":
            options |= {"chunking_enabled": True, "chunk_max_message_size": CHUNK_BYTES}
        producer = await insist(self.world, lambda: client.create_producer(str(name), **options), AGAIN_S)
        number = 0
        while self.world.now < self.until_s:
            count = self.rng.randrange(1, 5)
            those = [Said(name.local_name, label, number + index) for index in range(count)]
            number += count
            if kind == "transacting":
                await self._transact(client, producer, those)
            else:
                await asyncio.gather(*(self._send(producer, one, kind) for one in those))
            await self.world.sleep(self.rng.uniform(0, 1.4))

    async def _send(self, producer: gc.Producer[bytes], one: Said, kind: str) -> None:
        sending = self.book.sendings[one] = Sending(self.world.now, self._wanted())
        size = self.rng.choice([0, 3 * CHUNK_BYTES]) if kind == "in parts" else 0
        fields: dict[str, Any] = {"partition_key": str(one.number % 3)}
        if sending.wanted == ():
            fields["disable_replication"] = True
        elif sending.wanted is not None:
            fields["replication_clusters"] = [*sending.wanted]
        try:
            await producer.send(one.encode(size), **fields)
        except gc.PulsarException:
            self.world.points.hits["mesh.send failed"] += 1
            return
        sending.acknowledged_s = self.world.now

    def _wanted(self) -> tuple[str, ...] | None:
        roll = self.rng.random()
        if roll < 0.8:
            return None
        others = [name for name in self.cluster.mesh.names if name != self.cluster.name]
        return () if roll < 0.87 else (self.rng.choice(others),)

    async def _transact(self, client: gc.Client, producer: gc.Producer[bytes], those: list[Said]) -> None:
        try:
            txn = await client.transaction(TIMEOUT_S)
        except gc.PulsarException:
            await self.world.sleep(AGAIN_S)
            return
        sendings = [Sending(self.world.now, None) for _ in those]
        self.book.sendings |= dict(zip(those, sendings, strict=True))
        try:
            await asyncio.gather(*(producer.send(one.encode(), txn=txn) for one in those))
            await (txn.abort() if self.rng.random() < 0.3 else txn.commit())
        except gc.PulsarException:
            self.world.points.hits["mesh.transaction failed"] += 1
        for sending in sendings:
            sending.is_aborted = txn.state is TransactionState.ABORTED
            if txn.state is TransactionState.COMMITTED:
                sending.acknowledged_s = self.world.now
        self.world.points.hits[f"mesh.transaction {txn.state.name.lower()}"] += 1

    async def _consume(self, client: gc.Client, name: TopicName) -> None:
        """Acknowledges all that comes, so that what is kept is kept by the replicators' cursors."""
        while not self.is_over:
            consumer = await insist(self.world, lambda: client.subscribe(str(name), "sub"), AGAIN_S)
            for _ in range(self.rng.choice([10, 100])):
                try:
                    await consumer.acknowledge(await consumer.receive(RECEIVE_MS))
                except gc.PulsarException:
                    break
            await consumer.close()
