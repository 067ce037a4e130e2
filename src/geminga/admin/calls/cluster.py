"""Tenants, clusters, brokers, bookies, schemas, transactions."""

from __future__ import annotations

from typing import Final

from geminga.admin.calls.row import FORCE, Argument, Body, Call, Noun, WireType, do, get

_INT, _BOOL, _TEXT, _TEXTS, _MAP, _DOC = (
    WireType.INT,
    WireType.BOOL,
    WireType.TEXT,
    WireType.TEXTS,
    WireType.TEXT_MAP,
    WireType.DOCUMENT,
)

_TENANT: Final = (
    Argument("admin_roles", _TEXTS, "adminRoles", "roles that administer it", is_required=True),
    Argument("allowed_clusters", _TEXTS, "allowedClusters", "clusters where its namespaces may be", is_required=True),
)
TENANTS: Final = Noun(
    "tenants",
    "Tenants.",
    (
        get("list", "tenants", "Their names.", _TEXTS),
        get("get", "tenants/{tenant}", "Its administrators and clusters.", _DOC),
        Call("create", "PUT", "tenants/{tenant}", "Make one.", members=_TENANT),
        Call("update", "POST", "tenants/{tenant}", "Give it other administrators and clusters.", members=_TENANT),
        do("DELETE", "delete", "tenants/{tenant}", "Delete it; with force, its namespaces too.", FORCE, destroys=True),
    ),
)

_CLUSTER: Final = "clusters/{cluster}"
_ISOLATION: Final = _CLUSTER + "/namespaceIsolationPolicies"
_DATA: Final = Body("data", _DOC, "``serviceUrl``, ``brokerServiceUrl``, their ``Tls``, ...")
CLUSTERS: Final = Noun(
    "clusters",
    "Clusters, failure domains, isolation of namespaces.",
    (
        get("list", "clusters", "Their names.", _TEXTS),
        get("get", _CLUSTER, "Its URLs.", _DOC),
        Call("create", "PUT", _CLUSTER, "Make one known.", body=_DATA),
        Call("update", "POST", _CLUSTER, "Change its URLs.", body=_DATA),
        do("DELETE", "delete", _CLUSTER, "Know it no more.", destroys=True),
        get("peers", _CLUSTER + "/peers", "Clusters that may take its clients.", _TEXTS, may_be_none=True),
        Call("set_peers", "POST", _CLUSTER + "/peers", "Set them.", body=Body("clusters", _TEXTS, "their names")),
        get("migration", _CLUSTER + "/migrate", "Where it moves to.", _DOC, may_be_none=True),
        Call(
            "migrate",
            "POST",
            _CLUSTER + "/migrate",
            "Say where its topics go; ``migrated``: all of them.",
            query=(Argument("migrated", WireType.BOOL, "migrated", "move all topics of the cluster", default=False),),
            body=Body("data", _DOC, "``serviceUrl``, ``brokerServiceUrl``, their ``Tls``"),
        ),
        get("failure_domains", _CLUSTER + "/failureDomains", "Brokers that fail together, by domain.", _DOC),
        get("failure_domain", _CLUSTER + "/failureDomains/{domain}", "Brokers of one.", _DOC),
        Call(
            "set_failure_domain",
            "POST",
            _CLUSTER + "/failureDomains/{domain}",
            "Set the brokers of one.",
            members=(Argument("brokers", _TEXTS, "brokers", "their names", is_required=True),),
        ),
        do("DELETE", "delete_failure_domain", _CLUSTER + "/failureDomains/{domain}", "Have it no more."),
        get("isolation_policies", _ISOLATION, "Which namespaces which brokers serve.", _DOC),
        get("isolation_policy", _ISOLATION + "/{policy}", "One of them.", _DOC),
        Call(
            "set_isolation_policy",
            "POST",
            _ISOLATION + "/{policy}",
            "Set one.",
            body=Body("policy_data", _DOC, "``namespaces``, ``primary``, ``secondary``, ``auto_failover_policy``"),
        ),
        do("DELETE", "delete_isolation_policy", _ISOLATION + "/{policy}", "Have it no more."),
        get("isolated_brokers", _ISOLATION + "/brokers", "Brokers, with the policies they are in.", WireType.DOCUMENTS),
        get("isolated_broker", _ISOLATION + "/brokers/{broker}", "The policies that a broker is in.", _DOC),
    ),
)

BROKERS: Final = Noun(
    "brokers",
    "Brokers: health, settings, load.",
    (
        get("list", "brokers", "Those that live, as host and port of HTTP.", _TEXTS),
        get("list_of_cluster", "brokers/{cluster}", "Those of a cluster.", _TEXTS),
        get("leader", "brokers/leaderBroker", "The one that leads.", _DOC),
        get("owned_namespaces", "brokers/{cluster}/{broker}/ownedNamespaces", "Bundles that a broker serves.", _DOC),
        get("health", "brokers/health", "``ok``, after a message went through.", _TEXT),
        get("ready", "brokers/ready", "``ok``, once it serves.", _TEXT),
        get("version", "brokers/version", "Its version.", _TEXT),
        get("dynamic_configuration_names", "brokers/configuration", "Keys that may be set while it runs.", _TEXTS),
        get("dynamic_configuration", "brokers/configuration/values", "Those that are set so.", _MAP),
        get("runtime_configuration", "brokers/configuration/runtime", "All keys with what holds.", _MAP),
        get(
            "synchronization",
            "brokers/configuration/synchronization",
            "How it stands with configuration that a topic keeps alike.",
            _DOC,
        ),
        get("internal_configuration", "brokers/internal-configuration", "Where its metadata are.", _DOC),
        do("POST", "set_dynamic_configuration", "brokers/configuration/{key}/{value}", "Set a key for all brokers."),
        do("DELETE", "delete_dynamic_configuration", "brokers/configuration/{key}", "Set it no more."),
        do("GET", "check_backlog_quotas", "brokers/backlog-quota-check", "Look at all backlogs now."),
        do(
            "POST",
            "shutdown",
            "brokers/shutdown",
            "Give all topics away, then stop the process.",
            Argument("unloads_per_s", _INT, "maxConcurrentUnloadPerSec", "bundles a second; 0: no limit", default=0),
            Argument("force", _BOOL, "forcedTerminateTopic", "also what does not end by itself", default=True),
            destroys=True,
        ),
        Call(
            "start_backup",
            "POST",
            "brokers/backup",
            "Begin a copy of all that a standalone keeps, on its machine.",
            members=(
                Argument("directory", _TEXT, "directory", "absolute, of the server's machine", is_required=True),
                Argument(
                    "request", _TEXT, "request", "name of a file there: request-, 32 hex digits", is_required=True
                ),
                Argument("whole", _BOOL, "whole", "copy also what the backup before has", default=False),
                Argument("rate_limit", _INT, "rateLimit", "bytes a second that are copied; 0: no limit", default=0),
            ),
        ),
        get("backup", "brokers/backup", "What became of the last backup.", _DOC),
        get("metrics", "broker-stats/metrics", "Its metrics, as objects.", WireType.DOCUMENTS),
        get("topics", "broker-stats/topics", "Statistics of all topics that it serves.", _DOC),
        get("bookie_ops", "broker-stats/bookieops", "Ledgers that are being made, by namespace and topic.", _DOC),
        get("load_report", "broker-stats/load-report", "What it says of its load.", _DOC),
        get("mbeans", "broker-stats/mbeans", "Beans of a Java process: none.", WireType.DOCUMENTS),
        get("allocator_stats", "broker-stats/allocator-stats/{allocator}", "What it holds in memory.", _DOC),
        get(
            "resource_availability",
            "broker-stats/broker-resource-availability/{namespace}",
            "Which brokers have room for a namespace.",
            _DOC,
        ),
        get("web_sockets", "proxy-stats/stats", "WebSockets that it has, by topic.", _DOC),
        get("web_socket_metrics", "proxy-stats/metrics", "What they did in the last minute.", WireType.DOCUMENTS),
        get("metadata_migration", "metadata/migration/status", "Whether metadata move to another store.", _DOC),
    ),
)

RESOURCES: Final = Noun(
    "resources",
    "Quotas of bundles, and resource groups.",
    (
        get("default_quota", "resource-quotas", "What is assumed of a bundle's load.", _DOC),
        Call(
            "set_default_quota", "POST", "resource-quotas", "Assume this.", body=Body("quota", _DOC, "rates and memory")
        ),
        get("quota", "resource-quotas/{namespace}/{bundle}", "What is assumed of one bundle.", _DOC),
        Call(
            "set_quota",
            "POST",
            "resource-quotas/{namespace}/{bundle}",
            "Assume this of it.",
            body=Body("quota", _DOC, "rates and memory"),
        ),
        do("DELETE", "reset_quota", "resource-quotas/{namespace}/{bundle}", "Assume of it what is assumed of all."),
        get("groups", "resourcegroups", "Names of resource groups.", _TEXTS),
        get("group", "resourcegroups/{group}", "Limits of one.", _DOC),
        Call(
            "put_group",
            "PUT",
            "resourcegroups/{group}",
            "Make one, or change the limits that are named.",
            body=Body("limits", _DOC, "per second, of all its namespaces together; -1: none"),
        ),
        do("DELETE", "delete_group", "resourcegroups/{group}", "Delete one that no namespace is in."),
    ),
)

BOOKIES: Final = Noun(
    "bookies",
    "Bookies and their racks.",
    (
        get("list", "bookies/all", "All that are known.", _DOC),
        get("racks", "bookies/racks-info", "Racks, by group and bookie.", _DOC),
        get("rack", "bookies/racks-info/{bookie}", "The rack of one.", _DOC),
        Call(
            "set_rack",
            "POST",
            "bookies/racks-info/{bookie}",
            "Say where one stands.",
            members=(
                Argument("rack", _TEXT, "rack", "its rack, such as /room/rack", is_required=True),
                Argument("hostname", _TEXT, "hostname", "its host"),
            ),
            query=(Argument("group", _TEXT, "group", "which bookies it belongs to", default="default"),),
        ),
        do("DELETE", "delete_rack", "bookies/racks-info/{bookie}", "Say nothing of it any more."),
    ),
)

_SCHEMA: Final = Body("schema", _DOC, "``type``, ``schema`` (its text) and ``properties``")
SCHEMAS: Final = Noun(
    "schemas",
    "Schemas of topics.",
    (
        get("get", "schemas/{place}/schema", "The newest.", _DOC),
        get("get_version", "schemas/{place}/schema/{version}", "One version, from 0.", _DOC),
        get("list", "schemas/{place}/schemas", "All versions.", _DOC),
        get("metadata", "schemas/{place}/metadata", "Where they are stored.", _DOC),
        Call("upload", "POST", "schemas/{place}/schema", "Store one: its version.", _DOC, body=_SCHEMA),
        do("DELETE", "delete", "schemas/{place}/schema", "Delete all.", FORCE, destroys=True),
        Call(
            "test_compatibility",
            "POST",
            "schemas/{place}/compatibility",
            "Whether it would be taken.",
            _DOC,
            body=_SCHEMA,
        ),
        Call("version_of", "POST", "schemas/{place}/version", "The version that it has.", _DOC, body=_SCHEMA),
    ),
)

_TXN: Final = "/admin/v3/transactions/"
_COORDINATOR: Final = Argument("coordinator", _INT, "coordinatorId", "one of them; else all")
_MARKS: Final = Argument(
    "low_water_marks", _BOOL, "lowWaterMarks", "with the oldest open one by coordinator", default=False
)
_METADATA: Final = Argument("metadata", _BOOL, "metadata", "with metadata of ledgers", default=False)
TRANSACTIONS: Final = Noun(
    "transactions",
    "Transactions, their coordinators and buffers.",
    (
        get("coordinators", _TXN + "coordinators", "Who coordinates.", _DOC),
        get("coordinator_stats", _TXN + "coordinatorStats", "Open ones, ids and marks.", _DOC, _COORDINATOR),
        get("coordinator_internal_stats", _TXN + "coordinatorInternalStats/{coordinator}", "Its log.", _DOC, _METADATA),
        get(
            "metadata",
            _TXN + "transactionMetadata/{most}/{least}",
            "One transaction: topics, subscriptions, state.",
            _DOC,
        ),
        get(
            "slow",
            _TXN + "slowTransactions/{timeout_ms}",
            "Those open for longer than so many milliseconds.",
            _DOC,
            _COORDINATOR,
        ),
        do("POST", "abort", _TXN + "abortTransaction/{most}/{least}", "Abort one.", destroys=True),
        Call(
            "scale_coordinators",
            "POST",
            _TXN + "transactionCoordinator/replicas",
            "Have more coordinators.",
            body=Body("count", _INT, "how many"),
        ),
        get("buffer_stats", _TXN + "transactionBufferStats/{place}", "Of a topic.", _DOC, _MARKS),
        get(
            "buffer_internal_stats",
            _TXN + "transactionBufferInternalStats/{place}",
            "Where it is stored.",
            _DOC,
            _METADATA,
        ),
        get(
            "in_buffer_stats",
            _TXN + "transactionInBufferStats/{place}/{most}/{least}",
            "One transaction in a topic.",
            _DOC,
        ),
        get("buffer_snapshot", _TXN + "bufferSnapshot/{place}", "The snapshot of a topic's aborted ones.", _DOC),
        Call(
            "put_buffer_snapshot",
            "PUT",
            _TXN + "bufferSnapshot/{place}",
            "Put another in its place.",
            body=Body("snapshot", _DOC, "as it was told"),
        ),
        do("DELETE", "delete_buffer_snapshot", _TXN + "bufferSnapshot/{place}", "Delete it.", destroys=True),
        get("pending_ack_stats", _TXN + "pendingAckStats/{place}/{subscription}", "Of a subscription.", _DOC, _MARKS),
        get(
            "pending_ack_internal_stats",
            _TXN + "pendingAckInternalStats/{place}/{subscription}",
            "Where it is stored.",
            _DOC,
            _METADATA,
        ),
        get(
            "in_pending_ack_stats",
            _TXN + "transactionInPendingAckStats/{place}/{subscription}/{most}/{least}",
            "One transaction in a subscription.",
            _DOC,
        ),
        get(
            "position_in_pending_ack",
            _TXN + "positionStatsInPendingAck/{place}/{subscription}/{ledger}/{entry}",
            "Whether a message waits for a transaction.",
            _DOC,
            Argument("batch_index", _INT, "batchIndex", "one of a batch"),
        ),
    ),
)
