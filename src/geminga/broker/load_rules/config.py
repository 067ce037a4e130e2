"""Settings of load management: Pulsar's keys and the defaults of Pulsar 4.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from geminga.broker.load_rules.reports import MODULAR_MANAGER, Weights
from geminga.broker.ownership.core.bundle_split import ALGORITHMS, RANGE_EQUALLY_DIVIDE, FlowLimits
from geminga.model.errors import ConfigurationError
from geminga.model.settings import setting

_PACKAGE: Final = "org.apache.pulsar.broker.loadbalance.impl."
THRESHOLD_SHEDDER: Final = _PACKAGE + "ThresholdShedder"
OVERLOAD_SHEDDER: Final = _PACKAGE + "OverloadShedder"
UNIFORM_SHEDDER: Final = _PACKAGE + "UniformLoadShedder"
AVERAGE_SHEDDER: Final = _PACKAGE + "AvgShedder"
LEAST_MESSAGES: Final = _PACKAGE + "LeastLongTermMessageRate"
LEAST_USAGE: Final = _PACKAGE + "LeastResourceUsageWithWeight"
ROUND_ROBIN: Final = _PACKAGE + "RoundRobinBrokerSelector"

_TRUTH: Final = "true or false"
_PERCENT: Final = "percent >= 0"
_WEIGHT: Final = "a number >= 0"


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """Reports, placement, shedding and splits."""

    is_enabled: bool = setting("loadBalancerEnabled", True, _TRUTH)
    manager: str = setting(
        "loadManagerClassName", MODULAR_MANAGER, "the modular load manager", choices=(MODULAR_MANAGER,)
    )

    # ---- reports
    report_interval_ms: int = setting("loadBalancerReportUpdateMinIntervalMillis", 5000, "milliseconds > 0", minimum=1)
    report_interval_max_minutes: int = setting(
        "loadBalancerReportUpdateMaxIntervalMinutes", 15, "minutes > 0", minimum=1
    )
    report_threshold_percent: int = setting("loadBalancerReportUpdateThresholdPercentage", 10, _PERCENT, minimum=0)
    usage_interval_minutes: int = setting("loadBalancerHostUsageCheckIntervalMinutes", 1, "minutes > 0", minimum=1)
    #: Gbit/s of each network interface; None: what the machine says.
    nic_speed_gbps: float | None = setting(
        "loadBalancerOverrideBrokerNicSpeedGbps", None, "Gbit/s > 0, or empty", minimum=0
    )
    history_interval_minutes: int = setting(
        "loadBalancerResourceQuotaUpdateIntervalMinutes", 15, "minutes > 0", minimum=1
    )
    #: For each broker; 0 and less: all.
    bundles_written_max: int = setting("loadBalancerMaxNumberOfBundlesInBundleLoadReport", 10, "an integer; 0: all")

    # ---- placement
    placement: str = setting(
        "loadBalancerLoadPlacementStrategy",
        LEAST_MESSAGES,
        f"LeastLongTermMessageRate, LeastResourceUsageWithWeight, RoundRobinBrokerSelector or AvgShedder, "
        f"after {_PACKAGE}",
        choices=(LEAST_MESSAGES, LEAST_USAGE, ROUND_ROBIN, AVERAGE_SHEDDER),
    )
    topics_max: int = setting("loadBalancerBrokerMaxTopics", 50_000, "an integer > 0", minimum=1)
    overloaded_percent: int = setting("loadBalancerBrokerOverloadedThresholdPercentage", 85, _PERCENT, minimum=0)
    distributes_evenly: bool = setting("loadBalancerDistributeBundlesEvenlyEnabled", True, _TRUTH)
    usage_difference_percent: int = setting(
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage", 10, _PERCENT, minimum=0
    )
    failure_domains: bool = setting("failureDomainsEnabled", False, _TRUTH)

    # ---- shedding
    is_shedding: bool = setting("loadBalancerSheddingEnabled", True, _TRUTH)
    shedding: str = setting(
        "loadBalancerLoadSheddingStrategy",
        THRESHOLD_SHEDDER,
        f"ThresholdShedder, OverloadShedder, UniformLoadShedder or AvgShedder, after {_PACKAGE}",
        choices=(THRESHOLD_SHEDDER, OVERLOAD_SHEDDER, UNIFORM_SHEDDER, AVERAGE_SHEDDER),
    )
    shedding_interval_minutes: int = setting("loadBalancerSheddingIntervalMinutes", 1, "minutes > 0", minimum=1)
    grace_minutes: int = setting("loadBalancerSheddingGracePeriodMinutes", 30, "minutes >= 0", minimum=0)
    excluded_namespaces: tuple[str, ...] = setting(
        "loadBalancerSheddingExcludedNamespaces", (), "tenant/namespace, comma separated"
    )
    cpu_weight: float = setting("loadBalancerCPUResourceWeight", 1.0, _WEIGHT, minimum=0)
    direct_memory_weight: float = setting("loadBalancerDirectMemoryResourceWeight", 0.0, _WEIGHT, minimum=0)
    bandwidth_in_weight: float = setting("loadBalancerBandwidthInResourceWeight", 1.0, _WEIGHT, minimum=0)
    bandwidth_out_weight: float = setting("loadBalancerBandwidthOutResourceWeight", 1.0, _WEIGHT, minimum=0)
    #: The part of what was remembered of a broker's usage that stays.
    history_part: float = setting("loadBalancerHistoryResourcePercentage", 0.9, "0 to 1", minimum=0, maximum=1)
    threshold_percent: int = setting("loadBalancerBrokerThresholdShedderPercentage", 10, _PERCENT, minimum=0)
    sheds_to_idle: bool = setting("lowerBoundarySheddingEnabled", False, _TRUTH)
    unload_least_mb: float = setting("loadBalancerBundleUnloadMinThroughputThreshold", 10.0, "MiB/s >= 0", minimum=0)
    uniform_messages_percent: float = setting(
        "loadBalancerMsgRateDifferenceShedderThreshold", 50.0, "percent; 0 and less: off"
    )
    uniform_bytes_factor: float = setting(
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold", 4.0, "a factor; 0 and less: off"
    )
    unload_part_max: float = setting("maxUnloadPercentage", 0.2, "0 to 1", minimum=0, maximum=1)
    unload_messages_least: int = setting("minUnloadMessage", 1000, "messages/s >= 0", minimum=0)
    unload_bytes_least: int = setting("minUnloadMessageThroughput", 1 << 20, "bytes/s >= 0", minimum=0)
    unload_bundles_max: int = setting("maxUnloadBundleNumPerShedding", -1, "an integer; -1: no limit", minimum=-1)
    average_low_percent: int = setting("loadBalancerAvgShedderLowThreshold", 15, _PERCENT, minimum=0)
    average_high_percent: int = setting("loadBalancerAvgShedderHighThreshold", 40, _PERCENT, minimum=0)
    average_low_hits: int = setting("loadBalancerAvgShedderHitCountLowThreshold", 8, "an integer > 0", minimum=1)
    average_high_hits: int = setting("loadBalancerAvgShedderHitCountHighThreshold", 2, "an integer > 0", minimum=1)

    # ---- splits
    is_splitting: bool = setting("loadBalancerAutoBundleSplitEnabled", True, _TRUTH)
    unloads_splits: bool = setting("loadBalancerAutoUnloadSplitBundlesEnabled", True, _TRUTH)
    bundle_topics_max: int = setting("loadBalancerNamespaceBundleMaxTopics", 1000, "an integer > 0", minimum=1)
    bundle_sessions_max: int = setting(
        "loadBalancerNamespaceBundleMaxSessions", 1000, "an integer; 0 and less: no limit"
    )
    bundle_messages_max: int = setting("loadBalancerNamespaceBundleMaxMsgRate", 30_000, "messages/s > 0", minimum=1)
    bundle_mb_max: int = setting("loadBalancerNamespaceBundleMaxBandwidthMbytes", 100, "MiB/s > 0", minimum=1)
    namespace_bundles_max: int = setting("loadBalancerNamespaceMaximumBundles", 128, "an integer > 0", minimum=1)
    #: Where a bundle is cut, if nobody says it.
    split_algorithm: str = setting(
        "defaultNamespaceBundleSplitAlgorithm", RANGE_EQUALLY_DIVIDE, " or ".join(ALGORITHMS), choices=ALGORITHMS
    )
    flow_threshold_percent: int = setting("flowOrQpsDifferenceThresholdPercentage", 10, _PERCENT, minimum=0)

    @property
    def flow_limits(self) -> FlowLimits:
        """When a bundle carries too much for ``flow_or_qps_equally_divide``."""
        return FlowLimits(self.bundle_messages_max, self.bundle_mb_max, self.flow_threshold_percent)

    def check(self) -> None:
        """What no single setting says. Raises ConfigurationError."""
        if self.placement == AVERAGE_SHEDDER and self.shedding != AVERAGE_SHEDDER:
            raise ConfigurationError(
                f"loadBalancerLoadPlacementStrategy={self.placement} needs the same loadBalancerLoadSheddingStrategy"
            )

    @property
    def weights(self) -> Weights:
        """How much each share of a broker's usage counts."""
        return Weights(self.cpu_weight, self.direct_memory_weight, self.bandwidth_in_weight, self.bandwidth_out_weight)

    @property
    def overloaded_share(self) -> float:
        """See :attr:`overloaded_percent`."""
        return self.overloaded_percent / 100
