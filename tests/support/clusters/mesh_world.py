"""Two to four clusters in one simulated world, each with brokers, bookies and metadata of its own, and links between.

A cluster is reached by the others over the simulated network alone: the binary protocol, and administration by HTTP
(:mod:`support.clusters.mesh_http`) with the broker's own handlers behind it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import geminga.client as gc
from geminga.bookkeeper import BookKeeper, BookKeeperConfig
from geminga.bookkeeper.local_pool import LocalBookiePool
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.composition.service import Broker
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.geo.clusters import OtherClusters
from geminga.broker.peers.client_tables import ClientTables
from geminga.broker.peers.http_client import PeerHttp
from geminga.broker.peers.topics import PeerTopics
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.managed_ledger import ManagedLedgerConfig, ManagedLedgerFactory
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.clusters.cluster_peers import ask
from support.clusters.mesh_http import SimHttp
from support.worlds.client_world import CLIENT, PORT
from support.worlds.ownership import OwnershipTable, TableOwnership, endpoints_of
from support.worlds.rest_world import rest_application

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from geminga.broker.registry.ports import SharingClusters
    from geminga.metadata.ports import MetadataStore

WEB_PORT: Final = 8080
CLUSTERS: Final = ("k", "l", "m", "n")
#: The second of these deduplicates.
LOOSE, EXACT = "public/loose", "public/exact"
NAMESPACES: Final = (LOOSE, EXACT)
PARTITIONED: Final = TopicName.parse(f"persistent://{EXACT}/whole")
PARTITIONS: Final = 2
#: The topics whose messages are copied; the last two are partitions of one.
NAMES: Final = (
    TopicName.parse(f"persistent://{LOOSE}/one"),
    TopicName.parse(f"persistent://{EXACT}/two"),
    *(PARTITIONED.with_partition(index) for index in range(PARTITIONS)),
)
COORDINATORS: Final = 1


class MeshCluster:
    """One cluster: its brokers, what is below them, and who owns which topic."""

    def __init__(self, mesh: Mesh, name: str) -> None:
        self.mesh = mesh
        self.world = mesh.world
        self.name = name
        self.rng = rng = mesh.world.rng("cluster", name)
        self.nodes = tuple(f"{name}{number}" for number in range(1, rng.choice([2, 3])))
        self.server = MemoryMetadata()
        self.bookies = {f"bookie-{number}": MemoryBookie() for number in range(rng.choice([1, 2]))}
        self.table = OwnershipTable(self.nodes)
        self.table.run_at = self._run_at
        self.brokers: dict[str, Broker] = {}
        self.applications: dict[str, ASGIApp] = {}
        self.stores: dict[str, MemoryMetadataStore] = {}
        self.url = "pulsar://" + ",".join(f"{node}:{PORT}" for node in self.nodes)
        self.web_url = "http://" + ",".join(f"{node}:{WEB_PORT}" for node in self.nodes)
        #: Of the administration.
        self.settings: dict[str, Any] = {}
        self.metadata_delay_ms = rng.choice([0, 3, 20])
        self.config = BrokerConfig(
            cluster_name=name,
            transaction_coordinator_enabled=True,
            delete_inactive_topics=False,
            replication_start_at=mesh.starts_at,
        )
        #: Ledgers of one copy: what a bookie has stored is what recovery finds, so that the stores tell the truth.
        self.ledgers = ManagedLedgerConfig(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            max_entries_per_ledger=rng.choice([8, 30, 50_000]),
            min_rollover_minutes=0,
        )

    async def start(self) -> None:
        self.table.owners |= {str(name): self.rng.choice(self.nodes) for name in NAMES}
        clock = self.rng.choice(self.mesh.clocks_ms)
        for node in self.nodes:
            await self.boot(node, clock_ms=clock)

    async def set_up(self, documents: dict[str, dict[str, Any]]) -> None:
        """Others are known, and the namespaces live in all clusters."""
        await self.run(self.nodes[0], lambda broker: self._set_up(broker, documents))

    async def _set_up(self, broker: Broker, documents: dict[str, dict[str, Any]]) -> None:
        resources = broker.resources
        for name, document in documents.items():
            if name != self.name:
                await resources.clusters.create(name, document)
        await resources.tenants.update("public", {"adminRoles": [], "allowedClusters": [*documents]})
        for namespace in NAMESPACES:
            keeps = self.mesh.keeps
            policies = {
                "replication_clusters": [*documents],
                "deduplicationEnabled": namespace == EXACT,
                "retention_policies": {
                    "retentionTimeInMinutes": -1 if keeps else 0,
                    "retentionSizeInMB": -1 if keeps else 0,
                },
                "message_ttl_in_seconds": self.rng.choice([0, 3600]),
            }
            await resources.namespaces.create(namespace, policies)
        await broker.partitions.create(PARTITIONED, PARTITIONS)

    async def boot(self, name: str, *, clock_ms: int = 0) -> None:
        """A broker without memory of a life before."""
        node = self.world.node(name)
        node.start()
        if clock_ms:
            node.clock.jump(clock_ms)
        await node.run(self._boot)

    def open_store(self, node: SimNode) -> MetadataStore:
        """What a broker has of the metadata."""
        store = self.stores[node.name] = MemoryMetadataStore(node.runtime, self.server)
        store.faults.delay_ms_max = self.metadata_delay_ms
        return store

    def sharing(self, others: Callable[[], OtherClusters], resources: Resources) -> SharingClusters | None:
        """Those whose configuration is this one's, reached by ``others``; None: it is its own."""
        del others, resources
        return None

    def setup(self) -> ClusterSetup:
        """What a broker that starts makes."""
        urls = {"serviceUrl": self.web_url, "brokerServiceUrl": self.url}
        return ClusterSetup(self.name, urls, transaction_coordinators=COORDINATORS)

    def began(self, node: SimNode, broker: Broker) -> None:
        """A broker serves."""

    async def _boot(self, node: SimNode) -> None:
        runtime = node.runtime
        metadata = self.open_store(node)
        bookkeeper = BookKeeper(runtime, metadata, LocalBookiePool(self.bookies), BookKeeperConfig())
        ledgers = ManagedLedgerFactory(runtime, metadata, bookkeeper, self.ledgers, is_shared=len(self.nodes) > 1)
        view = self.table.brokers[node.name] = TableOwnership(self.table, node.name)
        client = gc.connect(self.url, runtime=runtime, **CLIENT)
        resources = Resources(metadata)
        others: list[OtherClusters] = []

        def other_clusters() -> OtherClusters:
            if not others:
                others.append(OtherClusters(runtime, resources, self.config))
            return others[0]

        broker = Broker(
            runtime,
            metadata,
            ledgers,
            self.config,
            resources,
            version="test",
            ownership=view,
            tables_elsewhere=ClientTables(lambda: client),
            peers=partial(PeerTopics, PeerHttp(runtime), lambda: client, lambda _: False),
            other_clusters=other_clusters,
            sharing=self.sharing(other_clusters, resources),
        )
        await initialize_cluster(resources, self.setup())
        await broker.start(endpoints_of(node.name))
        application = self.applications[node.name] = rest_application(broker, self.name, **self.settings)
        self.brokers[node.name] = broker
        await runtime.network.listen(broker.new_connection, "0.0.0.0", PORT)
        await runtime.network.listen(lambda: SimHttp(application), "0.0.0.0", WEB_PORT)
        self.began(node, broker)

    def crash(self, name: str) -> None:
        """Right now; its session ends with it."""
        self.world.crash(self.world.node(name))
        self.brokers.pop(name, None)
        self.applications.pop(name, None)
        store = self.stores.pop(name, None)
        if store is not None:
            self.server.detach(store)
            self.server.end_session(store.session, 0)

    async def _run_at(self, name: str, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self.run(name, lambda _: what())

    async def run(self, name: str, what: Callable[[Broker], Awaitable[Any]]) -> Any:
        """Run it where a broker lives; None: it is down, or dies meanwhile."""
        if name not in self.brokers:
            return None
        try:
            return await self.world.node(name).run(lambda _: what(self.brokers[name]))
        except NodeCrashedError:
            return None

    async def at_owner(self, name: TopicName, what: Callable[[Broker], Awaitable[Any]]) -> Any:
        """The same at a topic's owner; None too where that refuses."""
        owner = self.table.owner(name)
        if owner is None:
            return None
        try:
            return await self.run(owner, what)
        except GemingaError:
            return None

    async def administer(self, method: str, path: str, value: Any = None) -> int:
        """Status of a call of the administration, redirections followed; 0: nobody is there."""
        node = next(iter(self.applications), "")
        body = b"" if value is None else json.dumps(value).encode()
        for _ in self.nodes:
            if node not in self.applications:
                return 0
            application = self.applications[node]
            found = await self.run(node, lambda _, one=application: ask(one, method, f"/admin/v2/{path}", body))
            if found is None:
                return 0
            status: int = found[0]
            if status != HTTPStatus.TEMPORARY_REDIRECT:
                return status
            node = urlsplit(found[1]).hostname or ""
        return 0


class Mesh:
    """All of them, and the links between."""

    def __init__(
        self,
        world: SimWorld,
        names: Sequence[str] = (),
        *,
        made: Callable[[Mesh, str], MeshCluster] = MeshCluster,
        clocks_ms: Sequence[int] = (0, -7_200_000, 7_200_000, 60_000),
    ) -> None:
        """``names``: of the clusters; none: two to four. ``clocks_ms``: by how much clocks may be off."""
        self.world = world
        rng = world.rng("mesh")
        self.names = names or CLUSTERS[: rng.choice([2, 2, 2, 3, 3, 4])]
        #: Logs are whole; else what everybody acknowledged is trimmed.
        self.keeps = rng.random() < 0.6
        self.starts_at = rng.choice(["latest", "latest", "latest", "earliest"])
        self.clocks_ms = clocks_ms
        self.clusters = {name: made(self, name) for name in self.names}

    async def start(self) -> None:
        for cluster in self.clusters.values():
            await cluster.start()
        documents = {
            name: {"serviceUrl": cluster.web_url, "brokerServiceUrl": cluster.url}
            for name, cluster in self.clusters.items()
        }
        for cluster in self.clusters.values():
            await cluster.set_up(documents)

    def pairs_of(self, first: str, second: str) -> Sequence[tuple[SimNode, SimNode]]:
        """Nodes of brokers between which the link of two clusters is."""
        return [
            (self.world.node(one), self.world.node(other))
            for one in self.clusters[first].nodes
            for other in self.clusters[second].nodes
        ]
