"""The Spark job of the demo: topics A1 and A2, weekly windows of event time per repository, into topic B.

``python -m demo.weekly_job --help``. A batch writes the new sums of the windows that it changed, with window and
repository as the message's key: the last message of a key is the result. So a batch that is written twice, because the
driver was killed before it could note that it was done, does no harm.
"""

from __future__ import annotations

import argparse
import json

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from geminga.spark import session

EVENT = "repo string, files long, insertions long, deletions long"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def read_events(spark: SparkSession, service_url: str, topics: str, per_trigger: int) -> DataFrame:
    """The events as a stream; the time of an event is the message's event time."""
    messages = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topics", topics)
        .option("startingOffsets", "earliest")
        .option("subscription", "weekly")
        .option("maxMessagesPerTrigger", per_trigger)
        .load()
    )
    event = f.from_json(f.col("value").cast("string"), EVENT)
    return messages.select(f.col("__eventTime").alias("at"), event.alias("event")).select("at", "event.*")


def weekly_sums(events: DataFrame) -> DataFrame:
    """One row a week and repository."""
    return events.groupBy(f.window("at", "7 days").alias("week"), "repo").agg(
        f.count("*").alias("commits"),
        f.sum("files").alias("files"),
        f.sum("insertions").alias("insertions"),
        f.sum("deletions").alias("deletions"),
    )


def as_messages(sums: DataFrame) -> DataFrame:
    """``__key`` and ``value`` (JSON) of the messages for topic B."""
    start = f.unix_millis(f.col("week.start"))
    fields = f.struct(start.alias("window_start_ms"), "repo", "commits", "files", "insertions", "deletions")
    key = f.concat_ws(" ", start.cast("string"), "repo")
    return sums.select(key.alias("__key"), f.to_json(fields).alias("value"))


def main() -> None:
    """Run until everything that is in the topics now has been read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--topics", required=True, help="separated by commas")
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--per-trigger", type=int, required=True, help="messages a batch, at most")
    options = parser.parse_args()
    try:
        run(options)
    except (PySparkException, Py4JJavaError) as error:
        # Spark's texts go on for pages: the first paragraph says it, the rest is in the log.
        print(json.dumps({"error": " ".join(str(error).partition("\n\n")[0].splitlines()[:6])}), flush=True)
        raise


def run(options: argparse.Namespace) -> None:
    """The job, with a line of JSON on standard output for each batch."""
    spark = session("geminga demo", master="local[2]", settings=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    java = spark.sparkContext._jvm.System  # type: ignore[union-attr]
    print(json.dumps({"ready": f"{spark.version} on Java {java.getProperty('java.version')}"}), flush=True)

    def write(sums: DataFrame, _: int) -> None:
        as_messages(sums).write.format("pulsar").mode("append").option("service.url", options.service_url).option(
            "topic", options.output
        ).save()

    events = read_events(spark, options.service_url, options.topics, options.per_trigger)
    query = (
        weekly_sums(events)
        .writeStream.outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    told = -1
    is_over = False
    while not is_over:
        is_over = bool(query.awaitTermination(0.1))
        for progress in query.recentProgress:
            if progress["batchId"] > told and progress["numInputRows"]:
                told = progress["batchId"]
                print(json.dumps({"batch": told, "rows": progress["numInputRows"]}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
