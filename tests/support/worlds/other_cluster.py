"""Another cluster at the replicator's port: topics that take entries, refuse them, answer late or not at all."""

from __future__ import annotations

import asyncio
from collections import deque

from geminga.broker.geo.core.copying import Copy, copy_of
from geminga.broker.geo.ports import CopyDone
from geminga.broker.geo.replicator import Replicator
from geminga.broker.geo.turns import READS_AT_ONCE, ClusterTurns
from geminga.broker.topic.parts import PartTopic
from geminga.managed_ledger import ManagedCursor
from geminga.model.errors import GemingaError, UnavailableError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from geminga.wire.pulsar.schema_info import SchemaInfo
from support.worlds.broker_world import BrokerWorld


def as_copy(metadata: pb.MessageMetadata, payload: bytes) -> Copy:
    """What is sent of an entry of theirs."""
    copy = copy_of(encode_entry(metadata, payload), Position(1, 1), "standalone", "west")
    assert copy is not None
    return copy


class OtherTopic:
    """One link to one topic over there."""

    def __init__(self, cluster: OtherCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.waiting: deque[CopyDone] = deque()
        self.is_closed = False

    @property
    def is_connected(self) -> bool:
        return not self.cluster.is_lost

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= self.cluster.entries_max and not self.is_closed

    async def room(self) -> None:
        while self.is_full:
            self.cluster.woken = asyncio.get_running_loop().create_future()
            await self.cluster.woken

    async def version_of(self, schema: SchemaInfo) -> bytes:
        if self.name in self.cluster.hanging:
            await asyncio.Event().wait()
        if schema.type.name in self.cluster.refused_schemas:
            raise UnavailableError("Incompatible schema")
        return b"%s of link %d" % (schema.type.name.encode(), len(self.cluster.topics))

    def send(self, copy: Copy, position: Position, done: CopyDone) -> None:
        cluster, payload = self.cluster, copy.payload
        if payload in cluster.unsendable:
            raise UnavailableError(f"{payload.decode()} is too large")
        if payload in cluster.refused or any(link is self for link in cluster.broken):
            if not cluster.overtakes and not any(link is self for link in cluster.broken):
                cluster.broken.append(self)
            asyncio.get_running_loop().call_soon(done, 0, UnavailableError(f"refused {payload.decode()}"))
            return
        cluster.stored.append((pb.MessageMetadata.FromString(copy.metadata), payload))
        if cluster.is_silent:
            self.waiting.append(done)
        else:
            asyncio.get_running_loop().call_soon(done, 1, None)

    async def close(self) -> None:
        self.is_closed = True
        await wait_ms(self.cluster.close_ms)
        self.cluster.linked.discard(self.name)


class OtherCluster:
    """:class:`geminga.broker.topic.parts.RemoteClusters` whose topics are in one place, whatever the cluster's name."""

    local = "standalone"

    def __init__(self) -> None:
        self.starts_at_earliest = False
        #: What is stored over there, in order.
        self.stored: list[tuple[pb.MessageMetadata, bytes]] = []
        #: Payloads, and types of schemas, that it does not take.
        self.refused: set[bytes] = set()
        #: Payloads that can not even be sent.
        self.unsendable: set[bytes] = set()
        self.refused_schemas: set[str] = set()
        #: Clusters that do not answer when they are asked for a schema.
        self.hanging: set[str] = set()
        #: Why it can not be reached; None: it can.
        self.away: GemingaError | None = None
        #: It stores what comes behind what it refused.
        self.overtakes = False
        #: How long a link takes to close.
        self.close_ms = 0
        #: Links that were made have no connection.
        self.is_lost = False
        #: It stores, and does not answer.
        self.is_silent = False
        self.entries_max = 1000
        self.broken: list[OtherTopic] = []
        self.topics: list[OtherTopic] = []
        self.linked: set[str] = set()
        self.tries = 0
        self.woken: asyncio.Future[None] | None = None
        self.shared_turns = asyncio.Semaphore(READS_AT_ONCE)
        self._turns: dict[str, ClusterTurns] = {}
        self.replicators: list[Replicator] = []

    @property
    def links(self) -> int:
        return len(self.linked)

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.stored]

    def copy(self, topic: PartTopic, cluster: str, cursor: ManagedCursor) -> Replicator:
        turns = self._turns.setdefault(cluster, ClusterTurns(self.shared_turns))
        self.replicators.append(Replicator(topic, cluster, cursor, self, local=self.local, turns=turns))
        return self.replicators[-1]

    async def open(self, cluster: str, topic: TopicName) -> OtherTopic:
        if topic.is_system:
            # A link of its own, which is none of the topic that is looked at.
            return OtherTopic(self, f"{topic.local_name} of {cluster}")
        self.tries += 1
        if self.away is not None:
            raise self.away
        assert cluster not in self.linked, f"{topic} is copied to {cluster} twice at once"
        self.linked.add(cluster)
        self.topics.append(OtherTopic(self, cluster))
        return self.topics[-1]

    def answer(self) -> None:
        """All that waits for one."""
        self.is_silent = False
        waiting = self.topics[-1].waiting
        while waiting:
            waiting.popleft()(1, None)
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


def join(world: BrokerWorld, other: OtherCluster | None = None) -> OtherCluster:
    """Another cluster for the topics of a broker that has none yet."""
    found = OtherCluster() if other is None else other
    broker = world.broker
    broker.other_clusters = lambda: found
    broker.__dict__.pop("topic_services", None)
    assert broker.topic_services.remote_clusters is found
    return found


async def replicate(world: BrokerWorld, *clusters: str) -> None:
    """The default namespace lives in these clusters."""
    await world.resources.namespaces.set_policy("public/default", "replication_clusters", [*clusters])
    await world.broker.policies_changed("public/default")
