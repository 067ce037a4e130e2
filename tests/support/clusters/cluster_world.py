"""Three brokers, five bookies with disks, and the metadata node: a cluster whose parts only meet over the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import geminga.client as gc
from geminga.bookie.serving.server import BOOKIE_PORT
from geminga.bookkeeper import BookKeeper, BookKeeperConfig
from geminga.bookkeeper.remote import RegisteredBookies, RemoteBookiePool
from geminga.broker.administration.services import Force
from geminga.broker.composition.service import Broker
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.ownership.membership import Membership
from geminga.broker.peers.client_tables import ClientTables
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.managed_ledger import ManagedLedgerConfig, ManagedLedgerFactory
from geminga.metadata import MemoryMetadataStore
from geminga.metadata.socket.store import SocketMetadataStore
from geminga.model.errors import GemingaError, StorageError
from geminga.model.topic_name import TopicName
from geminga.runtime import Runtime, spawn
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH
from support.clusters.bookie_ensemble import SMALL, FarBookie
from support.clusters.cluster_metadata_node import SESSION_MS, MetadataNode
from support.worlds.client_world import CLIENT, PORT
from support.worlds.ownership import endpoints_of
from support.worlds.rest_world import rest_application

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from geminga.broker.peers.topics import PeerTopics

BROKERS: Final = ("a", "b", "c")
BOOKIES: Final = tuple(f"bookie-{number}" for number in range(5))
NAMESPACE: Final = "public/default"
#: One and two have fewer messages in a ledger than a burst.
PLAIN: Final = tuple(f"persistent://{NAMESPACE}/{name}" for name in ("one", "two", "three"))
PARTITIONED: Final = f"persistent://{NAMESPACE}/whole"
PARTITIONS: Final = 2
TOPICS: Final = (*PLAIN, PARTITIONED)
NAMES: Final = tuple(
    TopicName.parse(text) for text in (*PLAIN, *(f"{PARTITIONED}-partition-{index}" for index in range(PARTITIONS)))
)
LEDGERS: Final = ManagedLedgerConfig(
    ensemble_size=3, write_quorum=2, ack_quorum=2, max_entries_per_ledger=20, min_rollover_minutes=0
)
#: Between two attempts to start a broker that did not start, seconds.
AGAIN_S: Final = 0.5
#: Files small enough to roll now and then, timers that seldom run.
BOOKIE: Final = replace(SMALL, disk_check_interval_ms=5000, flush_interval_ms=5000)


class ClusterWorld:
    """See the module."""

    def __init__(
        self,
        world: SimWorld,
        *,
        has_peers: bool = False,
        coordinators: int = 0,
        namespaces: Sequence[str] = (),
        names: Sequence[str] = BROKERS,
        bookies: Sequence[str] = BOOKIES,
        ledgers: ManagedLedgerConfig = LEDGERS,
    ) -> None:
        """``has_peers``: brokers ask each other over REST. ``coordinators`` of transactions; ``namespaces`` in use
        beside the one of :data:`NAMES`. ``names`` of brokers, of which the first is "a", and of ``bookies``."""
        self.world = world
        self.names = names
        self.ledgers = ledgers
        self.has_peers = has_peers
        self.coordinators = coordinators
        self.namespaces = (NAMESPACE, *namespaces)
        #: The REST of each broker that is up, where they have peers.
        self.applications: dict[str, ASGIApp] = {}
        self.rng = world.rng("cluster")
        self.deduplicates = self.rng.random() < 0.5
        #: Logs are whole; else what everybody acknowledged is trimmed.
        self.keeps = self.rng.random() < 0.7
        self.url = ",".join(f"{name}:{PORT}" for name in names)
        self.metadata = MetadataNode(world, names)
        self.bookies = {name: FarBookie(world, name) for name in bookies}
        self.brokers: dict[str, Broker] = {}
        self.members: dict[str, Membership] = {}
        self.stores: dict[str, SocketMetadataStore] = {}
        self._bookie_sessions: dict[str, MemoryMetadataStore] = {}
        #: Brokers and bookies that are down and come back.
        self.away: set[str] = set()

    async def start(self) -> None:
        await self.metadata.start()
        for name, bookie in self.bookies.items():
            bookie.config = BOOKIE
            bookie.node.on_fatal = partial(self._bookie_failed, name)
            await self.start_bookie(name)
        for name in self.names:
            await self.boot(name)
        await self.world.node("a").run(self._set_up)

    async def _set_up(self, _: SimNode) -> None:
        broker = self.brokers["a"]
        if self.deduplicates:
            await broker.resources.namespaces.set_policy(NAMESPACE, "deduplicationEnabled", True)
        if self.keeps:
            retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            await broker.resources.namespaces.set_policy(NAMESPACE, "retention_policies", retention)
        await broker.partitions.create(TopicName.parse(PARTITIONED), PARTITIONS)

    # ---- bookies

    async def start_bookie(self, name: str) -> None:
        """With what its disk holds; registered."""
        bookie = self.bookies[name]
        bookie.node.disk.clear_faults()
        bookie.node.disk.on_step = None
        self.world.resume(bookie.node)
        await bookie.start()
        if name not in self._bookie_sessions:
            session = MemoryMetadataStore(self.metadata.node.runtime, self.metadata.state)
            self._bookie_sessions[name] = session
            path = f"{AVAILABLE_PATH}/{name}:{BOOKIE_PORT}"
            await session.put(path, b"", expected_version=None, ephemeral=True)

    async def unregister(self, name: str) -> None:
        """The session of a bookie that is down ended."""
        session = self._bookie_sessions.pop(name, None)
        if session is not None:
            await session.close()

    def _bookie_failed(self, name: str, part: str, error: BaseException) -> None:
        """What its program does when the disk fails; anything else that is fatal is a defect."""
        assert isinstance(error, OSError | StorageError), f"{part}: {error!r}"
        self.world.points.hits["cluster.bookie ended itself"] += 1
        self.bookies[name].crash()
        self.bring_back_bookie(name, 0.5)

    def bring_back_bookie(self, name: str, seconds: float) -> None:
        if name not in self.away:
            self.away.add(name)
            spawn(self._bring_back_bookie(name, seconds), name=f"{name} comes back")

    async def _bring_back_bookie(self, name: str, seconds: float) -> None:
        await self.world.sleep(seconds)
        while True:
            self.bookies[name].crash()
            try:
                await self.start_bookie(name)
                break
            except (OSError, StorageError, NodeCrashedError):
                # Its disk was full, or failed, while it started.
                self.world.points.hits["cluster.bookie did not start"] += 1
            await self.world.sleep(AGAIN_S)
        self.away.discard(name)

    # ---- brokers

    async def boot(self, name: str) -> None:
        """A broker without memory of a life before; started again and again until it is up."""
        node = self.world.node(name)
        while True:
            node.start()
            try:
                await node.run(self._boot)
                return
            except (GemingaError, OSError, NodeCrashedError):
                self.world.points.hits["cluster.did not start"] += 1
            self.crash(name)
            await self.world.sleep(AGAIN_S)

    async def _boot(self, node: SimNode) -> None:
        runtime = node.runtime
        metadata = await self.metadata.connect(node)
        self.stores[node.name] = metadata
        pool = RemoteBookiePool(runtime)
        await RegisteredBookies.follow(metadata, pool)
        bookkeeper = BookKeeper(runtime, metadata, pool, BookKeeperConfig())
        ledgers = ManagedLedgerFactory(runtime, metadata, bookkeeper, self.ledgers, is_shared=True)
        resources = Resources(metadata)

        membership = Membership(
            runtime,
            metadata,
            resources.policies_document,
            keep_cuts=resources.namespaces.keep_cuts,
            session_timeout_ms=SESSION_MS,
            version="test",
        )
        client = gc.connect(f"pulsar://{node.name}:{PORT}", runtime=runtime, **CLIENT)
        broker = Broker(
            runtime,
            metadata,
            ledgers,
            BrokerConfig(cluster_name="c", transaction_coordinator_enabled=self.coordinators > 0),
            resources,
            version="test",
            ownership=membership.ownership,
            tables_elsewhere=ClientTables(lambda: client),
            peers=self._peers(runtime, lambda: client, membership) if self.has_peers else None,
            silent=membership.silent,
        )
        setup = ClusterSetup("c", {"serviceUrl": "http://a:8080"}, transaction_coordinators=self.coordinators)
        await initialize_cluster(resources, setup)
        await membership.join(endpoints_of(node.name))
        await broker.start(endpoints_of(node.name))
        await runtime.network.listen(broker.new_connection, "0.0.0.0", PORT)
        membership.stand_for_election()
        self.brokers[node.name] = broker
        self.members[node.name] = membership
        if self.has_peers:
            self.applications[node.name] = rest_application(
                broker, cluster_name="c", membership=membership, forced=Force(force_delete_namespace=True)
            )

    def _peers(
        self, runtime: Runtime, client: Callable[[], gc.Client], membership: Membership
    ) -> Callable[..., PeerTopics]:
        from geminga.broker.peers.topics import PeerTopics
        from support.clusters.cluster_peers import SimPeerHttp

        http = SimPeerHttp(runtime, self.world, self.applications)
        return partial(PeerTopics, http, client, membership.brokers.is_of_another_make)

    def crash(self, name: str) -> None:
        """Its session ends when the metadata node notices."""
        self.world.crash(self.world.node(name))
        self.brokers.pop(name, None)
        self.members.pop(name, None)
        self.applications.pop(name, None)
        self.stores.pop(name, None)

    async def stop(self, name: str) -> None:
        """In good order: bundles are handed over, sessions end."""
        member, broker, store = self.members[name], self.brokers[name], self.stores[name]

        async def leave(_: SimNode) -> None:
            await member.leave()
            await broker.close()
            await store.close()

        try:
            await self.world.node(name).run(leave)
        except NodeCrashedError:
            pass
        self.crash(name)
