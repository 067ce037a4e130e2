"""Policies of namespaces and of topics."""

from __future__ import annotations

from typing import Final

from geminga.admin.calls.row import Policy, PolicySet, WireType

_INT, _BOOL, _TEXT, _TEXTS, _DOC = WireType.INT, WireType.BOOL, WireType.TEXT, WireType.TEXTS, WireType.DOCUMENT


def _ttl(in_query: str = "") -> Policy:
    text = "Seconds after which messages are acknowledged for all; 0: never."
    return Policy("message_ttl", "messageTTL", text, _INT, in_query=in_query)


def _expiration(in_query: str = "") -> Policy:
    text = "Minutes of rest before a subscription is deleted; 0: never."
    return Policy("subscription_expiration_time", "subscriptionExpirationTime", text, _INT, in_query=in_query)


_COMMON: Final = (
    Policy("retention", "retention", "How long, and how much of, what was acknowledged is kept.", _DOC, "Retention"),
    Policy("dispatch_rate", "dispatchRate", "How fast messages go to consumers.", _DOC, "DispatchRate"),
    Policy(
        "subscription_dispatch_rate",
        "subscriptionDispatchRate",
        "How fast messages go to the consumers of one subscription.",
        _DOC,
        "DispatchRate",
    ),
    Policy("replicator_dispatch_rate", "replicatorDispatchRate", "How fast they are replicated.", _DOC, "DispatchRate"),
    Policy("publish_rate", "publishRate", "How fast a topic takes messages.", _DOC, "PublishRate"),
    Policy("subscribe_rate", "subscribeRate", "How often a consumer may subscribe.", _DOC, "SubscribeRate"),
    Policy("persistence", "persistence", "Copies of what is stored.", _DOC, "Persistence"),
    Policy("delayed_delivery", "delayedDelivery", "Whether messages wait for their time.", _DOC, "DelayedDelivery"),
    Policy(
        "inactive_topics", "inactiveTopicPolicies", "When a topic that nobody uses is deleted.", _DOC, "InactiveTopics"
    ),
    Policy(
        "deduplication_snapshot_interval",
        "deduplicationSnapshotInterval",
        "Seconds between two snapshots of sequence ids.",
        _INT,
    ),
    Policy(
        "auto_subscription_creation",
        "autoSubscriptionCreation",
        "Whether consumers make subscriptions by using them.",
        _DOC,
        "AutoSubscriptionCreation",
    ),
    Policy(
        "max_consumers_per_subscription",
        "maxConsumersPerSubscription",
        "Consumers that a subscription takes; 0: no limit.",
        _INT,
    ),
    Policy(
        "max_subscriptions_per_topic",
        "maxSubscriptionsPerTopic",
        "Subscriptions that a topic has; 0: no limit.",
        _INT,
    ),
    Policy("subscription_types_enabled", "subscriptionTypesEnabled", "Types of subscriptions that it takes.", _TEXTS),
    Policy("entry_filters", "entryFilters", "Filters of entries.", _DOC, "Document"),
    Policy(
        "dispatcher_pause_on_ack_state_persistent",
        "dispatcherPauseOnAckStatePersistent",
        "Whether dispatch pauses while acknowledgments are written.",
        _BOOL,
    ),
    Policy(
        "schema_compatibility_strategy",
        "schemaCompatibilityStrategy",
        "The rule by which a new schema is taken: FULL, BACKWARD, ...",
        _TEXT,
        set_by="PUT",
    ),
    Policy(
        "schema_validation_enforced",
        "schemaValidationEnforced",
        "Whether producers without a schema are refused.",
        _BOOL,
    ),
)

TOPIC_POLICIES: Final = PolicySet(
    "topic_policies",
    "Policies of a topic, which go before its namespace's.",
    "topic",
    (
        *_COMMON,
        _ttl("messageTTL"),
        _expiration("subscriptionExpirationTime"),
        Policy("max_producers", "maxProducers", "Producers that it takes; 0: no limit.", _INT),
        Policy("max_consumers", "maxConsumers", "Consumers that it takes; 0: no limit.", _INT),
        Policy("max_message_size", "maxMessageSize", "Bytes of the largest entry that it takes.", _INT),
        Policy(
            "max_unacked_messages_on_consumer",
            "maxUnackedMessagesOnConsumer",
            "Messages that one consumer may leave unacknowledged; 0: no limit.",
            _INT,
        ),
        Policy(
            "max_unacked_messages_on_subscription",
            "maxUnackedMessagesOnSubscription",
            "Messages that a subscription may leave unacknowledged; 0: no limit.",
            _INT,
        ),
        Policy("deduplication", "deduplicationEnabled", "Whether what is sent again is stored once.", _BOOL),
        Policy("offload", "offloadPolicies", "When ledgers go to the lake.", _DOC, "Document"),
        Policy("compaction_threshold", "compactionThreshold", "Bytes after which it is compacted.", _INT),
        Policy("replication_clusters", "replication", "Clusters that it is replicated to.", _TEXTS),
    ),
)

NAMESPACE_POLICIES: Final = PolicySet(
    "namespace_policies",
    "Policies of a namespace, which go before the broker's.",
    "namespace",
    (
        *_COMMON,
        _ttl(),
        _expiration(),
        Policy("max_producers_per_topic", "maxProducersPerTopic", "Producers that a topic takes; 0: no limit.", _INT),
        Policy("max_consumers_per_topic", "maxConsumersPerTopic", "Consumers that a topic takes; 0: no limit.", _INT),
        Policy("max_topics_per_namespace", "maxTopicsPerNamespace", "Topics that it has; 0: no limit.", _INT),
        Policy(
            "max_unacked_messages_per_consumer",
            "maxUnackedMessagesPerConsumer",
            "Messages that one consumer may leave unacknowledged; 0: no limit.",
            _INT,
        ),
        Policy(
            "max_unacked_messages_per_subscription",
            "maxUnackedMessagesPerSubscription",
            "Messages that a subscription may leave unacknowledged; 0: no limit.",
            _INT,
        ),
        Policy("deduplication", "deduplication", "Whether what is sent again is stored once.", _BOOL),
        Policy(
            "auto_topic_creation",
            "autoTopicCreation",
            "Whether clients make topics by using them.",
            _DOC,
            "AutoTopicCreation",
        ),
        Policy("anti_affinity_group", "antiAffinity", "Its group of namespaces kept apart.", _TEXT, is_plain=True),
        Policy("bookie_affinity_group", "persistence/bookieAffinity", "Bookies of its ledgers.", _DOC, "Document"),
        Policy("allowed_clusters", "allowedClusters", "Clusters where it may be.", _TEXTS, is_removable=False),
        Policy("replication_clusters", "replication", "Clusters that it is replicated to.", _TEXTS, is_removable=False),
        Policy(
            "auto_update_schema",
            "isAllowAutoUpdateSchema",
            "Whether producers bring new schemas.",
            _BOOL,
        ),
        Policy(
            "schema_auto_update_compatibility_strategy",
            "schemaAutoUpdateCompatibilityStrategy",
            "The rule of Pulsar before 2.4: Full, Backward, ...",
            _TEXT,
            set_by="PUT",
        ),
        Policy("encryption_required", "encryptionRequired", "Whether what is not encrypted is refused.", _BOOL),
        Policy("subscription_auth_mode", "subscriptionAuthMode", "None, or Prefix.", _TEXT),
        Policy(
            "compaction_threshold",
            "compactionThreshold",
            "Bytes after which a topic is compacted.",
            _INT,
            set_by="PUT",
        ),
        Policy(
            "offload_threshold",
            "offloadThreshold",
            "Bytes above which ledgers go to the lake.",
            _INT,
            set_by="PUT",
        ),
        Policy(
            "offload_threshold_s",
            "offloadThresholdInSeconds",
            "Seconds after which they do.",
            _INT,
            set_by="PUT",
        ),
        Policy(
            "offload_deletion_lag_ms",
            "offloadDeletionLagMs",
            "Milliseconds before bookies lose what the lake has.",
            _INT,
            set_by="PUT",
        ),
        Policy("offload", "offloadPolicies", "When ledgers go to the lake.", _DOC, "Document", is_removable=False),
        Policy(
            "topic_property_keys_for_metrics",
            "allowedTopicPropertyKeysForMetrics",
            "Properties of topics that metrics have.",
            _TEXTS,
        ),
    ),
)
