"""Settings of subscriptions, consumers and dispatchers, under Pulsar's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from geminga.broker.subscription.limits import UnackedLimits
from geminga.model.settings import setting

if TYPE_CHECKING:
    from geminga.broker.core.dispatch.shared import DispatchLimits
    from geminga.broker.core.dispatch.unacked_budget import UnackedBudget


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """Defaults are those of Pulsar 4.2."""

    allow_auto_subscription_creation: bool = setting("allowAutoSubscriptionCreation", True, "true or false")
    replicated_subscriptions_enabled: bool = setting("enableReplicatedSubscriptions", True, "true or false")
    acknowledgment_at_batch_index_level_enabled: bool = setting(
        "acknowledgmentAtBatchIndexLevelEnabled", True, "true or false"
    )
    max_unacked_messages_per_consumer: int = setting(
        "maxUnackedMessagesPerConsumer", 50_000, "messages >= 0; 0: no limit", minimum=0
    )
    max_unacked_messages_per_subscription: int = setting(
        "maxUnackedMessagesPerSubscription", 200_000, "messages >= 0; 0: no limit", minimum=0
    )
    max_unacked_messages_per_broker: int = setting(
        "maxUnackedMessagesPerBroker", 0, "messages >= 0; 0: no limit", minimum=0
    )
    max_unacked_messages_per_subscription_on_broker_blocked: float = setting(
        "maxUnackedMessagesPerSubscriptionOnBrokerBlocked",
        0.16,
        "a part of the broker's limit, 0 to 1",
        minimum=0,
        maximum=1,
    )
    subscription_types_enabled: tuple[str, ...] = setting(
        "subscriptionTypesEnabled",
        ("Exclusive", "Shared", "Failover", "Key_Shared"),
        "Exclusive, Shared, Failover, Key_Shared, comma separated",
        choices=("Exclusive", "Shared", "Failover", "Key_Shared"),
    )
    max_consumers_per_subscription: int = setting(
        "maxConsumersPerSubscription", 0, "consumers >= 0; 0: no limit", minimum=0
    )
    max_consumers_per_topic: int = setting("maxConsumersPerTopic", 0, "consumers >= 0; 0: no limit", minimum=0)
    max_consumers_per_address: int = setting(
        "maxSameAddressConsumersPerTopic", 0, "consumers >= 0; 0: no limit", minimum=0
    )
    #: Whether new durable subscriptions have names as tenants have.
    strict_subscription_names: bool = setting("strictlyVerifySubscriptionName", False, "true or false")
    max_subscriptions_per_topic: int = setting(
        "maxSubscriptionsPerTopic", 0, "subscriptions >= 0; 0: no limit", minimum=0
    )
    dispatcher_max_read_batch_size: int = setting("dispatcherMaxReadBatchSize", 100, "entries >= 1", minimum=1)
    dispatcher_max_read_size_bytes: int = setting(
        "dispatcherMaxReadSizeBytes", 5 * 1024 * 1024, "bytes >= 1", minimum=1
    )
    #: Whether Exclusive and Failover go by the messages in batches; the others always do.
    is_flow_control_precise: bool = setting("preciseDispatcherFlowControl", False, "true or false")
    dispatcher_max_round_robin_batch_size: int = setting(
        "dispatcherMaxRoundRobinBatchSize", 20, "messages >= 1", minimum=1
    )
    dispatcher_read_failure_backoff_initial_ms: int = setting(
        "dispatcherReadFailureBackoffInitialTimeInMs", 15_000, "milliseconds >= 1", minimum=1
    )
    dispatcher_read_failure_backoff_max_ms: int = setting(
        "dispatcherReadFailureBackoffMaxTimeInMs", 60_000, "milliseconds >= 1", minimum=1
    )
    active_consumer_failover_delay_ms: int = setting(
        "activeConsumerFailoverDelayTimeMillis", 1000, "milliseconds >= 0", minimum=0
    )
    active_consumer_failover_consistent_hashing: bool = setting(
        "activeConsumerFailoverConsistentHashing", False, "true or false"
    )
    subscription_key_shared_enable: bool = setting("subscriptionKeySharedEnable", True, "true or false")
    subscription_key_shared_use_consistent_hashing: bool = setting(
        "subscriptionKeySharedUseConsistentHashing", True, "true or false"
    )
    subscription_key_shared_consistent_hashing_replica_points: int = setting(
        "subscriptionKeySharedConsistentHashingReplicaPoints", 100, "points >= 1", minimum=1
    )
    key_shared_look_ahead_per_consumer: int = setting(
        "keySharedLookAheadMsgInReplayThresholdPerConsumer", 2000, "messages >= 0; 0: no limit", minimum=0
    )
    key_shared_look_ahead_per_subscription: int = setting(
        "keySharedLookAheadMsgInReplayThresholdPerSubscription", 20_000, "messages >= 0; 0: no limit", minimum=0
    )
    dispatch_rate_messages: int = setting("dispatchThrottlingRateInMsg", 0, "messages/s; 0 and less: no limit")
    dispatch_rate_bytes: int = setting("dispatchThrottlingRateInByte", 0, "bytes/s; 0 and less: no limit")
    topic_dispatch_rate_messages: int = setting(
        "dispatchThrottlingRatePerTopicInMsg", 0, "messages/s; 0 and less: no limit"
    )
    topic_dispatch_rate_bytes: int = setting("dispatchThrottlingRatePerTopicInByte", 0, "bytes/s; 0 and less: no limit")
    subscription_dispatch_rate_messages: int = setting(
        "dispatchThrottlingRatePerSubscriptionInMsg", 0, "messages/s; 0 and less: no limit"
    )
    subscription_dispatch_rate_bytes: int = setting(
        "dispatchThrottlingRatePerSubscriptionInByte", 0, "bytes/s; 0 and less: no limit"
    )
    replicator_dispatch_rate_messages: int = setting(
        "dispatchThrottlingRatePerReplicatorInMsg", 0, "messages/s; 0 and less: no limit"
    )
    replicator_dispatch_rate_bytes: int = setting(
        "dispatchThrottlingRatePerReplicatorInByte", 0, "bytes/s; 0 and less: no limit"
    )
    dispatch_rate_is_relative: bool = setting("dispatchThrottlingRateRelativeToPublishRate", False, "true or false")
    dispatch_throttling_on_non_backlog: bool = setting(
        "dispatchThrottlingOnNonBacklogConsumerEnabled", True, "true or false"
    )
    dispatch_throttling_on_batch_message: bool = setting(
        "dispatchThrottlingOnBatchMessageEnabled", False, "true or false"
    )
    subscribe_rate: int = setting("subscribeThrottlingRatePerConsumer", 0, "times a period; 0 and less: no limit")
    subscribe_rate_period_s: int = setting("subscribeRatePeriodPerConsumerInSecond", 30, "seconds >= 1", minimum=1)
    delayed_delivery_enabled: bool = setting("delayedDeliveryEnabled", True, "true or false")
    #: A message that is to wait for longer is refused; 0 and less: none is.
    delayed_delivery_longest_ms: int = setting("delayedDeliveryMaxDelayInMillis", 0, "milliseconds; 0: no limit")
    delayed_delivery_tick_time_ms: int = setting("delayedDeliveryTickTimeMillis", 1000, "milliseconds >= 1", minimum=1)
    delayed_delivery_min_index_count_per_bucket: int = setting(
        "delayedDeliveryMinIndexCountPerBucket", 50_000, "entries >= 1: so many new ones are saved at once", minimum=1
    )
    entry_filter_names: tuple[str, ...] = setting("entryFilterNames", (), "names of entry filters, comma separated")
    entry_filters_directory: str = setting(
        "entryFiltersDirectory", "", "a directory of Python files with entry filters; empty: none"
    )
    allow_override_entry_filters: bool = setting("allowOverrideEntryFilters", False, "true or false")
    entry_filter_rescheduled_delay_ms: int = setting(
        "dispatcherEntryFilterRescheduledMessageDelay", 1000, "milliseconds >= 1", minimum=1
    )
    #: Of all entries of one read together; past it the process is ended.
    entry_filter_budget_ms: int = setting("gemingaEntryFilterBudgetMillis", 1000, "milliseconds >= 1", minimum=1)
    entry_filter_start_s: int = setting("gemingaEntryFilterStartSeconds", 30, "seconds >= 1", minimum=1)
    entry_filter_processes: int = setting("gemingaEntryFilterProcesses", 2, "processes, 1 to 64", minimum=1, maximum=64)
    entry_filter_memory_mb: int = setting("gemingaEntryFilterMemoryMB", 1024, "MiB >= 0; 0: no limit", minimum=0)
    entry_filter_failure: str = setting(
        "gemingaEntryFilterFailure", "pause", "pause or deliver", choices=("pause", "deliver")
    )
    is_delayed_delivery_deliver_at_time_strict: bool = setting(
        "isDelayedDeliveryDeliverAtTimeStrict", True, "true or false"
    )

    backlog_scan_entries_max: int = setting(
        "subscriptionBacklogScanMaxEntries", 10_000, "entries >= 0: more are not looked at", minimum=0
    )
    backlog_scan_ms_max: int = setting(
        "subscriptionBacklogScanMaxTimeMs", 120_000, "milliseconds >= 0: longer is not looked", minimum=0
    )

    @property
    def unacked_limits(self) -> UnackedLimits:
        """What holds where neither namespace nor topic says otherwise."""
        return UnackedLimits(self.max_unacked_messages_per_consumer, self.max_unacked_messages_per_subscription)

    @property
    def batches_least(self) -> int:
        """How many batches an only consumer is sent together, whatever their size, if it has a permit for each."""
        from geminga.broker.core.dispatch.consumer_state import BATCHES_AT_ONCE

        return 0 if self.is_flow_control_precise else BATCHES_AT_ONCE

    def new_unacked_budget(self) -> UnackedBudget | None:
        """The broker's own limit; None: it has none (as in Pulsar, also where subscriptions would have no share)."""
        limit, ratio = (
            self.max_unacked_messages_per_broker,
            self.max_unacked_messages_per_subscription_on_broker_blocked,
        )
        if not limit or ratio <= 0:
            return None
        from geminga.broker.core.dispatch.unacked_budget import UnackedBudget

        return UnackedBudget(limit, ratio)

    def dispatch_limits(self, unacked_max: int) -> DispatchLimits:
        """What the dispatchers' cores obey; ``unacked_max``: messages unacknowledged on one subscription."""
        from geminga.broker.core.dispatch.shared import DispatchLimits

        return DispatchLimits(
            read_entries_max=self.dispatcher_max_read_batch_size,
            round_robin_messages=self.dispatcher_max_round_robin_batch_size,
            unacked_max=unacked_max,
            look_ahead_per_consumer=self.key_shared_look_ahead_per_consumer,
            look_ahead_per_subscription=self.key_shared_look_ahead_per_subscription,
        )
