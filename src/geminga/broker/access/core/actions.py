"""What somebody may want to do, in Pulsar's words, and to what.

The names are those of Pulsar 4.2's enumerations of the same names (``TopicOperation``, ``PolicyName``, ...), so that
rules and plugins that were written for them mean the same here.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from geminga.model.topic_name import TopicName


class _Word(Enum):
    """A word of Pulsar's; those of two enumerations are never the same action."""

    #: Each is there once: Enum's own hash is that of the name, by a function of Python.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


class TopicOperation(_Word):
    """Done to one topic, or to a subscription of it."""

    LOOKUP = auto()
    PRODUCE = auto()
    CONSUME = auto()
    EXPIRE_MESSAGES = auto()
    PEEK_MESSAGES = auto()
    RESET_CURSOR = auto()
    SKIP = auto()
    TERMINATE = auto()
    UNLOAD = auto()
    SUBSCRIBE = auto()
    GET_SUBSCRIPTIONS = auto()
    UNSUBSCRIBE = auto()
    GET_STATS = auto()
    GET_METADATA = auto()
    UPDATE_METADATA = auto()
    DELETE_METADATA = auto()
    GET_BACKLOG_SIZE = auto()
    TRIM_TOPIC = auto()
    COMPACT = auto()
    OFFLOAD = auto()


class NamespaceOperation(_Word):
    """Done to a namespace and what lies in it."""

    CREATE_TOPIC = auto()
    GET_TOPICS = auto()
    DELETE_TOPIC = auto()
    GET_BUNDLE = auto()
    DELETE_BUNDLE = auto()
    #: Of all topics in it.
    CLEAR_BACKLOG = auto()
    UNSUBSCRIBE = auto()
    GET_PERMISSION = auto()
    GRANT_PERMISSION = auto()
    REVOKE_PERMISSION = auto()


class TenantOperation(_Word):
    """Done to a tenant and its namespaces."""

    CREATE_NAMESPACE = auto()
    DELETE_NAMESPACE = auto()
    LIST_NAMESPACES = auto()
    LIST_TENANTS = auto()
    GET_TENANT = auto()
    CREATE_TENANT = auto()
    UPDATE_TENANT = auto()
    DELETE_TENANT = auto()


class ClusterOperation(_Word):
    """Done to the data of a cluster."""

    LIST_CLUSTERS = auto()
    GET_CLUSTER = auto()
    CREATE_CLUSTER = auto()
    UPDATE_CLUSTER = auto()
    DELETE_CLUSTER = auto()
    GET_FAILURE_DOMAIN = auto()
    UPDATE_FAILURE_DOMAIN = auto()
    DELETE_FAILURE_DOMAIN = auto()


class BrokerOperation(_Word):
    """Done to a broker itself."""

    LIST_BROKERS = auto()
    GET_LEADER_BROKER = auto()
    LIST_DYNAMIC_CONFIGURATIONS = auto()
    UPDATE_DYNAMIC_CONFIGURATION = auto()
    DELETE_DYNAMIC_CONFIGURATION = auto()
    LIST_RUNTIME_CONFIGURATIONS = auto()
    CHECK_BACKLOG_QUOTA = auto()
    HEALTH_CHECK = auto()
    SHUTDOWN = auto()


class SuperUser(_Word):
    """What Pulsar has no word for, and leaves to super-users."""

    UNLOAD_NAMESPACE = auto()
    #: That its topics, and with them their clients, go to another cluster.
    MIGRATE_NAMESPACE = auto()
    #: Its bundles, the statistics of all of its topics, where its metadata are.
    LOOK_AT_BROKER = auto()
    #: What an operator says of a bundle's load.
    LOOK_AT_QUOTAS = auto()
    CHANGE_QUOTAS = auto()
    #: Pulsar's rule for them is that of super-users and of a policy of the cluster.
    LOOK_AT_ISOLATION = auto()
    CHANGE_ISOLATION = auto()
    #: Copies of all that the server keeps.
    BACK_UP = auto()
    LOOK_AT_BACKUP = auto()
    LOOK_AT_BOOKIES = auto()
    CHANGE_BOOKIES = auto()
    #: Which bookies a namespace's ledgers are on.
    LOOK_AT_BOOKIE_AFFINITY = auto()
    CHANGE_BOOKIE_AFFINITY = auto()
    #: The command by which coordinators of other brokers tell topics and subscriptions.
    END_TRANSACTION = auto()
    #: Transactions of whomever, and their coordinators.
    LOOK_AT_TRANSACTIONS = auto()
    ABORT_TRANSACTION = auto()
    SCALE_COORDINATORS = auto()
    #: What the owners of a topic and of one that shows it say to each other.
    SHOW_TOPIC = auto()


class TenantAdministration(_Word):
    """What Pulsar has no word for, and leaves to a tenant's administrators."""

    #: Looking at the permissions of single topics, giving and taking them.
    TOPIC_PERMISSIONS = auto()
    NAMESPACE_PROPERTIES = auto()
    TRUNCATE_TOPIC = auto()
    #: Asking whether a schema would be taken.
    TRY_SCHEMA = auto()
    #: Publishing under the name of another cluster's replicator. Pulsar lets everybody who may produce.
    REPLICATE = auto()


class PolicyName(_Word):
    """Which policy of a namespace or a topic."""

    ALL = auto()
    ALLOW_CLUSTERS = auto()
    ALLOW_CUSTOM_METRIC_LABELS = auto()
    ANTI_AFFINITY = auto()
    AUTO_SUBSCRIPTION_CREATION = auto()
    AUTO_TOPIC_CREATION = auto()
    BACKLOG = auto()
    CLUSTER_MIGRATION = auto()
    COMPACTION = auto()
    DELAYED_DELIVERY = auto()
    INACTIVE_TOPIC = auto()
    DEDUPLICATION = auto()
    MAX_CONSUMERS = auto()
    MAX_PRODUCERS = auto()
    DEDUPLICATION_SNAPSHOT = auto()
    MAX_UNACKED = auto()
    MAX_SUBSCRIPTIONS = auto()
    OFFLOAD = auto()
    PARTITION = auto()
    PERSISTENCE = auto()
    RATE = auto()
    RETENTION = auto()
    REPLICATION = auto()
    REPLICATION_RATE = auto()
    SCHEMA_COMPATIBILITY_STRATEGY = auto()
    SUBSCRIPTION_AUTH_MODE = auto()
    SUBSCRIPTION_EXPIRATION_TIME = auto()
    ENCRYPTION = auto()
    TTL = auto()
    MAX_TOPICS = auto()
    RESOURCEGROUP = auto()
    ENTRY_FILTERS = auto()
    SHADOW_TOPIC = auto()
    DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT = auto()


class PolicyOperation(_Word):
    """Whether a policy is looked at or changed."""

    READ = auto()
    WRITE = auto()


class PolicyAction(NamedTuple):
    """Reading or changing a policy: of a topic where the resource names one, else of a namespace."""

    policy: PolicyName
    operation: PolicyOperation

    def __str__(self) -> str:
        return f"{self.operation} {self.policy}"


Action: TypeAlias = (
    TopicOperation
    | NamespaceOperation
    | TenantOperation
    | ClusterOperation
    | BrokerOperation
    | SuperUser
    | TenantAdministration
    | PolicyAction
)


def reading(policy: PolicyName) -> PolicyAction:
    """Looking at a policy."""
    return PolicyAction(policy, PolicyOperation.READ)


def writing(policy: PolicyName) -> PolicyAction:
    """Changing a policy, or taking it away."""
    return PolicyAction(policy, PolicyOperation.WRITE)


class Resource(NamedTuple):
    """What an action is about: the most particular of its members; none of them: the cluster as a whole."""

    #: Name of a cluster.
    cluster: str = ""
    #: Name of a tenant.
    tenant: str = ""
    #: ``tenant/namespace``.
    namespace: str = ""
    topic: TopicName | None = None
    #: Of the topic, or of all topics of the namespace.
    subscription: str = ""

    def __str__(self) -> str:
        if self.topic is not None:
            return f"{self.topic} {self.subscription}".rstrip()
        return self.namespace or self.tenant or self.cluster or "the cluster"


#: The cluster as a whole, and the broker.
EVERYTHING = Resource()


def of_topic(name: TopicName, subscription: str = "") -> Resource:
    """A topic, or a subscription of it."""
    return Resource(topic=name, namespace=name.namespace, tenant=name.tenant, subscription=subscription)


def of_namespace(namespace: str) -> Resource:
    """A namespace, ``tenant/namespace``."""
    return Resource(namespace=namespace, tenant=namespace.partition("/")[0])


class Anyone(NamedTuple):
    """The decision of a door that asks nothing of those who are let in at all."""

    #: Why that is right.
    why: str
