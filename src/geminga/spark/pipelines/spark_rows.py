"""A pipeline's definition as Spark's DataFrames: sources, projections, joins, windows, late rows, messages.

Late rows. Spark drops a row whose window is over and only counts it. Here such a row is found before: a batch's
watermark is in Spark's offset log before the batch runs (``offsets/N``), a replay finds the same one, and each row is
held against it (:mod:`geminga.spark.pipelines.late`). A late row's time is then set to the watermark, and its message
becomes part of its group's key: so it goes through the same stateful operator as a group of its own, leaves with the
windows that are over next, through the same sink in the same transaction, and none can be lost or doubled between two
queries.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import NumericType

from geminga.spark.pipelines.core.connector_options import (
    PLACE_COLUMNS,
    metadata_columns,
    source_options,
    table_options,
)
from geminga.spark.pipelines.core.definition import Join, Pipeline, Source, Table, Window, WindowKind
from geminga.spark.pipelines.core.expressions import columns_of
from geminga.spark.pipelines.core.problems import PipelineError, Problem, located
from geminga.spark.pipelines.late import late_test
from geminga.spark.pipelines.positions import position_of
from geminga.spark.rules.metadata_columns import INVALID

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Columns of our own on the way; they begin as the connector's do, so no expression's name can be one of them.
_TIME: Final = "__at"
_LATE: Final = "__late"
_WINDOW: Final = "__window"
#: Which row of its source it is; and the same of rows that are no duplicates whatever is in them.
_WHICH: Final = "__which"
_ALONE: Final = "__alone"
#: Whether a row has one in the table that it is joined with.
_JOINED: Final = "__joined"
#: How much older than the newest a file that comes later may be: whatever its time is.
FILE_AGE_MAX: Final = "36500d"
#: Event times, ms: the years 1 to 9999. Windows around others overflow, which fails the batch, at each start again.
TIMES_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
#: Whether a row's message was a null, which deletes its key from a table.
TOMBSTONE: Final = "__tombstone"
#: What Spark could not make columns of.
_CORRUPT: Final = "__corrupt"
#: Of an error about a message.
ERROR_CHARACTERS_MAX: Final = 500
#: What says of a late row where it was.
LATE_TOPIC_PROPERTY: Final = "geminga.late.topic"
LATE_ID_PROPERTY: Final = "geminga.late.message_id"
LATE_REASON_PROPERTY: Final = "geminga.late.reason"


def result_rows(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """What comes out of sources, projections, joins and groups, before the sink shapes it."""
    parts = [_source_rows(spark, pipeline, source, number) for number, source in enumerate(pipeline.sources)]
    parts = [_projected(pipeline, rows) for rows in parts]
    is_each = pipeline.watermark is not None and pipeline.watermark.is_of_each
    if is_each:
        parts = [_timed(pipeline, rows) for rows in parts]
    rows = reduce(lambda one, other: one.unionByName(other), parts)
    if (pipeline.window is not None or pipeline.deduplicate) and not is_each:
        rows = _timed(pipeline, rows)
    if pipeline.deduplicate:
        rows = _without_duplicates(pipeline, rows)
    for join in pipeline.joins:
        table = next(table for table in pipeline.tables if table.name == join.table)
        rows = _joined(rows, table_rows(spark, pipeline, table), join)
    if pipeline.is_grouped:
        rows = _grouped(pipeline, rows)
    if pipeline.having:
        kept = f.expr(pipeline.having)
        rows = rows.where(kept | f.col(_LATE).isNotNull() if pipeline.late_topic else _or_tombstone(rows, kept))
    return rows


def _or_tombstone(rows: DataFrame, kept: Column) -> Column:
    """A null has no columns that could be like anything: it deletes its key from a table whatever is asked of rows."""
    return kept | f.col(TOMBSTONE) if TOMBSTONE in rows.columns else kept


def _joined(rows: DataFrame, table: DataFrame, join: Join) -> DataFrame:
    if join.is_left or TOMBSTONE not in rows.columns:
        return rows.join(table, list(join.on), "left" if join.is_left else "inner")
    found = rows.join(table.withColumn(_JOINED, f.lit(True)), list(join.on), "left")
    return found.where(f.col(_JOINED) | f.col(TOMBSTONE)).drop(_JOINED)


def _source_rows(spark: SparkSession, pipeline: Pipeline, source: Source, number: int) -> DataFrame:
    if not source.is_topic:
        path = pipeline.path(source.parquet)
        schema = source.columns or spark.read.options(**source.options).parquet(path).schema
        reader = spark.readStream.format("parquet").schema(schema).option("maxFilesPerTrigger", source.files_max)
        # Spark's own bound is a week: a file that was copied with its old time would be passed over without a word.
        reader = reader.option("maxFileAge", FILE_AGE_MAX)
        rows = reader.options(**source.options).load(path)
        if pipeline.deduplicate:
            rows = rows.withColumn(
                _WHICH, f.concat_ws(" ", f.col("_metadata.row_index").cast("string"), "_metadata.file_path")
            )
        return rows.withColumn(_LATE, _original(rows)) if pipeline.late_topic else rows
    rows = spark.readStream.format("pulsar").options(**source_options(pipeline, source)).load()
    if pipeline.late_topic:
        rows = rows.withColumn(_LATE, _original(rows))
    if pipeline.deduplicate:
        rows = rows.withColumn(_WHICH, f.concat_ws(" ", f.base64("__messageId"), "__topic"))
    if pipeline.sink.table and not pipeline.is_grouped:
        rows = rows.withColumn(TOMBSTONE, _is_empty() if "value" in rows.columns else f.lit(False))
    if not source.columns:
        return rows
    wanted = {*metadata_columns(pipeline), _LATE, _WHICH, TOMBSTONE}
    passing = [name for name in (*PLACE_COLUMNS, INVALID) if name not in wanted]
    return _with_json(rows, source.columns, keeps_invalid=source.keeps_invalid).drop(*passing)


def _is_empty() -> Column:
    """Null, or of no bytes: both delete a key, as compaction and table views of Pulsar have it."""
    return f.col("value").isNull() | (f.length("value") == 0)


def _with_json(rows: DataFrame, ddl: str, *, keeps_invalid: bool) -> DataFrame:
    """Columns of ``value``, of which the source has said where it fits; null where it does not, or an error."""
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = f.from_json(f.col("value").cast("string"), f"{ddl}, `{_CORRUPT}` string", how)
    reason = f.coalesce(f.col(INVALID) if INVALID in rows.columns else f.lit(None), f.col(f"__json.{_CORRUPT}"))
    rows = rows.withColumn("__json", parsed)
    names = [name for name in rows.select("__json.*").columns if name != _CORRUPT]
    if keeps_invalid:
        checked = f.when(reason.isNull(), f.col("__json"))
    else:
        place = [f.col(name) for name in ("__topic",) if name in rows.columns]
        ids = [f.hex(name) for name in ("__messageId",) if name in rows.columns]
        text = f.concat_ws(" ", *place, f.lit("message"), *ids, f.lit("does not fit its columns:"), reason)
        checked = f.when(reason.isNotNull(), f.raise_error(f.left(text, f.lit(ERROR_CHARACTERS_MAX))))
        checked = checked.otherwise(f.col("__json"))
    rows = rows.withColumn("__json", checked)
    kept = [column for column in rows.columns if column != "__json" and column not in names]
    return rows.select(*[f.col(f"`{name}`") for name in kept], *[f.col(f"__json.`{name}`") for name in names])


def table_rows(spark: SparkSession, pipeline: Pipeline, table: Table) -> DataFrame:
    """A table to join with: files, or the newest message of each key of a topic."""
    if table.parquet:
        reader = spark.read.options(**table.options)
        return (reader.schema(table.columns) if table.columns else reader).parquet(pipeline.path(table.parquet))
    rows = spark.read.format("pulsar").options(**table_options(pipeline, table)).load()
    kept = ("value", *PLACE_COLUMNS, INVALID)
    newest = (
        rows.where("__key is not null")
        .groupBy("__key")
        .agg(f.max_by(f.struct(*kept), position_of(f.col("__messageId"))).alias("newest"))
        .select("__key", "newest.*")
        .where(~_is_empty())
    )
    found = _with_json(newest, table.columns, keeps_invalid=False).drop(*kept)
    return (
        found.withColumn(table.key, f.col("__key").cast("string")).drop("__key") if table.key else found.drop("__key")
    )


def _projected(pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    if pipeline.select:
        rows = rows.select(
            *[f.expr(text).alias(name) for name, text in pipeline.select.items()],
            *[f.col(f"`{name}`") for name in rows.columns if name not in pipeline.select],
        )
    if pipeline.where:
        rows = rows.where(_or_tombstone(rows, f.expr(pipeline.where)))
    if pipeline.select:
        rows = rows.select(*pipeline.select, *[name for name in rows.columns if name.startswith("__")])
    return rows


def _original(rows: DataFrame) -> Column:
    """What a late row goes on as: its message as it came, or the row as JSON."""
    names = rows.columns
    if "__messageId" not in names:
        payload = f.to_json(f.struct(*[f.col(f"`{name}`") for name in names])).cast("binary")
        nothing = f.lit(None)
        return f.struct(
            payload.alias("value"),
            nothing.cast("binary").alias("key"),
            nothing.cast("timestamp").alias("event_time"),
            f.lit("").alias("topic"),
            nothing.cast("binary").alias("id"),
            f.lit(None).cast("array<struct<key:string,value:string>>").alias("properties"),
        )
    payload = f.col("value") if "value" in names else f.to_json(f.struct(*[c for c in names if not c.startswith("__")]))
    return f.struct(
        payload.cast("binary").alias("value"),
        f.col("__key").alias("key"),
        f.col("__eventTime").alias("event_time"),
        f.col("__topic").alias("topic"),
        f.col("__messageId").alias("id"),
        f.map_entries("__messageProperties").alias("properties"),
    )


def _timed(pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    """Rows with their event time and the watermark; late ones at the watermark, and their message kept."""
    given = f.expr(pipeline.time)
    kind = rows.select(given).schema[0].dataType
    if isinstance(kind, NumericType):
        text = f"{pipeline.time[:80]!r} is {kind.simpleString()}, of which Spark would make seconds since 1970"
        expected = "expected a timestamp, such as timestamp_millis(at) or timestamp_seconds(at)"
        raise PipelineError(located([Problem("time", f"{text}: {expected}")], pipeline.lines))
    at = given.cast("timestamp")
    rows = rows.withColumn(_TIME, f.when(f.unix_millis(at).between(*TIMES_MS), at))
    if pipeline.late_topic:
        assert pipeline.window is not None
        # What looks for duplicates takes no row that is not after the watermark, though its window may be open.
        over = f.col(_TIME) if pipeline.deduplicate else _first_end(pipeline.window, f.col(_TIME))
        rows = rows.withColumn("__over", late_test(pipeline.checkpoint_path)(f.unix_millis(over)))
        is_late = f.col("__over") >= 0
        reason = f.when(f.col(_TIME).isNull(), "no event time").otherwise("window is over")
        rows = rows.withColumn(_LATE, f.when(is_late, f.struct(f.col(f"{_LATE}.*"), reason.alias("reason"))))
        moved = f.timestamp_millis(f.col("__over") + (1 if pipeline.deduplicate else 0))
        rows = rows.withColumn(_TIME, f.when(is_late, moved).otherwise(f.col(_TIME)))
        rows = rows.drop("__over")
    if pipeline.watermark is not None:
        rows = rows.withWatermark(_TIME, f"{pipeline.watermark.delay_ms} milliseconds")
    return rows


def _without_duplicates(pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    """The first row of those with the same values; all of those that are late, have a null there, or no event time."""
    alone = reduce(operator.or_, [f.col(f"`{name}`").isNull() for name in (*pipeline.deduplicate, _TIME)])
    if pipeline.late_topic:
        alone = alone | f.col(_LATE).isNotNull()
    rows = rows.withColumn(_ALONE, f.when(alone, f.col(_WHICH)))
    return rows.dropDuplicatesWithinWatermark([*pipeline.deduplicate, _ALONE]).drop(_ALONE, _WHICH)


def _first_end(window: Window, time: Column) -> Column:
    """The end of the first window that a time is in: when that is over, the row is late as a whole."""
    if window.kind is WindowKind.SESSION:
        return f.timestamp_millis(f.unix_millis(time) + window.length_ms)
    step = window.every_ms or window.length_ms
    # Windows begin at offset + n * step. The first to hold the time is the one that ends soonest behind it.
    shifted = f.unix_millis(time) - window.offset_ms - window.length_ms
    return f.timestamp_millis(shifted - f.pmod(shifted, f.lit(step)) + step + window.offset_ms + window.length_ms)


def window_column(window: Window, name: str = _TIME) -> Column:
    """Spark's window over a column."""
    if window.kind is WindowKind.SESSION:
        return f.session_window(name, f"{window.length_ms} milliseconds")
    step = f"{window.every_ms or window.length_ms} milliseconds"
    return f.window(name, f"{window.length_ms} milliseconds", step, f"{window.offset_ms} milliseconds")


def _grouped(pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    by = [f.expr(text).alias(name) for name, text in pipeline.keys.items()]
    outputs = [f.col(f"`{name}`") for name in (*pipeline.keys, *pipeline.aggregates)]
    if pipeline.window is not None:
        by.insert(0, window_column(pipeline.window).alias(_WINDOW))
        outputs[:0] = [f.col(f"{_WINDOW}.start").alias("window_start"), f.col(f"{_WINDOW}.end").alias("window_end")]
    aggregates = [f.expr(text).alias(name) for name, text in pipeline.aggregates.items()]
    if pipeline.late_topic:
        assert pipeline.window is not None
        by.append(f.col(_LATE))
        outputs.append(f.col(_LATE))
        if pipeline.window.kind is WindowKind.SLIDING:
            aggregates.append(f.min(_TIME).alias(_TIME))
    found = rows.groupBy(*by).agg(*aggregates)
    if pipeline.late_topic and pipeline.window is not None and pipeline.window.kind is WindowKind.SLIDING:
        # A late row is in each window that holds the watermark: it leaves with the first of them.
        is_first = f.col(f"{_WINDOW}.end") == _first_end(pipeline.window, f.col(_TIME))
        found = found.where(f.col(_LATE).isNull() | is_first)
    return found.select(*outputs)


def message_rows(pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    """Rows as the sink of topics takes them."""
    sink = pipeline.sink
    is_passed_on = not pipeline.is_grouped
    columns: dict[str, Column] = {}
    if sink.topic_of:
        columns["__topic"] = f.expr(sink.topic_of)
    elif pipeline.late_topic:
        columns["__topic"] = f.when(f.col(_LATE).isNull(), pipeline.sink.topic).otherwise(pipeline.late_topic)
    key = sink.key or ("__key" if is_passed_on and "__key" in rows.columns else "")
    if key:
        columns["__key"] = f.expr(key)
    event_time = sink.event_time or ("__eventTime" if is_passed_on and "__eventTime" in rows.columns else "")
    if event_time:
        columns["__eventTime"] = f.expr(event_time)
    if sink.properties:
        columns["__properties"] = f.expr(sink.properties)
    fields = output_fields(pipeline, rows)
    if sink.value:
        columns["value"] = f.expr(sink.value)
    elif sink.is_avro:
        columns.update(fields)
    elif not sink.fields and not pipeline.select and list(fields) == ["value"]:
        columns["value"] = fields["value"]
    else:
        columns["value"] = f.to_json(
            f.struct(*[one.alias(name) for name, one in fields.items()]), {"ignoreNullFields": "false"}
        )
    if pipeline.late_topic:
        columns = _or_late(columns)
    return rows.select(*[one.alias(name) for name, one in columns.items()])


def _or_late(columns: Mapping[str, Column]) -> dict[str, Column]:
    """The same columns for windows, and the message as it came for late rows."""
    is_late = f.col(_LATE).isNotNull()

    def either(name: str, late: Column, kind: str) -> Column:
        return f.when(is_late, late).otherwise(columns[name].cast(kind) if name in columns else f.lit(None).cast(kind))

    own = f.coalesce(f.col(f"{_LATE}.properties"), f.array().cast("array<struct<key:string,value:string>>"))
    # A message that was late before, and came back from there, or that anybody sent: a key that is there twice fails.
    ours = (LATE_TOPIC_PROPERTY, LATE_ID_PROPERTY, LATE_REASON_PROPERTY)
    said = f.map_concat(
        f.map_from_entries(f.filter(own, lambda pair: ~pair["key"].isin(*ours))),
        f.create_map(
            f.lit(LATE_TOPIC_PROPERTY),
            f.col(f"{_LATE}.topic"),
            f.lit(LATE_ID_PROPERTY),
            f.coalesce(f.base64(f.col(f"{_LATE}.id")), f.lit("")),
            f.lit(LATE_REASON_PROPERTY),
            f.col(f"{_LATE}.reason"),
        ),
    )
    return {
        "__topic": columns["__topic"],
        "__key": either("__key", f.col(f"{_LATE}.key"), "binary"),
        "__eventTime": either("__eventTime", f.col(f"{_LATE}.event_time"), "timestamp"),
        "__properties": either("__properties", said, "map<string,string>"),
        "value": either("value", f.col(f"{_LATE}.value"), "binary"),
    }


def output_fields(pipeline: Pipeline, rows: DataFrame) -> dict[str, Column]:
    """Name -> column of what a value, a file or a table has."""
    if pipeline.sink.fields:
        return {name: f.expr(text) for name, text in pipeline.sink.fields.items()}
    names = (
        list(pipeline.select)
        if pipeline.select and not pipeline.is_grouped and not pipeline.joins
        else [name for name in rows.columns if not name.startswith("__")]
    )
    parsed = [source for source in pipeline.sources if source.columns and source.is_topic]
    if (
        parsed
        and not any("value" in columns_of(source.columns) for source in parsed)
        and "value" not in pipeline.select
    ):
        # The bytes that the columns were made from.
        names = [name for name in names if name != "value"]
    return {name: f.col(f"`{name}`") for name in names}
