"""Statistics over HTTP."""

from __future__ import annotations

import time

import pulsar
import pytest

from support.worlds.rest import EARLIEST, Rest

pytestmark = pytest.mark.integration


def test_stats_tell_what_happened(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, "p", properties={"a": "b"})
    for index in range(10):
        producer.send(b"m%d" % index)
    for _ in range(4):
        consumer.acknowledge(consumer.receive(10_000))
    stats = rest.get(f"persistent/{namespace}/t/stats").json
    assert stats["msgInCounter"] == 10
    assert stats["bytesInCounter"] > 0
    assert stats["storageSize"] > 0
    (publisher,) = stats["publishers"]
    assert publisher["producerName"] == "p"
    assert publisher["metadata"] == {"a": "b"}
    assert "127.0.0.1" in publisher["address"]
    assert publisher["clientVersion"].startswith("Pulsar-CPP")
    subscription = stats["subscriptions"]["s"]
    assert subscription["type"] == "Shared"
    assert len(subscription["consumers"]) == 1
    options = "excludePublishers=true&excludeConsumers=true"
    trimmed = rest.get(f"persistent/{namespace}/t/stats?{options}").json
    assert trimmed["publishers"] == []
    assert trimmed["subscriptions"]["s"]["consumers"] == []
    internal = rest.get(f"persistent/{namespace}/t/internalStats").json
    assert internal["numberOfEntries"] == 10
    assert "s" in internal["cursors"]
    assert rest.get(f"persistent/{namespace}/none/stats").status == 404
    assert rest.get(f"non-persistent/{namespace}/none/internalStats").status in (404, 405)


def test_fresh_topic_has_empty_stats(rest: Rest, namespace: str) -> None:
    rest.put(f"persistent/{namespace}/t")
    stats = rest.get(f"persistent/{namespace}/t/stats").json
    for key in ("msgRateIn", "msgThroughputOut", "averageMsgSize"):
        assert stats[key] == 0.0
    assert stats["subscriptions"] == {}
    assert stats["publishers"] == []
    assert stats["replication"] == {}
    assert stats["deduplicationStatus"] == "Disabled"


def test_partitioned_stats_sum_the_partitions(rest: Rest, namespace: str, client) -> None:
    rest.put(f"persistent/{namespace}/p/partitions", 2)
    topic = f"persistent://{namespace}/p"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for index in range(10):
        producer.send(b"m%d" % index)
    stats = rest.get(f"persistent/{namespace}/p/partitioned-stats?perPartition=true").json
    assert stats["metadata"]["partitions"] == 2
    assert stats["msgInCounter"] == 10
    assert sorted(stats["partitions"]) == [f"{topic}-partition-0", f"{topic}-partition-1"]
    consumers = [each["subscriptions"]["s"]["consumers"][0] for each in stats["partitions"].values()]
    assert len(consumers) == 2
    # One client on both partitions, so one consumer, and one publisher.
    (merged,) = stats["subscriptions"]["s"]["consumers"]
    assert merged["availablePermits"] == sum(each["availablePermits"] for each in consumers)
    assert len(stats["publishers"]) == 1
    assert rest.get(f"persistent/{namespace}/p/partitioned-stats?perPartition=false").json["partitions"] == {}
    assert rest.get(f"persistent/{namespace}/x/partitioned-stats").status == 404
    consumer.close()


def test_stats_tell_of_backlog_expiry_and_chunks(rest: Rest, namespace: str, client) -> None:
    topic, path = f"persistent://{namespace}/t", f"persistent/{namespace}/t"
    rest.put(path)
    assert rest.get(f"{path}/stats").json["oldestBacklogMessageAgeSeconds"] == -1
    for name in ("slow", "fast"):
        rest.put(f"{path}/subscription/{name}", EARLIEST)
    producer = client.create_producer(topic, chunking_enabled=True)
    before_ms = time.time_ns() // 1_000_000
    for _ in range(10):
        producer.send(b"x" * 1000)
    rest.post(f"{path}/subscription/fast/skip/6")
    stats = rest.get(f"{path}/stats?getEarliestTimeInBacklog=true").json
    slow, fast = stats["subscriptions"]["slow"], stats["subscriptions"]["fast"]
    assert slow["backlogSize"] == stats["backlogSize"] == stats["storageSize"]
    assert 0.35 < fast["backlogSize"] / stats["storageSize"] < 0.45
    assert stats["oldestBacklogMessageAgeSeconds"] in (0, 1, 2)
    assert stats["oldestBacklogMessageSubscriptionName"] == "slow"
    assert stats["earliestMsgPublishTimeInBacklogs"] == slow["earliestMsgPublishTimeInBacklog"]
    assert before_ms - 1000 < slow["earliestMsgPublishTimeInBacklog"] <= fast["earliestMsgPublishTimeInBacklog"]
    assert (slow["totalMsgExpired"], slow["lastExpireTimestamp"], stats["msgChunkPublished"]) == (0, 0, False)

    rest.post(f"{path}/subscription/slow/expireMessages", rest.get(f"{path}/lastMessageId").json)
    producer.send(b"x" * 6_000_000)
    consumer = client.subscribe(topic, "fast")
    while len(consumer.receive(10_000).data()) == 1000:
        pass
    stats = rest.get(f"{path}/stats?getEarliestTimeInBacklog=true").json
    slow = stats["subscriptions"]["slow"]
    assert slow["totalMsgExpired"] == 10
    assert slow["lastExpireTimestamp"] >= before_ms - 1000
    assert slow["msgBacklog"] == 2
    assert stats["msgChunkPublished"] is True
    rest.post(f"{path}/subscription/slow/skip_all")
    slow = rest.get(f"{path}/stats?getEarliestTimeInBacklog=true").json["subscriptions"]["slow"]
    assert (slow["backlogSize"], slow["earliestMsgPublishTimeInBacklog"]) == (0, -1)
