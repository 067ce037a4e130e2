"""Which bundles are too large for one broker to hold and are to be split. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.broker.load_rules.cluster_load import ClusterLoad
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.members import namespace_of
from geminga.broker.load_rules.reports import BundleStats

#: A bundle with fewer is not made smaller by cutting it.
SPLIT_TOPICS_LEAST: Final = 2


class Split(NamedTuple):
    """A bundle that is to be cut, at the broker that has it."""

    bundle: str
    broker: str
    #: For the log, such as "1200 topics are more than 1000".
    why: str


def splits(cluster: ClusterLoad, bundle_counts: Mapping[str, int], config: LoadConfig) -> list[Split]:
    """``bundle_counts``: how many bundles each namespace has; one that is not in it is left alone."""
    found: list[Split] = []
    counts = dict(bundle_counts)
    for broker in cluster.brokers:
        for bundle, stats in sorted(cluster.reports[broker].stats.items()):
            why = _too_large(bundle, stats, cluster, config)
            namespace = namespace_of(bundle)
            if (
                not why
                or _is_narrow(bundle)
                or counts.get(namespace, config.namespace_bundles_max) >= config.namespace_bundles_max
            ):
                continue
            counts[namespace] += 1
            found.append(Split(bundle, broker, why))
    return found


def _is_narrow(bundle: str) -> bool:
    lower, _, upper = bundle.rpartition("/")[2].partition("_")
    return int(upper, 16) - int(lower, 16) < 2


def _too_large(bundle: str, stats: BundleStats, cluster: ClusterLoad, config: LoadConfig) -> str:
    if stats.topics < SPLIT_TOPICS_LEAST:
        return ""
    if stats.topics > config.bundle_topics_max:
        return f"{stats.topics} topics are more than {config.bundle_topics_max}"
    sessions = stats.producers + stats.consumers
    if 0 < config.bundle_sessions_max < sessions:
        return f"{sessions} producers and consumers are more than {config.bundle_sessions_max}"
    data = cluster.bundles.get(bundle)
    if data is None:
        return ""
    if data.long.rates.messages > config.bundle_messages_max:
        return f"{data.long.rates.messages:.0f} messages/s are more than {config.bundle_messages_max}"
    if data.long.rates.bytes > config.bundle_mb_max << 20:
        return f"{data.long.rates.bytes / (1 << 20):.0f} MiB/s are more than {config.bundle_mb_max}"
    return ""
