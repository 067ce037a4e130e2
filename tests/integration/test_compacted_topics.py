"""Compaction through the official client, ours, REST and commands: readers, table views, batches, restarts."""

from __future__ import annotations

import time

import pulsar
import pytest
from pulsar import CompressionType

import geminga
import geminga.admin.blocking
import geminga.client as gc
from geminga.client import blocking
from support.processes.official import official_client

pytestmark = pytest.mark.integration

TIMEOUT_MS = 10_000
COMPRESSIONS = [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZLib, CompressionType.ZSTD]


@pytest.fixture(scope="module")
def broker():
    with geminga.Standalone() as running:
        yield running


@pytest.fixture(scope="module")
def official(broker, tmp_path_factory):
    with official_client(broker.service_url, tmp_path_factory.mktemp("compacted")) as client:
        yield client


@pytest.fixture(scope="module")
def admin(broker):
    with geminga.admin.blocking.connect(broker.web_service_url) as found:
        yield found


def compact(admin, topic: str) -> None:
    """Until it is done."""
    admin.compaction.start(topic)
    for _ in range(200):
        status = admin.compaction.status(topic)
        if status["status"] != "RUNNING":
            break
        time.sleep(0.05)
    assert status == {"status": "SUCCESS", "lastError": ""}


def read_all(client: pulsar.Client, topic: str, start=pulsar.MessageId.earliest, **options) -> list[tuple[str, str]]:
    """Keys and values, as long as the reader says that there are more."""
    reader = client.create_reader(topic, start, is_read_compacted=True, **options)
    found = []
    while reader.has_message_available():
        message = reader.read_next(TIMEOUT_MS)
        found.append((message.partition_key(), message.data().decode()))
    reader.close()
    return found


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=str)
@pytest.mark.parametrize("batched", [False, True])
def test_official_readers_get_the_newest_value_of_each_key(official, admin, fresh_topic, compression, batched) -> None:
    producer = official.create_producer(
        fresh_topic, compression_type=compression, batching_enabled=batched, batching_max_publish_delay_ms=20
    )
    model: dict[str, str] = {}
    for number in range(200):
        key, value = f"k{number % 17}", "" if number % 23 == 5 else f"v{number}"
        producer.send_async(value.encode(), lambda *_: None, partition_key=key)
        model.pop(key, None)
        if value:
            model[key] = value
    producer.flush()
    compact(admin, fresh_topic)
    assert read_all(official, fresh_topic) == [*model.items()]
    producer.send(b"later", partition_key="k3")
    assert read_all(official, fresh_topic) == [*model.items(), ("k3", "later")]
    # The official client can not take an empty payload compressed by zlib: it is compacted before anybody reads it.
    producer.send(b"", partition_key="k4")
    compact(admin, fresh_topic)
    del model["k3"], model["k4"]
    model["k3"] = "later"
    assert read_all(official, fresh_topic) == [*model.items()]
    # The same after a load on the same broker.
    admin.topics.unload(fresh_topic)
    assert read_all(official, fresh_topic) == [*model.items()]
    assert admin.topics.stats(fresh_topic)["compaction"]["lastCompactionSucceedTimestamp"] == 0
    ledger = admin.topics.internal_stats(fresh_topic)["compactedLedger"]
    assert ledger["entries"] >= 1


def test_a_reader_goes_on_from_a_message_that_is_only_there_compacted(official, admin, fresh_topic) -> None:
    producer = official.create_producer(fresh_topic, batching_enabled=False)
    admin.topic_policies.compaction_threshold.set(fresh_topic, 1 << 40)
    ids = [producer.send(f"v{number}".encode(), partition_key=f"k{number}") for number in range(10)]
    compact(admin, fresh_topic)
    admin.topics.unload(fresh_topic)  # the ledger is closed, and trimmed
    admin.topics.trim(fresh_topic)
    assert read_all(official, fresh_topic, ids[5]) == [(f"k{number}", f"v{number}") for number in range(6, 10)]
    assert read_all(official, fresh_topic, ids[9]) == []
    assert read_all(official, fresh_topic, pulsar.MessageId.latest) == []
    producer.send(b"new", partition_key="k1")
    assert read_all(official, fresh_topic, ids[9]) == [("k1", "new")]


def test_table_views_and_consumers_of_both_clients(official, broker, admin, fresh_topic) -> None:
    producer = official.create_producer(fresh_topic)
    for number in range(30):
        producer.send(f"v{number}".encode(), partition_key=f"k{number % 3}")
    compact(admin, fresh_topic)
    wanted = {f"k{number % 3}": f"v{number}" for number in range(27, 30)}
    view = official.create_table_view(fresh_topic)
    assert {key: view.get(key).decode() for key in wanted} == wanted
    view.close()
    with blocking.connect(broker.service_url) as ours:
        table = ours.create_table_view(fresh_topic)
        assert {key: value.decode() for key, value in table.items()} == wanted
        table.close()
    consumer = official.subscribe(
        fresh_topic, "s", is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest
    )
    got = [consumer.receive(TIMEOUT_MS) for _ in range(3)]
    assert {message.partition_key(): message.data().decode() for message in got} == wanted
    consumer.acknowledge_cumulative(got[-1])
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    consumer.close()
    # What was acknowledged does not come again.
    consumer = official.subscribe(fresh_topic, "s", is_read_compacted=True)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)


def test_chunks_stay_together(official, admin, fresh_topic) -> None:
    producer = official.create_producer(
        fresh_topic, chunking_enabled=True, batching_enabled=False, block_if_queue_full=True
    )
    large = "x" * (6 << 20)
    for number in range(2):
        producer.send((f"{number}" + large).encode(), partition_key="large")
    producer.send(b"s", partition_key="small")
    compact(admin, fresh_topic)
    found = read_all(official, fresh_topic)
    assert [(key, value[:1], len(value)) for key, value in found] == [
        ("large", "1", len(large) + 1),
        ("small", "s", 1),
    ]


def test_partitions_are_compacted_together(official, admin, fresh_topic) -> None:
    topic = f"{fresh_topic}-parts"
    admin.topics.create_partitioned(topic, 3)
    producer = official.create_producer(topic)
    for number in range(60):
        producer.send(f"v{number}".encode(), partition_key=f"k{number % 9}")
    compact(admin, topic)
    found = [one for index in range(3) for one in read_all(official, f"{topic}-partition-{index}")]
    assert sorted(found) == sorted((f"k{number % 9}", f"v{number}") for number in range(51, 60))


def test_what_is_refused_says_why(official, admin, fresh_topic) -> None:
    with pytest.raises(geminga.admin.NotFoundError, match="not found"):
        admin.compaction.start(fresh_topic)
    official.create_producer(fresh_topic)
    with pytest.raises(pulsar.PulsarException):
        official.subscribe(fresh_topic, "__compaction")
    with pytest.raises(geminga.admin.AdminError, match="non-persistent"):
        admin.compaction.start(fresh_topic.replace("persistent://", "non-persistent://"))
    admin.compaction.forget(fresh_topic)
    assert admin.compaction.status(fresh_topic) == {"status": "NOT_RUN", "lastError": ""}


def test_of_transactions_only_what_is_committed_is_compacted(broker, admin, fresh_topic) -> None:
    with blocking.connect(broker.service_url) as client:
        producer = client.create_producer(fresh_topic)
        producer.send(b"1", partition_key="a")
        producer.send(b"1", partition_key="b")
        with client.transaction() as committed:
            producer.send(b"2", partition_key="a", txn=committed)
        aborted = client.transaction()
        producer.send(b"3", partition_key="b", txn=aborted)
        producer.send(b"", partition_key="a", txn=aborted)
        aborted.abort()
        compact(admin, fresh_topic)
        opened = client.transaction()
        producer.send(b"4", partition_key="a", txn=opened)
        producer.send(b"5", partition_key="c")

        def values() -> dict[str, bytes]:
            reader = client.create_reader(fresh_topic, gc.MessageId.earliest, is_read_compacted=True)
            found = {}
            while reader.has_message_available():
                message = reader.read_next()
                found[message.partition_key()] = message.data()
            reader.close()
            return found

        assert values() == {"a": b"2", "b": b"1"}
        compact(admin, fresh_topic)
        assert values() == {"a": b"2", "b": b"1"}
        opened.commit()
        compact(admin, fresh_topic)
        assert values() == {"a": b"4", "b": b"1", "c": b"5"}
