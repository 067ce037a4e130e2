"""``PartitionedTopicStats``: the statistics of all partitions as those of one topic. Pure.

Publishers and consumers of several partitions are one where they are one client: consumers of the same name, and
publishers of the same name, or at the same place where the client does not say that it names them alike. Of such a
one only numbers are told; each partition's own statistics have the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

from geminga.broker.resources.documents import Document, Json
from geminga.broker.statistics.topics import NO_COMPACTION, NOT_IN_GEMINGA, OFFLOADED, TRANSACTION_COUNTS

#: Fields of which the largest of all partitions holds; so do those whose names begin with ``last``.
LARGEST: Final = frozenset(
    (
        "backlogQuotaLimitSize",
        "backlogQuotaLimitTime",
        "oldestBacklogMessageAgeSeconds",
        "replicationDelayInSeconds",
    )
)
#: What holds if it does for all partitions; every other flag, if it does for one.
OF_ALL: Final = frozenset(("connected",))
#: Empty where there is nothing to say: the first that says something.
SAID: Final = frozenset(("disconnectedReason",))
#: Fields of which the smallest holds that says anything.
SMALLEST: Final = frozenset(
    (
        "topicCreationTimeStamp",
        "earliestMsgPublishTimeInBacklogs",
        "earliestMsgPublishTimeInBacklog",
        "firstMessagesSentTimestamp",
        "firstConsumedFlowTimestamp",
    )
)
#: Of one topic, or one connection: they have no sum.
OF_ONE: Final = frozenset(
    (
        "ownerBroker",
        "deduplicationStatus",
        "oldestBacklogMessageSubscriptionName",
        "accessMode",
        "address",
        "connectedSince",
        "clientVersion",
        "metadata",
        "lastAckedTime",
        "lastConsumedTime",
        "drainingHashes",
        "keyHashRangeArrays",
        "replication",
        "inboundConnection",
        "inboundConnectedSince",
    )
)

#: The numbers of a topic without partitions that were ever used: every other is added to them.
ZEROS: Final[Document] = {
    **dict.fromkeys(("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut"), 0.0),
    **dict.fromkeys(
        (
            "bytesInCounter",
            "msgInCounter",
            "bytesOutCounter",
            "msgOutCounter",
            "storageSize",
            "backlogSize",
            "earliestMsgPublishTimeInBacklogs",
            "waitingPublishers",
            "nonContiguousDeletedMessagesRanges",
            "nonContiguousDeletedMessagesRangesSerializedSize",
            "delayedMessageIndexSizeInBytes",
            "topicCreationTimeStamp",
            "lastPublishTimeStamp",
            *NOT_IN_GEMINGA,
            *OFFLOADED,
            *TRANSACTION_COUNTS,
        ),
        0,
    ),
    "msgChunkPublished": False,
    "compaction": {**NO_COMPACTION},
}
#: What is told of quotas, and of what was dropped, by the two kinds of topic.
ZEROS_STORED: Final[Document] = {
    "backlogQuotaLimitSize": -1,
    "backlogQuotaLimitTime": -1,
    "oldestBacklogMessageAgeSeconds": -1,
}
ZEROS_NOT_STORED: Final[Document] = {
    "backlogQuotaLimitSize": 0,
    "backlogQuotaLimitTime": 0,
    "oldestBacklogMessageAgeSeconds": 0,
    "msgDropRate": 0.0,
}


def partitioned_metadata(partitions: int, properties: Mapping[str, str]) -> Document:
    """What statistics say of the partitioned topic itself."""
    metadata: Document = {"partitions": partitions, "deleted": False}
    return {**metadata, "properties": {**properties}} if properties else metadata


def merged_stats(
    partitions: int,
    each: Sequence[Document],
    *,
    is_persistent: bool,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Document:
    """The statistics of ``each`` as one, without the single partitions; ``partitions``: how many there are."""
    stats: Document = {**ZEROS, **(ZEROS_STORED if is_persistent else ZEROS_NOT_STORED)}
    publishers: list[Document] = []
    subscriptions: dict[str, Document] = {}
    for one in each:
        stats = _added(stats, one)
        _merge_publishers(publishers, cast("list[Document]", one["publishers"]))
        for name, subscription in cast("dict[str, Document]", one["subscriptions"]).items():
            before = subscriptions.get(name)
            subscriptions[name] = _subscription(before, subscription)
    rate, throughput = _number(stats, "msgRateIn"), _number(stats, "msgThroughputIn")
    return {
        **stats,
        # Of no partition in particular.
        **dict.fromkeys(OFFLOADED[1:], 0),
        "averageMsgSize": throughput / rate if rate else 0.0,
        "publishers": [*publishers],
        "subscriptions": {**subscriptions},
        "replication": _replication(cast("dict[str, Document]", one.get("replication", {})) for one in each),
        "metadata": partitioned_metadata(partitions, properties),
        "partitions": {},
    }


def _replication(each: Iterable[Mapping[str, Document]]) -> Document:
    """By cluster: connected if all partitions are, as late as the latest."""
    found: dict[str, Document] = {}
    for one in each:
        for cluster, document in one.items():
            known = found.get(cluster)
            found[cluster] = dict(document) if known is None else _added(known, document)
    return {**found}


def _merge_publishers(publishers: list[Document], of_partition: Iterable[Document]) -> None:
    for index, one in enumerate(of_partition):
        if one["supportsPartialProducer"]:
            places = [i for i, known in enumerate(publishers) if known.get("producerName") == one["producerName"]]
            index = places[0] if places else len(publishers)
            own: Document = {}
        else:
            own = {"producerId": 0, "producerName": None}
        document = _without_own({**one, **own})
        if document.get("producerName") is None:
            document.pop("producerName", None)
        if index >= len(publishers):
            publishers.append({**document, "producerId": 0})
        else:
            publishers[index] = {**_added(publishers[index], document), "producerId": 0}


def _subscription(before: Document | None, one: Document) -> Document:
    consumers = {str(each["consumerName"]): each for each in _list(before, "consumers")}
    for consumer in _list(one, "consumers"):
        name, document = str(consumer["consumerName"]), _without_own(consumer)
        known = consumers.get(name)
        merged = document if known is None else _added(known, document)
        merged["lastAckedTime"] = max(_text(known, "lastAckedTime"), _text(consumer, "lastAckedTime"))
        merged["lastConsumedTime"] = max(_text(known, "lastConsumedTime"), _text(consumer, "lastConsumedTime"))
        consumers[name] = merged
    merged = dict(one) if before is None else _added(before, one)
    return {**merged, "consumers": [*consumers.values()]}


def _added(before: Document, one: Document) -> Document:
    """``before`` with the numbers of ``one``; what is no number is the first's."""
    result = dict(before)
    for key, value in one.items():
        present = result.get(key)
        if key in OF_ONE:
            continue
        if isinstance(value, dict) and isinstance(present, dict):
            result[key] = {**value, **present} if key.endswith("Properties") else _added(present, value)
        elif isinstance(value, bool) or isinstance(present, bool):
            flags = bool(value), bool(present)
            result[key] = all(flags) if key in OF_ALL else any(flags)
        elif isinstance(value, int | float) and isinstance(present, int | float):
            result[key] = _rule(key)(present, value)
        elif present is None or (key in SAID and not present):
            result[key] = value
    return result


def _rule(key: str) -> Callable[[int | float, int | float], int | float]:
    if key in SMALLEST:
        return _smallest
    if key in LARGEST or key.startswith("last") or key == "avgMessagesPerEntry":
        return max
    return _sum


def _sum(left: float, right: float) -> int | float:
    return left + right


def _smallest(left: float, right: float) -> int | float:
    """The smaller of those that say anything; 0 and -1 do not."""
    if left <= 0 or right <= 0:
        return max(left, right)
    return min(left, right)


def _without_own(document: Document) -> Document:
    return {key: value for key, value in document.items() if key not in OF_ONE}


def _list(document: Document | None, key: str) -> list[Document]:
    return cast("list[Document]", document[key]) if document is not None else []


def _text(document: Document | None, key: str) -> str:
    value: Json = document.get(key) if document is not None else None
    return value if isinstance(value, str) else ""


def _number(document: Document, key: str) -> int | float:
    value = document.get(key)
    return value if isinstance(value, int | float) else 0
