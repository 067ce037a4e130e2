"""Topics, partitions, subscriptions, messages, lookup and metrics over HTTP, with the official client beside it."""

from __future__ import annotations

import json
import zlib

import pulsar
import pytest

from support.rest import Rest

pytestmark = pytest.mark.integration

LATEST = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}
EARLIEST = {"ledgerId": -1, "entryId": -1}


def publish(client: pulsar.Client, topic: str, count: int, **options) -> list[pulsar.MessageId]:
    producer = client.create_producer(topic, **options)
    ids = [producer.send(b"m%d" % index, properties={"n": str(index)}, partition_key="k") for index in range(count)]
    producer.close()
    return ids


def test_topic_is_created_listed_and_deleted(rest: Rest, namespace: str) -> None:
    path = f"persistent/{namespace}/t"
    assert rest.put(path, {"owner": "me"}).status == 204
    assert rest.put(path).status == 409
    assert rest.get(f"persistent/{namespace}").json == [f"persistent://{namespace}/t"]
    assert rest.get(f"namespaces/{namespace}/topics").json == [f"persistent://{namespace}/t"]
    assert rest.get(f"{path}/properties").json == {"owner": "me"}
    assert rest.put(f"{path}/properties", {"since": "2024"}).status == 204
    assert rest.delete(f"{path}/properties?key=owner").status == 204
    assert rest.get(f"{path}/properties").json == {"since": "2024"}
    assert rest.delete(path).status == 204
    assert rest.delete(path).status == 404
    assert rest.get(f"persistent/{namespace}").json == []
    assert rest.put("persistent/public/nowhere/t").status == 404
    assert rest.get("persistent/public/nowhere").status == 404


def test_topic_name_may_hold_anything_encoded(rest: Rest, namespace: str) -> None:
    path = f"persistent/{namespace}/a%2Fb%20c%C3%BC%25"
    assert rest.put(path).status == 204
    assert rest.get(f"persistent/{namespace}").json == [f"persistent://{namespace}/a/b cü%"]
    assert rest.get(f"{path}/stats").status == 200
    assert rest.put(f"{path}/subscription/s%2Fx").status == 204
    assert rest.get(f"{path}/subscriptions").json == ["s/x"]
    assert rest.delete(path).status == 204
    assert rest.put(f"persistent/{namespace}/%00").status == 412


def test_partitioned_topic_lives_and_grows(rest: Rest, namespace: str) -> None:
    path = f"persistent/{namespace}/p"
    assert rest.put(f"{path}/partitions", 2).status == 204
    assert rest.put(f"{path}/partitions", 2).status == 409
    assert rest.get(f"{path}/partitions").json["partitions"] == 2
    assert rest.post(f"{path}/partitions", 1).status == 422
    assert rest.post(f"{path}/partitions", 3).status == 204
    assert rest.get(f"{path}/partitions").json["partitions"] == 3
    assert rest.get(f"persistent/{namespace}/partitioned").json == [f"persistent://{namespace}/p"]
    assert len(rest.get(f"persistent/{namespace}").json) == 3
    assert rest.put(f"{path}/properties", {"a": "b"}).status == 204
    assert rest.get(f"{path}/properties").json == {"a": "b"}
    assert rest.delete(f"{path}/partitions").status == 204
    assert rest.delete(f"{path}/partitions").status == 404
    assert rest.get(f"persistent/{namespace}").json == []
    for body, status in ((0, 406), (-1, 406), ("two", 400), (None, 400)):
        assert rest.put(f"{path}/partitions", body).status == status


def test_partitions_of_an_unknown_topic_depend_on_the_policy(rest: Rest, namespace: str) -> None:
    path = f"persistent/{namespace}/u/partitions"
    assert rest.get(path).status == 404
    assert rest.get(f"{path}?checkAllowAutoCreation=true").json["partitions"] == 0
    creation = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4}
    rest.post(f"namespaces/{namespace}/autoTopicCreation", creation)
    assert rest.get(f"persistent/{namespace}/v/partitions?checkAllowAutoCreation=true").json["partitions"] == 4


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


def test_topic_in_use_is_deleted_by_force_only(rest: Rest, namespace: str, client) -> None:
    producer = client.create_producer(f"persistent://{namespace}/t")
    producer.send(b"x")
    assert rest.delete(f"persistent/{namespace}/t").status == 412
    rest.post(f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False})
    assert rest.delete(f"persistent/{namespace}/t?force=true").status == 204
    assert rest.get(f"persistent/{namespace}/t/stats").status == 404


def test_unloaded_topic_goes_on(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"before")
    assert rest.put(f"persistent/{namespace}/t/unload").status == 204
    producer.send(b"after")
    assert [consumer.receive(10_000).data() for _ in range(2)][-1] == b"after"
    assert rest.put(f"persistent/{namespace}/none/unload").status == 404
    assert rest.put(f"namespaces/{namespace}/unload").status == 204


def test_terminated_topic_takes_no_more(rest: Rest, namespace: str, client) -> None:
    (last,) = publish(client, f"persistent://{namespace}/t", 1)
    answer = rest.post(f"persistent/{namespace}/t/terminate")
    assert answer.json == {"ledgerId": last.ledger_id(), "entryId": last.entry_id(), "partitionIndex": -1}
    with pytest.raises(pulsar.PulsarException):
        publish(client, f"persistent://{namespace}/t", 1, send_timeout_millis=3000)
    rest.put(f"persistent/{namespace}/p/partitions", 2)
    assert rest.post(f"persistent/{namespace}/p/terminate").status == 405
    assert sorted(rest.post(f"persistent/{namespace}/p/terminate/partitions").json) == ["0", "1"]
    assert rest.post(f"persistent/{namespace}/none/terminate").status == 404


def test_subscription_is_created_at_its_position_and_deleted(rest: Rest, namespace: str, client) -> None:
    ids = publish(client, f"persistent://{namespace}/t", 5)
    path = f"persistent/{namespace}/t/subscription"
    third = {"ledgerId": ids[2].ledger_id(), "entryId": ids[2].entry_id()}
    positions = {"all": EARLIEST, "none": LATEST, "third": third, "behind": {**third, "isExcluded": True}}
    for name, position in positions.items():
        assert rest.put(f"{path}/{name}", position).status == 204
    assert rest.put(f"{path}/empty").status == 204
    assert rest.put(f"{path}/words", "earliest").status == 204
    stats = rest.get(f"persistent/{namespace}/t/stats").json["subscriptions"]
    assert {name: item["msgBacklog"] for name, item in stats.items()} == {
        "all": 5,
        "none": 0,
        "third": 3,
        "behind": 2,
        "empty": 0,
        "words": 5,
    }
    assert rest.put(f"{path}/all", EARLIEST).status == 409
    assert rest.put(f"{path}/bad", {"ledgerId": "x"}).status == 400
    assert sorted(rest.get(f"persistent/{namespace}/t/subscriptions").json) == sorted(stats)
    assert rest.delete(f"{path}/all").status == 204
    assert rest.delete(f"{path}/all").status == 404
    assert rest.get(f"persistent/{namespace}/missing/subscriptions").status == 404


def test_subscription_with_consumers_is_deleted_by_force_only(rest: Rest, namespace: str, client) -> None:
    client.subscribe(f"persistent://{namespace}/t", "s")
    path = f"persistent/{namespace}/t/subscription/s"
    assert rest.delete(path).status == 412
    rest.post(f"namespaces/{namespace}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    assert rest.delete(f"{path}?force=true").status == 204


def test_subscription_properties_are_kept(rest: Rest, namespace: str) -> None:
    rest.put(f"persistent/{namespace}/t")
    path = f"persistent/{namespace}/t/subscription/s"
    assert rest.put(path, {**EARLIEST, "properties": {"a": "1"}}).status == 204
    assert rest.get(f"{path}/properties").json == {"a": "1"}
    assert rest.put(f"{path}/properties", {"b": "2"}).status == 204
    assert rest.get(f"persistent/{namespace}/t/stats").json["subscriptions"]["s"]["subscriptionProperties"] == {
        "b": "2"
    }


def backlog_of(rest: Rest, namespace: str, subscription: str = "s") -> int:
    return rest.get(f"persistent/{namespace}/t/stats").json["subscriptions"][subscription]["msgBacklog"]


def test_cursor_is_moved(rest: Rest, namespace: str, client) -> None:
    path = f"persistent/{namespace}/t/subscription/s"
    topic = f"persistent://{namespace}/t"
    rest.put(f"persistent/{namespace}/t")
    rest.put(path, EARLIEST)
    ids = publish(client, topic, 10)
    assert rest.post(f"{path}/skip/3").status == 204
    assert backlog_of(rest, namespace) == 7
    assert rest.post(f"{path}/skip/-1").status == 412
    assert rest.post(f"{path}/skip/some").status == 404
    assert rest.post(f"{path}/skip_all").status == 204
    assert backlog_of(rest, namespace) == 0
    assert rest.post(f"{path}/resetcursor/0").status == 204
    assert backlog_of(rest, namespace) == 10
    fifth = {"ledgerId": ids[4].ledger_id(), "entryId": ids[4].entry_id()}
    assert rest.post(f"{path}/resetcursor", fifth).status == 204
    assert backlog_of(rest, namespace) == 6
    assert rest.post(f"{path}/resetcursor", {**fifth, "isExcluded": True}).status == 204
    assert backlog_of(rest, namespace) == 5
    assert rest.post(f"{path}/resetcursor", LATEST).status == 204
    assert backlog_of(rest, namespace) == 0
    assert rest.post(f"{path}/resetcursor", EARLIEST).status == 204
    assert rest.post(f"{path}/expireMessages", fifth).status == 204
    assert backlog_of(rest, namespace) == 5
    assert rest.post(f"{path}/expireMessages/100000").status == 204
    assert backlog_of(rest, namespace) == 5
    assert rest.post(f"persistent/{namespace}/t/all_subscription/expireMessages/100000").status == 204
    assert rest.post(f"persistent/{namespace}/t/subscription/none/skip_all").status == 404


def test_cursor_is_reset_into_a_batch(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for index in range(5):
        producer.send_async(b"m%d" % index, None)
    producer.flush()
    rest.put(f"persistent/{namespace}/t/subscription/s", EARLIEST)
    entry = rest.get(f"persistent/{namespace}/t/lastMessageId").json
    at = {"ledgerId": entry["ledgerId"], "entryId": entry["entryId"], "batchIndex": 2}
    assert rest.post(f"persistent/{namespace}/t/subscription/s/resetcursor", {**at, "isExcluded": True}).status == 204
    consumer = client.subscribe(topic, "s")
    assert [consumer.receive(10_000).data() for _ in range(2)] == [b"m3", b"m4"]


def test_message_is_peeked_with_its_metadata(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    rest.put(f"persistent/{namespace}/t")
    rest.put(f"persistent/{namespace}/t/subscription/s", EARLIEST)
    ids = publish(client, topic, 3, producer_name="me")
    answer = rest.get(f"persistent/{namespace}/t/subscription/s/position/2")
    assert answer.body == b"m1"
    assert answer.headers["x-pulsar-message-id"] == f"{ids[1].ledger_id()}:{ids[1].entry_id()}"
    assert answer.headers["x-pulsar-producer-name"] == "me"
    assert answer.headers["x-pulsar-sequence-id"] == "1"
    assert answer.headers["x-pulsar-partition-key"] == "k"
    assert answer.headers["x-pulsar-publish-time"].startswith("20")
    assert json.loads(answer.headers["x-pulsar-property"]) == {"n": "1"}
    assert backlog_of(rest, namespace) == 3
    assert rest.get(f"persistent/{namespace}/t/subscription/s/position/4").status == 404
    assert rest.get(f"persistent/{namespace}/t/subscription/s/position/0").status == 412
    assert rest.get(f"persistent/{namespace}/t/subscription/none/position/1").status == 404
    same = rest.get(f"persistent/{namespace}/t/ledger/{ids[1].ledger_id()}/entry/{ids[1].entry_id()}")
    assert same.body == b"m1"
    assert rest.get(f"persistent/{namespace}/t/ledger/{ids[1].ledger_id()}/entry/999").status == 404
    rest.put(f"persistent/{namespace}/p/partitions", 2)
    assert rest.get(f"persistent/{namespace}/p/subscription/s/position/1").status == 405


def test_batch_is_peeked_whole_and_decompressed(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=1000,
        compression_type=pulsar.CompressionType.ZLib,
    )
    for index in range(3):
        producer.send_async(b"x" * 500 + b"%d" % index, None)
    producer.flush()
    rest.put(f"persistent/{namespace}/t/subscription/s", EARLIEST)
    answer = rest.get(f"persistent/{namespace}/t/subscription/s/position/1")
    assert answer.headers["x-pulsar-num-batch-message"] == "3"
    assert answer.headers["x-pulsar-compression"] == "ZLIB"
    assert answer.body.count(b"x" * 500) == 3
    assert len(answer.body) == int(answer.headers["x-pulsar-uncompressed-size"])


def test_message_id_by_time_and_last_id(rest: Rest, namespace: str, client) -> None:
    ids = publish(client, f"persistent://{namespace}/t", 3)
    first = {"ledgerId": ids[0].ledger_id(), "entryId": ids[0].entry_id(), "partitionIndex": -1}
    assert rest.get(f"persistent/{namespace}/t/messageid/0").json == first
    last = rest.get(f"persistent/{namespace}/t/lastMessageId").json
    assert last["entryId"] == ids[-1].entry_id()
    later = rest.get(f"persistent/{namespace}/t/messageid/99999999999999").json
    assert (later["ledgerId"], later["entryId"]) > (last["ledgerId"], last["entryId"])
    backlog = rest.get(f"persistent/{namespace}/t/backlog").json
    assert backlog["totalMessages"] == 3


def test_lookup_gives_urls_that_are_never_null(rest: Rest, broker, namespace: str) -> None:
    answer = rest.get(f"/lookup/v2/topic/persistent/{namespace}/t").json
    assert answer["brokerUrl"] == broker.service_url
    assert answer["httpUrl"] == broker.web_service_url
    assert all(isinstance(value, str) for value in answer.values())
    assert rest.get("/lookup/v2/topic/persistent/public/nowhere/t").status == 404
    assert rest.get(f"/lookup/v2/topic/persistent/{namespace}/t?listenerName=nobody").status == 503
    bundle = rest.get(f"/lookup/v2/topic/persistent/{namespace}/t/bundle").body.decode()
    low, high = (int(part, 16) for part in bundle.split("_"))
    assert low <= zlib.crc32(f"persistent://{namespace}/t".encode()) <= high


def test_metrics_name_topics_and_subscriptions(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    client.subscribe(topic, "s")
    publish(client, topic, 2)
    answer = rest.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.body.decode().splitlines()
    labels = f'cluster="standalone",namespace="{namespace}",topic="{topic}"'
    assert f"pulsar_in_messages_total{{{labels}}} 2" in lines
    assert f'pulsar_subscription_back_log{{{labels},subscription="s"}} 2' in lines
    assert f'pulsar_topics_count{{cluster="standalone",namespace="{namespace}"}} 1' in lines
    assert "# TYPE pulsar_in_messages_total counter" in lines
    assert any(line.startswith("process_resident_memory_bytes{") for line in lines)
    assert any(line.startswith("pulsar_active_connections{") for line in lines)
    assert len(set(lines)) == len(lines)


def test_non_persistent_topic_has_what_makes_sense(rest: Rest, namespace: str, client) -> None:
    topic = f"non-persistent://{namespace}/n"
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"x")
    assert consumer.receive(10_000).data() == b"x"
    assert rest.get(f"non-persistent/{namespace}").json == [topic]
    assert rest.get(f"namespaces/{namespace}/topics?mode=ALL").json == [topic]
    assert rest.get(f"namespaces/{namespace}/topics?mode=PERSISTENT").json == []
    stats = rest.get(f"non-persistent/{namespace}/n/stats").json
    assert stats["msgInCounter"] == 1
    assert stats["subscriptions"]["s"]["consumers"]
    for path in ("internalStats", "lastMessageId", "subscription/s/position/1"):
        assert rest.get(f"non-persistent/{namespace}/n/{path}").status == 405
    assert rest.post(f"non-persistent/{namespace}/n/terminate").status == 405
    assert rest.get("/metrics").status == 200
