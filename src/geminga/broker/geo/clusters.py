"""The other clusters, as ``clusters`` of the administration names them: one client for each that is copied to.

What is stored of a cluster is looked at again every :data:`LOOK_S`: another address, or other credentials, are used
from then on, without a restart. Credentials that a cluster has of its own come before the broker's
(``brokerClient...``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Final

from geminga.broker.core.coercion import Json
from geminga.broker.geo.turns import READS_AT_ONCE, ClusterTurns
from geminga.broker.geo.watch import LOOK_S, StandstillWatch
from geminga.broker.peers.links import PLAIN, PeerLinks
from geminga.model.errors import GemingaError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import Part, Runtime, get_logger, spawn, wait_ms

if TYPE_CHECKING:
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.geo.leading import Leading
    from geminga.broker.geo.ports import RemoteTopic
    from geminga.broker.geo.remote_cluster import RemoteCluster
    from geminga.broker.geo.replicator import Replicator
    from geminga.broker.peers.http_client import PeerAnswer, PeerHttp
    from geminga.broker.resources import Resources
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.parts import OtherPlace, PartTopic
    from geminga.managed_ledger import ManagedCursor

_log = get_logger(__name__)

#: Topics that prepare to move at the same time: requests of thousands would wait for each other until they are given
#: up, and each would begin anew. Fewer than may be asked for at once (``peers.http_client``), so that who is about to
#: be led there waits behind none of them.
PREPARING_MAX: Final = 16
#: Bytes that are on their way to all other clusters together.
BYTES_MAX: Final = 64 << 20


class OutgoingBytes:
    """What is on its way to all other clusters together, and who waits until it is less."""

    __slots__ = ("_waiting", "bytes", "clusters")

    def __init__(self) -> None:
        self.bytes = 0
        #: How many there are.
        self.clusters = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_full(self) -> bool:
        """Whether it is as much as may be."""
        return self.bytes >= BYTES_MAX

    def add(self, size_bytes: int) -> None:
        """So much more, or less."""
        self.bytes += size_bytes
        if size_bytes < 0 and self._waiting:
            self.wake()

    def wake(self) -> None:
        """Who waits looks again."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def changed(self) -> None:
        """Until it is less, or somebody is to look for another reason."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future


class ClusterBytes:
    """What is on its way to one of them: no more than its part, so that one that hangs leaves the others theirs."""

    __slots__ = ("_all", "_is_counted", "bytes", "changed", "wake")

    def __init__(self, outgoing: OutgoingBytes) -> None:
        self._all = outgoing
        self._is_counted = False
        self.bytes = 0
        self.changed, self.wake = outgoing.changed, outgoing.wake

    @property
    def is_full(self) -> bool:
        """Whether it is as much as may be, of this one or of all."""
        return self._all.is_full or self.bytes * self._all.clusters >= BYTES_MAX

    def add(self, size_bytes: int) -> None:
        """So much more, or less."""
        self.bytes += size_bytes
        self._all.add(size_bytes)

    def begin(self) -> None:
        """It has its part from now on."""
        self._is_counted = True
        self._all.clusters += 1

    def end(self) -> None:
        """Nothing more goes there; harmless twice."""
        if self._is_counted:
            self._is_counted = False
            self._all.clusters -= 1
            self.wake()


class OtherClusters:
    """See the module; :class:`geminga.broker.topic.parts.RemoteClusters`."""

    __slots__ = (
        "_closing",
        "_clusters",
        "_config",
        "_is_closed",
        "_links",
        "_looking",
        "_moving",
        "_opening",
        "_outgoing",
        "_part",
        "_preparing",
        "_resources",
        "_runtime",
        "_shared_turns",
        "_turns",
        "watch",
    )

    def __init__(
        self,
        runtime: Runtime,
        resources: Resources,
        config: BrokerConfig,
        *,
        links: PeerLinks = PLAIN,
        part: Part | None = None,
    ) -> None:
        """``links``: as whom, where a cluster has no credentials of its own. ``part`` hears of what is unexpected."""
        self._runtime = runtime
        self._resources = resources
        self._links = links
        self._part = part
        self._config = config
        self._clusters: dict[str, RemoteCluster] = {}
        self._opening = asyncio.Lock()
        self._outgoing = OutgoingBytes()
        #: Held by a replicator while it reads and sends: what many have read is not in memory at once.
        self._shared_turns = asyncio.Semaphore(READS_AT_ONCE)
        #: By cluster.
        self._turns: dict[str, ClusterTurns] = {}
        self.watch = StandstillWatch()
        self._looking: asyncio.Task[None] | None = None
        self._preparing = asyncio.Semaphore(PREPARING_MAX)
        #: To the cluster that topics move to; None: none does.
        self._moving: PeerHttp | None = None
        #: Of clusters that were reached otherwise before.
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def local(self) -> str:
        """As of the port."""
        return self._config.cluster_name

    @property
    def starts_at_earliest(self) -> bool:
        """As of the port: ``replicationStartAt``."""
        return self._config.replication_start_at == "earliest"

    def copy(self, topic: PartTopic, cluster: str, cursor: ManagedCursor) -> Replicator:
        """As of the port."""
        from geminga.broker.geo.replicator import Replicator

        turns = self._turns.get(cluster)
        if turns is None:
            turns = self._turns[cluster] = ClusterTurns(self._shared_turns)
        made = Replicator(topic, cluster, cursor, self, local=self.local, turns=turns)
        self.watch.add(made, self._runtime.clock.monotonic())
        return made

    def moving_turn(self) -> AbstractAsyncContextManager[object]:
        """As of the port."""
        return self._preparing

    async def prepare(self, topic: PartTopic | Topic, place: OtherPlace) -> None:
        """As of the port."""
        from geminga.broker.geo.green import prepare
        from geminga.broker.peers.http_client import PeerHttp

        if self._moving is None:
            self._moving = PeerHttp(self._runtime, self._links)
        await prepare(self._moving, self._resources, topic, place)

    def lead_away(self, topic: Topic, place: OtherPlace) -> Leading:
        """As of the port."""
        from geminga.broker.geo.leading import Leading

        return Leading(topic, place, partial(self._prepare_in_turn, topic, place))

    async def _prepare_in_turn(self, topic: Topic, place: OtherPlace) -> None:
        async with self._preparing:
            await self.prepare(topic, place)

    async def open(self, cluster: str, topic: TopicName) -> RemoteTopic:
        """As of :class:`geminga.broker.geo.ports.Links`."""
        async with self._opening:
            remote = await self._remote(cluster)
        partitioned = await self._resources.partitioned_topics.find(topic) if topic.is_partition else None
        partitions = 0 if partitioned is None else partitioned.partitions
        return await remote.open(topic, partitions, makes_topics=self._config.creates_topics_elsewhere)

    async def answer(self, cluster: str, path: str, method: str = "GET", body: bytes = b"") -> PeerAnswer:
        """Of the administration of ``cluster``. Raises UnavailableError."""
        async with self._opening:
            remote = await self._remote(cluster)
        return await remote.answer(path, method, body)

    async def _remote(self, cluster: str) -> RemoteCluster:
        if self._is_closed:
            raise UnavailableError("the broker is closing")
        document = await self._resources.clusters.find(cluster)
        if document is None:
            raise UnavailableError(f"there is no cluster {cluster}")
        known = self._clusters.get(cluster)
        if known is not None and known.document == document:
            return known
        if known is not None:
            self._forget(cluster, known)
        from geminga.broker.geo.remote_cluster import RemoteCluster

        outgoing = ClusterBytes(self._outgoing)
        made = RemoteCluster(self._runtime, cluster, document, self._links, self.local, outgoing)
        outgoing.begin()
        self._clusters[cluster] = made
        if self._looking is None:
            self._looking = spawn(self._look(), name="look at other clusters", part=self._part)
        return made

    async def _look(self) -> None:
        while True:
            await wait_ms(LOOK_S * 1000)
            self.watch.look(self._runtime.clock.monotonic())
            for cluster, remote in list(self._clusters.items()):
                try:
                    document: Mapping[str, Json] | None = await self._resources.clusters.find(cluster)
                except GemingaError as error:
                    _log.warning("what is stored of cluster %s can not be read now: %s", cluster, error)
                    continue
                if document != remote.document and self._clusters.get(cluster) is remote:
                    self._forget(cluster, remote)

    def _forget(self, cluster: str, remote: RemoteCluster) -> None:
        """Who copies to it begins anew, with what is stored of it then. One that hangs takes its time, and nobody's."""
        del self._clusters[cluster]
        closing = spawn(remote.close(), name=f"close the links to cluster {cluster}", part=self._part)
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Copy nothing more."""
        self._is_closed = True
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
        for cluster, remote in list(self._clusters.items()):
            self._forget(cluster, remote)
        if self._closing:
            await asyncio.wait([*self._closing])
