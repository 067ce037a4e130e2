"""Paths of geo-replication: which clusters a namespace lives in, and which are never together in one.

A namespace that is taken out of this cluster is unloaded before the answer. What is stored of it stays, and is there
again when the cluster is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import ClusterOperation, PolicyName, reading, writing
from geminga.broker.core.coercion import texts_of
from geminga.broker.geo.residence import PEERS
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    namespace_of,
    no_content,
    nothing_set,
    path_text,
    required_body,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.namespace_routes.deletion import partitioned_topics_of_namespace, topics_of_namespace
from geminga.broker.rest.namespace_routes.policies import change_policy, require_namespace_of
from geminga.model.errors import ConflictError, PreconditionFailedError

#: What is said where no cluster is named.
NO_CLUSTERS: Final = "ClusterIds should not be null or empty"
#: Members of a namespace's policies.
_REPLICATION: Final = "replication_clusters"
_ALLOWED: Final = "allowed_clusters"


def clusters_in(body: Json) -> list[str]:
    """The clusters that a body names; raises BodyError, PreconditionFailedError where it names none."""
    clusters = [] if body is None else texts_of(body, "the body")
    if not clusters:
        raise PreconditionFailedError(NO_CLUSTERS)
    return clusters


async def get_clusters(request: Request) -> Response:
    """Clusters that the namespace lives in."""
    return json_response(await _stored(request, _REPLICATION, [context_of(request).cluster]))


async def set_clusters(request: Request) -> Response:
    """The clusters that the namespace lives in from now on; to all others the messages of its topics are copied.

    Without this one: its topics are unloaded, clients are sent to a peer cluster that is named, or are refused.
    ``compareTopicPartitions``: only if topics and their automatic creation are alike in those that are new.
    """
    clusters, context = clusters_in(await json_body(request)), context_of(request)
    await require_known(context, clusters)
    await require_no_peers(context, clusters)
    await context.resources.tenants.get(namespace_of(request).partition("/")[0])
    await require_namespace_of(request)
    # As in Pulsar: what a topic may not is refused with 403, what its namespace may not with 400.
    require_allowed(await _stored(request, _ALLOWED, []), namespace_of(request), clusters, status=400)
    await require_usable(context, namespace_of(request), clusters)
    if flag(request, "compareTopicPartitions") and context.cluster in clusters:
        present = await _stored(request, _REPLICATION, [context.cluster])
        await _require_alike(context, namespace_of(request), [name for name in clusters if name not in present])
    return await _set(request, _REPLICATION, clusters)


async def _require_alike(context: RestContext, namespace: str, clusters: Sequence[str]) -> None:
    if not clusters or context.ask_cluster is None:
        return
    from geminga.broker.geo.alike import require_alike  # with the first that asks
    from geminga.broker.geo.core.alike import NamespaceTopics, made_by

    topics, partitions = context.topics, {}
    for name in await topics_of_namespace(topics, namespace, has_system=True):
        if name.is_persistent and not name.is_partition:
            partitions[str(name)] = 0
    for name in await partitioned_topics_of_namespace(topics, namespace):
        found = await topics.resources.partitioned_topics.find(name) if name.is_persistent else None
        if found is not None:
            partitions[str(name)] = found.partitions
    policies, config = await context.resources.namespaces.get(namespace), context.config
    made = made_by(
        policies.document.get("autoTopicCreationOverride"), config.auto_topic_creation_type, config.default_partitions
    )
    here = NamespaceTopics(context.cluster, partitions, *made)
    for cluster in clusters:
        await require_alike(partial(context.ask_cluster, cluster), cluster, namespace, here)


async def get_allowed(request: Request) -> Response:
    """Clusters that the namespace may be moved to."""
    return json_response(await _stored(request, _ALLOWED, []))


async def set_allowed(request: Request) -> Response:
    """Clusters that it may be replicated to."""
    body = await required_body(request)
    clusters, context = texts_of(body, "the body"), context_of(request)
    await require_usable(context, namespace_of(request), clusters)
    present = await _stored(request, _REPLICATION, [context.cluster])
    left = [str(cluster) for cluster in present if cluster not in clusters]
    if left:
        raise RestError(
            400,
            f"Allowed clusters do not contain the replication cluster [{', '.join(left)}]. Please remove the "
            "replication cluster if the cluster is not allowed for this namespace",
        )
    return await _set(request, _ALLOWED, clusters)


async def _stored(request: Request, member: str, unset: Sequence[str]) -> list[Json]:
    policies = await context_of(request).resources.namespaces.get(await require_namespace_of(request))
    found = policies.document.get(member)
    return found if isinstance(found, list) and found else [*unset]


async def require_known(context: RestContext, clusters: Sequence[str]) -> None:
    """Raise RestError (403) for a cluster that does not exist."""
    for cluster in clusters:
        if await context.resources.clusters.find(cluster) is None:
            raise RestError(403, f"Invalid cluster id: {cluster}")


async def require_no_peers(context: RestContext, clusters: Sequence[str]) -> None:
    """Raise ConflictError (409) where one of them is a peer of another: a namespace lives in one of the two."""
    for cluster in clusters:
        data = await context.resources.clusters.find(cluster)
        peers = data.get(PEERS) if data is not None else None
        together = [peer for peer in clusters if isinstance(peers, list) and peer in peers]
        if together:
            raise ConflictError(
                f"{cluster}'s peer-clusters [{', '.join(together)}] can't be part of replication clusters"
            )


def require_allowed(allowed: Sequence[Json], namespace: str, clusters: Sequence[str], status: int = 403) -> None:
    """Raise RestError (``status``) for a cluster that the namespace's own list, if it has one, leaves out."""
    for cluster in clusters:
        if allowed and cluster not in allowed:
            raise RestError(
                status, f"Cluster [{cluster}] is not in the list of allowed clusters list for namespace [{namespace}]"
            )


async def require_usable(context: RestContext, namespace: str, clusters: Sequence[str]) -> None:
    """Raise RestError (403) for a cluster that the namespace's tenant may not use."""
    tenant = namespace.partition("/")[0]
    allowed = (await context.resources.tenants.get(tenant)).get("allowedClusters")
    for cluster in clusters:
        if not isinstance(allowed, list) or cluster not in allowed:
            raise RestError(
                403, f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]"
            )


async def _set(request: Request, member: str, clusters: list[str]) -> Response:
    def change(document: Document) -> Document:
        return {**document, member: [*clusters]}

    await change_policy(request, change, "Namespace does not exist")
    # As in Pulsar, which answers 204 to most others.
    return nothing_set()


async def get_peers(request: Request) -> Response:
    """Clusters that are never together with this one in a namespace; no body where nobody said."""
    peers = (await context_of(request).resources.clusters.get(path_text(request, "cluster"))).get(PEERS)
    return nothing_set() if peers is None else json_response(peers)


async def set_peers(request: Request) -> Response:
    """Clusters that serve what does not live in this one, and are never together with it in a namespace."""
    body = await json_body(request)
    peers: list[Json] = [peer for peer in ([] if body is None else texts_of(body, "the body")) if peer.strip()]
    clusters, cluster = context_of(request).resources.clusters, path_text(request, "cluster")
    await clusters.get(cluster)
    for peer in map(str, peers):
        if peer == cluster:
            raise PreconditionFailedError(f"{cluster} itself can't be part of peer-list")
        if await clusters.find(peer) is None:
            raise PreconditionFailedError(f"Peer cluster {peer} does not exist")
    await clusters.change(cluster, lambda data: {**data, PEERS: peers})
    return no_content()


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_PEERS_PATH: Final = "/admin/v2/clusters/{cluster}/peers"

OF_NAMESPACES: Final = [
    Route("GET", f"{_NAMESPACE}/replication", get_clusters, reading(PolicyName.REPLICATION)),
    Route("POST", f"{_NAMESPACE}/replication", set_clusters, writing(PolicyName.REPLICATION)),
    Route("GET", f"{_NAMESPACE}/allowedClusters", get_allowed, reading(PolicyName.ALLOW_CLUSTERS)),
    Route("POST", f"{_NAMESPACE}/allowedClusters", set_allowed, writing(PolicyName.ALLOW_CLUSTERS)),
]
OF_CLUSTERS: Final = [
    Route("GET", _PEERS_PATH, get_peers, ClusterOperation.GET_CLUSTER),
    Route("POST", _PEERS_PATH, set_peers, ClusterOperation.UPDATE_CLUSTER),
]
