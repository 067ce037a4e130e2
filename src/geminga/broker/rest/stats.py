"""Statistics of topics under Pulsar's JSON names (``TopicStats``, ``PartitionedTopicStats``, internal statistics).

Computed when somebody asks: counters are plain ints, rates are the change since the last question (see
``subscription.rates``). Fields for what this version does not have are there with the value that says so, because
administration tools read them without asking whether they exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.core.producer_access import AccessMode
from geminga.broker.producer import Producer
from geminga.broker.resources.documents import Document, Json
from geminga.broker.subscription.non_persistent import NonPersistentSubscription
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.stats import (
    iso_time,
    non_persistent_subscription_stats,
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
            "msgChunkPublished": False,
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
            "nonContiguousDeletedMessagesRanges": 0,
            "nonContiguousDeletedMessagesRangesSerializedSize": 0,
            "delayedMessageIndexSizeInBytes": 0,
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
        rates = self._update((str(topic.name), producer.name), (producer.messages_in, producer.bytes_in))
        return {
            "accessMode": ACCESS_MODES[producer.access_mode],
            "msgRateIn": rates[0],
            "msgThroughputIn": rates[1],
            "averageMsgSize": rates[1] / rates[0] if rates[0] else 0.0,
            "chunkedMessageRate": 0.0,
            "producerId": producer.producer_id,
            "producerName": producer.name,
            "supportsPartialProducer": False,
            "metadata": dict(producer.metadata),
            "address": producer.connection.peer,
            "connectedSince": iso_time(producer.connected_since_ms),
            "clientVersion": producer.connection.client_version,
        }

    def _update(self, key: tuple[str, ...], counters: tuple[int, int]) -> tuple[float, ...]:
        rates = self._rates.get(key)
        if rates is None:
            rates = self._rates[key] = Rates()
        return rates.update(self._broker.runtime.clock.monotonic(), counters)


def backlog_bytes(topic: Topic) -> int:
    """Bytes that the subscription furthest behind has not acknowledged, estimated from the mean entry size."""
    if not isinstance(topic, PersistentTopic) or not topic.ledger.entry_count:
        return 0
    furthest = max((item.cursor.backlog_count for item in topic.subscriptions.values()), default=0)
    return topic.ledger.size_bytes * furthest // topic.ledger.entry_count


def internal_stats(topic: PersistentTopic) -> Document:
    """Ledgers and cursors, as ``PersistentTopicInternalStats``."""
    stats = cast("Document", topic.ledger.stats_internal())
    return {
        **stats,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "schemaLedgers": [],
        "compactedLedger": {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False},
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
        stats["nonContiguousDeletedMessagesRanges"] = subscription.cursor.individually_acknowledged_count
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
