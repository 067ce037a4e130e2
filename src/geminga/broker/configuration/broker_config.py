"""Settings of the broker: Pulsar's keys, defaults of Pulsar 4.2. Exceptions are listed in docs/compatibility.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from geminga.broker.policies.config import PolicyConfig
from geminga.broker.schema.core.strategy import Strategy
from geminga.model.limits import MESSAGE_SIZE_BYTES_MAX_DEFAULT
from geminga.model.settings import setting

#: Class names of Pulsar's two interceptors, as an operator's file has them; the last part is what counts.
INTERCEPTOR_TIMESTAMP: Final = "AppendBrokerTimestampMetadataInterceptor"
INTERCEPTOR_INDEX: Final = "AppendIndexMetadataInterceptor"
_PROVIDERS: Final = "org.apache.pulsar.broker.authorization."
#: Pulsar's own provider of authorization, whose rules are built.
AUTHORIZATION_PROVIDER: Final = f"{_PROVIDERS}PulsarAuthorizationProvider"
#: Asks for each role that a token's claim names, where the other asks for the first.
MULTI_ROLES_PROVIDER: Final = f"{_PROVIDERS}MultiRolesTokenAuthorizationProvider"


@dataclass(frozen=True, slots=True)
class BrokerConfig(PolicyConfig):
    """Connections, topics and producers, beside what subscriptions and policies have."""

    cluster_name: str = setting("clusterName", "standalone", "letters, digits and -=:._")

    # ---- connections
    message_bytes_max: int = setting(
        "maxMessageSize", MESSAGE_SIZE_BYTES_MAX_DEFAULT, "bytes > 0", minimum=1, maximum=1 << 30
    )
    keep_alive_interval_s: int = setting("keepAliveIntervalSeconds", 30, "seconds > 0", minimum=1)
    #: Geminga's own: how long a connection has for its handshake; never longer than the interval above.
    handshake_timeout_s: int = setting("gemingaHandshakeTimeoutSeconds", 10, "seconds > 0", minimum=1)
    liveness_check_timeout_ms: int = setting(
        "connectionLivenessCheckTimeoutMillis", 5000, "milliseconds, 0: off", minimum=0
    )
    connections_max: int = setting("brokerMaxConnections", 0, "an integer >= 0, 0: no limit", minimum=0)
    connections_per_ip_max: int = setting("brokerMaxConnectionsPerIp", 0, "an integer >= 0, 0: no limit", minimum=0)
    pending_publishes_max: int = setting("maxPendingPublishRequestsPerConnection", 1000, "an integer > 0", minimum=1)
    #: Bytes of publishes not yet answered, over all connections; above it nothing more is read from publishers.
    publish_buffer_mb: int = setting("maxMessagePublishBufferSizeInMB", 64, "MiB > 0, or -1 for 64", minimum=-1)

    publish_rate_messages: int = setting(
        "brokerPublisherThrottlingMaxMessageRate", 0, "messages/s; 0 and less: no limit"
    )
    publish_rate_bytes: int = setting("brokerPublisherThrottlingMaxByteRate", 0, "bytes/s; 0 and less: no limit")

    # ---- who may do what
    authorization_enabled: bool = setting("authorizationEnabled", False, "true or false")
    authorization_provider: str = setting(
        "authorizationProvider", AUTHORIZATION_PROVIDER, "the class name of an authorization provider of Pulsar's"
    )
    #: How roles are written in the log (``broker/access/core/shown_roles.py``).
    role_anonymizer: str = setting(
        "authenticationRoleLoggingAnonymizer", "NONE", choices=("NONE", "REDACTED", "hash:SHA256", "hash:MD5")
    )
    super_user_roles: tuple[str, ...] = setting("superUserRoles", (), "roles, comma separated")
    authorization_has_wildcards: bool = setting("authorizationAllowWildcardsMatching", False, "true or false")
    #: Whether permissions of topics that are not there can be looked at, given and taken.
    acl_changes_without_topics: bool = setting("allowAclChangesOnNonExistentTopics", False, "true or false")
    #: Geminga's own: a subscription that names no roles is nobody's but administrators'; in Pulsar it is everybody's.
    subscription_roles_required: bool = setting("gemingaSubscriptionRolesRequired", False, "true or false")

    #: Geminga's own: who may publish under a replicator's name, beside super-users, administrators of the topic's
    #: tenant and the role of ``brokerClient...``; in Pulsar everybody who may produce.
    replicator_roles: tuple[str, ...] = setting("gemingaReplicatorRoles", (), "roles, comma separated")

    # ---- topics
    allow_auto_topic_creation: bool = setting("allowAutoTopicCreation", True, "true or false")
    auto_topic_creation_type: str = setting(
        "allowAutoTopicCreationType",
        "non-partitioned",
        "partitioned or non-partitioned",
        choices=("partitioned", "non-partitioned"),
    )
    default_partitions: int = setting("defaultNumPartitions", 1, "an integer > 0", minimum=1)
    partitions_max: int = setting("maxNumPartitionsPerPartitionedTopic", 0, "an integer >= 0, 0: no limit", minimum=0)
    topics_per_namespace_max: int = setting("maxTopicsPerNamespace", 0, "an integer >= 0, 0: no limit", minimum=0)
    concurrent_topic_loads_max: int = setting("maxConcurrentTopicLoadRequest", 5000, "an integer > 0", minimum=1)
    topic_load_timeout_s: int = setting("topicLoadTimeoutSeconds", 60, "seconds > 0", minimum=1)
    enable_persistent_topics: bool = setting("enablePersistentTopics", True, "true or false")
    enable_non_persistent_topics: bool = setting("enableNonPersistentTopics", True, "true or false")
    delete_inactive_topics: bool = setting("brokerDeleteInactiveTopicsEnabled", True, "true or false")
    delete_inactive_topics_frequency_s: int = setting(
        "brokerDeleteInactiveTopicsFrequencySeconds", 60, "seconds > 0", minimum=1
    )
    delete_inactive_topics_mode: str = setting(
        "brokerDeleteInactiveTopicsMode",
        "delete_when_no_subscriptions",
        "delete_when_no_subscriptions or delete_when_subscriptions_caught_up",
        choices=("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
    )
    #: None: as long as the frequency, as in Pulsar.
    delete_inactive_topics_after_s: int | None = setting(
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", None, "seconds >= 0, or empty", minimum=0
    )
    delete_inactive_partitioned_topics: bool = setting(
        "brokerDeleteInactivePartitionedTopicMetadataEnabled", False, "true or false"
    )
    entry_metadata_interceptors: tuple[str, ...] = setting(
        "brokerEntryMetadataInterceptors", (), "class names of Pulsar's interceptors, comma separated"
    )
    expose_entry_metadata: bool = setting("exposingBrokerEntryMetadataToClientEnabled", False, "true or false")
    replication_start_at: str = setting(
        "replicationStartAt", "latest", "latest or earliest", choices=("latest", "earliest")
    )
    #: False: a topic that is missing in another cluster is not made there, and not copied.
    creates_topics_elsewhere: bool = setting("createTopicToRemoteClusterForReplication", True, "true or false")
    replicated_subscriptions_snapshot_ms: int = setting(
        "replicatedSubscriptionsSnapshotFrequencyMillis", 1000, "milliseconds > 0", minimum=1
    )
    replicated_subscriptions_timeout_s: int = setting(
        "replicatedSubscriptionsSnapshotTimeoutSeconds", 30, "seconds > 0", minimum=1
    )
    #: Snapshots that a subscription remembers, spread over its backlog.
    replicated_subscriptions_cached_max: int = setting(
        "replicatedSubscriptionsSnapshotMaxCachedPerSubscription", 30, "an integer > 0", minimum=1
    )
    pattern_evaluation: bool = setting("enableBrokerSideSubscriptionPatternEvaluation", True, "true or false")
    pattern_length_max: int = setting("subscriptionPatternMaxLength", 50, "characters >= 0", minimum=0)
    topic_list_watcher: bool = setting("enableBrokerTopicListWatcher", True, "true or false")

    #: More orphan ledgers than that at once are kept: crashes leave a few, lists from an older backup leave many.
    orphan_ledgers_deleted_max: int = setting("gemingaOrphanLedgersDeletedAtOnceMax", 100, "an integer >= 0", minimum=0)

    # ---- schemas
    schema_compatibility_strategy: str = setting(
        "schemaCompatibilityStrategy",
        "FULL",
        "a strategy such as FULL, BACKWARD or ALWAYS_COMPATIBLE",
        choices=tuple(strategy.value for strategy in Strategy),
    )
    schema_validation_enforced: bool = setting("isSchemaValidationEnforced", False, "true or false")
    allow_auto_update_schema: bool = setting("isAllowAutoUpdateSchemaEnabled", True, "true or false")

    # ---- tenants and namespaces
    tenants_max: int = setting("maxTenants", 0, "an integer >= 0, 0: no limit", minimum=0)
    namespaces_per_tenant_max: int = setting("maxNamespacesPerTenant", 0, "an integer >= 0, 0: no limit", minimum=0)

    # ---- producers
    producers_per_topic_max: int = setting("maxProducersPerTopic", 0, "an integer >= 0, 0: no limit", minimum=0)
    producers_per_address_max: int = setting(
        "maxSameAddressProducersPerTopic", 0, "an integer >= 0, 0: no limit", minimum=0
    )
    encryption_required: bool = setting("encryptionRequireOnProducer", False, "true or false")

    # ---- transactions
    transaction_coordinator_enabled: bool = setting("transactionCoordinatorEnabled", False, "true or false")
    active_transactions_max: int = setting(
        "maxActiveTransactionsPerCoordinator", 0, "an integer >= 0, 0: no limit", minimum=0
    )
    #: Geminga's own: the longest time-out a client may ask for, which is how long it can hold a topic back.
    transaction_timeout_max_ms: int = setting(
        "gemingaTransactionTimeoutMaxMillis", 86_400_000, "milliseconds > 0", minimum=1, maximum=1 << 40
    )
    #: Geminga's own: a transaction that holds something back for so long is told of in the log; 0: none is.
    transaction_alarm_ms: int = setting(
        "gemingaTransactionAlarmMillis", 120_000, "milliseconds >= 0, 0: off", minimum=0, maximum=1 << 40
    )
    transaction_buffer_snapshot_max_count: int = setting(
        "transactionBufferSnapshotMaxTransactionCount", 1000, "an integer > 0", minimum=1
    )
    transaction_buffer_snapshot_min_ms: int = setting(
        "transactionBufferSnapshotMinTimeInMillis", 5000, "milliseconds > 0", minimum=1
    )

    @property
    def first_check_s(self) -> int:
        """When a new connection is looked at first: has it shaken hands?"""
        return min(self.keep_alive_interval_s, self.handshake_timeout_s)

    @property
    def appends_broker_timestamp(self) -> bool:
        """Whether entries get the broker's time."""
        return any(name.strip().endswith(INTERCEPTOR_TIMESTAMP) for name in self.entry_metadata_interceptors)

    @property
    def appends_index(self) -> bool:
        """Whether entries get the index of their last message."""
        return any(name.strip().endswith(INTERCEPTOR_INDEX) for name in self.entry_metadata_interceptors)

    @property
    def publish_buffer_bytes(self) -> int:
        """See :attr:`publish_buffer_mb`."""
        return (self.publish_buffer_mb if self.publish_buffer_mb > 0 else 64) << 20
