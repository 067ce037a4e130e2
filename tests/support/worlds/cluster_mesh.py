"""Several clusters in one simulation, one broker each, whose replicators publish straight into each other's topics."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.geo.core.copying import Copy
from geminga.broker.geo.ports import CopyDone
from geminga.broker.geo.replicator import Replicator
from geminga.broker.geo.turns import READS_AT_ONCE, ClusterTurns
from geminga.broker.topic.parts import PartTopic
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import AppendResult, ManagedCursor, ManagedLedgerConfig
from geminga.model.errors import UnavailableError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from geminga.wire.pulsar.schema_info import SchemaInfo
from support.worlds.broker_world import TOPIC, BrokerWorld, Client

T = TypeVar("T")
SOON_S = 0.01


class Link:
    """To one topic of another cluster. It takes :data:`SOON_S` for an entry; they come in order, and none behind one
    that was lost."""

    is_full = False

    def __init__(self, mesh: ClusterMesh, ends: tuple[str, str], topic: PersistentTopic) -> None:
        self._mesh = mesh
        self._ends = ends
        self._topic = topic
        self._is_closed = False
        #: On their way.
        self._entries: deque[tuple[bytes, CopyDone]] = deque()

    @property
    def is_connected(self) -> bool:
        return self._ends not in self._mesh.cut

    async def room(self) -> None:
        pass

    async def version_of(self, schema: SchemaInfo) -> bytes:
        raise UnavailableError(f"no {schema.type.name} here")

    def send(self, copy: Copy, position: Position, done: CopyDone) -> None:
        del position
        entry = encode_entry(pb.MessageMetadata.FromString(copy.metadata), copy.payload)
        self._entries.append((entry, done))
        # Those of one turn come in one, whose callbacks have no order.
        asyncio.get_running_loop().call_later(SOON_S, self._store)

    def _store(self) -> None:
        entry, done = self._entries.popleft()
        if self._is_closed or self._ends in self._mesh.cut:
            self._is_closed = True
            done(0, UnavailableError("the link is cut"))
            return

        def stored(result: AppendResult) -> None:
            done(0 if result.error else 1, result.error)

        self._topic.publishing.append_own([entry], stored)

    async def close(self) -> None:
        self._is_closed = True


class Clusters:
    """:class:`geminga.broker.topic.parts.RemoteClusters` of one of them."""

    starts_at_earliest = False

    def __init__(self, mesh: ClusterMesh, local: str) -> None:
        self.local = local
        self._mesh = mesh
        self._turns = ClusterTurns(asyncio.Semaphore(READS_AT_ONCE))

    def copy(self, topic: PartTopic, cluster: str, cursor: ManagedCursor) -> Replicator:
        return Replicator(topic, cluster, cursor, self, local=self.local, turns=self._turns)

    async def open(self, cluster: str, topic: TopicName) -> Link:
        if (self.local, cluster) in self._mesh.cut:
            raise UnavailableError(f"no way to {cluster}")
        found = await self._mesh.worlds[cluster].broker.registry.get(topic, create=True)
        assert isinstance(found, PersistentTopic)
        return Link(self._mesh, (self.local, cluster), found)


class ClusterMesh:
    """See the module; all know each other, and the default namespace lives in all."""

    def __init__(self) -> None:
        self.worlds: dict[str, BrokerWorld] = {}
        #: Ways, from and to, over which nothing goes.
        self.cut: set[tuple[str, str]] = set()

    async def join(self, name: str, world: BrokerWorld) -> None:
        clusters = Clusters(self, name)
        world.broker.other_clusters = lambda: clusters
        self.worlds[name] = world

    async def replicate(self) -> None:
        for world in self.worlds.values():
            await world.resources.namespaces.set_policy("public/default", "replication_clusters", [*self.worlds])
            await world.broker.policies_changed("public/default")

    def topic(self, name: str) -> PersistentTopic:
        topic = self.worlds[name].broker.topics[TOPIC]
        assert isinstance(topic, PersistentTopic)
        return topic

    async def client(self, name: str) -> Client:
        return await self.worlds[name].client()

    def cut_off(self, name: str) -> None:
        """No way leads to this one or from it."""
        for other in self.worlds:
            self.cut |= {(name, other), (other, name)}

    def mend(self) -> None:
        self.cut.clear()


def run_mesh(scenario: Callable[[ClusterMesh], Awaitable[T]], *names: str, seed: int = 0, **settings) -> T:
    """Run ``scenario`` with a started broker for each name; they are stopped afterwards."""

    async def main(world: sim.SimWorld) -> T:
        async def on_node(node: sim.SimNode) -> T:
            mesh = ClusterMesh()
            for name in names:
                given = {"delete_inactive_topics": False, "keep_alive_interval_s": 100_000, **settings}
                config = BrokerConfig(cluster_name=name, **given)
                broker_world = BrokerWorld(node.runtime, config, ManagedLedgerConfig())
                await broker_world.start()
                await mesh.join(name, broker_world)
            await mesh.replicate()
            result = await scenario(mesh)
            for broker_world in mesh.worlds.values():
                await broker_world.stop()
            return result

        return await world.node("brokers").run(on_node)

    return sim.run(main, seed=seed)
