"""Statistics over HTTP."""

from __future__ import annotations

import pulsar
import pytest

from support.rest import Rest

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
    assert len(stats["subscriptions"]["s"]["consumers"]) == 2
    assert rest.get(f"persistent/{namespace}/p/partitioned-stats?perPartition=false").json["partitions"] == {}
    assert rest.get(f"persistent/{namespace}/x/partitioned-stats").status == 404
    consumer.close()
