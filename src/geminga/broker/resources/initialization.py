"""What a cluster's metadata begin with: its data, the first tenants and namespaces, as Pulsar's own tool writes them.

Nothing that is there is taken back: run again, also after it was cut off anywhere, it makes what is missing. Brokers
that begin at the same time may all do it. What is missing of a cluster that is kept alike with others stays so: it was
deleted, here or elsewhere, and making it would tell the others that an administrator wants it.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from geminga.broker.resources.clusters import CLUSTERS_PATH, Clusters
from geminga.broker.resources.documents import Document, Json
from geminga.broker.resources.namespaces import Namespaces
from geminga.broker.resources.partitioned_topics import PARTITIONED_TOPICS_PATH, PartitionedTopics
from geminga.broker.resources.tenants import POLICIES_PATH, Tenants
from geminga.model.errors import ConflictError
from geminga.model.topic_name import DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, TRANSACTION_COORDINATORS, TopicName

#: Its partitions are the transaction coordinators of a cluster.
COORDINATORS_TOPIC: Final = TopicName.parse(f"persistent://{SYSTEM_NAMESPACE}/{TRANSACTION_COORDINATORS}")

#: Is there once a cluster was kept alike with others by a topic (docs/formats/configuration-sync.md).
KEPT_ALIKE_PATH: Final = "/geminga/configuration-sync"

#: What every cluster begins with.
FIRST_NAMESPACES: Final = (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE)


class Stores(Protocol):
    """What an operator administers, by kind."""

    clusters: Clusters
    tenants: Tenants
    namespaces: Namespaces
    partitioned_topics: PartitionedTopics

    async def are_kept_alike(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ClusterSetup:
    """What a cluster is to begin with."""

    cluster: str
    #: ``ClusterData``: under which URLs other clusters and tools reach it.
    data: Mapping[str, Json] = field(default_factory=dict)
    #: Bundles of the first namespaces where they are made; 0: as many as those of a namespace made without a number.
    bundles: int = 0
    #: Partitions of :data:`COORDINATORS_TOPIC`, which only ever grows; 0: it is left as it is.
    transaction_coordinators: int = 0
    #: The same where there is none yet; one that is there is left as it is.
    first_coordinators: int = 0
    #: Of :data:`FIRST_NAMESPACES` those that are made, with their tenants: where clusters share a store those of users
    #: are there since the first of them came, or were deleted.
    begins: Collection[str] = FIRST_NAMESPACES
    #: Of :data:`FIRST_NAMESPACES` those that get the cluster where they are there, tenant and namespace: one more joins
    #: the clusters that share them.
    joins: Collection[str] = ()


async def initialize_cluster(stores: Stores, setup: ClusterSetup) -> list[str]:
    """The metadata nodes that were made or changed, in order. Raises PreconditionFailedError, MetadataError."""
    changed = [] if await stores.are_kept_alike() else await _make_first(stores, setup)
    if await _coordinators(stores, setup):
        changed.append(f"{PARTITIONED_TOPICS_PATH}/{COORDINATORS_TOPIC.managed_ledger_name}")
    return changed


async def _make_first(stores: Stores, setup: ClusterSetup) -> list[str]:
    changed: list[str] = []
    cluster = setup.cluster

    async def make(path: str, creation: Coroutine[None, None, None]) -> None:
        try:
            await creation
        except ConflictError:
            # Another one that does the same was first.
            return
        changed.append(path)

    if await stores.clusters.find(cluster) is None:
        await make(f"{CLUSTERS_PATH}/{cluster}", stores.clusters.create(cluster, setup.data))
    for namespace in setup.begins:
        tenant = namespace.partition("/")[0]
        path = f"{POLICIES_PATH}/{tenant}"
        if not await stores.tenants.exists(tenant):
            clusters: list[Json] = [cluster]
            await make(path, stores.tenants.create(tenant, {"adminRoles": [], "allowedClusters": clusters}))
        elif namespace in setup.joins and await _join_tenant(stores.tenants, tenant, cluster):
            changed.append(path)
    for namespace in setup.begins:
        path = f"{POLICIES_PATH}/{namespace}"
        if await stores.namespaces.find(namespace) is None:
            await make(path, stores.namespaces.create(namespace, _policies(setup)))
        elif namespace in setup.joins and await _join_namespace(stores.namespaces, namespace, cluster):
            changed.append(path)
    return changed


def _policies(setup: ClusterSetup) -> Document:
    clusters: list[Json] = [setup.cluster]
    policies: Document = {"replication_clusters": clusters}
    if setup.bundles:
        policies["bundles"] = {"numBundles": setup.bundles}
    return policies


async def _join_tenant(tenants: Tenants, tenant: str, cluster: str) -> bool:
    info = await tenants.get(tenant)
    wanted = _with(info, "allowedClusters", cluster)
    if wanted != info:
        await tenants.update(tenant, wanted)
    return wanted != info


async def _join_namespace(namespaces: Namespaces, namespace: str, cluster: str) -> bool:
    before = await namespaces.get(namespace)
    after = await namespaces.update(namespace, lambda document: _with(document, "replication_clusters", cluster))
    return after.version != before.version


def _with(document: Document, key: str, cluster: str) -> Document:
    value = document.get(key)
    present = value if isinstance(value, list) else []
    return document if cluster in present else {**document, key: [*present, cluster]}


async def _coordinators(stores: Stores, setup: ClusterSetup) -> bool:
    count = setup.transaction_coordinators or setup.first_coordinators
    if not count:
        return False
    topics = stores.partitioned_topics
    found = await topics.find_stored(COORDINATORS_TOPIC)
    if found is None:
        try:
            await topics.create(COORDINATORS_TOPIC, count)
        except ConflictError:
            return False
        return True
    if found.partitions >= setup.transaction_coordinators:
        return False
    await topics.update(COORDINATORS_TOPIC, count)
    return True
