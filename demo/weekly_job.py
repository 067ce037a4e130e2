"""The Spark job of the demo: topics A1 and A2, weekly windows per repository, to topic B and a table.

``python -m demo.weekly_job --help``. In append mode each window is written once, when the watermark has passed its end;
in update mode whenever it changed, and the last value counts. Events that were sent twice count once, by their id. Rows
that the watermark has passed go to the topic of late rows, each with the watermark that it was held against, and so do
rows that are no event, with the reason. A batch is one write to both topics, and one directory of the Parquet table,
which a replay writes over.

It reads what is there, says ``idle`` (or ``failed`` and why) and waits for a line on standard input: ``again`` reads
what has come since, ``kill task`` (at any time) kills a task that runs, ``end`` or the end of the input ends it.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from tools.spark_classes import SMALL

from demo.watermark import watermark_of_batch
from geminga.spark import session

EVENT = "{id} string, repo string, files long, insertions long, deletions long"
#: Four attempts, so that a task whose worker is killed is tried again, and the query does not always end.
MASTER = "local[2,4]"
#: Tasks that read a batch, each time: as many as run at a time.
TASKS = 2
#: How often a batch reads its rows: for the windows, and for what is late.
SCANS = 2
#: How long a task to be killed is looked for.
TASK_PATIENCE_S = 10.0


def read_events(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Rows with the time of the event (the message's), the event's fields, and why it is none, if it is none."""
    messages = (
        spark.readStream.format("pulsar")
        .option("service.url", options.service_url)
        .option("topics", options.topics)
        .option("startingOffsets", "earliest")
        .option("subscription", "weekly")
        .option("maxMessagesPerTrigger", options.per_trigger)
        .option("numPartitions", TASKS)
        .option("metadataColumns", "__key,__eventTime")
        .load()
    )
    event = f.from_json(f.col("value").cast("string"), EVENT.format(id=options.id))
    rows = messages.select(
        f.col("__eventTime").alias("at"), f.col("__key").alias("key"), "value", event.alias("event")
    ).withColumn("id", f.col(f"event.{options.id}"))
    reason = f.when(f.col("at").isNull(), "no event time").when(f.col("id").isNull(), f"no {options.id}")
    watermark = watermark_of_batch(options.checkpoint)("at")
    rows = rows.withColumn("reason", reason).withColumn("watermark", watermark)
    # As Spark's operators have it: what is not after the watermark is late.
    is_late = f.unix_micros("at") <= f.col("watermark") * 1000
    return rows.withColumn("reason", f.coalesce("reason", f.when(is_late, "late")))


def weekly_sums(events: DataFrame) -> DataFrame:
    """One row a week and repository."""
    return events.groupBy(f.window("at", "7 days").alias("week"), "repo").agg(
        f.count("*").alias("commits"),
        f.sum("files").alias("files"),
        f.sum("insertions").alias("insertions"),
        f.sum("deletions").alias("deletions"),
    )


def weekly_rows(rows: DataFrame, delay_ms: int) -> DataFrame:
    """The windows of the rows that are on time, an event that came twice counted once."""
    events = rows.where("reason IS NULL").select(
        "id", "at", "event.repo", "event.files", "event.insertions", "event.deletions"
    )
    watched = events.withWatermark("at", f"{delay_ms} milliseconds").dropDuplicatesWithinWatermark(["id"])
    return weekly_sums(watched)


def as_messages(sums: DataFrame, *more: Column) -> DataFrame:
    """``__key`` and ``value`` (JSON) of the messages for topic B."""
    key = f.concat_ws(" ", f.unix_millis("week.start").cast("string"), "repo").cast("binary")
    value = f.to_json(window_fields(), {"ignoreNullFields": "false"}).cast("binary")
    return sums.select(key.alias("__key"), value.alias("value"), *more)


def window_fields() -> Column:
    """A row of the table, and the value of a message."""
    start = f.unix_millis("week.start").alias("window_start_ms")
    return f.struct(start, "repo", "commits", "files", "insertions", "deletions")


def output_rows(sums: DataFrame, rows: DataFrame, options: argparse.Namespace) -> DataFrame:
    """The rows of one write: windows to topic B, what is late or no event to the topic of late rows.

    The columns of a window are kept for the table; a row that is no window has none.
    """
    no_properties = f.create_map().cast("map<string,string>")
    messages = as_messages(
        sums,
        f.lit(options.output).alias("__topic"),
        f.col("week.start").alias("__eventTime"),
        no_properties.alias("__properties"),
        window_fields().alias("window"),
    )
    aside = rows.where("reason IS NOT NULL").select(
        f.lit(options.late).alias("__topic"),
        f.col("key").alias("__key"),
        f.col("at").alias("__eventTime"),
        f.create_map(f.lit("reason"), f.col("reason"), f.lit("watermark"), f.col("watermark").cast("string")).alias(
            "__properties"
        ),
        "value",
        f.lit(None).cast(messages.schema["window"].dataType).alias("window"),
    )
    return messages.unionByName(aside)


class Job:
    """One session, one query, started as often as it is told."""

    def __init__(self, spark: SparkSession, options: argparse.Namespace) -> None:
        self._spark = spark
        self._options = options
        self._told = -1
        #: What was said on standard input; None: its end.
        self._commands: SimpleQueue[str | None] = SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "kill task":
                say({"task_killed": kill_task(self._spark, TASK_PATIENCE_S)})
            else:
                self._commands.put(line.strip())
        self._commands.put(None)

    def run(self) -> None:
        """Until ``end``."""
        while True:
            try:
                self._follow(self._start())
                say({"idle": self._told})
            except StreamingQueryException as error:
                # The checkpoint says where to go on, as after a kill.
                say({"failed": told_shortly(error)})
            if self._commands.get() != "again":
                return

    def _start(self) -> StreamingQuery:
        options = self._options
        rows = read_events(self._spark, options)
        output = output_rows(weekly_rows(rows, options.delay_ms), rows, options)
        writer = output.writeStream.outputMode(options.mode).foreachBatch(self._write)
        return writer.option("checkpointLocation", options.checkpoint).trigger(availableNow=True).start()

    def _write(self, output: DataFrame, batch: int) -> None:
        """One batch, to the topics and to the table."""
        options = self._options
        output = output.persist()
        try:
            sink = {"service.url": options.service_url, "guarantee": options.guarantee}
            output.drop("window").write.format("pulsar").mode("append").options(**sink).save()
            windows = output.where("window IS NOT NULL").select("window.*")
            # The directory of the batch is written over when the batch is run again.
            windows.coalesce(1).write.mode("overwrite").parquet(f"{options.table}/batch={batch}")
        finally:
            output.unpersist()

    def _follow(self, query: StreamingQuery) -> None:
        is_over = False
        while not is_over:
            is_over = bool(query.awaitTermination(0.05))
            for progress in query.recentProgress:
                if progress["batchId"] > self._told:
                    self._told = progress["batchId"]
                    say(report_of(progress))


def report_of(progress: object) -> dict[str, object]:
    """What is told of a batch; raises if Spark dropped a row that was to be kept."""
    operators = progress["stateOperators"]
    dropped = sum(operator["numRowsDroppedByWatermark"] for operator in operators)
    if dropped:
        raise RuntimeError(f"Spark dropped {dropped} rows behind its watermark in batch {progress['batchId']}")
    state = sum(operator["numRowsTotal"] for operator in operators)
    watermark = progress["eventTime"].get("watermark", "")
    rows = progress["numInputRows"] // SCANS
    seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
    return {"batch": progress["batchId"], "rows": rows, "seconds": seconds, "state": state, "watermark": watermark}


def told_shortly(error: Exception) -> str:
    """Spark's texts go on for pages: the first paragraph says it, the rest is in the log."""
    return " ".join(str(error).partition("\n\n")[0].splitlines()[:6])


def say(report: dict[str, object]) -> None:
    """A line of JSON."""
    print(json.dumps(report), flush=True)


def kill_task(spark: SparkSession, patience_s: float) -> int | None:
    """Kill a task that runs, as Spark kills one; its number. None if none ran for so long."""
    scheduler = spark.sparkContext._jsc.sc()
    store = scheduler.statusStore()
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        stages = store.activeStages()
        for number in range(stages.size()):
            stage = stages.apply(number)
            tasks = store.taskList(stage.stageId(), stage.attemptId(), 100)
            for index in range(tasks.size()):
                task = tasks.apply(index)
                if task.status() == "RUNNING" and scheduler.killTaskAttempt(
                    task.taskId(), True, "killed to see what happens"
                ):
                    return int(task.taskId())
        time.sleep(0.005)
    return None


def main() -> None:
    """Run until it is told to end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--topics", required=True, help="separated by commas")
    parser.add_argument("--output", required=True, help="topic B")
    parser.add_argument("--late", required=True, help="topic of late rows")
    parser.add_argument("--table", required=True, help="directory of the Parquet table")
    parser.add_argument("--checkpoint", required=True, help="a directory that the workers see, too")
    parser.add_argument("--per-trigger", type=int, required=True, help="messages a batch, at most")
    parser.add_argument("--delay-ms", type=int, required=True, help="of the watermark")
    parser.add_argument("--id", default="id", help="the field that tells an event from others")
    parser.add_argument("--mode", choices=["append", "update"], default="append")
    parser.add_argument("--guarantee", required=True)
    options = parser.parse_args()
    options.checkpoint = str(Path(options.checkpoint).resolve())
    try:
        spark = session("geminga demo", master=MASTER, settings=SMALL)
        spark.sparkContext.setLogLevel("ERROR")
        java = spark.sparkContext._jvm.System  # type: ignore[union-attr]
        say({"ready": f"{spark.version} on Java {java.getProperty('java.version')}"})
        Job(spark, options).run()
        spark.stop()
    except (PySparkException, Py4JJavaError) as error:
        say({"error": told_shortly(error)})
        raise


if __name__ == "__main__":
    main()
