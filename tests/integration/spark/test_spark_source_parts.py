"""Parts of the source against a real broker, without a JVM: questions about topics, streams of entries, clients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest

import geminga
import geminga.admin.blocking
from geminga.client import BatchSource, ConnectError, EntryBatch, EntryStream, ReadError, open_batches
from geminga.client.blocking import Client
from geminga.spark.process.clients import ClientSession, session_for
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.columns import arrow_schema, raw_schema
from geminga.spark.rules.metadata_columns import ALL_COLUMNS
from geminga.spark.rules.option_values import OptionError
from geminga.spark.source import arrow, decoding, task_read
from geminga.spark.source.batch_plan import plan_batch
from geminga.spark.source.entry_rows import EntryRows
from geminga.spark.source.positions import Probe, find_topics, first_position, position_at_time
from geminga.spark.source.range_read import RangeReader
from geminga.spark.source.stream_driver import StreamDriver
from geminga.spark.source_rules.admission import Limits
from geminga.spark.source_rules.errors import ReadTimeoutError, TopicError
from geminga.spark.source_rules.offsets import BEGINNING, ReadPosition, StreamOffset
from geminga.spark.source_rules.options import ReaderConfiguration, SourceOptions, TopicChoice
from geminga.spark.source_rules.planner import TopicRange
from support.house.forks import forked
from support.processes.raw_protocol import publish_entry

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    with geminga.Standalone() as one:
        yield one


@pytest.fixture(scope="module")
def session(broker) -> ClientSession:
    return session_for(ClientConfiguration(broker.service_url))


def publish(client: Client, topic: str, number: int, first: int = 0, batch: int = 10) -> None:
    with client.create_producer(topic, batching_max_messages=batch) as producer:
        for index in range(first, first + number):
            producer.send_nowait(b"%d" % index)
        producer.flush()


def cut_connections(session: ClientSession) -> None:
    """Every connection of the client breaks, as if the network had."""

    def cut() -> None:
        for connection in list(session.client.pool._connections.values()):
            connection.abort(ConnectError("cut by the test"))

    session.thread.call(cut)


def test_session_is_one_per_configuration_and_process(broker, client):
    publish(client, "forked", 1)
    configuration = ClientConfiguration(broker.service_url)
    assert session_for(configuration) is session_for(ClientConfiguration(broker.service_url))
    assert session_for(replace(configuration, arguments=(("operation_timeout_ms", 7000),))) is not session_for(
        configuration
    )
    read, write = os.pipe()

    def ask() -> None:  # a worker of Spark: it must make a client of its own
        partitions = session_for(configuration).blocking.get_topic_partitions("forked")
        os.write(write, partitions[0].encode())

    child = forked(ask)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 100) == b"persistent://public/default/forked"
    os.close(read)
    os.close(write)


def test_unknown_authentication_is_refused_by_name():
    with pytest.raises(OptionError, match="AuthenticationAthenz"):
        session_for(ClientConfiguration("pulsar://h:1", auth_plugin="org.apache.pulsar.AuthenticationAthenz"))


def test_arrow_schema_has_the_types_that_spark_demands():
    schema = arrow_schema(raw_schema(ALL_COLUMNS))
    assert schema.field("value").type == pa.binary()
    assert schema.field("__publishTime").type == pa.timestamp("us", tz="UTC")
    assert str(schema.field("__messageProperties").type).startswith("map<string, string")


def test_topics_are_found_by_name_by_partition_and_by_pattern(client, session, topic):
    publish(client, topic, 1)
    publish(client, f"{topic}-b", 1)

    def find(**choice: object) -> list[str]:
        return session.run(lambda: find_topics(session.client, TopicChoice(**choice)))

    assert find(names=(topic, topic.rpartition("/")[2])) == [topic]
    assert find(pattern=f"{topic}.*") == [topic, f"{topic}-b"]
    assert find(pattern=f"{topic}-none") == []


def test_missing_topic_is_named_instead_of_read_as_empty(session, topic):
    options = SourceOptions.parse({"service.url": "pulsar://h:1", "topic": topic}, is_stream=False)
    with pytest.raises(TopicError, match=topic):
        session.run(lambda: plan_batch(session.client, options))


def test_probe_says_where_a_topic_begins_and_ends(client, session, topic):
    publish(client, topic, 30)
    probe = Probe(session.client, topic, "probe")
    end = session.run(probe.end)
    assert (probe.first.entry_id, end.entry_id) == (0, 3)
    assert probe.first == session.run(lambda: first_position(session.client, topic, "probe"))
    publish(client, topic, 10)
    assert session.run(probe.end) == ReadPosition(end.ledger_id, 4)
    session.run(probe.close)


def test_position_at_a_time_is_before_what_was_published_then(client, session, topic):
    publish(client, topic, 10)
    now_ms = session.client.runtime.clock.wall_ms()
    at = session.run(lambda: position_at_time(session.client, topic, now_ms, "time"))
    assert at.entry_id == 0  # clocks may differ: a minute before
    later = session.run(lambda: position_at_time(session.client, topic, now_ms + 3_600_000, "time"))
    assert later.entry_id == 1


def test_entry_stream_goes_on_behind_what_was_taken_when_connections_break(client, session, topic):
    publish(client, topic, 400, batch=3)
    stream = session.client.entry_stream(topic, permits_max=20)
    session.run(lambda: open_batches(stream))
    taken: list[bytes] = []
    rounds = 0
    while len(taken) < 400:
        for entry in session.run(lambda: stream.take(10_000)):
            taken += [entry.payload(index) for index in entry.order]
        rounds += 1
        if rounds % 2 == 0:
            cut_connections(session)
    assert taken == [b"%d" % index for index in range(400)]
    assert stream.attached_count > 3
    session.run(stream.close)


def test_range_reader_ends_exactly_at_its_bounds_also_within_batches(client, session, topic):
    publish(client, topic, 100, batch=10)
    probe = Probe(session.client, topic, "probe")
    ledger_id = session.run(probe.end).ledger_id
    session.run(probe.close)

    def read(start: tuple[int, int], end: tuple[int, int]) -> list[int]:
        wanted = TopicRange(topic, ReadPosition(ledger_id, *start), ReadPosition(ledger_id, *end))
        reader = RangeReader(session.client, wanted, ReaderConfiguration())
        found: list[int] = []
        while (pieces := session.run(reader.next)) is not None:
            rows = EntryRows(pieces)
            bounds = zip(rows.columns.metadata_ends.tolist(), rows.columns.payload_ends.tolist(), strict=True)
            found += [int(rows.data[first:last]) for first, last in bounds]
        session.run(reader.close)
        return found

    assert read((2, 0), (4, 0)) == list(range(20, 40))
    assert read((2, 3), (4, 5)) == list(range(23, 45))
    assert read((2, 3), (2, 7)) == list(range(23, 27))
    assert read((9, 9), (10, 0)) == [99]


def test_range_that_gets_nothing_though_there_is_something_ends_at_the_poll_timeout(client, session, topic):
    publish(client, topic, 10)
    reader = RangeReader(
        session.client,
        TopicRange(topic, BEGINNING, ReadPosition(1 << 40, 0)),
        ReaderConfiguration(poll_timeout_ms=300),
    )
    session.run(reader.open)
    session.run(reader._stream.close)
    # A stream that never gives a permit gets what one gets from a broker that does not send.
    silent = session.client.entry_stream(topic, window_bytes=1, permits_max=0)
    reader._stream = silent
    session.run(lambda: silent.open(BatchSource(silent)))
    with pytest.raises(ReadTimeoutError, match=r"sent none for 300 ms \(pollTimeoutMs\)"):
        session.run(reader.next)
    session.run(reader.close)


def test_groups_of_entries_are_cut_by_bytes(client, session, topic):
    publish(client, topic, 100, batch=10)
    reader = RangeReader(session.client, TopicRange(topic, BEGINNING, ReadPosition(1 << 40, 0)), ReaderConfiguration())
    pieces: list = []
    while (more := session.run(reader.next)) is not None:
        pieces += more
    session.run(reader.close)
    size = pieces[0].entry.size_bytes
    groups = list(arrow.cut_by_bytes(pieces, 3 * size + size // 2))
    assert [len(group) for group in groups] == [3, 3, 3, 1]
    assert [piece for group in groups for piece in group] == pieces
    assert [len(group) for group in arrow.cut_by_bytes(pieces, 1)] == [1] * 10
    now_ms = pieces[0].entry.metadata.publish_time
    assert task_read.in_time(pieces, ReaderConfiguration(time_from_ms=now_ms + 3_600_000)) == []
    assert task_read.in_time(pieces, ReaderConfiguration(time_to_ms=now_ms)) == []
    options = SourceOptions.parse({"service.url": "pulsar://h:1", "topic": topic}, is_stream=False)
    batch = decoding.decoder(options, raw_schema(ALL_COLUMNS))(arrow.MessageRows(pieces), topic)
    assert batch.schema == arrow_schema(raw_schema(ALL_COLUMNS))
    assert batch.num_rows == 100


def test_idle_stream_asks_nobody_while_it_waits(client, session, topic):
    publish(client, topic, 10)
    options = SourceOptions.parse(
        {"service.url": "pulsar://h:6650", "topic": topic, "longPollMs": "30"}, is_stream=True
    )
    driver = session.thread.call(lambda: StreamDriver(session.client, options))
    start = session.run(lambda: driver.latest(options.start, Limits()))
    assert session.run(lambda: driver.latest(start, Limits())) is start
    next_id = session.client.pool._next_request_id
    asked = next_id()
    for _ in range(5):
        assert session.run(lambda: driver.latest(start, Limits())) is start
    assert next_id() == asked + 1
    publish(client, topic, 10)
    end = session.run(lambda: driver.latest(start, Limits()))
    assert end.topics[topic].entry_id == start.topics[topic].entry_id + 1
    assert isinstance(end, StreamOffset)
    session.run(driver.close)


def test_a_topic_that_is_deleted_is_counted_no_more(broker, client, session, topic):
    """Whoever waits for messages to come waits for those of topics that are there: the others' end is told at once."""
    kept, gone = f"{topic}-kept", f"{topic}-gone"
    for each in (kept, gone):
        publish(client, each, 10)
    given = {
        "service.url": "pulsar://h:6650",
        "topicsPattern": f"{topic}-.*",
        "startingOffsets": "earliest",
        "longPollMs": "400",
    }
    options = SourceOptions.parse({**given, "topicDiscoveryIntervalMs": "1"}, is_stream=True)
    driver = session.thread.call(lambda: StreamDriver(session.client, options))

    def latest(start: StreamOffset, limits: Limits) -> StreamOffset:
        return session.run(lambda: driver.latest(start, limits))

    start = latest(latest(options.start, Limits(messages_max=1000)), Limits(messages_max=1000))
    assert sorted(start.topics) == [gone, kept]
    with geminga.admin.blocking.connect(broker.web_service_url) as admin:
        admin.topics.delete(gone, force=True)
    publish(client, kept, 1)
    few, monotonic = Limits(messages_min=100), session.client.runtime.clock.monotonic
    assert latest(start, few) is start
    began_s = monotonic()
    assert latest(start, few) is start
    assert monotonic() - began_s > 0.3  # of the 0.4 s of longPollMs
    assert list(driver._scouts._scouts) == [kept]
    session.run(driver.close)


def test_what_was_waited_with_is_gone_and_nobody_is_asked_any_more(broker, client, session, topic):
    """Too few messages, whose topic is deleted then: there is nothing to wait with, so an arrival is waited for."""
    kept, gone = f"{topic}-kept", f"{topic}-gone"
    publish(client, gone, 1)
    client.create_producer(kept).close()
    given = {
        "service.url": "pulsar://h:6650",
        "topicsPattern": f"{topic}-.*",
        "startingOffsets": "earliest",
        "longPollMs": "30",
    }
    given |= {"topicDiscoveryIntervalMs": "1", "failOnDataLoss": "false", "minMessagesPerTrigger": "10"}
    options = SourceOptions.parse(given, is_stream=True)
    driver = session.thread.call(lambda: StreamDriver(session.client, options))

    def latest(start: StreamOffset) -> StreamOffset:
        return session.run(lambda: driver.latest(start, options.limits))

    assert latest(options.start) is options.start
    with geminga.admin.blocking.connect(broker.web_service_url) as admin:
        admin.topics.delete(gone, force=True)
    start = latest(options.start)
    assert start.topics == {kept: BEGINNING}
    for _ in range(2):
        assert latest(start) is start
    watched, monotonic = driver._watches, session.client.runtime.clock.monotonic
    assert list(watched) == [kept]
    began_s = monotonic()
    assert latest(start) is start
    assert monotonic() - began_s > 0.025  # of the 0.03 s of longPollMs
    publish(client, kept, 1)
    assert latest(start) is start  # one is too few, and waits from now on, not since the other one came
    assert driver._waiting_since is not None and driver._waiting_since >= began_s * 1000
    session.run(driver.close)


def test_pieces_of_chunked_messages_that_wait_have_a_bound_in_bytes(broker, session, topic):
    def publish_piece(uuid: str, number: int, total: int = 1200) -> None:
        fields = {"uuid": uuid, "chunk_id": number, "num_chunks_from_msg": 2, "total_chunk_msg_size": total}
        publish_entry(broker, topic, b"x" * 600, **fields)

    def read(start: tuple[int, int]) -> EntryStream[EntryBatch]:
        stream: EntryStream[EntryBatch] = session.client.entry_stream(topic, start)
        source = BatchSource(stream, chunked_bytes_max=1300)
        session.run(lambda: stream.open(source))
        return stream

    for uuid, number in [("left", 0), ("a", 0), ("a", 1), ("b", 0), ("c", 0), ("b", 1), ("c", 1)]:
        publish_piece(uuid, number)
    stream = read((-1, -1))
    (whole,) = session.run(lambda: stream.take(10_000))  # what nobody ends gives way and is no hindrance
    assert len(whole.payload(0)) == 1200
    with pytest.raises(ReadError, match=r":5 can not be read: .*gave way to others, as more than 100 .*1300 bytes"):
        session.run(lambda: stream.take(10_000))
    assert stream.attached_count <= 4
    session.run(stream.close)
    publish_piece("d", 0, total=1301)
    stream = read((whole.ledger_id, 7))
    with pytest.raises(ReadError, match=r":7 can not be read: .* a message of more than 1300 bytes"):
        session.run(lambda: stream.take(10_000))
    session.run(stream.close)
