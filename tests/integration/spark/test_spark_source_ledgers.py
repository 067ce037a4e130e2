"""A topic of several ledgers is divided among tasks, by what the broker tells of their lengths; without a JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import geminga
from geminga.client.blocking import Client, connect
from geminga.spark.process.clients import session_for
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.source.positions import Probe
from geminga.spark.source_rules.offsets import StreamOffset
from pyspark_geminga import DefaultSource
from support.connector.spark_source import Stream, read_batch, rows_of, values

TOPIC = "persistent://public/default/ledgers"
LEDGER_ENTRIES = 50
#: Of one message each: seven ledgers, the last of which is not full.
ENTRIES = 330
TASKS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    settings = {
        "managedLedgerMaxEntriesPerLedger": LEDGER_ENTRIES,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
    }
    with geminga.Standalone(None, settings) as one, connect(one.service_url) as client:
        publish(client, 0, ENTRIES)
        yield one


@pytest.fixture
def options(broker) -> dict[str, str]:
    return {
        "service.url": broker.service_url,
        "topic": TOPIC,
        "startingOffsets": "earliest",
        "numPartitions": str(TASKS),
    }


def publish(client: Client, first: int, count: int) -> None:
    with client.create_producer(TOPIC, batching_enabled=False) as producer:
        for index in range(first, first + count):
            producer.send_nowait(b"%d" % index)
        producer.flush()


WANTED = [b"%d" % index for index in range(ENTRIES)]


def test_batch_over_several_ledgers_is_divided_among_all_tasks(options):
    source = DefaultSource(options=options)
    reader = source.reader(source.schema())
    sizes = [len(rows_of(reader, [task])) for task in reader.partitions()]
    assert sizes == [ENTRIES // TASKS] * TASKS
    assert sorted(values(read_batch(options)), key=int) == WANTED
    of_size = {**options, "targetBytesPerTask": "50"}
    source = DefaultSource(options=of_size)
    assert len(source.reader(source.schema()).partitions()) > TASKS
    assert sorted(values(read_batch(of_size)), key=int) == WANTED


def test_stream_over_several_ledgers_is_divided_and_replayed_alike(options):
    stream = Stream(options)
    assert stream.plan()
    offset = stream.offset()
    assert offset.divisions[TOPIC].entries == ENTRIES
    assert len(offset.divisions[TOPIC].cuts) == TASKS - 1
    tasks = stream.reader.partitions(stream.start_of(0), offset.to_dict())
    sizes = [len(rows_of(stream.reader, [task])) for task in tasks]
    assert sizes == [ENTRIES // TASKS] * TASKS
    assert sorted(values(stream.read()), key=int) == WANTED
    # Another driver, which does not ask again, has the same tasks.
    stream.restart(numPartitions="9")
    again = stream.reader.partitions(stream.start_of(0), offset.to_dict())
    assert [task.value for task in again] == [task.value for task in tasks]
    stream.stop()


def test_more_ledgers_than_one_answer_tells_are_asked_for_again(broker, options, monkeypatch):
    session = session_for(ClientConfiguration(broker.service_url))

    def lengths(first: int) -> list[tuple[int, int]]:
        probe = Probe(session.client, TOPIC, "test")
        try:
            return session.run(lambda: probe.ledger_lengths(first))
        finally:
            session.run(probe.close)

    found = lengths(-1)
    assert [entries for _, entries in found] == [LEDGER_ENTRIES] * (ENTRIES // LEDGER_ENTRIES)
    for told_max in (1, 2, 3):
        for module in ("geminga.broker.handlers.subscription", "geminga.client._entry_stream"):
            monkeypatch.setattr(f"{module}.LEDGERS_TOLD_MAX", told_max)
        assert lengths(0) == found
        assert lengths(found[2][0]) == found[2:]
    assert lengths((1 << 63) - 1) == []


def test_batch_of_counted_bytes_is_divided_as_well(options):
    stream = Stream({**options, "maxMessagesPerTrigger": str(4 * LEDGER_ENTRIES)})
    rows = list(stream.batches())
    stream.stop()
    assert [len(some) for some in rows] == [200, 130]
    assert sorted((value for some in rows for value in values(some)), key=int) == WANTED
    assert all(StreamOffset.from_dict(stream.offset(number).to_dict()).divisions for number in range(2))
