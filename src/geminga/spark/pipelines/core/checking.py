"""What does not go together in a pipeline, and values that can not be: all that is known without Spark or broker."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Final

from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError
from geminga.spark.pipelines.core import connector_options as options_of
from geminga.spark.pipelines.core.definition import (
    SOURCES_MAX,
    Emit,
    Guarantee,
    Pipeline,
    Source,
    WindowKind,
    source_name,
)
from geminga.spark.pipelines.core.expressions import columns_of, defect
from geminga.spark.pipelines.core.problems import PipelineError, Problem, nearest
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink_rules.sink_options import sink_options
from geminga.spark.source_rules.ddl import parse_columns
from geminga.spark.source_rules.options import SourceOptions

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_COLUMN: Final = re.compile(r"[A-Za-z_]\w{0,127}")
#: Windows that one row may be in: Spark makes a row of each.
WINDOWS_A_ROW_MAX: Final = 10_000
_WINDOW_COLUMNS: Final = ("window_start", "window_end")

Problems = Iterator[Problem]


def check(pipeline: Pipeline) -> list[Problem]:
    """Every problem, in the order of the keys."""
    parts = (_name, _sources, _tables, _columns, _grouping, _windows, _late, _sink, _loops, _expressions)
    # What all sources and the sink have of the cluster is told once.
    return list(dict.fromkeys(problem for part in parts for problem in part(pipeline)))


def require_valid(pipeline: Pipeline) -> None:
    """Raise PipelineError for a pipeline that a program built wrongly."""
    problems = check(pipeline)
    if problems:
        raise PipelineError(problems)


def _name(pipeline: Pipeline) -> Problems:
    if not _NAME.fullmatch(pipeline.name) or pipeline.name.strip(".") == "":
        yield Problem("pipeline", f"{pipeline.name!r}: expected 1 to 100 letters, digits and . _ -")


def _sources(pipeline: Pipeline) -> Problems:
    if not 1 <= len(pipeline.sources) <= SOURCES_MAX:
        yield Problem("sources", f"{len(pipeline.sources)}: expected 1 to {SOURCES_MAX}")
    if len({source.is_topic for source in pipeline.sources}) > 1:
        yield Problem("sources", "topics and Parquet files: expected sources of one kind (files can be a table)")
    names: dict[str, int] = {}
    for number, source in enumerate(pipeline.sources):
        at = f"sources[{number}]"
        name = source_name(source, number)
        if not _NAME.fullmatch(name):
            yield Problem(f"{at}.name", f"{name!r}: expected 1 to 100 letters, digits and . _ -")
        if name in names:
            yield Problem(f"{at}.name", f"{name}: sources[{names[name]}] has this name already")
        names.setdefault(name, number)
        yield from _source(pipeline, source, at)
    yield from _topics_twice(pipeline)


def _source(pipeline: Pipeline, source: Source, at: str) -> Problems:
    given = [key for key in ("topics", "pattern", "parquet") if getattr(source, key)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        yield Problem(at, f"expected exactly one of topic, topics, pattern and parquet; {found}")
        return
    ddl = list(_ddl(source.columns, f"{at}.columns", is_json=source.is_topic))
    yield from ddl
    if source.is_from_registry and source.columns:
        yield Problem(f"{at}.columns", "beside schema: registry, which says the columns: expected one of them")
    for name in source.options:
        key = options_of.OF_SOURCE_KEYS.get(name.lower())
        key = key if source.is_topic else options_of.OF_FILES_KEYS.get(name.lower())
        if key:
            yield Problem(f"{at}.options.{name}", f"the key {key} says this")
    if source.is_topic:
        options = options_of.source_options(pipeline, source)
        if ddl:  # which is told
            options = {
                name: value for name, value in options.items() if name not in ("jsonColumns", "emptyAsTombstone")
            }
        try:
            SourceOptions.parse(options, is_stream=True)
        except OptionError as error:
            yield Problem(options_of.key_of(str(error), at, source.options, options_of.OF_SOURCE_KEYS), str(error))
        for topic in source.topics:
            yield from _topic(topic, f"{at}.topics")


def _topics_twice(pipeline: Pipeline) -> Problems:
    seen: dict[str, int] = {}
    for number, source in enumerate(pipeline.sources):
        for topic in sorted({_full(topic) for topic in source.topics}):
            if topic in seen:
                yield Problem(f"sources[{number}]", f"{topic}: sources[{seen[topic]}] reads this topic already")
            seen.setdefault(topic, number)


def _tables(pipeline: Pipeline) -> Problems:
    names: list[str] = []
    for number, table in enumerate(pipeline.tables):
        at = f"tables[{number}]"
        if not _NAME.fullmatch(table.name):
            yield Problem(f"{at}.name", f"{table.name!r}: expected 1 to 100 letters, digits and . _ -")
        if table.name in names:
            yield Problem(f"{at}.name", f"{table.name}: tables[{names.index(table.name)}] has this name already")
        names.append(table.name)
        if bool(table.topic) == bool(table.parquet):
            yield Problem(at, "expected exactly one of topic and parquet")
        if table.topic:
            yield from _topic(table.topic, f"{at}.topic")
            if not table.columns:
                yield Problem(f"{at}.columns", "missing: the columns of a topic's messages, such as item string")
        if table.key and not (table.topic and _COLUMN.fullmatch(table.key)):
            yield Problem(f"{at}.key", f"{table.key!r}: expected the name of a column, for a topic")
        yield from _ddl(table.columns, f"{at}.columns", is_json=bool(table.topic))
    for number, join in enumerate(pipeline.joins):
        at = f"join[{number}]" if len(pipeline.joins) > 1 else "join"
        if join.table not in names:
            yield Problem(f"{at}.table", f"{join.table!r}: no table has this name; {nearest(join.table, names)}")
        if not join.on:
            yield Problem(f"{at}.on", "missing: the columns that both sides have")


def _columns(pipeline: Pipeline) -> Problems:
    for key, mapping in (
        ("select", pipeline.select),
        ("keys", pipeline.keys),
        ("aggregates", pipeline.aggregates),
        ("sink.fields", pipeline.sink.fields),
    ):
        for name in mapping:
            if not _COLUMN.fullmatch(name) or name.startswith("__"):
                yield Problem(f"{key}.{name}", "expected a name of letters, digits and _ that does not begin with __")
    # Spark's names have no case.
    seen = {name: name for name in (_WINDOW_COLUMNS if pipeline.window else ())}
    for key, mapping in (("keys", pipeline.keys), ("aggregates", pipeline.aggregates)):
        for name in mapping:
            if name.lower() in seen:
                yield Problem(f"{key}.{name}", f"{name}: a column of the result has this name already")
            seen.setdefault(name.lower(), name)
    for key, mapping in (("select", pipeline.select), ("sink.fields", pipeline.sink.fields)):
        times = Counter(name.lower() for name in mapping)
        for name in mapping:
            if times[name.lower()] > 1:
                yield Problem(f"{key}.{name}", f"{name}: twice (upper and lower case are the same to Spark)")


def _grouping(pipeline: Pipeline) -> Problems:
    if pipeline.is_grouped and not pipeline.aggregates:
        yield Problem("aggregates", "missing: what a group's rows become, such as {events: count(*)}")
    if pipeline.aggregates and not (pipeline.window or pipeline.keys):
        yield Problem("aggregates", "of what? expected window or keys beside them")
    if pipeline.is_grouped and pipeline.emit is Emit.FINAL:
        if pipeline.window is None:
            yield Problem("emit", "final needs a window: a group without one is never over; use emit: changes")
        elif pipeline.watermark is None:
            yield Problem("watermark", "missing: without it no window is ever over (emit: changes needs none)")
    if pipeline.emit is Emit.CHANGES and not pipeline.is_grouped:
        yield Problem("emit", "changes of what? expected window or keys with aggregates")
    if pipeline.watermark is not None and pipeline.window is None and not pipeline.deduplicate:
        yield Problem("watermark", "without window or deduplicate it does nothing")
    if pipeline.deduplicate and pipeline.watermark is None:
        yield Problem("deduplicate", "needs a watermark: how long ids are remembered, such as watermark: 2 hours")
    for name in pipeline.deduplicate:
        if not _COLUMN.fullmatch(name):
            yield Problem("deduplicate", f"{name!r}: expected the name of a column")
    if pipeline.emit is Emit.CHANGES and pipeline.sink.parquet:
        yield Problem("sink.parquet", "files can only be added to: expected emit: final, or table in place of parquet")
    if pipeline.sink.table:
        if pipeline.is_grouped and (pipeline.emit is not Emit.CHANGES or not pipeline.sink.key):
            yield Problem("sink.table", "of groups: expected emit: changes and a key that tells the groups apart")
        if not all(source.is_topic for source in pipeline.sources):
            yield Problem("sink.table", "files have no order that says which row is the newest: expected topics")


def _windows(pipeline: Pipeline) -> Problems:
    window = pipeline.window
    if pipeline.watermark is not None and pipeline.watermark.delay_ms <= 0:
        yield Problem("watermark", f"{pipeline.watermark.delay_ms} ms: expected a duration above 0")
    if window is None:
        return
    if window.length_ms <= 0:
        yield Problem(f"window.{window.kind.value}", f"{window.length_ms} ms: expected a duration above 0")
    if window.kind is WindowKind.SLIDING:
        if not 0 < window.every_ms <= window.length_ms:
            yield Problem("window.every", "expected a duration above 0 and not above the window's length")
        elif window.length_ms > window.every_ms * WINDOWS_A_ROW_MAX:
            count = window.length_ms // window.every_ms
            yield Problem(
                "window.every", f"a row would be in {count:,} windows: expected {WINDOWS_A_ROW_MAX:,} at most"
            )
    elif window.every_ms:
        yield Problem("window.every", "only of sliding windows")
    if window.offset_ms and (
        window.kind is WindowKind.SESSION or window.offset_ms >= (window.every_ms or window.length_ms)
    ):
        yield Problem("window.offset", "only of tumbling and sliding windows, and smaller than from one to the next")


def _late(pipeline: Pipeline) -> Problems:
    if not pipeline.late_topic:
        return
    yield from _topic(pipeline.late_topic, "late.topic")
    if pipeline.window is None or pipeline.watermark is None:
        yield Problem("late", "needs window and watermark: without them no row is late")
    if not pipeline.sink.topic:
        yield Problem("late", "needs a topic as sink: both are written in one transaction")
    if pipeline.sink.is_avro:
        yield Problem("late", "late rows are bytes as they came: expected sink.format: json")


def _sink(pipeline: Pipeline) -> Problems:
    sink = pipeline.sink
    given = [key for key in ("topic", "topic_of", "parquet", "table") if getattr(sink, key)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        yield Problem("sink", f"expected exactly one of topic, topic_of, parquet and table; {found}")
        return
    for key in ("value", "event_time", "properties"):
        if getattr(sink, key) and not sink.is_topic:
            yield Problem(f"sink.{key}", "only of topics")
    if sink.parquet and sink.key:
        yield Problem("sink.key", "only of topics and tables")
    if sink.partition_by and not sink.parquet:
        yield Problem("sink.partition_by", "only of parquet")
    if sink.is_avro and not sink.is_topic:
        yield Problem("sink.format", "only of topics")
    if sink.value and (sink.fields or sink.is_avro):
        yield Problem("sink.value", "beside fields or format: avro: expected one of them")
    if sink.topic:
        yield from _topic(sink.topic, "sink.topic")
    for name in sink.options:
        keys = options_of.OF_SINK_KEYS if sink.is_topic else options_of.OF_FILE_SINK_KEYS
        if key_of := keys.get(name.lower()):
            yield Problem(f"sink.options.{name}", f"the key {key_of} says this")
        if name.lower() in options_of.OF_IDENTITY:
            yield Problem(f"sink.options.{name}", "the checkpoint says whose batches these are")
    if sink.is_topic:
        values = options_of.sink_option_values(pipeline)
        if pipeline.guarantee is not Guarantee.EFFECTIVELY_ONCE:
            values = values | {"guarantee": Guarantee.AT_LEAST_ONCE.value}
        try:
            sink_options(values)
        except OptionError as error:
            yield Problem(options_of.key_of(str(error), "sink", sink.options, options_of.OF_SINK_KEYS), str(error))


def _loops(pipeline: Pipeline) -> Problems:
    read = {_whole(topic) for source in pipeline.sources for topic in source.topics}
    patterns = [source.pattern for source in pipeline.sources if source.pattern]
    for at, topic in (("sink.topic", pipeline.sink.topic), ("late.topic", pipeline.late_topic)):
        if topic and (_whole(topic) in read or any(_is_of(topic, pattern) for pattern in patterns)):
            yield Problem(at, f"{topic}: the pipeline reads this topic; it would read what it writes, for ever")
    for one, other in _directories_within(pipeline):
        yield Problem(
            one[0], f"{one[1]}: lies in {other[0]} ({other[1]}), or around it: expected a directory of its own"
        )
    if pipeline.late_topic and pipeline.sink.topic and _full(pipeline.late_topic) == _full(pipeline.sink.topic):
        yield Problem("late.topic", f"{pipeline.late_topic}: the sink's own topic: expected another one")


def _whole(topic: str) -> str:
    """The full name of a topic, without the partition."""
    try:
        return str(TopicName.parse(topic).partitioned_topic)
    except InvalidTopicNameError:
        return topic


def _is_of(topic: str, pattern: str) -> bool:
    """Whether a pattern over a namespace, ``public/default`` unless it says another, takes the topic."""
    from geminga.client.consumer_rules.topic_pattern import (
        TopicPattern,  # loads the client, which most files do without
    )

    try:
        return TopicPattern.parse(pattern, must_be_linear=True).matches(topic)
    except InvalidTopicNameError:
        return False


def _directories_within(pipeline: Pipeline) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Pairs of (key, path) of which one is in the other, and one is written."""
    written = [("sink.parquet", pipeline.sink.parquet), ("sink.table", pipeline.sink.table)]
    written.append(("checkpoint", pipeline.checkpoint or f"checkpoints/{pipeline.name}"))
    others = [(f"sources[{number}].parquet", source.parquet) for number, source in enumerate(pipeline.sources)]
    places = [(key, path, normpath(pipeline.path(path)) + "/") for key, path in (*written, *others) if path]
    for number, (key, path, at) in enumerate(places):
        for other_key, other, there in places[number + 1 :]:
            is_written = key in dict(written)
            if is_written and (at.startswith(there) or there.startswith(at)):
                yield (key, path), (other_key, other)


def _expressions(pipeline: Pipeline) -> Problems:
    for path, text in expressions_with_paths(pipeline):
        found = defect(text)
        if found:
            yield Problem(path, f"{text[:80]!r}: {found}")


def expressions_with_paths(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Every expression and the key it is under."""
    sink = pipeline.sink
    mappings: tuple[tuple[str, Mapping[str, str]], ...] = (
        ("select", pipeline.select),
        ("keys", pipeline.keys),
        ("aggregates", pipeline.aggregates),
        ("sink.fields", sink.fields),
    )
    for key, mapping in mappings:
        for name, text in mapping.items():
            yield f"{key}.{name}", text
    for key, text in (
        ("where", pipeline.where),
        ("time", pipeline.time),
        ("having", pipeline.having),
        ("sink.topic_of", sink.topic_of),
        ("sink.key", sink.key),
        ("sink.value", sink.value),
        ("sink.event_time", sink.event_time),
        ("sink.properties", sink.properties),
    ):
        if text:
            yield key, text


def _ddl(text: str, path: str, *, is_json: bool) -> Problems:
    if not text:
        return
    try:
        names = columns_of(text)
        if is_json:
            parse_columns(text)
    except ValueError as error:
        yield Problem(path, str(error))
        return
    for name in names:
        if name.startswith("__"):
            yield Problem(path, f"{name}: names with __ are the connector's")


def _topic(text: str, path: str) -> Problems:
    try:
        TopicName.parse(text)
    except InvalidTopicNameError as error:
        yield Problem(path, str(error))


def _full(topic: str) -> str:
    try:
        return str(TopicName.parse(topic))
    except InvalidTopicNameError:
        return topic
