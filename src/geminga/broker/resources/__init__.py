"""Clusters, tenants, namespaces and partitioned topics, in metadata at Pulsar's paths with Pulsar's JSON.

``Resources`` groups them; ``initialize_cluster`` writes what a cluster begins with. Changes are compare-and-set on one
node each; nothing here needs two nodes to change at once. Errors carry Pulsar's HTTP status: 404, 409, 412.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from geminga.broker.resources.clusters import Clusters
from geminga.broker.resources.documents import Document, DocumentStore, Json
from geminga.broker.resources.initialization import KEPT_ALIKE_PATH, ClusterSetup, initialize_cluster
from geminga.broker.resources.namespaces import Namespaces
from geminga.broker.resources.partitioned_topics import PartitionedTopic, PartitionedTopics
from geminga.broker.resources.policies import Policies
from geminga.broker.resources.tenants import Tenants
from geminga.metadata.ports import MetadataStore
from geminga.model.topic_name import TopicName
from geminga.runtime import AskedTogether

if TYPE_CHECKING:
    from geminga.broker.resources.bookie_affinity import BookieAffinity
    from geminga.broker.resources.bundle_quotas import BundleLoads, BundleQuotas
    from geminga.broker.resources.isolation import FailureDomains, IsolationPolicies
    from geminga.broker.resources.local_policies import AntiAffinity, BundleCuts
    from geminga.broker.resources.resource_groups import ResourceGroups
    from geminga.broker.resources.vacancies import Vacancies

__all__ = [
    "ClusterSetup",
    "Clusters",
    "Document",
    "Json",
    "Namespaces",
    "PartitionedTopic",
    "PartitionedTopics",
    "Policies",
    "Resources",
    "Tenants",
    "initialize_cluster",
]


class Resources:
    """What an operator administers, by kind."""

    __slots__ = (
        "_asked",
        "_metadata",
        "_store",
        "_vacancies",
        "clusters",
        "namespaces",
        "partitioned_topics",
        "tenants",
    )

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        store = self._store = DocumentStore(metadata)
        self.clusters = Clusters(store)
        self.tenants = Tenants(store, self.clusters)
        self.namespaces = Namespaces(store, self.tenants)
        self.partitioned_topics = PartitionedTopics(store)
        self._vacancies: Vacancies | None = None
        #: Policies, by namespace.
        self._asked: AskedTogether[str, Policies | None] = AskedTogether()

    async def are_kept_alike(self) -> bool:
        """Whether they were ever kept alike with other clusters' by a topic. Raises MetadataError."""
        return await self._metadata.exists(KEPT_ALIKE_PATH)

    @property
    def isolation(self) -> IsolationPolicies:
        """Namespace isolation policies; loaded by who asks for them."""
        from geminga.broker.resources.isolation import IsolationPolicies

        return IsolationPolicies(self._store)

    @property
    def resource_groups(self) -> ResourceGroups:
        """Limits that namespaces share, likewise."""
        from geminga.broker.resources.resource_groups import ResourceGroups

        return ResourceGroups(self._store, self.namespaces)

    @property
    def anti_affinity(self) -> AntiAffinity:
        """Groups of namespaces that are kept apart, likewise."""
        from geminga.broker.resources.local_policies import AntiAffinity

        return AntiAffinity(self._store, self.namespaces)

    @property
    def bundle_cuts(self) -> BundleCuts:
        """How namespaces are cut where a broker is alone, likewise."""
        from geminga.broker.resources.local_policies import BundleCuts

        return BundleCuts(self._store, self.namespaces)

    @property
    def bookie_affinity(self) -> BookieAffinity:
        """Bookies of namespaces, likewise."""
        from geminga.broker.resources.bookie_affinity import BookieAffinity

        return BookieAffinity(self._store, self.namespaces)

    @property
    def failure_domains(self) -> FailureDomains:
        """Failure domains, likewise."""
        from geminga.broker.resources.isolation import FailureDomains

        return FailureDomains(self._store)

    @property
    def vacancies(self) -> Vacancies:
        """Places where there is a limited number of them, likewise; the same for all who ask."""
        if self._vacancies is None:
            from geminga.broker.resources.vacancies import Vacancies

            self._vacancies = Vacancies()
        return self._vacancies

    async def sync(self) -> None:
        """What is read from now on is not older than this call. Raises MetadataError."""
        await self._metadata.sync()

    async def find_namespace_policies(self, namespace: str) -> Policies | None:
        """Policies of ``tenant/namespace``, or None if there is no such namespace; read for all who ask together."""
        return await self._asked.ask(namespace, lambda: self.namespaces.find(namespace))

    async def policies_document(self, namespace: str) -> Mapping[str, Json] | None:
        """The same, as they are stored."""
        found = await self.find_namespace_policies(namespace)
        return None if found is None else found.document

    async def partitioned_topic_metadata(self, name: TopicName) -> int | None:
        """Number of partitions, or None if the topic is not partitioned."""
        found = await self.partitioned_topics.find(name)
        return found.partitions if found else None

    async def create_partitioned_topic(
        self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """See :meth:`PartitionedTopics.create`."""
        await self.partitioned_topics.create(name, partitions, properties)

    async def update_partitioned_topic(self, name: TopicName, partitions: int) -> None:
        """See :meth:`PartitionedTopics.update`."""
        await self.partitioned_topics.update(name, partitions)

    async def delete_partitioned_topic(self, name: TopicName, *, expected_version: int | None = None) -> None:
        """See :meth:`PartitionedTopics.delete`."""
        await self.partitioned_topics.delete(name, expected_version=expected_version)

    async def list_partitioned_topics(self, namespace: str, domain: str = "persistent") -> list[str]:
        """See :meth:`PartitionedTopics.list`."""
        return await self.partitioned_topics.list(namespace, domain)

    async def remove_remains(self, namespace: str) -> None:
        """Of a namespace that is gone, the nodes that nobody else removes (``resources.remains``)."""
        from geminga.broker.resources.remains import remove_remains

        await remove_remains(self._metadata, namespace)

    @property
    def bundle_quotas(self) -> BundleQuotas:
        """What is to be expected of bundles, likewise."""
        from geminga.broker.resources.bundle_quotas import BundleQuotas

        return BundleQuotas(self._store)

    @property
    def bundle_loads(self) -> BundleLoads:
        """What bundles carried, likewise."""
        from geminga.broker.resources.bundle_quotas import BundleLoads

        return BundleLoads(self._store)
