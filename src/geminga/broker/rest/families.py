"""The rows in families, by the first words of their paths: each is loaded with the first request for one of it.

Who asks whether a broker is ready pays for those rows and no others: all of them together cost as much as the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.rest.calls.requests import context_of, topic_of
from geminga.broker.rest.calls.routing import Route, distinct

if TYPE_CHECKING:
    from starlette.requests import Request

    from geminga.broker.ownership.ports import Ownership

#: Words of a path by which families are told apart, those of ``/admin`` and of the rest.
_ADMIN_WORDS: Final = 3


def family_of(path: str) -> str:
    """The family of a row or a request, by its path: ``/admin/v2/tenants``, ``/metrics``."""
    words = path.split("/", _ADMIN_WORDS + 1)
    count = _ADMIN_WORDS if words[1:2] == ["admin"] else 1
    family = "/".join(words[: count + 1])
    return _SAME.get(family, family)


def rows_of(family: str) -> list[Route]:
    """Every row of a family that is built, its modules loaded; none of a family that nobody knows."""
    return [route for rows in FAMILIES.get(family, ()) for route in rows() if family_of(route.path) == family]


def all_rows() -> list[Route]:
    """Every row that is built, wherever a request looks for it. Raises InvariantError for two that answer the same."""
    makers = dict.fromkeys(rows for several in FAMILIES.values() for rows in several)
    return distinct({id(route): route for rows in makers for route in rows()}.values())


def _ownership(request: Request) -> Ownership:
    return context_of(request).ownership


def _brokers() -> Sequence[Route]:
    from geminga.broker.rest.cluster_routes import brokers

    return brokers.ROUTES


def _metrics() -> Sequence[Route]:
    # Here, on a thread, and not when the page is made.
    from geminga.broker.rest.cluster_routes import brokers

    return brokers.METRICS


def _broker_stats() -> Sequence[Route]:
    from geminga.broker.rest.cluster_routes import broker_stats

    return broker_stats.ROUTES


def _clusters() -> Sequence[Route]:
    from geminga.broker.rest.cluster_routes import clusters
    from geminga.broker.rest.namespace_routes import isolation, migration, replication

    return [*clusters.ROUTES, *isolation.ROUTES, *replication.OF_CLUSTERS, *migration.OF_CLUSTERS]


def _metadata() -> Sequence[Route]:
    from geminga.broker.rest.topic_routes import known_answers

    return known_answers.OF_METADATA


def _resource_groups() -> Sequence[Route]:
    from geminga.broker.rest.namespace_routes import resource_groups

    return resource_groups.ROUTES


def _tenants() -> Sequence[Route]:
    from geminga.broker.rest.namespace_routes import tenants

    return tenants.ROUTES


def _bookies() -> Sequence[Route]:
    from geminga.broker.rest.cluster_routes import bookies

    return bookies.ROUTES


def _bundle_topics() -> Sequence[Route]:
    from geminga.broker.rest.namespace_routes import bundle_topics

    return bundle_topics.ROUTES


def _namespaces() -> Sequence[Route]:
    from geminga.broker.rest.namespace_routes import (
        anti_affinity,
        bundles,
        lake_scan,
        left_topics,
        migration,
        namespaces,
        permissions,
        replication,
        resource_groups,
    )
    from geminga.broker.rest.namespace_routes import policies as namespace_policies
    from geminga.broker.rest.namespace_routes import subscriptions as namespace_subscriptions
    from geminga.broker.rest.topic_routes import lake

    return [
        *namespace_policies.ROUTES,
        *namespaces.ROUTES,
        *permissions.ROUTES,
        *bundles.ROUTES,
        *anti_affinity.ROUTES,
        *namespace_subscriptions.ROUTES,
        *lake.NAMESPACE_ROUTES,
        *lake_scan.ROUTES,
        *replication.OF_NAMESPACES,
        *migration.OF_NAMESPACES,
        *left_topics.ROUTES,
        *resource_groups.OF_NAMESPACES,
    ]


def _quotas() -> Sequence[Route]:
    from geminga.broker.rest.namespace_routes import quotas

    return quotas.ROUTES


def _lookup() -> Sequence[Route]:
    from geminga.broker.rest.topic_routes import lookup

    return lookup.ROUTES


def _schemas() -> Sequence[Route]:
    from geminga.broker.rest.topic_routes import schemas

    return schemas.ROUTES


def _topics() -> Sequence[Route]:
    from geminga.broker.rest.calls.owners import at_owner, at_owner_of
    from geminga.broker.rest.topic_routes import (
        compaction,
        holes,
        lake,
        messages,
        partitions,
        permissions,
        replicators,
        shadows,
        subscriptions,
        topics,
    )
    from geminga.broker.rest.topic_routes import policies as topic_policies
    from geminga.broker.rest.topic_routes.scatter_gather import over_partitions

    return [
        *at_owner(lake.ROUTES, topic_of, _ownership),
        *at_owner(holes.ROUTES, topic_of, _ownership),
        *at_owner(replicators.ROUTES, topic_of, _ownership),
        *at_owner(shadows.ROUTES, topic_of, _ownership),
        *at_owner(over_partitions(compaction.ROUTES), topic_of, _ownership),
        *at_owner(over_partitions(subscriptions.ROUTES), topic_of, _ownership),
        *at_owner(over_partitions(messages.ROUTES), topic_of, _ownership),
        *partitions.ROUTES,
        *at_owner_of(topic_policies.ROUTES, topic_policies.whose, _ownership),
        *permissions.ROUTES,
        *topics.LISTS,
        *at_owner(over_partitions(topics.ROUTES), topic_of, _ownership),
    ]


def _messages() -> Sequence[Route]:
    from geminga.broker.rest.message_routes import consume, produce, tail

    return [*produce.ROUTES, *consume.ROUTES, *tail.ROUTES]


def _transactions() -> Sequence[Route]:
    from geminga.broker.rest.calls.owners import at_owner
    from geminga.broker.rest.topic_routes import transactions as rows

    return [
        *rows.where_enabled(rows.OF_CLUSTER),
        *rows.where_enabled(at_owner(rows.OF_COORDINATORS, rows.coordinator_topic, _ownership)),
        *rows.where_enabled(at_owner(rows.OF_TOPICS, rows.persistent_of, _ownership)),
        *rows.where_enabled(at_owner(rows.OF_STANDINGS, rows.coordinator_topic, _ownership)),
        *rows.where_enabled(at_owner(rows.OF_SNAPSHOTS, rows.snapshots_topic_of, _ownership)),
        *at_owner(rows.ALWAYS, rows.persistent_of, _ownership),
    ]


def _sockets() -> Sequence[Route]:
    from geminga.broker.rest.topic_routes import websockets

    return websockets.ROUTES


def _socket_stats() -> Sequence[Route]:
    from geminga.broker.rest.topic_routes import websockets

    return websockets.STATISTICS


#: Families of several names, the domain of a topic among them.
_SAME: Final = {
    f"/admin/v2/{domain}": "/admin/v2/persistent" for domain in ("non-persistent", "{domain}", "{domain:domain}")
}
#: Where the rows of each family are. One function may have rows of several.
FAMILIES: Final[dict[str, tuple[Callable[[], Sequence[Route]], ...]]] = {
    "/admin/v2/brokers": (_brokers, _broker_stats),
    "/metrics": (_metrics,),
    "/status.html": (_brokers,),
    "/admin/v2/broker-stats": (_broker_stats,),
    "/admin/v2/clusters": (_clusters,),
    "/admin/v2/metadata": (_metadata,),
    "/admin/v2/resourcegroups": (_resource_groups,),
    "/admin/v2/tenants": (_tenants,),
    "/admin/v2/bookies": (_bookies,),
    "/admin/v2/namespaces": (_namespaces, _bookies, _bundle_topics),
    "/admin/v2/resource-quotas": (_quotas,),
    "/lookup": (_lookup,),
    "/admin/v2/schemas": (_schemas,),
    "/admin/v2/persistent": (_topics, _bundle_topics),
    "/admin/v3/transactions": (_transactions,),
    "/ws": (_sockets,),
    "/admin/v2/proxy-stats": (_socket_stats,),
    "/topics": (_messages,),
}
