"""Topics, their subscriptions, producers and consumers as rows, of what ``geminga.admin`` answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

Document = Mapping[str, Any]

#: Rows of producers, consumers and ledgers that one page shows; how many there are more is said.
SHOWN_MAX: Final = 100
_PARTITION: Final = "-partition-"


class ListedTopic(NamedTuple):
    """A topic of a list, its partitions taken together."""

    name: str
    #: None: it is not partitioned.
    partitions: int | None


class TopicRow(NamedTuple):
    """A topic of a list, with its statistics."""

    name: str
    partitions: int | None
    #: None: nobody tells now; ``problem`` says why.
    stats: TopicNumbers | None
    problem: str = ""


class TopicNumbers(NamedTuple):
    """Numbers of a topic, or of all partitions of one."""

    rate_in: float
    rate_out: float
    bytes_in: float
    bytes_out: float
    size: int
    messages_in: int
    messages_out: int
    #: Messages that the subscription which is furthest behind has not acknowledged, and its name.
    backlog: int
    behind: str
    #: Seconds since the oldest of them was published; None: nothing is unacknowledged, or nobody counted.
    oldest_s: float | None
    producers: int
    subscriptions: int
    consumers: int


class SubscriptionRow(NamedTuple):
    """A subscription of a topic."""

    name: str
    type: str
    backlog: int
    size: int | None
    delayed: int
    unacked: int
    consumers: int
    rate_out: float
    rate_expired: float
    oldest_s: float | None
    is_durable: bool
    is_blocked: bool


class ProducerRow(NamedTuple):
    """A producer."""

    name: str
    address: str
    rate_in: float
    bytes_in: float
    since: str
    client: str


class ConsumerRow(NamedTuple):
    """A consumer."""

    name: str
    address: str
    rate_out: float
    permits: int
    unacked: int
    is_blocked: bool
    since: str
    client: str


class LedgerRow(NamedTuple):
    """A ledger of a topic."""

    ledger_id: int
    entries: int
    size: int
    is_offloaded: bool
    is_short: bool


def topics_of(names: Iterable[str], partitioned: Iterable[str], wanted: str) -> list[ListedTopic]:
    """Those whose name has ``wanted``, in order; a partitioned topic once, whatever of it is there."""
    text = wanted.lower()
    counts = dict.fromkeys(partitioned, 0)
    found = []
    for name in names:
        base, cut, number = name.rpartition(_PARTITION)
        if cut and base in counts and number.isascii() and number.isdecimal():
            counts[base] += 1
        else:
            found.append(ListedTopic(name, None))
    found += [ListedTopic(name, count) for name, count in counts.items()]
    return sorted(topic for topic in found if text in topic.name.lower())


def numbers_of(stats: Document, now_ms: int) -> TopicNumbers:
    """Of ``stats`` or ``partitioned-stats``."""
    rows = subscription_rows(stats, now_ms)
    # Compaction reads what it has not got to yet: nobody's messages.
    behind = max(rows, key=lambda row: row.backlog, default=None)
    ages = [row.oldest_s for row in rows if row.oldest_s is not None]
    return TopicNumbers(
        float(stats.get("msgRateIn", 0)),
        float(stats.get("msgRateOut", 0)),
        float(stats.get("msgThroughputIn", 0)),
        float(stats.get("msgThroughputOut", 0)),
        int(stats.get("storageSize", 0)),
        int(stats.get("msgInCounter", 0)),
        int(stats.get("msgOutCounter", 0)),
        behind.backlog if behind is not None else 0,
        behind.name if behind is not None and behind.backlog else "",
        max(ages, default=None),
        len(stats.get("publishers", ())),
        len(rows),
        sum(row.consumers for row in rows),
    )


def subscription_rows(stats: Document, now_ms: int) -> list[SubscriptionRow]:
    """In order of their names."""
    return [subscription_row(name, one, now_ms) for name, one in sorted(stats.get("subscriptions", {}).items())]


def subscription_row(name: str, one: Document, now_ms: int) -> SubscriptionRow:
    """One of them."""
    backlog = int(one.get("msgBacklog", 0))
    oldest_ms = int(one.get("earliestMsgPublishTimeInBacklog", 0))
    size = int(one.get("backlogSize", -1))
    return SubscriptionRow(
        name,
        "no consumer yet" if one.get("type") in (None, "", "None") else str(one["type"]),
        backlog,
        size if size >= 0 else None,
        int(one.get("msgDelayed", 0)),
        int(one.get("unackedMessages", 0)),
        len(one.get("consumers", ())),
        float(one.get("msgRateOut", 0)),
        float(one.get("msgRateExpired", 0)),
        max(0.0, (now_ms - oldest_ms) / 1000) if oldest_ms > 0 and backlog else None,
        bool(one.get("isDurable", one.get("durable", True))),
        bool(one.get("blockedSubscriptionOnUnackedMsgs", False)),
    )


def producer_rows(stats: Document) -> list[ProducerRow]:
    """Those that publish most first."""
    rows = [
        ProducerRow(
            str(one.get("producerName", "")),
            str(one.get("address") or "not told").lstrip("/"),
            float(one.get("msgRateIn", 0)),
            float(one.get("msgThroughputIn", 0)),
            str(one.get("connectedSince") or ""),
            str(one.get("clientVersion") or "not told"),
        )
        for one in stats.get("publishers", ())
    ]
    return sorted(rows, key=lambda row: (-row.rate_in, row.name))


def consumer_rows(subscription: Document) -> list[ConsumerRow]:
    """Those with the most messages that they have not acknowledged first."""
    rows = [
        ConsumerRow(
            str(one.get("consumerName", "")),
            str(one.get("address") or "not told").lstrip("/"),
            float(one.get("msgRateOut", 0)),
            int(one.get("availablePermits", 0)),
            int(one.get("unackedMessages", 0)),
            bool(one.get("blockedConsumerOnUnackedMsgs", False)),
            str(one.get("connectedSince") or ""),
            str(one.get("clientVersion") or "not told"),
        )
        for one in subscription.get("consumers", ())
    ]
    return sorted(rows, key=lambda row: (-row.unacked, row.name))


def ledger_rows(internal: Document) -> list[LedgerRow]:
    """The newest first."""
    return [
        LedgerRow(
            int(one.get("ledgerId", -1)),
            int(one.get("entries", 0)),
            int(one.get("size", 0)),
            bool(one.get("offloaded", False)),
            bool(one.get("underReplicated", False)),
        )
        for one in reversed(internal.get("ledgers", ()))
    ]


def most_behind(rows: Sequence[TopicRow], most: int) -> list[TopicRow]:
    """Topics with a backlog, the greatest first."""
    found = [row for row in rows if row.stats is not None and row.stats.backlog]
    return sorted(found, key=lambda row: (-(row.stats.backlog if row.stats else 0), row.name))[:most]
