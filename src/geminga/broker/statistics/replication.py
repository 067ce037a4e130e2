"""``ReplicatorStats`` of a topic: what goes to each other cluster, and what comes from there.

What comes is published by that cluster's replicators, which are known by their names; where this cluster does not copy
to theirs they are publishers like others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.core.dedup_source import cluster_of
from geminga.broker.geo.part import GeoReplication
from geminga.broker.geo.subscriptions import COUNTS
from geminga.broker.resources.documents import Document
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.stats import iso_time
from geminga.broker.topic.base import Topic
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.producer import Producer
from geminga.model.histogram import Quantiles
from geminga.runtime import Clock

#: Metric -> field of the statistics.
REPLICATION_METRICS: Final[Mapping[str, str]] = {
    "pulsar_replication_rate_in": "msgRateIn",
    "pulsar_replication_rate_out": "msgRateOut",
    "pulsar_replication_throughput_in": "msgThroughputIn",
    "pulsar_replication_throughput_out": "msgThroughputOut",
    "pulsar_replication_backlog": "replicationBacklog",
    "pulsar_replication_rate_expired": "msgRateExpired",
    "pulsar_replication_connected_count": "connected",
    "pulsar_replication_delay_in_seconds": "replicationDelayInSeconds",
}


def replication_stats(topic: Topic, clock: Clock) -> dict[str, Document]:
    """By cluster; empty: the topic is not copied."""
    part = topic.parts.find(GeoReplication) if isinstance(topic, PersistentTopic) else None
    if part is None:
        return {}
    found: dict[str, Document] = {}
    for cluster, replicator in part.replicators.items():
        incoming = [each for each in topic.producers.values() if cluster_of(each.name) == cluster]
        totals_in = sum(each.messages_in for each in incoming), sum(each.bytes_in for each in incoming)
        totals_out = replicator.totals()
        totals = (*totals_in, *totals_out, replicator.expired)
        rates = part.rates.setdefault(cluster, Rates()).update(clock.monotonic(), totals)
        document: Document = {
            "msgRateIn": rates[0],
            "msgInCount": totals_in[0],
            "msgThroughputIn": rates[1],
            "bytesInCount": totals_in[1],
            "msgRateOut": rates[2],
            "msgOutCount": totals_out[0],
            "msgThroughputOut": rates[3],
            "bytesOutCount": totals_out[1],
            "msgRateExpired": rates[4],
            "msgExpiredCount": replicator.expired,
            "replicationBacklog": replicator.backlog,
            "connected": replicator.is_connected,
            "replicationDelayInSeconds": int(replicator.delay_s),
            "disconnectedReason": replicator.reason,
        }
        for producer in incoming[:1]:
            document["inboundConnection"] = producer.connection.peer
            document["inboundConnectedSince"] = iso_time(producer.connected_since_ms)
        found[cluster] = document
    return found


def replicated_subscription_counts() -> dict[str, float | Quantiles]:
    """Snapshots of replicated subscriptions, of all topics of the broker."""
    return {
        "pulsar_replicated_subscriptions_pending_snapshots": COUNTS.pending,
        "pulsar_replicated_subscriptions_timedout_snapshots_total": COUNTS.timed_out,
        # As Pulsar's: sum and count, no quantiles.
        "pulsar_replicated_subscriptions_snapshot_ms": Quantiles((), COUNTS.completed, COUNTS.completed_ms),
        "geminga_replicated_subscriptions_held_topics": COUNTS.held,
    }


def own_publishers(topic: Topic, replication: Mapping[str, Document]) -> list[Producer]:
    """Producers that are let in, but for those that are told of as another cluster's."""
    return [
        producer
        for producer in topic.producers.values()
        if producer.ready is None and cluster_of(producer.name) not in replication
    ]
