"""What goes wrong with other sources, each prevented here: offsets, ends, loss. Without a JVM.

The numbers in the comments are those of the traps known of the Python Data Source API, and of the defects known of the
Scala connector.
"""

from __future__ import annotations

import json

import pytest

from geminga.spark.source_rules.errors import DataLossError, TopicError
from pyspark_geminga import DefaultSource
from support.connector.rolled_topics import LEDGER_ENTRIES, hold, publish, trim
from support.connector.spark_source import Stream, read_batch, rows_of, values
from support.worlds.rest import Rest


def test_nothing_new_gives_the_very_text_of_the_start_whatever_the_order_of_topics(client, topic, options):
    # 2: offsets are compared as text; another order of keys means empty batches without end.
    for letter in "cab":
        publish(client, f"{topic}-{letter}", 3)
    stream = Stream({**options, "topic": "", "topicsPattern": f"{topic}-."})
    assert stream.plan()
    start = json.loads(stream.log[0])
    shuffled = {**start, "t": dict(reversed(start["t"].items()))}
    assert json.dumps(stream.reader.latestOffset(shuffled, stream.reader.getDefaultReadLimit())) == json.dumps(shuffled)
    assert list(start["t"]) == sorted(start["t"])
    stream.stop()


@pytest.mark.parametrize(("start", "expected"), [("earliest", 10), ("latest", 0)])
def test_first_batch_replayed_has_the_same_rows_also_from_a_symbolic_start(client, topic, options, start, expected):
    # 1: the initial offset is asked for again when batch 0 is replayed; "latest" must not have moved.
    hold(client, topic)
    publish(client, topic, 10)
    stream = Stream({**options, "startingOffsets": start})
    stream.plan()
    rows = stream.read()
    assert len(rows) == expected
    publish(client, topic, 5)
    stream.restart()
    assert stream.read() == rows
    assert len(stream.batch()) == 5
    stream.stop()


def test_first_batch_is_made_where_there_is_nothing_to_read_yet(client, topic, options):
    # Spark plans it in any case, with the end that is its start.
    publish(client, topic, 3)
    probe = Stream(options)
    assert probe.plan()
    at = probe.offset().topics[topic]
    probe.stop()
    for given in (
        {"startingOffsets": json.dumps({topic: str(at)}), "subscription": "at"},
        {"minMessagesPerTrigger": "11", "subscription": "min"},
    ):
        stream = Stream({**options, **given})
        assert stream.plan()
        assert stream.log[0] == json.dumps(stream.start_of(0))
        assert stream.read() == []
        stream.restart()
        assert stream.read() == []
        publish(client, topic, 7)
        assert len(stream.batch()) == (7 if "startingOffsets" in given else 17)
        stream.stop()


def test_batch_index_of_a_starting_offset_is_not_ignored(client, topic, options):
    sent = publish(client, topic, 30, batch=10)
    end = Stream(options)
    end.plan()
    ledger_id = end.offset().topics[topic].ledger_id
    end.stop()
    given = json.dumps({topic: f"{ledger_id}:1:4"})
    assert values(read_batch({**options, "startingOffsets": given})) == sent[14:]
    assert values(read_batch({**options, "endingOffsets": given})) == sent[:14]
    stream = Stream({**options, "startingOffsets": given})
    assert values(stream.batch()) == sent[14:]
    stream.stop()
    with pytest.raises(TopicError, match="none of the topics"):
        read_batch({**options, "startingOffsets": '{"another":"1:2:3"}'})


def test_range_ends_where_nothing_is_left_below_an_end_that_never_comes(client, topic, options):
    # Defect 1: waiting for the very id of the end takes 120 seconds and then is called data loss.
    sent = publish(client, topic, 5)
    probe = Stream(options)
    probe.plan()
    at = probe.offset().topics[topic]
    probe.stop()
    # Entries below the end that no reader gets: as after a marker, an aborted message, compaction.
    end = {"v": 1, "n": 4, "t": {topic: f"{at.ledger_id}:{at.entry_id + 3}:0"}}
    stream = Stream({**options, "pollTimeoutMs": "5000"})
    stream.log.append(json.dumps(end))
    assert values(stream.read()) == sent
    stream.stop()


def test_range_over_several_ledgers_is_no_gap(broker, client, topic, options):
    hold(client, topic)
    sent = publish(client, topic, 3 * LEDGER_ENTRIES + 5)
    assert values(read_batch({**options, "numPartitions": "4"})) == sent
    stream = Stream({**options, "maxMessagesPerTrigger": "7"})
    assert [value for rows in stream.batches() for value in values(rows)] == sent
    stream.stop()


def test_times_are_exact_end_exclusive_and_never_wait_for_a_message(client, topic, options):
    # Defect 7: reading to a time blocked until a message at or behind it came, and included that one.
    del options["startingOffsets"]
    publish(client, topic, 4)
    rows = read_batch(options)
    times = [round(row["__publishTime"].timestamp() * 1000) for row in rows]
    assert read_batch({**options, "startingTime": str(times[-1] + 3_600_000)}) == []
    assert len(read_batch({**options, "endingTime": str(times[-1] + 3_600_000)})) == 4
    assert len(read_batch({**options, "endingTime": str(times[0])})) == 0
    assert len(read_batch({**options, "startingTime": str(times[0])})) == 4
    exact = [row for row, at in zip(rows, times, strict=True) if times[0] <= at < times[-1]]
    assert read_batch({**options, "startingTime": str(times[0]), "endingTime": str(times[-1])}) == exact
    stream = Stream({**options, "startingTime": str(times[0])})
    assert len(stream.batch()) == 4
    first = stream.log[0]
    stream.restart()
    assert len(stream.read(0)) == 4
    assert stream.log[0] == first
    stream.stop()


def test_query_that_goes_on_leaves_nothing_out_whatever_starting_time_the_options_say_then(client, topic, options):
    del options["startingOffsets"]
    hold(client, topic)
    early = publish(client, topic, 2)
    times = [round(row["__publishTime"].timestamp() * 1000) for row in read_batch(options)]
    stream = Stream({**options, "startingTime": str(times[-1] + 1)})
    assert stream.batch() == []
    sent = publish(client, topic, 3, first=100)
    # Programs compute it from the time of day: it is a later one at each start.
    stream.restart(startingTime=str(times[-1] + 3_600_000))
    assert values(stream.batch()) == sent
    stream.restart(startingTime="0")
    assert values(stream.batch()) == [] and values(stream.read()) == sent
    assert values(stream.read(0)) == [], "of the first batch, whose bounds are a minute wider"
    stream.stop()
    assert values(read_batch(options)) == [*early, *sent]


def test_start_that_was_read_to_its_ledgers_end_and_trimmed_is_neither_loss_nor_skips_a_message(
    broker, client, topic, options
):
    # Defect 2: the start was the last message processed; trimmed, the next message was skipped.
    publish(client, topic, LEDGER_ENTRIES)
    stream = Stream({**options, "subscription": "mine"})
    stream.batch()
    stream.commit()
    assert not stream.plan()
    sent = publish(client, topic, 3, first=100)
    trim(broker, topic)
    assert values(stream.batch()) == sent
    stream.commit()
    publish(client, topic, LEDGER_ENTRIES, first=200)
    trim(broker, topic)
    stream.restart()
    assert len(stream.batch()) == LEDGER_ENTRIES
    stream.stop()


def test_start_that_was_watched_is_known_without_a_subscription_also_when_its_ledger_is_gone(
    broker, client, topic, options
):
    publish(client, topic, LEDGER_ENTRIES)
    stream = Stream(options)
    stream.batch()
    assert not stream.plan()  # a watch stands at the end now
    sent = publish(client, topic, 3, first=100)
    trim(broker, topic)
    assert values(stream.batch()) == sent
    stream.stop()


def test_messages_gone_before_they_were_read_fail_the_query_with_their_cause(broker, client, topic, options):
    publish(client, topic, 5)
    stream = Stream(options)
    stream.batch()
    publish(client, topic, 2 * LEDGER_ENTRIES, first=5)
    trim(broker, topic)
    stream.restart()
    stream.plan()
    with pytest.raises(DataLossError, match=r"are gone.*subscription=NAME.*retention") as caught:
        stream.read()
    assert topic in str(caught.value)
    stream.restart(failOnDataLoss="false")
    rows = values(stream.read())
    assert rows
    assert rows[-1] == b"%d" % (2 * LEDGER_ENTRIES + 4)
    assert len(rows) < 2 * LEDGER_ENTRIES
    stream.stop()


def test_planned_batch_whose_ledger_is_deleted_before_its_tasks_run_fails(broker, client, topic, options):
    publish(client, topic, 5)
    stream = Stream(options)
    stream.batch()
    publish(client, topic, LEDGER_ENTRIES - 5, first=5)
    assert stream.plan()
    parts = stream.reader.partitions(stream.start_of(1), json.loads(stream.log[1]))
    publish(client, topic, 2, first=100)
    trim(broker, topic)
    with pytest.raises(DataLossError):
        list(stream.reader.read(parts[0]))
    stream.stop()


@pytest.mark.parametrize("tasks", ["1", "4"])
def test_first_batch_of_a_start_whose_ledger_is_deleted_before_its_tasks_run_fails(
    broker, client, topic, options, tasks
):
    # The start was there when the batch was planned, which says nothing about when it is read.
    sent = publish(client, topic, LEDGER_ENTRIES - 1)
    stream = Stream({**options, "numPartitions": tasks, "targetBytesPerTask": "10"} if tasks == "4" else options)
    assert stream.plan()
    parts = stream.reader.partitions(stream.start_of(0), json.loads(stream.log[0]))
    assert (len(parts) > 1) == (tasks == "4")
    publish(client, topic, LEDGER_ENTRIES, first=100)
    trim(broker, topic)
    for part in parts:
        with pytest.raises(DataLossError, match="are gone"):
            list(stream.reader.read(part))
    stream.stop()
    assert len(sent) == LEDGER_ENTRIES - 1


def test_range_in_the_middle_of_a_batch_whose_ledger_is_deleted_before_its_task_runs_fails(
    broker, client, topic, options
):
    keep = client.subscribe(topic, "keep")
    sent = publish(client, topic, 4 * LEDGER_ENTRIES)
    wanted = {name: value for name, value in options.items() if name != "longPollMs"}
    source = DefaultSource(options={**wanted, "numPartitions": "8"})
    reader = source.reader(source.schema())
    pieces = [(part, one) for part in reader.partitions() for one in part.value.ranges]
    assert [one.is_first for _, one in pieces] == [True, False]
    (first, _), (second, _) = pieces
    assert first is not second
    assert values(rows_of(reader, [first])) == sent[: 2 * LEDGER_ENTRIES]
    publish(client, topic, 2, first=100)
    keep.unsubscribe()
    trim(broker, topic)
    with pytest.raises(DataLossError, match="are gone"):
        rows_of(reader, [second])


def test_stream_without_subscription_warns_at_its_start(client, topic, options, caplog):
    publish(client, topic, 1)
    with_one = Stream({**options, "subscription": "named"})
    with_one.plan()
    assert not caplog.records
    without = Stream(options)
    without.plan()
    without.plan()
    assert [
        record.getMessage().startswith("a stream without the option subscription") for record in caplog.records
    ] == [True]
    with_one.stop()
    without.stop()


def test_topic_deleted_before_it_was_read_is_loss_and_one_that_was_read_is_not(broker, client, topic, options):
    rest = Rest(broker.web_service_url)
    for letter in "abc":
        publish(client, f"{topic}-{letter}", 3)
    options = {**options, "topic": "", "topicsPattern": f"{topic}-.", "topicDiscoveryIntervalMs": "0"}
    stream = Stream(options)
    assert len(stream.batch()) == 9
    stream.reader.latestOffset(stream.start_of(1), stream.reader.getDefaultReadLimit())

    def delete(letter: str) -> None:
        name = f"{topic}-{letter}".removeprefix("persistent://")
        assert rest.call("DELETE", f"persistent/{name}?force=true").status == 204

    delete("a")
    assert not stream.plan()  # it was read to its end
    publish(client, f"{topic}-b", 1, first=3)
    assert values(stream.batch()) == [b"3"]
    publish(client, f"{topic}-c", 1, first=3)
    stream.plan()
    delete("c")
    with pytest.raises(DataLossError, match=f"{topic}-c was deleted"):
        stream.read()
    stream.restart()
    with pytest.raises(DataLossError, match=f"{topic}-[ac] was deleted"):
        stream.plan()
    stream.restart(failOnDataLoss="false")
    assert stream.read() == []
    publish(client, f"{topic}-b", 1, first=4)
    assert values(stream.batch()) == [b"4"]
    stream.stop()


def test_topic_of_a_pattern_deleted_between_two_looks_does_not_end_the_query(broker, client, topic, options):
    for letter in "ab":
        publish(client, f"{topic}-{letter}", 3)
    stream = Stream({**options, "topic": "", "topicsPattern": f"{topic}-."})
    assert len(stream.batch()) == 6
    assert not stream.plan()
    name = f"{topic}-a".removeprefix("persistent://")
    assert Rest(broker.web_service_url).call("DELETE", f"persistent/{name}?force=true").status == 204
    publish(client, f"{topic}-b", 1, first=3)
    assert values(stream.batch()) == [b"3"]
    stream.stop()
