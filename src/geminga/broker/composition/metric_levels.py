"""Which parts of ``/metrics`` are wanted, and those that are many: of consumers, producers, cursors and namespaces.

Each is one row: labels, and the values that have them. Names and labels are Pulsar's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from geminga.broker.subscription.stats import consumers_stats
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger.rules.write_stats import LATENCY_BOUNDS_US, SIZE_BOUNDS

if TYPE_CHECKING:
    from geminga.broker.statistics.topics import TopicStatistics
    from geminga.broker.subscription.stats import AnySubscription
    from geminga.broker.topic.base import Topic
    from geminga.model.exposition import Labels
    from geminga.model.topic_name import TopicName

#: Labels, and values.
Row: TypeAlias = "tuple[Labels, Mapping[str, float]]"

#: Series of topics, and of what hangs on them, that one page has.
SERIES_MAX: Final = 1_000_000
#: Consumer metrics: name -> field of ``ConsumerStats``.
CONSUMER_METRICS: Final = {
    "pulsar_consumer_msg_rate_redeliver": "msgRateRedeliver",
    "pulsar_consumer_unacked_messages": "unackedMessages",
    "pulsar_consumer_blocked_on_unacked_messages": "blockedConsumerOnUnackedMsgs",
    "pulsar_consumer_msg_rate_out": "msgRateOut",
    "pulsar_consumer_msg_ack_rate": "messageAckRate",
    "pulsar_consumer_msg_throughput_out": "msgThroughputOut",
    "pulsar_consumer_available_permits": "availablePermits",
}
#: Producer metrics: name -> field of ``PublisherStats``.
PRODUCER_METRICS: Final = {
    "pulsar_producer_msg_rate_in": "msgRateIn",
    "pulsar_producer_msg_throughput_in": "msgThroughputIn",
    "pulsar_producer_msg_average_Size": "averageMsgSize",
}
#: Of a namespace: name -> metric of its topics that it is the sum of.
LEDGER_METRICS: Final = {
    "pulsar_ml_AddEntryMessagesRate": "pulsar_storage_write_rate",
    "pulsar_ml_AddEntryBytesRate": "write_bytes_rate",
    "pulsar_ml_AddEntrySucceed": "written_entries",
    "pulsar_ml_NumberOfMessagesInBacklog": "pulsar_msg_backlog",
    "pulsar_ml_ReadEntriesRate": "pulsar_storage_read_rate",
    "pulsar_ml_ReadEntriesOpsCacheMissesRate": "pulsar_storage_read_cache_misses_rate",
    "pulsar_ml_StoredMessagesSize": "pulsar_storage_size",
}
#: Sums for :data:`LEDGER_METRICS` that are no metrics themselves.
ONLY_SUMMED: Final = frozenset(("write_bytes_rate", "written_entries"))

#: Endings of the names of Pulsar's spreads, for each bound and for what is above all.
LATENCY_ENDINGS: Final = (
    "le_0_5",
    "le_1",
    "le_5",
    "le_10",
    "le_20",
    "le_50",
    "le_100",
    "le_200",
    "le_1000",
    "overflow",
)
SIZE_ENDINGS: Final = (
    "le_128",
    "le_512",
    "le_1_kb",
    "le_2_kb",
    "le_4_kb",
    "le_16_kb",
    "le_100_kb",
    "le_1_mb",
    "le_overflow",
)
assert len(LATENCY_ENDINGS) == len(LATENCY_BOUNDS_US) + 1
assert len(SIZE_ENDINGS) == len(SIZE_BOUNDS) + 1


class MetricLevels(NamedTuple):
    """What has series of its own, as the ``expose*InPrometheus`` settings say."""

    topics: bool = True
    #: Of topics: these two only where topics have series.
    consumers: bool = False
    producers: bool = False
    #: Sums over the managed ledgers of a namespace, and each cursor.
    managed_ledgers: bool = True
    cursors: bool = False
    bundles: bool = False
    #: Bytes of each subscription's backlog; under a name of our own, as Pulsar has none for it in metrics.
    subscription_backlog_size: bool = False
    #: A partition has the name of its topic, and its number (-1: no partition) as a label of its own.
    splits_partitions: bool = False
    #: Properties of topics that a policy names are labels, too.
    properties: bool = False
    series_max: int = SERIES_MAX

    def labels_of(self, name: TopicName) -> Labels:
        """Of a topic's series."""
        if not self.splits_partitions:
            return (("topic", str(name)),)
        return (("topic", str(name.partitioned_topic)), ("partition", str(name.partition)))


#: As Pulsar's defaults are.
BY_TOPIC: Final = MetricLevels()


def consumer_rows(subscription: AnySubscription) -> Iterator[Row]:
    """Of those that are attached."""
    for consumer, document in consumers_stats(subscription):
        labels = (("consumer_name", consumer.name), ("consumer_id", str(consumer.consumer_id)))
        yield labels, {metric: _number(document[field]) for metric, field in CONSUMER_METRICS.items()}


def producer_rows(topic: Topic, statistics: TopicStatistics) -> Iterator[Row]:
    """Of those that are let in."""
    for producer in [*topic.producers.values()]:  # others come and go meanwhile
        document = statistics.publisher(topic, producer)
        labels = (("producer_name", producer.name), ("producer_id", str(producer.producer_id)))
        yield labels, {metric: _number(document[field]) for metric, field in PRODUCER_METRICS.items()}


def cursor_rows(topic: Topic) -> Iterator[Row]:
    """Of durable subscriptions: how its acknowledgments are kept."""
    if not isinstance(topic, PersistentTopic):
        return
    for name, subscription in [*topic.subscriptions.items()]:  # others come and go meanwhile
        store = subscription.cursor.store if isinstance(subscription, Subscription) else None
        if store is None:
            continue
        labels = (
            ("namespace", topic.name.namespace),
            ("ledger_name", topic.name.managed_ledger_name),
            ("cursor_name", name),
        )
        node_saves, failed_node_saves = store.node_saves
        yield (
            labels,
            {
                "pulsar_ml_cursor_nonContiguousDeletedMessagesRange": subscription.cursor.state.acked.range_count,
                "pulsar_ml_cursor_persistLedgerSucceed": store.saves,
                "pulsar_ml_cursor_persistLedgerErrors": store.failed_saves,
                "pulsar_ml_cursor_persistZookeeperSucceed": node_saves,
                "pulsar_ml_cursor_persistZookeeperErrors": failed_node_saves,
                # As in Pulsar: by the copies that are written now.
                "pulsar_ml_cursor_writeLedgerSize": store.written_bytes * topic.ledger.persistence.write_quorum,
                "pulsar_ml_cursor_writeLedgerLogicalSize": store.written_bytes,
                "pulsar_ml_cursor_readLedgerSize": store.read_bytes,
            },
        )


def ledger_rows(namespace: str, sums: Mapping[str, float]) -> Iterator[Row]:
    """Of the managed ledgers of a namespace; ``sums``: of the metrics of its topics."""
    own: Labels = (("namespace", namespace),)
    yield own, {name: sums.get(field, 0) for name, field in LEDGER_METRICS.items()}
    spreads = (
        ("pulsar_ml_AddEntryLatencyBuckets", "pulsar_storage_write_latency", LATENCY_BOUNDS_US, 1000, LATENCY_ENDINGS),
        (
            "pulsar_ml_LedgerAddEntryLatencyBuckets",
            "pulsar_storage_ledger_write_latency",
            LATENCY_BOUNDS_US,
            1000,
            LATENCY_ENDINGS,
        ),
        ("pulsar_ml_EntrySizeBuckets", "pulsar_entry_size", SIZE_BOUNDS, 1, SIZE_ENDINGS),
    )
    for name, source, bounds, unit, endings in spreads:
        before = 0.0
        for bound, ending in zip(bounds, endings, strict=False):
            value = sums.get(f"{source}_{ending}", 0)
            yield (*own, ("quantile", f"{before}_{bound / unit}")), {name: value}
            before = bound / unit
        yield own, {f"{name}_OVERFLOW": sums.get(f"{source}_{endings[-1]}", 0)}


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
