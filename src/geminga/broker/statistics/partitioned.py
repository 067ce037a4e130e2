"""``PartitionedTopicStats``: the statistics of all partitions as those of one topic. Pure.

Publishers and consumers of several partitions are one where they are one client: consumers of the same name, and
publishers of the same name, or at the same place where the client does not say that it names them alike. Of such a
one only numbers are told; each partition's own statistics have the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
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

#: Put together one by one.
_MERGED_APART: Final = frozenset(("publishers", "subscriptions"))

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


def merging_steps(
    partitions: int,
    each: Sequence[Document],
    *,
    is_persistent: bool,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Generator[None, None, Document]:
    """The statistics of ``each`` as one, without the single partitions; ``partitions``: how many there are. A step for
    each publisher and subscription of each."""
    stats: Document = {**ZEROS, **(ZEROS_STORED if is_persistent else ZEROS_NOT_STORED)}
    publishers = _Publishers()
    subscriptions: dict[str, _Merged] = {}
    for one in each:
        stats = _added(stats, {key: value for key, value in one.items() if key not in _MERGED_APART})
        for index, publisher in enumerate(cast("list[Document]", one["publishers"])):
            yield
            publishers.add(index, publisher)
        for name, subscription in cast("dict[str, Document]", one["subscriptions"]).items():
            yield
            merged = subscriptions.get(name)
            if merged is None:
                merged = subscriptions[name] = _Merged()
            merged.add(subscription)
    rate, throughput = _number(stats, "msgRateIn"), _number(stats, "msgThroughputIn")
    return {
        **stats,
        # Of no partition in particular.
        **dict.fromkeys(OFFLOADED[1:], 0),
        "averageMsgSize": throughput / rate if rate else 0.0,
        "publishers": [*publishers.found],
        "subscriptions": {name: merged.document() for name, merged in subscriptions.items()},
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


class _Publishers:
    """Producers of several partitions: those of one name are one, if their clients name the partitions' alike; of
    others the first of a partition is one with the first of each, and so on."""

    def __init__(self) -> None:
        self.found: list[Document] = []
        self._places: dict[Json, int] = {}

    def add(self, index: int, one: Document) -> None:
        """That with this place in its partition."""
        if one["supportsPartialProducer"]:
            index = self._places.get(one["producerName"], len(self.found))
            own: Document = {}
        else:
            own = {"producerId": 0, "producerName": None}
        document = _without_own({**one, **own})
        name = document.get("producerName")
        if name is None:
            document.pop("producerName", None)
        if index >= len(self.found):
            index = len(self.found)
            self.found.append({**document, "producerId": 0})
        else:
            self.found[index] = {**_added(self.found[index], document), "producerId": 0}
        self._places.setdefault(self.found[index].get("producerName"), index)


class _Merged:
    """One subscription of several partitions; consumers of one name are one."""

    __slots__ = ("_consumers", "_own")

    def __init__(self) -> None:
        self._own: Document | None = None
        self._consumers: dict[str, Document] = {}

    def add(self, one: Document) -> None:
        """What a partition tells of it."""
        for consumer in cast("list[Document]", one["consumers"]):
            name, document = str(consumer["consumerName"]), _without_own(consumer)
            known = self._consumers.get(name)
            merged = document if known is None else _added(known, document)
            merged["lastAckedTime"] = max(_text(known, "lastAckedTime"), _text(consumer, "lastAckedTime"))
            merged["lastConsumedTime"] = max(_text(known, "lastConsumedTime"), _text(consumer, "lastConsumedTime"))
            self._consumers[name] = merged
        self._own = dict(one) if self._own is None else _added(self._own, one)

    def document(self) -> Document:
        """All of it."""
        return {**(self._own or {}), "consumers": [*self._consumers.values()]}


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


def _text(document: Document | None, key: str) -> str:
    value: Json = document.get(key) if document is not None else None
    return value if isinstance(value, str) else ""


def _number(document: Document, key: str) -> int | float:
    value = document.get(key)
    return value if isinstance(value, int | float) else 0
