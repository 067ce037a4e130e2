"""Settings of retention, expiry and backlog quotas, under Pulsar's keys; defaults of Pulsar 4.2."""

from __future__ import annotations

from dataclasses import dataclass

from geminga.broker.policies.core.readers import QuotaAction
from geminga.broker.subscription.config import SubscriptionConfig
from geminga.model.settings import setting


@dataclass(frozen=True, slots=True)
class PolicyConfig(SubscriptionConfig):
    """What holds where neither namespace nor topic says otherwise, and how often is looked."""

    default_retention_minutes: int = setting(
        "defaultRetentionTimeInMinutes", 0, "minutes >= 0, or -1 for no limit", minimum=-1
    )
    default_retention_mb: int = setting("defaultRetentionSizeInMB", 0, "MiB >= 0, or -1 for no limit", minimum=-1)
    retention_check_interval_s: int = setting("retentionCheckIntervalInSeconds", 120, "seconds > 0", minimum=1)

    topic_policies: bool = setting("topicLevelPoliciesEnabled", True, "true or false")

    strict_bookie_affinity: bool = setting("strictBookieAffinityEnabled", False, "true or false")

    message_ttl_s: int = setting("ttlDurationDefaultInSeconds", 0, "seconds >= 0; 0: never", minimum=0)
    message_expiry_check_minutes: int = setting("messageExpiryCheckIntervalInMinutes", 5, "minutes > 0", minimum=1)
    subscription_expiry_minutes: int = setting(
        "subscriptionExpirationTimeMinutes", 0, "minutes >= 0; 0: never", minimum=0
    )
    subscription_expiry_check_minutes: int = setting(
        "subscriptionExpiryCheckIntervalInMinutes", 5, "minutes > 0", minimum=1
    )

    #: Where it is behind as many bytes, a topic is compacted; 0: only when somebody asks for it.
    compaction_threshold_bytes: int = setting(
        "brokerServiceCompactionThresholdInBytes", 0, "bytes >= 0; 0: on demand only", minimum=0
    )
    compaction_monitor_interval_s: int = setting(
        "brokerServiceCompactionMonitorIntervalInSeconds", 60, "seconds > 0", minimum=1
    )
    #: No read of a compaction may take longer.
    compaction_read_s: int = setting("brokerServiceCompactionPhaseOneLoopTimeInSeconds", 30, "seconds > 0", minimum=1)
    compaction_retains_null_keys: bool = setting("topicCompactionRetainNullKey", False, "true or false")
    #: What the keys of one compaction may take in memory; more go to a temporary file.
    compaction_keys_mb: int = setting("gemingaCompactionKeysSizeMB", 128, "MiB > 0", minimum=1)
    #: A message that deletes its key is kept until it is so old; Pulsar keeps none.
    compaction_tombstones_s: int = setting(
        "gemingaCompactionTombstoneRetentionInSeconds", 0, "seconds >= 0; 0: none is kept", minimum=0
    )
    #: Readers of compacted messages are served from the lake where a topic was never compacted; not in Pulsar.
    reads_compacted_from_lake: bool = setting("gemingaReadCompactedFromLake", False, "true or false")
    compaction_directory: str = setting(
        "gemingaCompactionDirectory", "", "a directory for temporary files; empty: the system's"
    )

    #: Properties of topics that are labels of their metrics, where such labels are wanted at all.
    metric_property_keys: tuple[str, ...] = setting(
        "allowedTopicPropertyKeysForMetrics", (), "names of properties, comma separated"
    )
    #: Nothing new is dispatched while a cursor has more ranges than Apache's brokers keep.
    dispatcher_pause: bool = setting("dispatcherPauseOnAckStatePersistentEnabled", False, "true or false")

    backlog_quota_check: bool = setting("backlogQuotaCheckEnabled", True, "true or false")
    #: A safety net: quotas are looked at when messages are published and when the oldest one comes of age.
    backlog_quota_check_interval_s: int = setting("backlogQuotaCheckIntervalInSeconds", 60, "seconds > 0", minimum=1)
    backlog_quota_bytes: int = setting("backlogQuotaDefaultLimitBytes", -1, "bytes > 0, or -1 for no limit", minimum=-1)
    #: The older key; it wins where it is set, as in Pulsar.
    backlog_quota_gb: float = setting("backlogQuotaDefaultLimitGB", -1.0, "GiB > 0, or -1", minimum=-1)
    backlog_quota_s: int = setting("backlogQuotaDefaultLimitSecond", -1, "seconds > 0, or -1 for no limit", minimum=-1)
    backlog_quota_action: str = setting(
        "backlogQuotaDefaultRetentionPolicy",
        QuotaAction.HOLD.value,
        "producer_request_hold, producer_exception or consumer_backlog_eviction",
        choices=tuple(action.value for action in QuotaAction),
    )

    #: How often brokers tell each other what they used of resource groups, and take their next shares.
    resource_usage_interval_s: int = setting(
        "resourceUsageTransportPublishIntervalInSecs", 60, "seconds > 0", minimum=1
    )
    topic_publish_rate_messages: int = setting(
        "maxPublishRatePerTopicInMessages", 0, "messages/s; 0 and less: no limit"
    )
    topic_publish_rate_bytes: int = setting("maxPublishRatePerTopicInBytes", 0, "bytes/s; 0 and less: no limit")

    deduplication: bool = setting("brokerDeduplicationEnabled", False, "true or false")
    #: Entries stored between two snapshots of the sequence ids.
    deduplication_snapshot_entries: int = setting(
        "brokerDeduplicationEntriesInterval", 1000, "an integer > 0", minimum=1
    )
    #: Seconds between two snapshots, if anything was stored; 0: by the number of entries only.
    deduplication_snapshot_s: int = setting(
        "brokerDeduplicationSnapshotIntervalSeconds", 120, "seconds >= 0", minimum=0
    )
    deduplication_check_s: int = setting("brokerDeduplicationSnapshotFrequencyInSeconds", 120, "seconds > 0", minimum=1)
    #: Producers whose sequence ids a snapshot holds, beside those that are connected.
    deduplication_producers_max: int = setting(
        "brokerDeduplicationMaxNumberOfProducers", 10_000, "an integer > 0", minimum=1
    )
    #: Producers gone for longer are forgotten.
    deduplication_inactivity_minutes: int = setting(
        "brokerDeduplicationProducerInactivityTimeoutMinutes", 360, "minutes > 0", minimum=1
    )
