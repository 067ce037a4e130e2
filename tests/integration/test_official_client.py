"""The official client, unchanged, against a real process: one test per promise a user would name first."""

from __future__ import annotations

import json
import time

import pulsar
import pytest
from pulsar import CompressionType, ConsumerType, InitialPosition

import geminga
from geminga.client import blocking
from support.processes.cutting_proxy import CuttingProxy
from support.processes.official import quiet_client

pytestmark = pytest.mark.integration

TIMEOUT_MS = 10_000
NOTHING_MS = 300


def receive_all(consumer, count: int) -> list[pulsar.Message]:
    """Exactly ``count`` messages."""
    return [consumer.receive(timeout_millis=TIMEOUT_MS) for _ in range(count)]


def assert_nothing_comes(consumer) -> None:
    """No further message within a moment."""
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=NOTHING_MS)


def test_unbatched_messages_arrive_in_order_with_ascending_ids(official, fresh_topic) -> None:
    consumer = official.subscribe(fresh_topic, "s")
    producer = official.create_producer(fresh_topic, batching_enabled=False)
    sent = [producer.send(b"%d" % i) for i in range(50)]
    messages = receive_all(consumer, 50)
    assert [m.data() for m in messages] == [b"%d" % i for i in range(50)]
    positions = [(m.message_id().ledger_id(), m.message_id().entry_id()) for m in messages]
    assert positions == sorted(set(positions))
    assert [(i.ledger_id(), i.entry_id()) for i in sent] == positions


def test_batch_is_one_entry_with_batch_indexes(official, fresh_topic) -> None:
    consumer = official.subscribe(fresh_topic, "s")
    producer = official.create_producer(
        fresh_topic, batching_enabled=True, batching_max_publish_delay_ms=1000, batching_max_messages=10
    )
    for i in range(10):
        producer.send_async(b"%d" % i, lambda *_: None)
    ids = [m.message_id() for m in receive_all(consumer, 10)]
    assert len({(i.ledger_id(), i.entry_id()) for i in ids}) == 1
    assert [i.batch_index() for i in ids] == list(range(10))


def test_properties_key_and_event_time_arrive_as_sent(official, fresh_topic) -> None:
    consumer = official.subscribe(fresh_topic, "s")
    producer = official.create_producer(fresh_topic)
    producer.send(b"x", properties={"a": "1", "b": "ü"}, partition_key="k", event_timestamp=1234567)
    message = consumer.receive(timeout_millis=TIMEOUT_MS)
    assert message.properties() == {"a": "1", "b": "ü"}
    assert message.partition_key() == "k"
    assert message.event_timestamp() == 1234567
    assert message.topic_name() == fresh_topic


def test_exclusive_subscription_refuses_a_second_consumer(official, fresh_topic) -> None:
    official.subscribe(fresh_topic, "s", ConsumerType.Exclusive)
    with pytest.raises(pulsar.ConsumerBusy):
        official.subscribe(fresh_topic, "s", ConsumerType.Exclusive)


def test_shared_subscription_spreads_and_loses_nothing(official, fresh_topic) -> None:
    consumers = [official.subscribe(fresh_topic, "s", ConsumerType.Shared, receiver_queue_size=10) for _ in range(2)]
    producer = official.create_producer(fresh_topic, batching_enabled=False)
    for i in range(100):
        producer.send(b"%d" % i)
    seen: list[set[bytes]] = [set(), set()]
    deadline = time.monotonic() + 10
    while sum(map(len, seen)) < 100 and time.monotonic() < deadline:
        for mine, consumer in zip(seen, consumers, strict=True):
            try:
                message = consumer.receive(timeout_millis=50)
            except pulsar.Timeout:
                continue
            mine.add(message.data())
            consumer.acknowledge(message)
    assert seen[0] | seen[1] == {b"%d" % i for i in range(100)}
    assert not seen[0] & seen[1]
    assert seen[0]
    assert seen[1]


def test_failover_standby_takes_over_what_was_not_acknowledged(official, fresh_topic) -> None:
    # Which of the two is active on a topic without partitions is decided by a hash of names, as in Pulsar.
    consumers = [official.subscribe(fresh_topic, "s", ConsumerType.Failover, consumer_name=name) for name in "ab"]
    producer = official.create_producer(fresh_topic)
    for i in range(10):
        producer.send(b"%d" % i)
    try:
        begin = [consumers[0].receive(timeout_millis=1_000)]
        active, standby = consumers
    except pulsar.Timeout:
        begin = []
        standby, active = consumers
    messages = begin + receive_all(active, 10 - len(begin))
    active.acknowledge_cumulative(messages[3])
    active.close()
    assert [m.data() for m in receive_all(standby, 6)] == [b"%d" % i for i in range(4, 10)]


def test_key_shared_gives_each_key_to_one_consumer_in_order(official, fresh_topic) -> None:
    consumers = [official.subscribe(fresh_topic, "s", ConsumerType.KeyShared) for _ in range(2)]
    producer = official.create_producer(fresh_topic, batching_enabled=False)
    for i in range(120):
        producer.send(b"%d" % i, partition_key=f"key-{i % 12}")
    owner: dict[str, int] = {}
    last: dict[str, int] = {}
    total = 0
    deadline = time.monotonic() + 10
    while total < 120 and time.monotonic() < deadline:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(timeout_millis=50)
            except pulsar.Timeout:
                continue
            key = message.partition_key()
            assert owner.setdefault(key, index) == index
            assert int(message.data()) > last.get(key, -1)
            last[key] = int(message.data())
            consumer.acknowledge(message)
            total += 1
    assert total == 120
    assert set(owner.values()) == {0, 1}


def test_negative_acknowledgment_redelivers_and_counts(official, fresh_topic) -> None:
    consumer = official.subscribe(fresh_topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    official.create_producer(fresh_topic, batching_enabled=False).send(b"again")
    for expected in (0, 1, 2):
        message = consumer.receive(timeout_millis=TIMEOUT_MS)
        assert message.redelivery_count() == expected
        consumer.negative_acknowledge(message)


def test_acknowledged_messages_do_not_come_back_to_a_new_consumer(official, fresh_topic) -> None:
    consumer = official.subscribe(fresh_topic, "s", ConsumerType.Shared)
    producer = official.create_producer(fresh_topic, batching_enabled=False)
    for i in range(10):
        producer.send(b"%d" % i)
    for message in receive_all(consumer, 10):
        if int(message.data()) % 2:
            consumer.acknowledge(message)
    consumer.close()
    again = official.subscribe(fresh_topic, "s", ConsumerType.Shared)
    assert sorted(int(m.data()) for m in receive_all(again, 5)) == [0, 2, 4, 6, 8]
    assert_nothing_comes(again)


def test_seek_to_earliest_and_to_an_id_rewinds(official, fresh_topic) -> None:
    consumer = official.subscribe(fresh_topic, "s")
    producer = official.create_producer(fresh_topic, batching_enabled=False)
    ids = [producer.send(b"%d" % i) for i in range(10)]
    for message in receive_all(consumer, 10):
        consumer.acknowledge(message)
    consumer.seek(pulsar.MessageId.earliest)
    assert consumer.receive(timeout_millis=TIMEOUT_MS).data() == b"0"
    consumer.seek(ids[6])
    assert consumer.receive(timeout_millis=TIMEOUT_MS).data() == b"7"


def test_reader_reads_from_a_message_and_tells_the_end(official, fresh_topic) -> None:
    producer = official.create_producer(fresh_topic, batching_enabled=False)
    ids = [producer.send(b"%d" % i) for i in range(5)]
    reader = official.create_reader(fresh_topic, ids[1])
    assert [reader.read_next(timeout_millis=TIMEOUT_MS).data() for _ in range(3)] == [b"2", b"3", b"4"]
    assert not reader.has_message_available()


def test_partitioned_topic_spreads_keys_and_keeps_order_per_key(standalone, official, fresh_topic) -> None:
    path = fresh_topic.replace("://", "/")
    standalone.request("PUT", f"/admin/v2/{path}/partitions", 3)
    assert len(official.get_topic_partitions(fresh_topic)) == 3
    consumer = official.subscribe(fresh_topic, "s")
    producer = official.create_producer(fresh_topic)
    for i in range(90):
        producer.send_async(b"%d" % i, lambda *_: None, partition_key=f"k{i % 9}")
    producer.flush()
    last: dict[str, int] = {}
    topics = set()
    for message in receive_all(consumer, 90):
        assert int(message.data()) > last.get(message.partition_key(), -1)
        last[message.partition_key()] = int(message.data())
        topics.add(message.topic_name())
    assert len(topics) == 3


@pytest.mark.parametrize(
    "kind", [CompressionType.LZ4, CompressionType.ZLib, CompressionType.ZSTD, CompressionType.SNAPPY]
)
def test_compressed_batches_pass_through(official, fresh_topic, kind) -> None:
    consumer = official.subscribe(fresh_topic, "s")
    producer = official.create_producer(fresh_topic, compression_type=kind, batching_enabled=True)
    for i in range(20):
        producer.send_async(b"%d" % i * 100, lambda *_: None)
    producer.flush()
    assert [m.data() for m in receive_all(consumer, 20)] == [b"%d" % i * 100 for i in range(20)]


def test_message_larger_than_the_limit_is_chunked(official, fresh_topic) -> None:
    consumer = official.subscribe(fresh_topic, "s")
    producer = official.create_producer(fresh_topic, chunking_enabled=True, batching_enabled=False)
    data = bytes(range(256)) * 4096 * 12  # 12 MiB against the default limit of 5 MiB
    producer.send(data)
    assert consumer.receive(timeout_millis=TIMEOUT_MS).data() == data


def test_delayed_message_comes_late_and_not_lost(official, fresh_topic) -> None:
    consumer = official.subscribe(fresh_topic, "s", ConsumerType.Shared)
    producer = official.create_producer(fresh_topic, batching_enabled=False)
    sent = time.monotonic()
    producer.send(b"later", deliver_at=int(time.time() * 1000) + 1500)
    producer.send(b"now")
    assert consumer.receive(timeout_millis=TIMEOUT_MS).data() == b"now"
    assert consumer.receive(timeout_millis=TIMEOUT_MS).data() == b"later"
    assert time.monotonic() - sent > 1.0


def test_non_persistent_topic_delivers_to_who_is_there(official, fresh_topic) -> None:
    topic = fresh_topic.replace("persistent://", "non-persistent://")
    consumer = official.subscribe(topic, "s")
    producer = official.create_producer(topic)
    producer.send(b"live")
    assert consumer.receive(timeout_millis=TIMEOUT_MS).data() == b"live"


def test_named_producer_can_not_connect_twice(official, fresh_topic) -> None:
    official.create_producer(fresh_topic, producer_name="only")
    with pytest.raises(pulsar.ProducerBusy):
        official.create_producer(fresh_topic, producer_name="only")


def test_unsubscribe_forgets_the_backlog(official, fresh_topic) -> None:
    consumer = official.subscribe(fresh_topic, "s")
    official.create_producer(fresh_topic).send(b"old")
    consumer.unsubscribe()
    again = official.subscribe(fresh_topic, "s", initial_position=InitialPosition.Latest)
    assert_nothing_comes(again)


def test_stats_count_what_happened(standalone, official, fresh_topic) -> None:
    official.subscribe(fresh_topic, "s")
    producer = official.create_producer(fresh_topic, batching_enabled=False)
    for _ in range(5):
        producer.send(b"x")
    stats = json.loads(standalone.request("GET", f"/admin/v2/{fresh_topic.replace('://', '/')}/stats"))
    assert stats["msgInCounter"] == 5
    assert stats["subscriptions"]["s"]["msgBacklog"] == 5
    assert len(stats["publishers"]) == 1


@pytest.mark.geminga_only("it starts a broker of its own")
def test_client_behind_a_mapped_port_is_served_though_the_brokers_own_address_is_out_of_reach(tmp_path) -> None:
    # Nobody listens at the advertised address: the mapped port alone leads to the broker.
    mapped = CuttingProxy(seed=1)
    mapped.is_hostile = False
    topic = "persistent://public/default/mapped"
    try:
        with geminga.Standalone(config={"advertisedAddress": "127.0.0.9"}) as broker:
            port = int(broker.service_url.rpartition(":")[2])
            assert broker.service_url == f"pulsar://127.0.0.9:{port}"
            mapped.target = ("127.0.0.1", port)
            url = f"pulsar://127.0.0.1:{mapped.port}"
            client = quiet_client(url, tmp_path)
            try:
                consumer = client.subscribe(topic, "s")
                client.create_producer(topic).send(b"official")
                assert receive_all(consumer, 1)[0].data() == b"official"
                with blocking.connect(url) as ours:
                    ours.create_producer(topic).send(b"ours")
                assert receive_all(consumer, 1)[0].data() == b"ours"
            finally:
                client.close()
    finally:
        mapped.close()
