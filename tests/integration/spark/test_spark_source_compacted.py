"""Topics that are read compacted, after the ledgers of what was compacted are gone: every key is there; no JVM."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import geminga
from geminga.broker.compaction.part import TopicCompaction, compact
from geminga.client.blocking import Client, Consumer
from geminga.spark.pipelines import Cluster, Pipeline, Sink, Source, Table
from geminga.spark.pipelines.core.connector_options import table_options
from geminga.spark.source_rules.errors import DataLossError
from geminga.spark.source_rules.options import SourceOptions
from support.connector.rolled_topics import LEDGER_ENTRIES
from support.connector.spark_source import Stream, read_batch, values

KEYS = 100


@pytest.fixture
def keep(client, topic) -> Consumer[bytes]:
    """What holds the ledgers until they are compacted."""
    return client.subscribe(topic, "keep")


@pytest.fixture
def options(broker, topic) -> dict[str, str]:
    return {"service.url": broker.service_url, "topic": topic, "pulsar.reader.readCompacted": "true"}


def publish(client: Client, topic: str, numbers: range) -> dict[str, bytes]:
    """Values by key, each key's newest."""
    found = {}
    with client.create_producer(topic, batching_enabled=False) as producer:
        for number in numbers:
            key = f"k{number % KEYS}"
            found[key] = b"%d" % number
            producer.send_nowait(found[key], partition_key=key)
        producer.flush()
    return found


def compact_topic(broker: geminga.Standalone, topic: str) -> None:
    async def work() -> None:
        found = broker._broker().topics[topic]
        await compact(found)
        part = found.parts.find(TopicCompaction)
        assert part is not None and part._task is not None
        await asyncio.wait([part._task])
        assert part.status == "SUCCESS", part.last_error

    broker._call(work())


def trim(broker: geminga.Standalone, topic: str, keep: Consumer[bytes]) -> None:
    """Until nothing is in the topic's own ledgers."""
    keep.unsubscribe()

    async def work() -> None:
        ledger = broker._broker().topics[topic].ledger
        await ledger.roll()
        await ledger.trimmer.trim()
        assert not ledger.ledgers.entry_count

    broker._call(work())


@pytest.mark.parametrize("start", [{}, {"startingTime": "1"}, {"startingOffsets": "earliest"}])
def test_batch_has_each_key_though_the_ledgers_of_all_are_gone(broker, client, topic, keep, options, start) -> None:
    newest = publish(client, topic, range(3 * KEYS))
    compact_topic(broker, topic)
    trim(broker, topic, keep)
    assert sorted(values(read_batch({**options, **start}))) == sorted(newest.values())
    newest |= publish(client, topic, range(3 * KEYS, 3 * KEYS + 10))
    rows = read_batch({**options, **start})
    assert {row["__key"].decode(): row["value"] for row in rows} == newest


@pytest.mark.parametrize("start", [{"startingTime": "1"}, {"startingOffsets": "earliest"}])
def test_stream_begins_with_each_key_though_the_ledgers_of_all_are_gone(
    broker, client, topic, keep, options, start
) -> None:
    newest = publish(client, topic, range(3 * KEYS))
    compact_topic(broker, topic)
    trim(broker, topic, keep)
    stream = Stream({**options, **start})
    assert sorted(values(stream.batch())) == sorted(newest.values())
    assert list(publish(client, topic, range(10)).values()) == values(stream.batch())
    stream.stop()


def test_table_of_a_pipeline_has_each_key_though_the_ledgers_of_all_are_gone(broker, client, topic, keep) -> None:
    newest = publish(client, topic, range(2 * KEYS))
    compact_topic(broker, topic)
    trim(broker, topic, keep)
    table = Table("t", topic=topic, columns="a int")
    pipeline = Pipeline("p", (Source(topics=("b",)),), Sink(topic="c"), cluster=Cluster(broker.service_url))
    rows = read_batch(table_options(pipeline, table))
    assert {row["__key"].decode(): row["value"] for row in rows} == newest
    own = {"Pulsar.Reader.ReadCompacted": "false"}
    assert read_batch(table_options(pipeline, replace(table, options=own))) == []
    lake = table_options(pipeline, replace(table, options={"Lake.Root": "file:///lake"}))
    assert SourceOptions.parse(lake, is_stream=False).lake is not None


@pytest.mark.parametrize("limit", [{}, {"maxMessagesPerTrigger": "30"}])
def test_stream_goes_on_in_what_is_there_compacted_alone(broker, client, topic, keep, options, limit) -> None:
    publish(client, topic, range(5))
    stream = Stream({**options, **limit, "startingOffsets": "earliest"})
    assert len(stream.batch()) == 5
    newest = publish(client, topic, range(5, 3 * KEYS))
    compact_topic(broker, topic)
    trim(broker, topic, keep)
    stream.restart()
    assert sorted(value for batch in stream.batches() for value in values(batch)) == sorted(newest.values())
    stream.stop()


def test_what_is_gone_and_was_never_compacted_is_loss(broker, client, topic, keep, options) -> None:
    publish(client, topic, range(5))
    stream = Stream({**options, "startingOffsets": "earliest"})
    assert len(stream.batch()) == 5
    publish(client, topic, range(5, 2 * LEDGER_ENTRIES))
    trim(broker, topic, keep)
    publish(client, topic, range(1))
    stream.restart()
    with pytest.raises(DataLossError, match="are gone"):
        stream.batch()
    stream.stop()


def test_watch_behind_what_compaction_left_is_quiet_until_something_comes(broker, client, topic, options) -> None:
    """Behind the last message that readers of the compacted topic get there are some that they never get."""
    publish(client, topic, range(3))
    with client.create_producer(topic, batching_enabled=False) as producer:
        for key in ("k1", "k2"):
            producer.send(b"", partition_key=key)
        compact_topic(broker, topic)
        stream = Stream({**options, "startingOffsets": "earliest", "longPollMs": "20"})
        assert values(stream.batch()) == [b"0"]
        assert not stream.plan()
        (watch,) = stream.reader._driver._watches.values()
        assert not stream.plan()
        assert [watch] == list(stream.reader._driver._watches.values())
        producer.send(b"3", partition_key="k3")
        assert values(stream.batch()) == [b"3"]
    stream.stop()
