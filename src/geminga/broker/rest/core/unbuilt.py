"""What Pulsar 4.2.4's REST has and Geminga has not: one table, which routing, handlers and ``docs/rest.md`` read.

Whoever asks for it is told 501 with the name of what is missing, whatever the method: an answer that pretends would be
believed. Paths are templates as the routes have them; they are facts of Pulsar's interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from geminga.model.errors import NotBuiltError

_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_FUNCTION: Final = "{tenant}/{namespace}/{function}"
_BUNDLE: Final = "{tenant}/{namespace}/{bundle}"
_SUBSCRIPTION: Final = f"{_TOPIC}/subscription/{{subscription}}"
_TRANSACTIONS: Final = "/admin/v3/transactions"
_PACKAGES: Final = "/admin/v3/packages/{type}/{tenant}/{namespace}"


class UnbuiltRoute(NamedTuple):
    """A path that Pulsar serves."""

    #: What it would take, as the answer says it.
    what: str
    methods: tuple[str, ...]
    path: str


class UnbuiltField(NamedTuple):
    """A member of a document whose effect is missing."""

    what: str
    key: str
    #: Values that mean "not set" in Pulsar; null does always.
    unset: tuple[object, ...] = ()


def _routes(what: str, *rows: str) -> Iterable[UnbuiltRoute]:
    """Rows are methods and a path."""
    for row in rows:
        *methods, path = row.split()
        yield UnbuiltRoute(what, tuple(methods), path)


def _connectors(what: str, kind: str) -> Iterable[UnbuiltRoute]:
    """Paths of ``sink``, ``sinks``, ``source`` or ``sources``, which differ in that word alone."""
    base, plural = f"/admin/v3/{kind}", kind.rstrip("s") + "s"
    one = f"{base}/{{tenant}}/{{namespace}}/{{name}}"
    return _routes(
        what,
        f"GET {base}/builtin{plural}",
        f"GET {base}/builtin{plural}/{{name}}/configdefinition",
        f"POST {base}/reloadBuiltIn{plural.capitalize()}",
        f"GET {base}/{{tenant}}/{{namespace}}",
        f"GET POST PUT DELETE {one}",
        f"GET {one}/status",
        f"POST {one}/start",
        f"POST {one}/stop",
        f"POST {one}/restart",
        f"GET {one}/{{instance}}/status",
        f"POST {one}/{{instance}}/start",
        f"POST {one}/{{instance}}/stop",
        f"POST {one}/{{instance}}/restart",
    )


def _functions(base: str, *more: str) -> Iterable[UnbuiltRoute]:
    """Paths of functions under ``base`` that both versions of the interface have, and ``more``."""
    one = f"{base}/{_FUNCTION}"
    return _routes(
        "functions",
        f"GET {base}/connectors",
        f"GET {base}/download",
        f"POST {base}/upload",
        f"GET {base}/{{tenant}}/{{namespace}}",
        f"GET POST PUT DELETE {one}",
        f"GET {one}/status",
        f"POST {one}/stop",
        f"POST {one}/restart",
        f"POST {one}/trigger",
        f"GET {one}/{{instance}}/status",
        f"POST {one}/{{instance}}/stop",
        f"POST {one}/{{instance}}/restart",
        *more,
    )


#: Grouped by what is missing; :func:`_routes` expands them.
ROUTES: Final[tuple[UnbuiltRoute, ...]] = (
    *_routes(
        "shadow topics",
        f"GET PUT DELETE {_TOPIC}/shadowTopics",
    ),
    *_routes(
        "rate limits",
        f"GET POST DELETE {_NAMESPACE}/dispatchRate",
        f"GET POST DELETE {_NAMESPACE}/publishRate",
        f"GET POST DELETE {_NAMESPACE}/subscribeRate",
        f"GET POST DELETE {_NAMESPACE}/subscriptionDispatchRate",
        f"GET POST DELETE {_NAMESPACE}/replicatorDispatchRate",
        f"GET POST DELETE {_TOPIC}/dispatchRate",
        f"GET POST DELETE {_TOPIC}/publishRate",
        f"GET POST DELETE {_TOPIC}/subscribeRate",
        f"GET POST DELETE {_TOPIC}/subscriptionDispatchRate",
        f"GET POST DELETE {_TOPIC}/replicatorDispatchRate",
        f"GET POST DELETE {_TOPIC}/{{subscription}}/dispatchRate",
    ),
    *_routes(
        "geo-replication",
        f"GET POST {_NAMESPACE}/replication",
        f"GET POST {_NAMESPACE}/allowedClusters",
        f"GET POST DELETE {_TOPIC}/replication",
        f"GET POST {_SUBSCRIPTION}/replicatedSubscriptionStatus",
        f"GET POST {_CLUSTER}/peers",
    ),
    *_routes(
        "migration to another cluster or metadata store",
        f"GET POST {_CLUSTER}/migrate",
        f"POST {_NAMESPACE}/migration",
        "GET /admin/v2/metadata/migration/status",
        "POST /admin/v2/metadata/migration/start",
    ),
    *_routes(
        "compaction",
        f"GET PUT DELETE {_NAMESPACE}/compactionThreshold",
        f"GET PUT {_TOPIC}/compaction",
        f"GET POST DELETE {_TOPIC}/compactionThreshold",
    ),
    *_routes(
        "offload",
        f"GET POST {_NAMESPACE}/offloadPolicies",
        f"DELETE {_NAMESPACE}/removeOffloadPolicies",
        f"GET PUT {_NAMESPACE}/offloadThreshold",
        f"GET PUT {_NAMESPACE}/offloadThresholdInSeconds",
        f"GET PUT DELETE {_NAMESPACE}/offloadDeletionLagMs",
        f"GET {_NAMESPACE}/scanOffloadedLedgers",
        f"GET PUT {_TOPIC}/offload",
        f"GET POST DELETE {_TOPIC}/offloadPolicies",
    ),
    *_routes(
        "policies of bookies and quorums",
        f"GET POST DELETE {_NAMESPACE}/persistence",
        f"GET POST DELETE {_NAMESPACE}/persistence/bookieAffinity",
        f"GET POST DELETE {_TOPIC}/persistence",
        "GET /admin/v2/bookies/all",
        "GET /admin/v2/bookies/racks-info",
        "GET POST DELETE /admin/v2/bookies/racks-info/{bookie}",
    ),
    *_routes(
        "bundles one by one",
        f"DELETE /admin/v2/namespaces/{_BUNDLE}",
        f"PUT /admin/v2/namespaces/{_BUNDLE}/unload",
        f"PUT /admin/v2/namespaces/{_BUNDLE}/split",
        f"GET /admin/v2/namespaces/{_BUNDLE}/topicHashPositions",
        f"POST /admin/v2/namespaces/{_BUNDLE}/clearBacklog",
        f"POST /admin/v2/namespaces/{_BUNDLE}/clearBacklog/{{subscription}}",
        f"POST /admin/v2/namespaces/{_BUNDLE}/unsubscribe/{{subscription}}",
        f"GET /admin/v2/non-persistent/{_BUNDLE}",
    ),
    *_routes(
        "load balancing and isolation",
        "GET /admin/v2/brokers/{cluster}/{broker}/ownedNamespaces",
        f"GET POST DELETE {_NAMESPACE}/antiAffinity",
        "GET /admin/v2/namespaces/{cluster}/antiAffinity/{group}",
        f"GET {_CLUSTER}/failureDomains",
        f"GET POST DELETE {_CLUSTER}/failureDomains/{{failure_domain}}",
        f"GET {_CLUSTER}/namespaceIsolationPolicies",
        f"GET {_CLUSTER}/namespaceIsolationPolicies/brokers",
        f"GET {_CLUSTER}/namespaceIsolationPolicies/brokers/{{broker}}",
        f"GET POST DELETE {_CLUSTER}/namespaceIsolationPolicies/{{policy}}",
        "GET POST /admin/v2/resource-quotas",
        f"GET POST DELETE /admin/v2/resource-quotas/{_BUNDLE}",
        "GET /admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace}",
        "GET /admin/v2/broker-stats/load-report",
    ),
    *_routes(
        "resource groups",
        "GET /admin/v2/resourcegroups",
        "GET PUT DELETE /admin/v2/resourcegroups/{group}",
        f"GET DELETE {_NAMESPACE}/resourcegroup",
        f"POST {_NAMESPACE}/resourcegroup/{{group}}",
    ),
    *_routes(
        "authorization of topics and subscriptions",
        f"GET {_NAMESPACE}/permissions/subscription",
        f"POST {_NAMESPACE}/permissions/subscription/{{subscription}}",
        f"DELETE {_NAMESPACE}/permissions/{{subscription}}/{{role}}",
        "POST /admin/v2/namespaces/grantPermissionsOnTopics",
        "POST /admin/v2/namespaces/revokePermissionsOnTopics",
        f"GET POST {_NAMESPACE}/subscriptionAuthMode",
        f"GET {_TOPIC}/permissions",
        f"POST DELETE {_TOPIC}/permissions/{{role}}",
    ),
    *_routes("required encryption", f"GET POST {_NAMESPACE}/encryptionRequired"),
    *_routes(
        "entry filters",
        f"GET POST DELETE {_NAMESPACE}/entryFilters",
        f"GET POST DELETE {_TOPIC}/entryFilters",
    ),
    *_routes(
        "inactive topics by namespace or topic",
        f"GET POST DELETE {_NAMESPACE}/inactiveTopicPolicies",
        f"GET POST DELETE {_TOPIC}/inactiveTopicPolicies",
    ),
    *_routes(
        "pausing dispatch until acknowledgements are stored",
        f"GET POST DELETE {_NAMESPACE}/dispatcherPauseOnAckStatePersistent",
        f"GET POST DELETE {_TOPIC}/dispatcherPauseOnAckStatePersistent",
    ),
    *_routes(
        "properties of namespaces by themselves",
        f"GET PUT DELETE {_NAMESPACE}/properties",
        f"GET DELETE {_NAMESPACE}/property/{{key}}",
        f"PUT {_NAMESPACE}/property/{{key}}/{{value}}",
        f"GET POST DELETE {_NAMESPACE}/allowedTopicPropertyKeysForMetrics",
    ),
    *_routes(
        "subscriptions of a whole namespace",
        f"POST {_NAMESPACE}/clearBacklog",
        f"POST {_NAMESPACE}/clearBacklog/{{subscription}}",
        f"POST {_NAMESPACE}/unsubscribe/{{subscription}}",
    ),
    *_routes(
        "this policy of a topic",
        f"GET POST DELETE {_TOPIC}/autoSubscriptionCreation",
        f"GET POST DELETE {_TOPIC}/maxConsumers",
        f"GET POST DELETE {_TOPIC}/maxConsumersPerSubscription",
        f"GET POST DELETE {_TOPIC}/maxMessageSize",
        f"GET POST DELETE {_TOPIC}/maxProducers",
        f"GET POST DELETE {_TOPIC}/maxSubscriptionsPerTopic",
        f"GET PUT DELETE {_TOPIC}/schemaCompatibilityStrategy",
        f"GET POST {_TOPIC}/schemaValidationEnforced",
        f"GET POST DELETE {_TOPIC}/subscriptionExpirationTime",
        f"DELETE {_TOPIC}/policies",
    ),
    *_routes(
        "the old name of schemaCompatibilityStrategy",
        f"GET PUT {_NAMESPACE}/schemaAutoUpdateCompatibilityStrategy",
    ),
    *_routes("schema metadata", "GET /admin/v2/schemas/{tenant}/{namespace}/{topic}/metadata"),
    *_routes(
        "this look at a topic's storage",
        f"PUT {_TOPIC}/backlogSize",
        f"GET {_TOPIC}/examinemessage",
        f"GET {_TOPIC}/getMessageIdByIndex",
        f"POST {_SUBSCRIPTION}/analyzeBacklog",
    ),
    *_routes(
        "deleting a topic's messages at once",
        f"POST {_TOPIC}/trim",
        f"DELETE {_TOPIC}/truncate",
    ),
    *_routes(
        "this look at the broker",
        "GET /admin/v2/brokers/internal-configuration",
        "GET /admin/v2/broker-stats/allocator-stats/{allocator}",
        "GET /admin/v2/broker-stats/bookieops",
        "GET /admin/v2/broker-stats/mbeans",
        "GET /admin/v2/broker-stats/metrics",
        "GET /admin/v2/broker-stats/topics",
    ),
    *_routes("checking backlog quotas on demand", "GET /admin/v2/brokers/backlog-quota-check"),
    *_routes("stopping the broker by REST", "POST /admin/v2/brokers/shutdown"),
    *_routes(
        "publishing by REST",
        "POST /topics/{domain}/{tenant}/{namespace}/{topic}",
        "POST /topics/{domain}/{tenant}/{namespace}/{topic}/partitions/{partition}",
    ),
    *_routes(
        "WebSocket",
        "GET /ws/producer/{domain}/{tenant}/{namespace}/{topic}",
        "GET /ws/consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}",
        "GET /ws/reader/{domain}/{tenant}/{namespace}/{topic}",
        "GET /ws/v2/producer/{domain}/{tenant}/{namespace}/{topic}",
        "GET /ws/v2/consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}",
        "GET /ws/v2/reader/{domain}/{tenant}/{namespace}/{topic}",
        "GET /admin/v2/proxy-stats/metrics",
        "GET /admin/v2/proxy-stats/stats",
        "GET /admin/v2/proxy-stats/{domain}/{tenant}/{namespace}/{topic}/stats",
    ),
    *_routes(
        "transactions",
        f"GET {_TRANSACTIONS}/coordinators",
        f"GET {_TRANSACTIONS}/coordinatorStats",
        f"GET {_TRANSACTIONS}/coordinatorInternalStats/{{coordinator}}",
        f"POST {_TRANSACTIONS}/transactionCoordinator/replicas",
        f"GET {_TRANSACTIONS}/slowTransactions/{{timeout}}",
        f"GET {_TRANSACTIONS}/transactionMetadata/{{most}}/{{least}}",
        f"POST {_TRANSACTIONS}/abortTransaction/{{most}}/{{least}}",
        f"GET {_TRANSACTIONS}/transactionBufferStats/{{tenant}}/{{namespace}}/{{topic}}",
        f"GET {_TRANSACTIONS}/transactionBufferInternalStats/{{tenant}}/{{namespace}}/{{topic}}",
        f"GET {_TRANSACTIONS}/transactionInBufferStats/{{tenant}}/{{namespace}}/{{topic}}/{{most}}/{{least}}",
        f"GET {_TRANSACTIONS}/pendingAckStats/{{tenant}}/{{namespace}}/{{topic}}/{{subscription}}",
        f"GET {_TRANSACTIONS}/pendingAckInternalStats/{{tenant}}/{{namespace}}/{{topic}}/{{subscription}}",
        f"GET {_TRANSACTIONS}/transactionInPendingAckStats"
        "/{tenant}/{namespace}/{topic}/{subscription}/{most}/{least}",
        f"GET {_TRANSACTIONS}/positionStatsInPendingAck"
        "/{tenant}/{namespace}/{topic}/{subscription}/{ledger}/{entry}",
    ),
    *_functions("/admin/v2/functions", f"GET /admin/v2/functions/{_FUNCTION}/state/{{key}}"),
    *_functions(
        "/admin/v3/functions",
        "GET /admin/v3/functions/builtins",
        "POST /admin/v3/functions/builtins/reload",
        f"PUT /admin/v3/functions/leader/{_FUNCTION}",
        f"GET /admin/v3/functions/{_FUNCTION}/download",
        f"GET POST /admin/v3/functions/{_FUNCTION}/state/{{key}}",
        f"GET /admin/v3/functions/{_FUNCTION}/stats",
        f"POST /admin/v3/functions/{_FUNCTION}/start",
        f"GET /admin/v3/functions/{_FUNCTION}/{{instance}}/stats",
        f"POST /admin/v3/functions/{_FUNCTION}/{{instance}}/start",
    ),
    *_routes(
        "functions",
        "GET /admin/v2/worker/assignments",
        "GET /admin/v2/worker/cluster",
        "GET /admin/v2/worker/cluster/leader",
        "GET /admin/v2/worker/cluster/leader/ready",
        "GET /admin/v2/worker/connectors",
        "GET PUT /admin/v2/worker/drain",
        "GET PUT /admin/v2/worker/leader/drain",
        "PUT /admin/v2/worker/rebalance",
        "GET /admin/v2/worker-stats/functionsmetrics",
        "GET /admin/v2/worker-stats/metrics",
    ),
    *_connectors("sinks", "sinks"),
    *_connectors("sinks", "sink"),
    *_connectors("sources", "sources"),
    *_connectors("sources", "source"),
    *_routes(
        "packages",
        f"GET {_PACKAGES}",
        f"GET {_PACKAGES}/{{package}}",
        f"GET POST DELETE {_PACKAGES}/{{package}}/{{version}}",
        f"GET PUT {_PACKAGES}/{{package}}/{{version}}/metadata",
    ),
)

#: Of a namespace's ``Policies``. The others have an effect, or are told back as they were given.
NAMESPACE_FIELDS: Final[tuple[UnbuiltField, ...]] = (
    UnbuiltField("rate limits", "clusterDispatchRate", ({},)),
    UnbuiltField("rate limits", "topicDispatchRate", ({},)),
    UnbuiltField("rate limits", "subscriptionDispatchRate", ({},)),
    UnbuiltField("rate limits", "replicatorDispatchRate", ({},)),
    UnbuiltField("rate limits", "clusterSubscribeRate", ({},)),
    UnbuiltField("rate limits", "publishMaxMessageRate", ({},)),
    UnbuiltField("latency statistics by namespace", "latency_stats_sample_rate", ({},)),
    UnbuiltField("policies of bookies and quorums", "persistence"),
    UnbuiltField("required encryption", "encryption_required", (False,)),
    UnbuiltField("inactive topics by namespace or topic", "inactive_topic_policies"),
    UnbuiltField("authorization of topics and subscriptions", "subscription_auth_mode", ("None",)),
    UnbuiltField("compaction", "compaction_threshold", (0,)),
    UnbuiltField("offload", "offload_threshold", (-1,)),
    UnbuiltField("offload", "offload_threshold_in_seconds", (-1,)),
    UnbuiltField("offload", "offload_deletion_lag_ms"),
    UnbuiltField("offload", "offload_policies"),
    UnbuiltField("properties of namespaces by themselves", "allowed_topic_property_keys_for_metrics", ([],)),
    UnbuiltField("resource groups", "resource_group_name", ("",)),
    UnbuiltField("migration to another cluster or metadata store", "migrated", (False,)),
    UnbuiltField(
        "pausing dispatch until acknowledgements are stored", "dispatcherPauseOnAckStatePersistentEnabled", (False,)
    ),
    UnbuiltField("entry filters", "entryFilters"),
)
#: Of a ``DelayedDeliveryPolicies``, a namespace's or a topic's.
DELAY_FIELDS: Final = (UnbuiltField("a longest delay of messages", "maxDeliveryDelayInMillis", (0,)),)
#: Of a ``ClusterData``.
CLUSTER_FIELDS: Final = (UnbuiltField("geo-replication", "peerClusterNames", ([],)),)
#: Of a topic's properties: a topic with this one would show another topic's messages.
TOPIC_PROPERTIES: Final = (UnbuiltField("shadow topics", "PULSAR.SHADOW_SOURCE"),)
#: What the paths of topics' policies say of non-persistent topics, which follow those of their namespace alone.
NON_PERSISTENT_POLICIES: Final = "policies of non-persistent topics"
#: Parameters of a query that ask for what is missing when they are true -> what that is.
PARAMETERS: Final = {
    "isGlobal": "policies of topics for all clusters",
    "replicated": "geo-replication",
}


def refuse_unbuilt(document: Mapping[str, object], fields: Iterable[UnbuiltField]) -> None:
    """Raise :class:`NotBuiltError` if ``document`` sets one of ``fields``."""
    for field in fields:
        value = document.get(field.key)
        # Types too: 0 and False are equal in Python.
        if value is not None and not any(type(value) is type(unset) and value == unset for unset in field.unset):
            raise NotBuiltError(f"{field.key} ({field.what})")


def refuse_parameter(query: Mapping[str, str], name: str) -> None:
    """Raise :class:`NotBuiltError` if the query says ``name=true``, one of :data:`PARAMETERS`."""
    if query.get(name, "").lower() == "true":
        raise NotBuiltError(f"{name} ({PARAMETERS[name]})")


def refuse_replication(policies: Mapping[str, object], local: str, allowed: object) -> None:
    """Raise :class:`NotBuiltError` if a namespace is to live elsewhere than in the cluster ``local``.

    Of clusters only that its tenant may use, the ``allowed``: others are refused for that.
    """
    known = allowed if isinstance(allowed, list) else []
    for key in ("replication_clusters", "allowed_clusters"):
        clusters = policies.get(key)
        if isinstance(clusters, list) and any(cluster != local and cluster in known for cluster in clusters):
            raise NotBuiltError(f"{key} (geo-replication)")
