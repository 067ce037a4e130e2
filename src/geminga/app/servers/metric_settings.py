"""What the settings say of ``/metrics``. Pure."""

from __future__ import annotations

from geminga.app.configuration.server_config import ServerConfig
from geminga.broker.composition.metric_levels import MetricLevels


def metric_levels(config: ServerConfig) -> MetricLevels:
    """``exposePreciseBacklogInPrometheus`` is not asked: a backlog is counted, never estimated."""
    return MetricLevels(
        topics=config.topic_metrics,
        consumers=config.consumer_metrics,
        producers=config.producer_metrics,
        managed_ledgers=config.ledger_metrics,
        cursors=config.cursor_metrics,
        bundles=config.bundle_metrics,
        subscription_backlog_size=config.backlog_size_metrics,
        properties=config.property_labels,
        splits_partitions=config.splits_partition_label,
        series_max=config.metric_series_max,
    )
