"""Statistics of topics under Pulsar's JSON names (``TopicStats``, ``PartitionedTopicStats``, internal statistics).

Computed when somebody asks: counters are plain ints, rates are the change since the last question (see
``subscription.rates``). Fields for what this version does not have are there with the value that says so (no offloads,
no transactions), because administration tools read them without asking whether they exist. What it has and does not
measure is left out: clients of Pulsar take an absent number for 0, as they do with brokers older than the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.core.producer_access import AccessMode
from geminga.broker.producer import Producer
from geminga.broker.resources.documents import Document, Json
from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.broker.subscription.non_persistent import NonPersistentSubscription
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.stats import backlog_bytes as subscription_backlog
from geminga.broker.subscription.stats import (
    iso_time,
    non_persistent_subscription_stats,
    oldest_publish_time_ms,
    oldest_stored_ms,
    subscription_stats,
    totals,
)
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic import PersistentTopic
from geminga.broker.topic_base import Topic

if TYPE_CHECKING:
    from geminga.broker.service import Broker

#: Names of access modes as Pulsar prints them.
ACCESS_MODES: Final = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}
#: Fields of ``TopicStats`` that are summed over partitions.
SUMMED: Final = (
    "msgRateIn",
    "msgThroughputIn",
    "msgRateOut",
    "msgThroughputOut",
    "bytesInCounter",
    "msgInCounter",
    "bytesOutCounter",
    "msgOutCounter",
    "storageSize",
    "backlogSize",
    "offloadedStorageSize",
    "nonContiguousDeletedMessagesRanges",
)
#: Rates remembered for topics and producers that are gone, before they are swept out.
STALE_RATES_MAX: Final = 1000


class TopicStatistics:
    """Statistics of one broker's topics; remembers what rates are computed from."""

    __slots__ = ("_broker", "_rates")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Keyed by topic, or topic and producer.
        self._rates: dict[tuple[str, ...], Rates] = {}

    def rates_in(self, topic: Topic) -> tuple[float, float]:
        """Messages and bytes published to the topic per second."""
        found = self._update((str(topic.name),), (topic.messages_in, topic.bytes_in))
        return found[0], found[1]

    def sweep(self) -> None:
        """Forget the rates of what is gone, once that is much."""
        loaded = self._broker.topics
        if len(self._rates) <= len(loaded) + STALE_RATES_MAX:
            return
        self._rates = {
            key: rates
            for key, rates in self._rates.items()
            if key[0] in loaded and (len(key) == 1 or key[1] in loaded[key[0]].producers)
        }

    def of_topic(self, topic: Topic) -> Document:
        """``TopicStats``."""
        self.sweep()
        rate_in, throughput_in = self.rates_in(topic)
        publishers = [producer for producer in topic.producers.values() if producer.ready is None]
        subscriptions = {name: _subscription(item) for name, item in topic.subscriptions.items()}
        stats: Document = {
            "msgRateIn": rate_in,
            "msgThroughputIn": throughput_in,
            "msgRateOut": _total(subscriptions, "msgRateOut"),
            "msgThroughputOut": _total(subscriptions, "msgThroughputOut"),
            "bytesInCounter": topic.bytes_in,
            "msgInCounter": topic.messages_in,
            "systemTopicBytesInCounter": 0,
            "bytesOutCounter": _total(subscriptions, "bytesOutCounter"),
            "msgOutCounter": _total(subscriptions, "msgOutCounter"),
            "bytesOutInternalCounter": 0,
            "averageMsgSize": throughput_in / rate_in if rate_in else 0.0,
            "msgChunkPublished": topic.has_chunks,
            "storageSize": topic.ledger.size_bytes if isinstance(topic, PersistentTopic) else 0,
            "backlogSize": backlog_bytes(topic),
            "backlogQuotaLimitSize": -1,
            "backlogQuotaLimitTime": -1,
            "oldestBacklogMessageAgeSeconds": -1,
            "publishRateLimitedTimes": 0,
            "earliestMsgPublishTimeInBacklogs": 0,
            "offloadedStorageSize": 0,
            "lastOffloadLedgerId": 0,
            "lastOffloadSuccessTimeStamp": 0,
            "lastOffloadFailureTimeStamp": 0,
            "ongoingTxnCount": 0,
            "abortedTxnCount": 0,
            "committedTxnCount": 0,
            "publishers": [self._publisher(topic, producer) for producer in publishers],
            "waitingPublishers": len(topic.producers) - len(publishers),
            "subscriptions": {**subscriptions},
            "replication": {},
            "deduplicationStatus": _deduplication_status(topic),
            "nonContiguousDeletedMessagesRanges": _total(subscriptions, "nonContiguousDeletedMessagesRanges"),
            "compaction": {
                "lastCompactionRemovedEventCount": 0,
                "lastCompactionSucceedTimestamp": 0,
                "lastCompactionFailedTimestamp": 0,
                "lastCompactionDurationTimeInMills": 0,
            },
            "ownerBroker": self._broker.web_url.partition("://")[2],
            "topicCreationTimeStamp": topic.created_ms,
        }
        return stats

    def of_partitions(self, count: int, each: Sequence[Document]) -> Document:
        """``PartitionedTopicStats`` without the single partitions: sums, and subscriptions merged by name."""
        stats: Document = {"metadata": {"partitions": count, "deleted": False}}
        for key in SUMMED:
            zero: int | float = 0.0 if key.startswith(("msgRate", "msgThroughput")) else 0
            stats[key] = sum((_number(one, key) for one in each), zero)
        rate, throughput = _number(stats, "msgRateIn"), _number(stats, "msgThroughputIn")
        stats["averageMsgSize"] = throughput / rate if rate else 0.0
        publishers: list[Json] = []
        subscriptions: Document = {}
        for one in each:
            publishers += cast("list[Json]", one["publishers"])
            for name, subscription in cast("Document", one["subscriptions"]).items():
                subscriptions[name] = _merged(cast("Document | None", subscriptions.get(name)), subscription)
        stats["publishers"] = publishers
        stats["subscriptions"] = subscriptions
        stats["replication"] = {}
        stats["partitions"] = {}
        return stats

    def _publisher(self, topic: Topic, producer: Producer) -> Document:
        counters = (producer.messages_in, producer.bytes_in, producer.chunks_in)
        rates = self._update((str(topic.name), producer.name), counters)
        return {
            "accessMode": ACCESS_MODES[producer.access_mode],
            "msgRateIn": rates[0],
            "msgThroughputIn": rates[1],
            "averageMsgSize": rates[1] / rates[0] if rates[0] else 0.0,
            "chunkedMessageRate": rates[2],
            "producerId": producer.producer_id,
            "producerName": producer.name,
            "supportsPartialProducer": False,
            "metadata": dict(producer.metadata),
            "address": producer.connection.peer,
            "connectedSince": iso_time(producer.connected_since_ms),
            "clientVersion": producer.connection.client_version,
        }

    def _update(self, key: tuple[str, ...], counters: tuple[int, ...]) -> tuple[float, ...]:
        rates = self._rates.get(key)
        if rates is None:
            rates = self._rates[key] = Rates()
        return rates.update(self._broker.runtime.clock.monotonic(), counters)


def backlog_bytes(topic: Topic) -> int:
    """Bytes that the durable subscription furthest behind has not acknowledged."""
    if not isinstance(topic, PersistentTopic):
        return 0
    return max((subscription_backlog(item) for item in topic.subscriptions.values() if item.is_durable), default=0)


async def add_backlog_age(topic: Topic, stats: Document, *, for_each: bool) -> None:
    """Complete ``stats`` by what must be read from storage: how old the oldest message of the backlog is.

    ``for_each``: also the publish time of each subscription's oldest one (``getEarliestTimeInBacklog``); -1 without
    a backlog. Otherwise one entry is read.
    """
    if not isinstance(topic, PersistentTopic):
        return
    durable = [item for item in topic.subscriptions.values() if item.is_durable and item.cursor.backlog_count]
    if durable:
        slowest = min(durable, key=lambda item: item.cursor.mark_delete_position)
        since_ms = await oldest_stored_ms(slowest)
        if since_ms is not None:
            age_ms = max(0, topic.broker.runtime.clock.wall_ms() - since_ms)
            stats["oldestBacklogMessageAgeSeconds"] = age_ms // 1000
            stats["oldestBacklogMessageSubscriptionName"] = slowest.name
    if not for_each:
        return
    earliest: list[int] = []
    for name, document in cast("dict[str, Document]", stats["subscriptions"]).items():
        subscription = topic.subscriptions.get(name)
        published_ms = await oldest_publish_time_ms(subscription) if subscription is not None else None
        document["earliestMsgPublishTimeInBacklog"] = -1 if published_ms is None else published_ms
        earliest += [] if published_ms is None else [published_ms]
    stats["earliestMsgPublishTimeInBacklogs"] = min(earliest, default=0)


def internal_stats(topic: PersistentTopic) -> Document:
    """Ledgers and cursors, as ``PersistentTopicInternalStats``."""
    stats = cast("Document", topic.ledger.stats_internal())
    own: Document = {name: section(topic) for name, section in INTERNAL_SECTIONS.items()}
    return {
        **stats,
        "geminga": own,
        "schemaLedgers": [],
        "compactedLedger": {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False},
    }


def _deduplication(topic: PersistentTopic) -> Document:
    if topic.dedup is None:
        return {"status": "Disabled"}
    return {"status": "Enabled", **cast("Document", topic.dedup.internal_stats())}


def _delayed_delivery(topic: PersistentTopic) -> Document:
    """Entries that wait for their time, by subscription, and the index that they share."""
    waiting: Document = {}
    for name, subscription in topic.subscriptions.items():
        dispatch = subscription.dispatch if isinstance(subscription, Subscription) else None
        if isinstance(dispatch, SharedDispatch):
            waiting[name] = dispatch.delayed_count
    return {"waitingEntries": waiting, **topic.delays_stats()}


#: What the internal statistics of a topic tell besides Pulsar's, by name: each part of the broker adds its own.
INTERNAL_SECTIONS: Final[Mapping[str, Callable[[PersistentTopic], Document]]] = {
    "deduplication": _deduplication,
    "delayedDelivery": _delayed_delivery,
}


def totals_out(topic: Topic) -> tuple[int, int]:
    """Messages and bytes that left through subscriptions since the topic was loaded."""
    messages = size_bytes = 0
    for subscription in topic.subscriptions.values():
        out = totals(subscription)
        messages += out[0]
        size_bytes += out[1]
    return messages, size_bytes


def _subscription(subscription: object) -> Document:
    if isinstance(subscription, Subscription):
        stats = cast("Document", subscription_stats(subscription))
        stats["subscriptionProperties"] = {**subscription.cursor.cursor_properties}
        return stats
    return cast("Document", non_persistent_subscription_stats(cast("NonPersistentSubscription", subscription)))


def _deduplication_status(topic: Topic) -> str:
    return "Enabled" if isinstance(topic, PersistentTopic) and topic.dedup is not None else "Disabled"


def _total(documents: dict[str, Document], key: str) -> int | float:
    zero: int | float = 0.0 if key.startswith(("msgRate", "msgThroughput")) else 0
    return sum((_number(document, key) for document in documents.values()), zero)


def _number(document: Document, key: str) -> int | float:
    value = document.get(key)
    return value if isinstance(value, int | float) else 0


def _merged(sum_: Document | None, one: Json) -> Document:
    """A subscription of one more partition added to those before: numbers summed, consumers in one list."""
    document = cast("Document", one)
    if sum_ is None:
        return dict(document)
    merged = dict(sum_)
    for key, value in document.items():
        present = merged.get(key)
        if isinstance(value, bool) or isinstance(present, bool):
            merged[key] = bool(value) or bool(present)
        elif isinstance(value, int | float) and isinstance(present, int | float):
            merged[key] = max(value, present) if key.startswith("last") else value + present
        elif isinstance(value, list) and isinstance(present, list):
            merged[key] = present + value
    return merged
