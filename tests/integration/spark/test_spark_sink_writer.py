"""Writers called as Spark calls them: what it silently gets wrong ends in an error, and what is written stays."""

from __future__ import annotations

import json
import logging
import os
import re

import pytest
from pyspark.sql.types import StructField, StructType

from geminga.client import PulsarException
from geminga.spark.process.clients import session_for
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink import at_least_once, producers
from geminga.spark.sink.arrow_rows import RowReader
from geminga.spark.sink.commits import TaskCommit
from geminga.spark.sink.producers import kept_producer
from geminga.spark.sink.sending import WAITING_ENTRIES_MAX, EntryPump
from geminga.spark.sink.writer import BatchWriter, StreamWriter, sink_plan
from geminga.spark.sink_rules.entries import encode_entries
from geminga.spark.sink_rules.errors import SinkError
from geminga.spark.sink_rules.message_columns import MessageColumns
from geminga.spark.sink_rules.sink_columns import sink_columns
from geminga.spark.sink_rules.sink_options import ProducerSettings, sink_options
from support.connector.sink_cases import arrow_batches, run_task, schema_of, stored
from support.house.forks import forked

VALUE = "value string"


def options_of(standalone, topic: str, **more: str) -> dict[str, str]:
    return {"service.url": standalone.service_url, "topic": topic, "guarantee": "at-least-once", **more}


def stream_writer(standalone, topic: str, **more: str) -> StreamWriter:
    return StreamWriter(options_of(standalone, topic, **more), schema_of(VALUE), overwrite=False)


def test_continuous_trigger_that_writes_nothing_is_an_error_at_commit(standalone, fresh_topic) -> None:
    # Spark accepts the trigger, never calls write(), and commits [None, None]: silent loss.
    with pytest.raises(SinkError, match=r"no task says .* Trigger\.Continuous"):
        stream_writer(standalone, fresh_topic).commit([None, None], 0)


def test_missing_message_among_others_is_an_error_at_commit(standalone, fresh_topic) -> None:
    writer = stream_writer(standalone, fresh_topic)
    with pytest.raises(SinkError, match="1 of 2 tasks do not say"):
        writer.commit([TaskCommit(0, 0), None], 7)
    batch = BatchWriter(options_of(standalone, fresh_topic), schema_of(VALUE), overwrite=False)
    with pytest.raises(SinkError, match="1 of 2 tasks do not say"):
        batch.commit([TaskCommit(0, 0), None])


def test_abort_after_commit_with_the_same_messages_takes_nothing_back(standalone, official, fresh_topic) -> None:
    # A commit that raises makes Spark call abort() with the same messages: what was decided stays.
    writer = stream_writer(standalone, fresh_topic)
    messages = [run_task(writer, arrow_batches(VALUE, [("v",)]), query="q", batch=0)]
    writer.commit(messages, 0)
    writer.abort(messages, 0)
    writer.abort([*messages, None], 0)
    assert [message.data() for message in stored(official, fresh_topic, 1)] == [b"v"]


def test_task_without_rows_gives_a_message_and_makes_no_topic(standalone, fresh_topic) -> None:
    # write() that returns None fails the query; one message comes from every task, also of batches without data.
    writer = stream_writer(standalone, fresh_topic)
    for batches in ([], arrow_batches(VALUE, [("v",)])[0:1]):
        rows = {fresh_topic: 1} if batches else {}
        assert run_task(writer, batches, 3, query="q", batch=0, attempt=2) == TaskCommit(3, 2, rows)
    empty = [batch.slice(0, 0) for batch in arrow_batches(VALUE, [("v",)])]
    assert run_task(writer, empty, query="q", batch=1) == TaskCommit(0, 0, {})


def test_overwrite_of_a_topic_is_refused(standalone, fresh_topic) -> None:
    with pytest.raises(OptionError, match='use mode\\("append"\\)'):
        BatchWriter(options_of(standalone, fresh_topic), schema_of(VALUE), overwrite=True)


@pytest.mark.parametrize("is_within", [False, True])
def test_decimals_are_refused_for_json_alone_where_the_query_is_planned(is_within: bool) -> None:
    def planned(kind: str, columns: str) -> str:
        schema = schema_of(columns)
        if is_within:
            schema = StructType([StructField("value", schema)])
        options = {"service.url": "pulsar://h:1", "topic": "a", "schemaType": kind}
        return sink_plan(options, schema, is_stream=False).definition

    with pytest.raises(OptionError, match="schemaType=json holds no decimals: cast them, or use schemaType=avro"):
        planned("json", "id int, price decimal")
    assert '"price"' in planned("avro", "id int, price decimal")
    assert '"name"' in planned("json", "id int, name string")


def test_output_mode_complete_appends_each_result(standalone, official, fresh_topic) -> None:
    writer = StreamWriter(options_of(standalone, fresh_topic), schema_of(VALUE), overwrite=True)
    for batch in range(2):
        run_task(writer, arrow_batches(VALUE, [("v",)]), query="q", batch=batch)
    stored(official, fresh_topic, 2)


def test_first_log_line_names_the_guarantee(standalone, fresh_topic, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        stream_writer(standalone, fresh_topic)
        stream_writer(standalone, fresh_topic)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "guarantee at-least-once, a batch that Spark replays is written again" in lines[0]


def test_replay_at_least_once_is_written_again(standalone, official, fresh_topic) -> None:
    writer = stream_writer(standalone, fresh_topic)
    for _ in range(2):
        run_task(writer, arrow_batches(VALUE, [("v",)]), query="q", batch=0)
    stored(official, fresh_topic, 2)


def test_tasks_of_one_process_share_client_and_producers(standalone, official, fresh_topic) -> None:
    # Workers are reused: connecting anew in every task would cost more than most tasks.
    writer = stream_writer(standalone, fresh_topic)
    for batch in range(3):
        run_task(writer, arrow_batches(VALUE, [(f"{batch}-{n}",) for n in range(3)]), query="q", batch=batch)
    messages = stored(official, fresh_topic, 9)
    assert len({message.producer_name() for message in messages}) == 1
    assert [message.data().decode() for message in messages] == [f"{b}-{n}" for b in range(3) for n in range(3)]


def test_forked_worker_makes_its_own_client(standalone, official, fresh_topic) -> None:
    # Spark forks its workers from a daemon: a loop and sockets of a parent are of no use to them.
    writer = stream_writer(standalone, fresh_topic)
    run_task(writer, arrow_batches(VALUE, [("parent",)]))

    def write() -> None:
        run_task(writer, arrow_batches(VALUE, [("child",)]))

    child = forked(write)
    assert os.waitpid(child, 0)[1] == 0
    run_task(writer, arrow_batches(VALUE, [("parent again",)]))
    assert [one.data() for one in stored(official, fresh_topic, 3)] == [b"parent", b"child", b"parent again"]


def test_error_in_the_rows_leaves_nothing_waiting_for_the_next_task(standalone, official, fresh_topic) -> None:
    columns = "value string, __partition int"
    writer = StreamWriter(options_of(standalone, fresh_topic), schema_of(columns), overwrite=False)
    with pytest.raises(OptionError):
        run_task(writer, arrow_batches(columns, [("lost", None), ("bad", 9)], size=1))
    run_task(writer, arrow_batches(columns, [("good", None)]))
    assert [one.data() for one in stored(official, fresh_topic, 1)] == [b"good"]


def test_first_error_of_the_broker_ends_the_task(standalone, official, fresh_topic) -> None:
    writer = stream_writer(standalone, fresh_topic)
    run_task(writer, arrow_batches(VALUE, [("v",)]))
    name = fresh_topic.removeprefix("persistent://")
    standalone.request("POST", f"/admin/v2/persistent/{name}/terminate")
    for _ in range(2):  # under a producer that is there, and where a new one is to be made
        with pytest.raises(PulsarException, match=rf"{re.escape(fresh_topic)}\b"):
            run_task(writer, arrow_batches(VALUE, [(str(number),) for number in range(100_000)]))


def test_who_waits_for_receipts_of_a_topic_that_takes_no_more_hears_its_name(standalone, fresh_topic) -> None:
    """He heard the broker's words alone where they came while he waited."""
    session = session_for(ClientConfiguration(standalone.service_url))
    producer = kept_producer(session, fresh_topic, ProducerSettings(), None).producer
    name = fresh_topic.removeprefix("persistent://")
    standalone.request("POST", f"/admin/v2/persistent/{name}/terminate")
    pump = EntryPump(session, 10_000)
    # Of an entry of several messages the producer itself tells, too, whoever flushes.
    pump.put(producer, next(encode_entries(MessageColumns([b"1", b"2"]), [(0, 2)], 0)))
    with pytest.raises(PulsarException, match=rf"{re.escape(fresh_topic)}\b"):
        pump.finish([producer])
    pump.close()


def test_pump_stops_at_the_first_error_and_never_blocks(standalone, fresh_topic) -> None:
    session = session_for(ClientConfiguration(standalone.service_url))
    kept = kept_producer(session, fresh_topic, ProducerSettings(), None)
    session.run(kept.producer.close)
    pump = EntryPump(session, 10_000)
    entry = next(iter_entries())
    with pytest.raises(PulsarException):
        for _ in range(10 * WAITING_ENTRIES_MAX):
            pump.put(kept.producer, entry)
        pump.finish([])
    assert (pump.entries, pump.duplicates) == (0, 0)
    assert not kept.is_usable(session)
    assert kept_producer(session, fresh_topic, ProducerSettings(), None) is not kept


def test_two_clients_that_write_to_one_topic_in_turns_have_one_producer_each(standalone, fresh_topic) -> None:
    """As of two clusters that have a topic of the same name: each batch left one more open."""
    sessions = [
        session_for(ClientConfiguration(standalone.service_url, (("operation_timeout_ms", timeout_ms),)))
        for timeout_ms in (20_000, 21_000)
    ]
    kept = [kept_producer(session, fresh_topic, ProducerSettings(), None) for session in 5 * sessions]
    name = fresh_topic.removeprefix("persistent://")
    stats = json.loads(standalone.request("GET", f"/admin/v2/persistent/{name}/stats"))
    assert len(stats["publishers"]) == 2
    assert len({id(one) for one in kept}) == 2
    for session in sessions:
        session.blocking.close()
    # What a closed client leaves is forgotten with the next producer that is made.
    kept_producer(session_for(ClientConfiguration(standalone.service_url)), fresh_topic, ProducerSettings(), None)
    assert not any(one in producers._kept.values() for one in kept)


def test_end_waits_for_what_was_put_and_not_sent_yet(standalone, fresh_topic) -> None:
    """The memory of the client takes one entry at a time: all others wait behind it."""
    session = session_for(ClientConfiguration(standalone.service_url, (("memory_limit_bytes", 15_000),)))
    kept = kept_producer(session, fresh_topic, ProducerSettings(), None)
    pump = EntryPump(session, 10_000)
    entry = next(iter_entries(b"v" * 10_000))
    for _ in range(WAITING_ENTRIES_MAX):
        pump.put(kept.producer, entry)
    pump.finish([kept.producer])
    assert pump.entries == WAITING_ENTRIES_MAX
    pump.close()


def iter_entries(payload: bytes = b"v"):
    return encode_entries(MessageColumns([payload]), [(0, 1)], 0)


def test_memory_limit_of_the_client_bounds_what_waits(standalone, official, fresh_topic) -> None:
    writer = stream_writer(standalone, fresh_topic, **{"pulsar.client.memoryLimitBytes": "200000"})
    rows = [("x" * 10_000,) for _ in range(200)]
    run_task(writer, arrow_batches(VALUE, rows))
    stored(official, fresh_topic, 200)


def test_rows_of_many_topics_do_not_wait_without_limit(standalone, official, fresh_topic, monkeypatch) -> None:
    monkeypatch.setattr(at_least_once, "WAITING_ROWS_BYTES_MAX", 3000)
    columns = "value string, __topic string"
    session = session_for(ClientConfiguration(standalone.service_url))
    options = sink_options({"service.url": standalone.service_url})
    kinds = [("value", "string"), ("__topic", "string")]
    writer = at_least_once.AtLeastOnceWriter(session, options, None, 0)
    rows = [("x" * 100, f"{fresh_topic}-{number % 5}") for number in range(200)]
    counts = writer.write(RowReader(sink_columns(kinds, options), None), arrow_batches(columns, rows, size=10))
    assert counts == {f"{fresh_topic}-{number}": 40 for number in range(5)}
    entries = {message.message_id().entry_id() for message in stored(official, f"{fresh_topic}-0", 40)}
    assert len(entries) > 40 * 5 * 100 // 3000


@pytest.mark.parametrize(("waiting", "entries"), [(20, 1), (19, 2)])
def test_rows_wait_for_others_up_to_the_limit_of_their_bytes(
    standalone, official, fresh_topic, monkeypatch, waiting: int, entries: int
) -> None:
    """Of three batches of ten rows: two of them fit, or do not."""
    row = "x" * 100
    limit = sum(MessageColumns([row.encode()] * waiting).sizes())
    monkeypatch.setattr(at_least_once, "WAITING_ROWS_BYTES_MAX", limit)
    session = session_for(ClientConfiguration(standalone.service_url))
    options = sink_options({"service.url": standalone.service_url, "topic": fresh_topic})
    writer = at_least_once.AtLeastOnceWriter(session, options, None, 0)
    reader = RowReader(sink_columns([("value", "string")], options), None)
    assert writer.write(reader, arrow_batches(VALUE, [(row,)] * 30, size=10)) == {fresh_topic: 30}
    assert len({message.message_id().entry_id() for message in stored(official, fresh_topic, 30)}) == entries
