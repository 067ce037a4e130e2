"""Several partitions told as one topic."""

from __future__ import annotations

from typing import Any

from geminga.broker.core.steps import drained
from geminga.broker.statistics.partitioned import merging_steps


def _partition(messages: int, **fields: Any) -> dict[str, Any]:
    consumer = {
        "consumerName": "c",
        "msgOutCounter": messages,
        "lastAckedTime": f"2026-01-0{messages}",
        "address": "/1",
    }
    subscription = {"type": "Shared", "msgBacklog": messages, "isDurable": True, "consumers": [consumer], **fields}
    publisher = {"producerName": f"p{messages}", "msgRateIn": 1.0, "supportsPartialProducer": False, "producerId": 9}
    return {"msgInCounter": messages, "publishers": [publisher], "subscriptions": {"s": subscription}}


def test_numbers_are_added_and_clients_are_one() -> None:
    stats = drained(merging_steps(3, [_partition(1), _partition(2)], is_persistent=True, properties={"owner": "a"}))
    metadata = {"partitions": 3, "deleted": False, "properties": {"owner": "a"}}
    assert (stats["msgInCounter"], stats["metadata"]) == (3, metadata)
    subscription = stats["subscriptions"]["s"]
    assert (subscription["msgBacklog"], subscription["isDurable"], subscription["type"]) == (3, True, "Shared")
    assert subscription["consumers"] == [
        {"consumerName": "c", "msgOutCounter": 3, "lastAckedTime": "2026-01-02", "lastConsumedTime": ""}
    ]
    assert stats["publishers"] == [{"msgRateIn": 2.0, "supportsPartialProducer": False, "producerId": 0}]


def test_producers_that_name_themselves_alike_are_one_and_others_are_not() -> None:
    partitions = [_partition(1), _partition(2), _partition(1)]
    for partition in partitions:
        partition["publishers"][0]["supportsPartialProducer"] = True
    publishers = drained(merging_steps(3, partitions, is_persistent=True))["publishers"]
    assert [(each["producerName"], each["msgRateIn"]) for each in publishers] == [("p1", 2.0), ("p2", 1.0)]


def test_the_earliest_message_is_the_earliest_of_those_that_have_any() -> None:
    partitions = [_partition(1, earliestMsgPublishTimeInBacklog=time_ms) for time_ms in (-1, 70, 50)]
    stats = drained(merging_steps(3, partitions, is_persistent=True))
    assert stats["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == 50


def test_without_used_partitions_everything_is_zero() -> None:
    persistent, other = (drained(merging_steps(2, [], is_persistent=flag)) for flag in (True, False))
    assert (persistent["backlogQuotaLimitSize"], other["backlogQuotaLimitSize"]) == (-1, 0)
    assert persistent["msgInCounter"] == other["msgDropRate"] == 0
    assert "msgDropRate" not in persistent


def _copied(**fields: Any) -> dict[str, Any]:
    ready = {"msgRateOut": 1.5, "replicationBacklog": 3, "connected": True, "replicationDelayInSeconds": 2}
    return {**_partition(1), "replication": {"west": {**ready, "disconnectedReason": "", **fields}}}


def test_copying_is_connected_if_all_partitions_are_and_as_late_as_the_latest() -> None:
    first = _copied(inboundConnection="/1", inboundConnectedSince="then")
    second = _copied(connected=False, replicationDelayInSeconds=7, disconnectedReason="no route")
    third = _copied(disconnectedReason="another", inboundConnection="/2")
    third["replication"]["east"] = {"connected": True, "replicationBacklog": 1}
    together = drained(merging_steps(3, [first, second, third], is_persistent=True))["replication"]
    assert together == {
        "west": {
            "msgRateOut": 4.5,
            "replicationBacklog": 9,
            "connected": False,
            "replicationDelayInSeconds": 7,
            "disconnectedReason": "no route",
            "inboundConnection": "/1",
            "inboundConnectedSince": "then",
        },
        "east": {"connected": True, "replicationBacklog": 1},
    }
    other_way = drained(merging_steps(2, [second, first], is_persistent=True))["replication"]
    assert "inboundConnection" not in other_way["west"]


class CountedName(str):
    """A name that counts how often any of them was compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


def test_each_producer_and_subscription_is_a_step_and_producers_are_found_by_name() -> None:
    """Each was looked for among all of them, in one turn: some thousands held everybody up for seconds."""
    count = 500

    def partition(number: int) -> dict[str, Any]:
        own = {"msgRateIn": 1.0, "supportsPartialProducer": True, "producerId": 1}
        producers = [{"producerName": CountedName(f"p{place}"), **own} for place in range(count)]
        return {**_partition(number), "publishers": producers}

    steps = merging_steps(3, [partition(1), partition(2), partition(3)], is_persistent=True)
    CountedName.compared = made = 0
    for _ in steps:
        made += 1
    assert made == 3 * (count + 1)
    assert CountedName.compared <= 3 * count
    merged = drained(merging_steps(3, [partition(1), partition(2)], is_persistent=True))
    assert [each["msgRateIn"] for each in merged["publishers"]] == [2.0] * count
