"""Rows of topics, subscriptions and clients."""

from __future__ import annotations

from geminga.app.console.core.topic_rows import (
    ListedTopic,
    TopicRow,
    consumer_rows,
    ledger_rows,
    most_behind,
    numbers_of,
    producer_rows,
    subscription_rows,
    topics_of,
)

STATS = {
    "msgRateIn": 2.5,
    "storageSize": 1000,
    "publishers": [{"producerName": "a", "address": "/1.2.3.4:5"}, {"producerName": "b", "msgRateIn": 9}],
    "subscriptions": {
        "slow": {"msgBacklog": 7, "earliestMsgPublishTimeInBacklog": 4_000, "consumers": [{}, {}], "type": "Shared"},
        "done": {"msgBacklog": 0, "earliestMsgPublishTimeInBacklog": 4_000, "durable": False},
        "late": {"msgBacklog": 3, "earliestMsgPublishTimeInBacklog": 1_000},
    },
}


def test_partitions_of_a_topic_are_one_row() -> None:
    names = [
        "p://t/n/a-partition-0",
        "p://t/n/a-partition-1",
        "p://t/n/b",
        "p://t/n/c-partition-0",
        "p://t/n/a-partition-x",
    ]
    assert topics_of(names, ["p://t/n/a", "p://t/n/z"], "") == [
        ListedTopic("p://t/n/a", 2),
        ListedTopic("p://t/n/a-partition-x", None),
        ListedTopic("p://t/n/b", None),
        ListedTopic("p://t/n/c-partition-0", None),
        ListedTopic("p://t/n/z", 0),
    ]


def test_names_are_searched_whatever_their_case() -> None:
    assert topics_of(["p://t/n/Orders", "p://t/n/b"], [], "ORD") == [ListedTopic("p://t/n/Orders", None)]


def test_numbers_are_those_of_the_subscription_that_is_furthest_behind() -> None:
    numbers = numbers_of(STATS, 10_000)
    assert (numbers.backlog, numbers.behind, numbers.oldest_s) == (7, "slow", 9.0)
    assert (numbers.rate_in, numbers.size, numbers.producers, numbers.subscriptions, numbers.consumers) == (
        2.5,
        1000,
        2,
        3,
        2,
    )
    nothing = numbers_of({}, 0)
    assert (nothing.backlog, nothing.behind, nothing.oldest_s) == (0, "", None)


def test_subscriptions_are_rows() -> None:
    done, late, slow = subscription_rows(STATS, 10_000)
    assert [row.name for row in (done, late, slow)] == ["done", "late", "slow"]
    assert (done.oldest_s, done.is_durable, done.type, done.size) == (None, False, "no consumer yet", None)
    assert (slow.oldest_s, slow.consumers, slow.type, slow.is_durable) == (6.0, 2, "Shared", True)


def test_clients_are_rows_the_busiest_first() -> None:
    assert [(row.name, row.address) for row in producer_rows(STATS)] == [("b", "not told"), ("a", "1.2.3.4:5")]
    consumers = {"consumers": [{"consumerName": "x"}, {"consumerName": "y", "unackedMessages": 2}]}
    assert [row.name for row in consumer_rows(consumers)] == ["y", "x"]


def test_ledgers_are_rows_the_newest_first() -> None:
    internal = {"ledgers": [{"ledgerId": 1, "entries": 2}, {"ledgerId": 4, "offloaded": True, "underReplicated": True}]}
    assert [(row.ledger_id, row.entries, row.is_offloaded, row.is_short) for row in ledger_rows(internal)] == [
        (4, 0, True, True),
        (1, 2, False, False),
    ]


def test_what_needs_attention_is_what_is_furthest_behind() -> None:
    rows = [
        TopicRow("a", None, numbers_of({"subscriptions": {"s": {"msgBacklog": backlog}}}, 0)) for backlog in (1, 9, 0)
    ]
    rows.append(TopicRow("gone", None, None, "why"))
    assert [row.stats.backlog for row in most_behind(rows, 5) if row.stats] == [9, 1]
    assert len(most_behind(rows, 1)) == 1
