"""Windows of declared pipelines with a real broker and real Spark: every row in one, late, or left out as a copy."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from geminga.client import Message
from geminga.spark.pipelines import Emit, Guarantee, Sink, Source, Watermark, Window, WindowKind
from geminga.spark.pipelines.checkpoint import read_state
from geminga.spark.pipelines.connecting import lags
from geminga.spark.pipelines.spark_rows import LATE_REASON_PROPERTY, LATE_TOPIC_PROPERTY
from support.connector.pipeline_runs import HOUR_MS, MINUTE_MS, START_MS, event, go, keep, read_all, send
from support.house.weekly_sample import sampled

pytestmark = pytest.mark.timeout(560)


def windows_of(messages: list[Message[bytes]]) -> Counter[tuple[int, str | None]]:
    found: Counter[tuple[int, str | None]] = Counter()
    for message in messages:
        row = json.loads(message.data())
        found[row["start_ms"], row["item"]] += row["n"]
    return found


TUMBLING = {
    "watermark": Watermark(HOUR_MS),
    "window": Window(WindowKind.TUMBLING, 30 * MINUTE_MS),
    "keys": {"item": "item"},
    "aggregates": {"n": "count(*)", "cents": "sum(cents)"},
}
SHAPE = {"start_ms": "unix_millis(window_start)", "item": "item", "n": "n", "cents": "cents"}


def late_events(first: int, last: int) -> list[tuple[bytes, dict[str, Any]]]:
    """One a minute; every tenth two hours late, every 25th without key, every 40th without event time."""
    found = []
    for number in range(first, last):
        at_ms: int | None = START_MS + number * MINUTE_MS - (2 * HOUR_MS if number % 10 == 9 else 0)
        found.append(
            event(number, None if number % 40 == 39 else at_ms, None if number % 25 == 24 else f"i{number % 3}")
        )
    return found


def test_every_row_is_in_a_window_or_late_over_runs_that_begin_and_end(
    spark_session, client, made, fresh_topic, tmp_path
):
    second, output, late = f"{fresh_topic}-2", f"{fresh_topic}-out", f"{fresh_topic}-late"
    keep(client, output, late)
    pipeline = made(
        sources=(
            Source(
                topics=(fresh_topic, second), name="in", columns="id long, item string, cents long", messages_max=90
            ),
        ),
        **TUMBLING,
        late_topic=late,
        sink=Sink(topic=output, fields=SHAPE),
    )
    events = late_events(0, 400)
    send(client, fresh_topic, events[:200:2])
    send(client, second, events[1:200:2])
    go(spark_session, pipeline)
    send(client, fresh_topic, events[200::2])
    send(client, second, events[201::2])
    # What closes all windows: a row far behind all others, and one more batch behind it.
    closing = event(999, START_MS + 10**9, "end")
    send(client, fresh_topic, [closing])
    totals = go(spark_session, pipeline)
    assert totals.dropped_rows == 0
    counted = windows_of(read_all(client, output))
    late_messages = read_all(client, late)
    late_numbers = {int(message.properties()["number"]) for message in late_messages}
    assert len(late_messages) == len(late_numbers)
    in_time = [e for n, e in enumerate(events) if n not in late_numbers]
    expected = Counter(
        (fields["event_timestamp"] // (30 * MINUTE_MS) * 30 * MINUTE_MS, fields.get("partition_key"))
        for _, fields in in_time
    )
    assert counted == expected
    assert sum(counted.values()) + len(late_messages) == len(events)
    # Rows without a time are late, and most of those that come two hours late.
    assert {n for n in range(400) if n % 40 == 39} <= late_numbers
    assert len(late_numbers) > 20
    one = next(message for message in late_messages if message.properties()["number"] == "39")
    assert one.data() == events[39][0]
    assert one.event_timestamp() == 0
    assert one.properties()[LATE_REASON_PROPERTY] == "no event time"
    assert one.properties()[LATE_TOPIC_PROPERTY] == second
    assert {m.properties()[LATE_REASON_PROPERTY] for m in late_messages} == {"no event time", "window is over"}
    assert all(
        m.event_timestamp() == events[int(m.properties()["number"])][1].get("event_timestamp", 0) for m in late_messages
    )
    state = read_state(pipeline.checkpoint_path)
    assert not state.is_running
    assert state.begun == state.done == totals.last.batch
    behind = lags(pipeline, state.offsets)
    assert {topic: one["entriesBehind"] for topic, one in behind.items()} == {fresh_topic: 0, second: 0}


@pytest.mark.parametrize("kind", sampled("windows", [WindowKind.SLIDING, WindowKind.SESSION], 1))
def test_late_rows_of_other_windows_are_whole_and_once(spark_session, client, made, fresh_topic, kind):
    output, late = f"{fresh_topic}-out", f"{fresh_topic}-late"
    keep(client, output, late)
    every_ms = 10 * MINUTE_MS if kind is WindowKind.SLIDING else 0
    pipeline = made(
        sources=(Source(topics=(fresh_topic,), columns="id long, item string, cents long", messages_max=60),),
        watermark=Watermark(HOUR_MS),
        window=Window(kind, 30 * MINUTE_MS, every_ms),
        keys={"item": "item"},
        aggregates={"n": "count(*)"},
        late_topic=late,
        sink=Sink(topic=output, fields={"start_ms": "unix_millis(window_start)", "item": "item", "n": "n"}),
    )
    events = late_events(0, 200)
    send(client, fresh_topic, [*events, event(999, START_MS + 10**9, "end")])
    totals = go(spark_session, pipeline)
    late_messages = read_all(client, late)
    late_numbers = {int(message.properties()["number"]) for message in late_messages}
    assert len(late_messages) == len(late_numbers) > 5
    assert totals.dropped_rows == 0
    times = 3 if kind is WindowKind.SLIDING else 1
    assert sum(windows_of(read_all(client, output)).values()) == times * (len(events) - len(late_numbers))


def test_changes_of_windows_are_written_whenever_they_change(spark_session, client, made, fresh_topic):
    output = f"{fresh_topic}-out"
    keep(client, output)
    parts = {**TUMBLING, "watermark": None}
    pipeline = made(**parts, emit=Emit.CHANGES, sink=Sink(topic=output, key="item", fields=SHAPE))
    send(client, fresh_topic, [event(number, START_MS, f"i{number % 2}") for number in range(10)])
    go(spark_session, pipeline)
    send(client, fresh_topic, [event(10, START_MS, "i0")])
    go(spark_session, pipeline)
    last = {message.partition_key(): json.loads(message.data())["n"] for message in read_all(client, output)}
    assert last == {"i0": 6, "i1": 5}


@pytest.mark.parametrize("deduplicate", sampled("far event times", [(), ("id",)], 1))
def test_event_times_that_no_window_holds_stop_nobody(spark_session, client, made, fresh_topic, deduplicate):
    output, late = f"{fresh_topic}-out", f"{fresh_topic}-late"
    keep(client, output, late)
    pipeline = made(**TUMBLING, deduplicate=deduplicate, late_topic=late, sink=Sink(topic=output, fields=SHAPE))
    beyond = [((1 << 63) - 1) // 1000, (1 << 63) - 1]
    send(client, fresh_topic, [event(number, at_ms, "far") for number, at_ms in enumerate(beyond)])
    send(client, fresh_topic, [event(number, START_MS + number * MINUTE_MS, "i") for number in range(10, 14)])
    go(spark_session, pipeline)
    assert read_state(pipeline.checkpoint_path).done >= 0
    send(client, fresh_topic, [event(99, START_MS + 4 * HOUR_MS, "i")])
    go(spark_session, pipeline)
    assert windows_of(read_all(client, output)) == {(START_MS, "i"): 4}
    assert sorted(json.loads(m.data())["id"] for m in read_all(client, late)) == [0, 1]


def test_late_message_that_says_it_was_late_before_stops_nobody_and_keeps_what_else_it_says(
    spark_session, client, made, fresh_topic
):
    output, late = f"{fresh_topic}-out", f"{fresh_topic}-late"
    keep(client, output, late)
    pipeline = made(**TUMBLING, late_topic=late, sink=Sink(topic=output, fields=SHAPE))
    said = {LATE_TOPIC_PROPERTY: "elsewhere", LATE_REASON_PROPERTY: "its own", "other": "kept"}
    data, more = event(1, None, "i")
    send(client, fresh_topic, [(data, {**more, "properties": {**more["properties"], **said}})])
    send(client, fresh_topic, [event(2, START_MS, "i")])
    go(spark_session, pipeline)
    send(client, fresh_topic, [event(99, START_MS + 4 * HOUR_MS, "i")])
    go(spark_session, pipeline)
    (message,) = read_all(client, late)
    found = message.properties()
    assert (found[LATE_TOPIC_PROPERTY], found[LATE_REASON_PROPERTY]) == (fresh_topic, "no event time")
    assert (found["other"], found["number"]) == ("kept", "1")


def test_an_event_that_came_twice_counts_once_and_late_ones_are_all_there(spark_session, client, made, fresh_topic):
    output, late = f"{fresh_topic}-out", f"{fresh_topic}-late"
    keep(client, output, late)
    source = Source(topics=(fresh_topic,), columns="id long, item string, cents long", messages_max=60)
    pipeline = made(
        sources=(source,),
        **TUMBLING,
        deduplicate=("id",),
        late_topic=late,
        guarantee=Guarantee.EXACTLY_ONCE,
        sink=Sink(topic=output, fields=SHAPE),
    )
    nobody = (b'{"item": "nobody"}', {"event_timestamp": START_MS + 5 * MINUTE_MS, "properties": {"number": "-1"}})
    events = late_events(0, 120)
    # Each sixth twice, at once or thirty rows later; rows without the id are no duplicates of each other.
    first = [events[number] for n in range(90) for number in ([n, n] if n % 12 == 0 else [n])]
    second = [events[number] for n in range(90, 120) for number in ([n, n - 30] if n % 12 == 6 else [n])]
    send(client, fresh_topic, [nobody, nobody, *first])
    totals = [go(spark_session, pipeline)]
    send(client, fresh_topic, [*second, event(999, START_MS + 10**9, "end")])
    totals.append(go(spark_session, pipeline))
    late_numbers = Counter(int(message.properties()["number"]) for message in read_all(client, late))
    # Behind the watermark nobody looks whether a row came before.
    twice = list(range(0, 90, 12)) + [n - 30 for n in range(90, 120) if n % 12 == 6]
    duplicates = [number for number in twice if not late_numbers[number]]
    assert {number for number, times in late_numbers.items() if times > 1} <= set(twice)
    expected = Counter(
        (fields["event_timestamp"] // (30 * MINUTE_MS) * 30 * MINUTE_MS, fields.get("partition_key"))
        for number, (_, fields) in enumerate(events)
        if not late_numbers[number]
    )
    expected[START_MS, "nobody"] = 2
    counted = windows_of(read_all(client, output))
    assert {(at, item or None): n for (at, item), n in counted.items()} == expected
    assert sum(counted.values()) + late_numbers.total() + len(duplicates) == len(first) + len(second) + 2
    assert sum(one.duplicate_rows for one in totals) == len(duplicates) > 5
    assert sum(one.dropped_rows for one in totals) == 0
    assert len(late_numbers) > 5


@pytest.mark.long
@pytest.mark.parametrize("kind", sampled("duplicates", ["topics", "files"], 1))
def test_duplicates_are_left_out_without_windows_too(spark_session, client, made, fresh_topic, tmp_path, kind):
    output = f"{fresh_topic}-out"
    keep(client, output)
    second = f"{fresh_topic}-2"
    columns = "id long, item string, cents long"
    rows = [{"id": n % 7 if n < 14 else None, "item": "i", "cents": n} for n in range(20)]
    if kind == "topics":
        sources = tuple(Source(topics=(topic,), columns=columns) for topic in (fresh_topic, second))
        for topic, part in ((fresh_topic, rows[::2]), (second, rows[1::2])):
            send(client, topic, [(json.dumps(row).encode(), {"event_timestamp": START_MS}) for row in part])
    else:
        sources = (Source(parquet=str(tmp_path / "in"), columns=f"{columns}, at timestamp", name="in"),)
        table = spark_session.createDataFrame([tuple(row.values()) for row in rows], columns)
        table.selectExpr("*", "timestamp_millis(1767225600000) as at").repartition(3).write.parquet(
            str(tmp_path / "in")
        )
    pipeline = made(
        sources=sources,
        watermark=Watermark(HOUR_MS, is_of_each=kind == "topics"),
        deduplicate=("id",),
        time="__eventTime" if kind == "topics" else "at",
        sink=Sink(topic=output, fields={"id": "id"}),
    )
    totals = go(spark_session, pipeline)
    ids = [json.loads(message.data())["id"] for message in read_all(client, output)]
    assert sorted(map(str, ids)) == sorted([*map(str, range(7)), *["None"] * 6])
    assert totals.duplicate_rows == 7
