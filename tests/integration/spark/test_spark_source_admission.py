"""How much a batch takes, and which tasks read it: without a JVM, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest

import geminga
from geminga.client import CompressionType, InitialPosition
from geminga.client.blocking import Client
from geminga.spark.process.clients import session_for
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.source import scout
from geminga.spark.source.scout import Scouts, count_entry, window_of
from geminga.spark.source_rules.admission import Limits
from geminga.spark.source_rules.offsets import BEGINNING, ReadPosition
from geminga.spark.source_rules.options import ReaderConfiguration
from geminga.wire.pulsar.entry_head import HEADS_PROPERTY, HEADS_WANTED
from support.connector.spark_source import Stream, values
from support.worlds.rest import Rest

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    with geminga.Standalone() as one:
        yield one


def publish(client: Client, topic: str, number: int, first: int = 0, batch: int = 10, size: int = 0) -> list[bytes]:
    sent = [b"%d" % index + b"x" * size for index in range(first, first + number)]
    with client.create_producer(topic, batching_max_messages=batch) as producer:
        for value in sent:
            producer.send_nowait(value)
        producer.flush()
    return sent


def test_limit_in_messages_is_exact_and_cuts_batches(client, topic, options):
    sent = publish(client, topic, 95)
    stream = Stream({**options, "maxMessagesPerTrigger": "12"})
    batches = [values(rows) for rows in stream.batches()]
    assert [len(batch) for batch in batches] == [12] * 7 + [11]
    assert [value for batch in batches for value in batch] == sent
    assert stream.offset(0).topics[topic].batch_index == 2
    stream.stop()


def test_limit_in_bytes_holds_except_for_one_entry(client, topic, options):
    sent = publish(client, topic, 100, size=1000)
    stream = Stream({**options, "maxBytesPerTrigger": "25000"})
    batches = [values(rows) for rows in stream.batches()]
    assert [len(batch) for batch in batches] == [20] * 5
    assert [value for batch in batches for value in batch] == sent
    stream.stop()
    small = Stream({**options, "maxBytesPerTrigger": "100"})
    assert [len(rows) for rows in small.batches()] == [10] * 10
    small.stop()


def bytes_sent_to_count(broker, topic: str) -> int:
    """To the readers that are there while no task reads: those of the driver."""
    stats = Rest(broker.web_service_url).get(f"persistent/{topic.removeprefix('persistent://')}/stats").json
    return sum(subscription["bytesOutCounter"] for subscription in stats["subscriptions"].values())


@pytest.mark.parametrize("compression", ["NONE", "ZSTD"])
def test_payloads_travel_once_though_they_are_counted(broker, client, topic, options, compression):
    source = Random(5)
    sent = [source.randbytes(2000) for _ in range(500)]
    with client.create_producer(
        topic,
        compression_type=CompressionType[compression],
        batching_max_messages=10,
        batching_max_publish_delay_ms=60_000,
    ) as producer:
        for value in sent:
            producer.send_nowait(value)
        producer.flush()
    stream = Stream({**options, "maxBytesPerTrigger": "105000", "subscription": "s"})
    batches = [values(rows) for rows in stream.batches()]
    assert [value for batch in batches for value in batch] == sent
    assert len(batches) == 10
    # Whole entries before: a million bytes to the driver, and the same million to the tasks.
    assert 0 < bytes_sent_to_count(broker, topic) < 0.01 * 500 * 2000
    stream.stop()


def test_only_readers_that_count_get_heads(client, topic):
    # A consumer with a durable cursor would acknowledge what it never saw.
    sent = publish(client, topic, 10)
    with client.subscribe(
        topic, "s", properties={HEADS_PROPERTY: HEADS_WANTED}, initial_position=InitialPosition.Earliest
    ) as consumer:
        assert [consumer.receive(5000).data() for _ in sent] == sent


def test_limit_is_shared_by_all_topics_in_order_of_time_and_none_waits_for_another(client, topic, options):
    # A share per topic would leave most of the limit unused: only one topic has a backlog.
    publish(client, f"{topic}-a", 40)
    publish(client, f"{topic}-b", 2)
    publish(client, f"{topic}-c", 40)
    stream = Stream({**options, "topic": "", "topics": f"{topic}-a,{topic}-b,{topic}-c", "maxMessagesPerTrigger": "41"})
    first, second = stream.batches()
    assert {row["__topic"][-1] for row in first} == {"a", "b"}
    assert (len(first), len(second)) == (41, 41)
    stream.stop()


def test_nothing_is_counted_twice(client, topic, options):
    publish(client, topic, 300)
    stream = Stream({**options, "maxMessagesPerTrigger": "30"})
    assert sum(len(rows) for rows in stream.batches()) == 300
    driver = stream.reader._driver
    scout = driver._scouts._scouts[topic]
    assert scout._stream.attached_count == 1
    assert len(scout._counted) <= 3  # of the last batch, which may be asked for again
    stream.stop()


def test_available_now_keeps_the_limits_and_ends_at_what_was_there(client, topic, options):
    sent = publish(client, topic, 50)
    stream = Stream({**options, "maxMessagesPerTrigger": "20"})
    stream.reader.prepareForTriggerAvailableNow()
    publish(client, topic, 50, first=50)
    batches = [values(rows) for rows in stream.batches()]
    assert [len(batch) for batch in batches] == [20, 20, 10]
    assert [value for batch in batches for value in batch] == sent
    stream.stop()


def test_limits_that_changed_do_not_change_a_replayed_batch(client, topic, options):
    publish(client, topic, 50)
    stream = Stream({**options, "maxMessagesPerTrigger": "20"})
    stream.batch()
    stream.plan()
    before = stream.read()
    stream.restart(maxMessagesPerTrigger="7", numPartitions="1")
    assert stream.read() == before
    assert [len(rows) for rows in stream.batches()] == [7, 3]
    stream.stop()


def test_batch_waits_for_enough_messages_until_the_delay_is_over(client, topic, options):
    publish(client, topic, 5)
    stream = Stream({**options, "minMessagesPerTrigger": "10"})
    assert stream.plan()  # Spark makes the first batch in any case
    assert stream.read() == []
    assert [stream.plan() for _ in range(3)] == [False] * 3
    scout = stream.reader._driver._scouts._scouts[topic]
    assert scout._stream.attached_count == 1  # what was counted while waiting stays counted
    publish(client, topic, 5, first=5)
    assert len(stream.batch()) == 10
    publish(client, topic, 1, first=10)
    assert not stream.plan()
    stream.stop()
    soon = Stream({**options, "minMessagesPerTrigger": "100", "maxTriggerDelay": "100ms", "longPollMs": "60"})
    assert soon.plan()
    assert soon.read() == []
    assert any(soon.plan() for _ in range(4))
    assert len(soon.read()) == 11
    soon.stop()


def test_too_few_messages_do_not_keep_available_now_waiting(client, topic, options):
    publish(client, topic, 5)
    stream = Stream({**options, "minMessagesPerTrigger": "10"})
    stream.reader.prepareForTriggerAvailableNow()
    assert [len(rows) for rows in stream.batches()] == [5]
    stream.stop()


def test_tasks_are_cut_where_the_bytes_are_and_the_cuts_are_kept_for_a_replay(client, topic, options):
    sent = publish(client, topic, 100, size=1000)
    stream = Stream({**options, "targetBytesPerTask": "30000"})
    assert stream.plan()
    parts = stream.reader.partitions(stream.start_of(0), stream.offset().to_dict())
    assert len(parts) == 5
    assert values(stream.read()) == sent
    stream.restart(targetBytesPerTask="", numPartitions="1")
    again = stream.reader.partitions(stream.start_of(0), stream.offset().to_dict())
    assert [part.value.ranges for part in again] == [part.value.ranges for part in parts]
    stream.stop()


def test_number_of_tasks_is_fixed_at_the_first_run(client, topic, options):
    publish(client, topic, 2000, batch=5)
    stream = Stream({**options, "numPartitions": "3"})
    stream.plan()
    stream.restart(numPartitions="1")
    publish(client, topic, 2000, batch=5)
    stream.plan()
    for batch in (0, 1):
        assert len(stream.reader.partitions(stream.start_of(batch), stream.offset(batch).to_dict())) == 3
    stream.stop()


def test_heads_count_without_decompressing(broker, client, topic):
    with client.create_producer(topic, compression_type=CompressionType.ZSTD, batching_max_messages=10) as producer:
        for _ in range(10):
            producer.send_nowait(b"y" * 1000)
        producer.flush()
    session = session_for(ClientConfiguration(broker.service_url))
    seen: list = []

    class Frames:
        def connected(self, message_bytes_max: int) -> None: ...

        def close(self) -> None: ...

        def read(self, frames):
            seen.extend(frames)
            return ()

    async def look() -> None:
        stream = session.client.entry_stream(topic, window_bytes=1 << 20)
        await stream.open(Frames())
        await stream.take(500)
        await stream.close()

    session.run(look)
    counted = count_entry(3, 4, seen[0][1])
    assert (counted.ledger_id, counted.entry_id, counted.messages, counted.is_batch) == (3, 4, 10, True)
    assert 10_000 < counted.size_bytes < 10_500
    assert len(seen[0][1]) < 1000


@pytest.mark.parametrize(("topics", "window_kib"), [(0, 4096), (1, 4096), (64, 4096), (1024, 256), (1_000_000, 16)])
def test_scouts_of_many_topics_share_what_they_run_ahead(topics, window_kib):
    assert window_of(topics) == window_kib << 10


def test_a_driver_counts_no_more_ahead_than_its_topics_share(broker, client, options, monkeypatch):
    monkeypatch.setattr(scout, "WINDOWS_BYTES_MAX", 80_000)
    monkeypatch.setattr(scout, "WINDOW_BYTES_LEAST", 1000)
    names = [f"persistent://public/default/shared-{next(_numbers)}" for _ in range(4)]
    for name in names:
        publish(client, name, 200, batch=1, size=1000)
    session = session_for(ClientConfiguration(broker.service_url))
    scouts = Scouts(session.client, ReaderConfiguration())
    starts = dict.fromkeys(names, BEGINNING)
    ends = {name: ReadPosition(1 << 40, 0) for name in names}

    async def fill() -> list[int]:
        _, is_whole = await scouts.fill(starts, ends, Limits(messages_max=8))
        assert not is_whole
        return [one._stream.window.capacity for one in scouts._scouts.values()]

    capacities = session.run(fill)
    session.run(scouts.close)
    # Messages of 1,000 bytes: of 20,000 bytes each.
    assert len(capacities) == 4
    assert all(10 < capacity <= 20 for capacity in capacities), capacities
