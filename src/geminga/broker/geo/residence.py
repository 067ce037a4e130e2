"""Whether a namespace lives in this cluster, and where clients are sent that ask for one that lives in another.

As in Pulsar: a namespace lives in its ``replication_clusters`` and may live in its ``allowed_clusters``. Where this one
is none of them, clients are sent to one of its peers (``peerClusterNames``) that is, or are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from geminga.broker.ownership.endpoints import Endpoint
from geminga.model.errors import NotInThisClusterError, UnavailableError

if TYPE_CHECKING:
    from geminga.broker.core.coercion import Json
    from geminga.broker.resources import Policies, Resources
    from geminga.model.topic_name import TopicName

#: Of a request to make partitions and leave their number, which clusters share; Geminga's own.
MAKE_ONLY: Final = "gemingaMakeOnly"
#: Of a cluster's data: clusters that are never together with it in a namespace.
PEERS: Final = "peerClusterNames"


def other_homes(policies: Policies, cluster: str) -> list[str]:
    """Names of the other clusters that such a namespace lives in, or may, sorted."""
    return sorted({*policies.replication_clusters, *policies.allowed_clusters} - {cluster})


def require_life_in(policies: Policies, namespace: str, cluster: str) -> None:
    """Raise NotInThisClusterError unless the namespace lives in ``cluster``."""
    if not policies.lives_in(cluster):
        clusters = ", ".join(policies.replication_clusters)
        raise NotInThisClusterError(
            f"Namespace missing local cluster name in clusters list: local_cluster={cluster} ns={namespace} "
            f"clusters=[{clusters}]"
        )


class PeerClusters:
    """Those that serve what does not live here; :class:`geminga.broker.ownership.ports.OtherPlaces`."""

    __slots__ = ("_cluster", "_policies", "_resources")

    def __init__(
        self, resources: Resources, cluster: str, policies: Callable[[str], Awaitable[Policies | None]]
    ) -> None:
        """``cluster``: this one. ``policies`` of a namespace by name."""
        self._resources = resources
        self._cluster = cluster
        self._policies = policies

    async def endpoint_for(self, namespace: str) -> Endpoint | None:
        """Where a peer is that the namespace lives in, the first by name; None: there is no such peer.

        Raises UnavailableError where that one has no address, MetadataError.
        """
        policies = await self._policies(namespace)
        here = await self._resources.clusters.find(self._cluster)
        if policies is None or here is None:
            return None
        peers = here.get(PEERS)
        for cluster in sorted(set(policies.replication_clusters) & set(peers if isinstance(peers, list) else ())):
            document = await self._resources.clusters.find(cluster)
            if document is not None:
                return _endpoint(cluster, document)
        return None

    async def partitions(self, name: TopicName) -> int:
        """Stored of a topic, wherever its namespace lives; 0: none. Nothing is made. Raises MetadataError."""
        found = await self._resources.partitioned_topics.find_stored(name)
        return 0 if found is None else found.partitions


def _endpoint(cluster: str, document: Mapping[str, Json]) -> Endpoint:
    keys = ("brokerServiceUrl", "brokerServiceUrlTls", "serviceUrl", "serviceUrlTls")
    broker, broker_tls, web, web_tls = (f"{document.get(key) or ''}" for key in keys)
    if not broker and not broker_tls:
        raise UnavailableError(
            f"the topic lives in cluster {cluster}, of which no brokerServiceUrl is stored: nobody can be sent there"
        )
    return Endpoint(cluster, broker, broker_tls, web, web_tls)
