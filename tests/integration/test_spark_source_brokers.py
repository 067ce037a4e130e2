"""The source against the broker that judges: Geminga's process, or Apache Pulsar's own (``make interop``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest

from geminga.client import CompressionType, MessageId
from geminga.client.blocking import Client, connect
from support.connector.spark_source import Stream, read_batch, values
from support.worlds.rest import Rest

_numbers = count(1)


@pytest.fixture(scope="module")
def client(standalone) -> Iterator[Client]:
    with connect(standalone.service_url) as one:
        yield one


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/brokers-{next(_numbers)}"


@pytest.fixture
def options(standalone, topic) -> dict[str, str]:
    return {"service.url": standalone.service_url, "topic": topic, "longPollMs": "50"}


def publish(client: Client, topic: str, number: int, first: int = 0, **settings) -> list[bytes]:
    sent = [b"%d" % index for index in range(first, first + number)]
    with client.create_producer(topic, batching_max_messages=10, **settings) as producer:
        for value in sent:
            producer.send_nowait(value)
        producer.flush()
    return sent


def backlog(standalone, topic: str, subscription: str) -> int:
    stats = Rest(standalone.web_url).get(f"persistent/{topic.removeprefix('persistent://')}/stats").json
    return stats["subscriptions"][subscription]["msgBacklog"]


def test_batch_reads_any_part_of_a_topic(client, topic, options):
    sent = publish(client, topic, 100, compression_type=CompressionType.LZ4)
    rows = read_batch({**options, "numPartitions": "3"})
    assert values(rows) == sent
    middle = MessageId.deserialize(rows[45]["__messageId"])
    at = json.dumps({topic: f"{middle.ledger_id()}:{middle.entry_id()}:{middle.batch_index()}"})
    assert values(read_batch({**options, "startingOffsets": at})) == sent[45:]
    assert values(read_batch({**options, "endingOffsets": at})) == sent[:45]
    at_ms = [round(row["__publishTime"].timestamp() * 1000) for row in rows]
    assert read_batch({**options, "startingTime": str(at_ms[-1] + 3_600_000)}) == []
    assert len(read_batch({**options, "endingTime": str(at_ms[-1] + 3_600_000)})) == 100
    assert len(read_batch({**options, "startingTime": str(at_ms[0])})) == 100
    assert read_batch({**options, "endingTime": str(at_ms[0])}) == []


def test_stream_keeps_its_limits_and_moves_its_cursor_when_spark_has_committed(standalone, client, topic, options):
    sent = publish(client, topic, 100)
    stream = Stream({**options, "startingOffsets": "earliest", "subscription": "mine", "maxMessagesPerTrigger": "33"})
    batches = [values(rows) for rows in stream.batches()]
    assert [len(batch) for batch in batches] == [33, 33, 33, 1]
    assert [value for batch in batches for value in batch] == sent
    assert backlog(standalone, topic, "mine") > 0
    stream.commit()
    assert backlog(standalone, topic, "mine") == 0
    assert not stream.plan()
    more = publish(client, topic, 5, first=100)
    assert values(stream.batch()) == more
    stream.restart()
    assert values(stream.read()) == more
    stream.stop()


def test_chunked_messages_belong_to_where_their_last_chunk_lies(client, topic, options):
    with client.create_producer(
        topic, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=4096
    ) as producer:
        for letter in b"ab":
            producer.send(b"small")
            producer.send(bytes([letter]) * 30_000)
    rows = read_batch(options)
    assert [len(value) for value in values(rows)] == [5, 30_000, 5, 30_000]
    last = MessageId.deserialize(rows[3]["__messageId"])
    at = json.dumps({topic: f"{last.ledger_id()}:{last.entry_id() - 2}:0"})
    assert [len(value) for value in values(read_batch({**options, "startingOffsets": at}))] == [30_000]
    assert [len(value) for value in values(read_batch({**options, "endingOffsets": at}))] == [5, 30_000, 5]


def test_new_partitions_of_a_pattern_and_ledgers_that_end_are_no_gaps(standalone, client, topic, options):
    rest = Rest(standalone.web_url)
    name = topic.removeprefix("persistent://")
    publish(client, f"{topic}-a", 3)
    stream = Stream(
        {**options, "topic": "", "topicsPattern": f"{topic}-.*", "topicDiscoveryIntervalMs": "0", "subscription": "s"}
    )
    assert stream.batch() == []
    assert rest.put(f"persistent/{name}-b/partitions", 2).status in (200, 204)
    publish(client, f"{topic}-b", 20)
    assert rest.put(f"persistent/{name}-a/unload").status == 204  # its next message is in another ledger
    publish(client, f"{topic}-a", 3, first=3)
    rows = []
    while len(rows) < 23:
        rows += stream.batch()
    assert sorted(values(rows)) == sorted([b"%d" % index for index in range(20)] + [b"3", b"4", b"5"])
    stream.stop()


def test_end_that_no_reader_gets_is_not_waited_for(client, topic, options):
    publish(client, topic, 10)
    stream = Stream({**options, "startingOffsets": "earliest", "pollTimeoutMs": "10000"})
    stream.plan()
    at = stream.offset().topics[topic]
    stream.log[0] = json.dumps({"v": 1, "n": 2, "t": {topic: f"{at.ledger_id}:{at.entry_id + 3}:0"}})
    assert len(stream.read()) == 10
    stream.stop()
