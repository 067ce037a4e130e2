"""Statistics of topics under Pulsar's JSON names (``TopicStats``, ``NonPersistentTopicStats``).

Computed when somebody asks: counters are plain ints, rates are the change since the last question (see
``subscription.rates``). Fields for what this version does not have are there with the value that says so (no offloads),
because administration tools read them without asking whether they exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.compaction.part import TopicCompaction
from geminga.broker.core.producer_access import AccessMode
from geminga.broker.resources.documents import Document, Json
from geminga.broker.statistics.answer_turns import AnswerTurns
from geminga.broker.statistics.replication import own_publishers, replication_stats
from geminga.broker.subscription.messages import entry_timestamp_ms
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.stats import backlog_bytes as subscription_backlog
from geminga.broker.subscription.stats import (
    consumers_stats,
    iso_time,
    oldest_publish_time_ms,
    oldest_stored_ms,
    subscription_counts,
    totals,
)
from geminga.broker.topic.base import Topic
from geminga.broker.topic.delays import delays_stats
from geminga.broker.topic.offload import Offload
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.producer import Producer
from geminga.model.errors import StorageError

if TYPE_CHECKING:
    from geminga.broker.administration.services import BrokerStatus
    from geminga.runtime import Clock, Turns

#: Names of access modes as Pulsar prints them.
ACCESS_MODES: Final = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}
#: Fields of ``TopicStats`` that are the sum over its subscriptions.
SUMMED_OVER_SUBSCRIPTIONS: Final = (
    "msgRateOut",
    "msgThroughputOut",
    "bytesOutCounter",
    "msgOutCounter",
    "nonContiguousDeletedMessagesRanges",
    "nonContiguousDeletedMessagesRangesSerializedSize",
)
_RATES: Final = ("msgRate", "msgThroughput")
#: Of a topic that was never compacted.
NO_COMPACTION: Final[Mapping[str, Json]] = dict.fromkeys(
    (
        "lastCompactionRemovedEventCount",
        "lastCompactionSucceedTimestamp",
        "lastCompactionFailedTimestamp",
        "lastCompactionDurationTimeInMills",
    ),
    0,
)
#: Of a topic that had no compaction, and no limit of its publish rate.
NOT_IN_GEMINGA: Final[Mapping[str, Json]] = dict.fromkeys(
    (
        "systemTopicBytesInCounter",
        "bytesOutInternalCounter",
        "publishRateLimitedTimes",
    ),
    0,
)


#: Bytes of a topic in the lake, and when something went there or could not.
OFFLOADED: Final = (
    "offloadedStorageSize",
    "lastOffloadLedgerId",
    "lastOffloadSuccessTimeStamp",
    "lastOffloadFailureTimeStamp",
)
#: Transactions of a topic that are open, aborted and committed.
TRANSACTION_COUNTS: Final = ("ongoingTxnCount", "abortedTxnCount", "committedTxnCount")


class TopicStatistics:
    """Statistics of one broker's topics."""

    __slots__ = ("_clock", "_long", "_status")

    def __init__(self, clock: Clock, status: BrokerStatus) -> None:
        self._clock = clock
        self._status = status
        #: Held by the answer that is long.
        self._long = asyncio.Lock()

    def turns(self) -> AnswerTurns:
        """Of one answer, to be entered."""
        return AnswerTurns(self._clock, self._long)

    def rates_in(self, topic: Topic) -> tuple[float, float]:
        """Messages and bytes published to the topic per second."""
        if topic.rates is None:
            topic.rates = Rates()
        rates = topic.rates.update(self._clock.monotonic(), topic.publishing.totals())
        return rates[0], rates[1]

    async def of_topic(self, topic: Topic, turns: Turns) -> Document:
        """``TopicStats``, or ``NonPersistentTopicStats``: clients decide how many subscriptions it has."""
        return await turns.through(self._steps(topic))

    def _steps(self, topic: Topic) -> Generator[None, None, Document]:
        subscriptions: dict[str, Document] = {}
        sums: dict[str, int | float] = {key: 0.0 if key.startswith(_RATES) else 0 for key in SUMMED_OVER_SUBSCRIPTIONS}
        for name, item in [*topic.subscriptions.items()]:
            yield
            subscriptions[name] = document = cast("Document", subscription_counts(item))
            document["consumers"] = consumers = list[Json]()
            for _, consumer in consumers_stats(item):
                consumers.append(cast("Document", consumer))
                yield
            for key in sums:
                sums[key] += _number(document, key)
        rate_in, throughput_in = self.rates_in(topic)
        replication = replication_stats(topic, self._clock)
        publishers: list[Json] = []
        for producer in own_publishers(topic, replication):
            yield
            publishers.append(self.publisher(topic, producer))
        being_let_in = sum(producer.ready is not None for producer in topic.producers.values())
        waiting = len(topic.attendance.waiting) + being_let_in
        return {
            "msgRateIn": rate_in,
            "msgThroughputIn": throughput_in,
            "bytesInCounter": topic.publishing.bytes_in,
            "msgInCounter": topic.publishing.messages_in,
            "averageMsgSize": throughput_in / rate_in if rate_in else 0.0,
            "msgChunkPublished": topic.publishing.has_chunks,
            **sums,
            **_stored(topic),
            "earliestMsgPublishTimeInBacklogs": 0,
            **NOT_IN_GEMINGA,
            **_offloaded(topic),
            **_transactions(topic),
            "publishRateLimitedTimes": topic.throttles.publish_limited_times,
            "publishers": publishers,
            "waitingPublishers": waiting,
            "subscriptions": {**subscriptions},
            "replication": {**replication},
            "compaction": compaction_stats(topic),
            "ownerBroker": self._status.web_url.partition("://")[2],
            "topicCreationTimeStamp": topic.created_ms,
            "lastPublishTimeStamp": topic.publishing.last_published_ms,
        }

    def publisher(self, topic: Topic, producer: Producer) -> Document:
        """``PublisherStats``."""
        if producer.rates is None:
            producer.rates = Rates()
        counters = (producer.messages_in, producer.bytes_in, producer.chunks_in)
        rates = producer.rates.update(self._clock.monotonic(), counters)
        stats: Document = {
            "accessMode": ACCESS_MODES[producer.access_mode],
            "msgRateIn": rates[0],
            "msgThroughputIn": rates[1],
            "averageMsgSize": rates[1] / rates[0] if rates[0] else 0.0,
            "chunkedMessageRate": rates[2],
            "producerId": producer.producer_id,
            "producerName": producer.name,
            "supportsPartialProducer": producer.connection.supports_partial_producer,
            "metadata": dict(producer.metadata),
            "address": producer.connection.peer,
            "connectedSince": iso_time(producer.connected_since_ms),
            "clientVersion": producer.connection.client_version,
        }
        if not topic.is_persistent:
            # Only for want of permits is anything dropped, which is the subscriptions' to tell.
            stats["msgDropRate"] = 0.0
        return stats


def compaction_stats(topic: Topic) -> Document:
    """What the last compaction since the topic was loaded came to."""
    part = topic.parts.find(TopicCompaction) if isinstance(topic, PersistentTopic) else None
    record = part.record if part is not None else None
    if record is None:
        return {**NO_COMPACTION}
    return {
        "lastCompactionRemovedEventCount": record.removed,
        "lastCompactionSucceedTimestamp": record.succeeded_ms,
        "lastCompactionFailedTimestamp": record.failed_ms,
        "lastCompactionDurationTimeInMills": record.duration_ms,
    }


def _transactions(topic: Topic) -> Document:
    buffer = topic.transaction_buffer if isinstance(topic, PersistentTopic) else None
    counts = buffer.state.counts() if buffer is not None and buffer.state is not None else (0, 0, 0)
    return dict(zip(TRANSACTION_COUNTS, counts, strict=True))


def _offloaded(topic: Topic) -> Document:
    """What lies in the lake, and when something went there or could not."""
    part = topic.parts.find(Offload) if isinstance(topic, PersistentTopic) else None
    offloading = part.offloading if part is not None else None
    values = (
        topic.ledger.ledgers.offloaded_bytes if isinstance(topic, PersistentTopic) else 0,
        offloading.last_ledger_id if offloading is not None else 0,
        offloading.last_success_ms if offloading is not None else 0,
        offloading.last_failure_ms if offloading is not None else 0,
    )
    return dict(zip(OFFLOADED, values, strict=True))


def _stored(topic: Topic) -> Document:
    """What differs between the two kinds of topic."""
    if not isinstance(topic, PersistentTopic):
        return {
            "storageSize": 0,
            "backlogSize": 0,
            "backlogQuotaLimitSize": 0,
            "backlogQuotaLimitTime": 0,
            "oldestBacklogMessageAgeSeconds": 0,
            "delayedMessageIndexSizeInBytes": 0,
            "msgDropRate": 0.0,
        }
    size_quota, age_quota = topic.rules.size_quota, topic.rules.age_quota
    return {
        "storageSize": topic.ledger.ledgers.size_bytes,
        "backlogSize": backlog_bytes(topic),
        "backlogQuotaLimitSize": size_quota.limit if size_quota is not None else -1,
        "backlogQuotaLimitTime": age_quota.limit // 1000 if age_quota is not None else -1,
        "oldestBacklogMessageAgeSeconds": -1,
        "delayedMessageIndexSizeInBytes": delays_stats(topic).get("memoryBytes", 0),
        "deduplicationStatus": "Disabled" if topic.dedup is None else "Enabled",
    }


def backlog_bytes(topic: Topic) -> int:
    """Bytes that the durable subscription furthest behind has not acknowledged."""
    if not isinstance(topic, PersistentTopic):
        return 0
    return max((subscription_backlog(item) for item in topic.subscriptions.values() if item.is_durable), default=0)


async def add_stored(topic: Topic, stats: Document, turns: Turns, *, for_each: bool) -> None:
    """Complete ``stats`` by what must be read from storage: how old the oldest message of the backlog is, and when the
    newest was published, if that was before the topic was loaded.

    ``for_each``: also the publish time of each subscription's oldest one (``getEarliestTimeInBacklog``); -1 without
    a backlog. Otherwise one entry is read. What can not be read leaves the values as they are; its ledgers are told.
    """
    if not isinstance(topic, PersistentTopic):
        return
    with suppress(StorageError):
        await _add_ages(topic, stats)
    if for_each:
        await _add_earliest(topic, stats, turns)
    unreadable = unreadable_ledgers(topic)
    if unreadable:
        stats["unreadableLedgers"] = unreadable


def unreadable_ledgers(topic: PersistentTopic) -> list[Json]:
    """Ledgers whose last read failed, or that the topic's load had to pass over: ids, and why."""
    stored = topic.ledger.stored
    errors = {ledger_id: gap.error for ledger_id, gap in stored.gaps.items()} | stored.failures
    # One that was trimmed since is missed by nobody.
    there = (each for each in sorted(errors) if topic.ledger.ledgers.find(each) is not None)
    return [{"ledgerId": ledger_id, "error": errors[ledger_id].told} for ledger_id in there]


async def _add_ages(topic: PersistentTopic, stats: Document) -> None:
    if topic.publishing.last_published_s is None and topic.ledger.ledgers.entry_count:
        newest = await topic.ledger.reader.read([topic.ledger.extent.last_confirmed_position], is_limited=False)
        stats["lastPublishTimeStamp"] = entry_timestamp_ms(newest[0].data) if newest else 0
    durable = [item for item in topic.subscriptions.values() if item.is_durable and item.cursor.backlog_count]
    if durable:
        slowest = min(durable, key=lambda item: item.cursor.mark_delete_position)
        since_ms = await oldest_stored_ms(slowest)
        if since_ms is not None:
            age_ms = max(0, topic.services.runtime.clock.wall_ms() - since_ms)
            stats["oldestBacklogMessageAgeSeconds"] = age_ms // 1000
            stats["oldestBacklogMessageSubscriptionName"] = slowest.name


async def _add_earliest(topic: PersistentTopic, stats: Document, turns: Turns) -> None:
    earliest: list[int] = []
    for name, document in cast("dict[str, Document]", stats["subscriptions"]).items():
        if turns.is_over():
            await turns.next()
        subscription = topic.subscriptions.get(name)
        published_ms: int | None = None
        with suppress(StorageError):
            published_ms = await oldest_publish_time_ms(subscription) if subscription is not None else None
        document["earliestMsgPublishTimeInBacklog"] = -1 if published_ms is None else published_ms
        earliest += [] if published_ms is None else [published_ms]
    stats["earliestMsgPublishTimeInBacklogs"] = min(earliest, default=0)


def totals_out(topic: Topic) -> tuple[int, int]:
    """Messages and bytes that left through subscriptions since the topic was loaded."""
    messages = size_bytes = 0
    for subscription in topic.subscriptions.values():
        out = totals(subscription)
        messages += out[0]
        size_bytes += out[1]
    return messages, size_bytes


def _number(document: Document, key: str) -> int | float:
    value = document.get(key)
    return value if isinstance(value, int | float) else 0
