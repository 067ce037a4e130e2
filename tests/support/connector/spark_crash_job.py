"""The Spark driver of the crash tests: ``python -m support.connector.spark_crash_job MODE ...``, killed at any moment,
run again.

``stateless``  every message of the inputs to the output, two sources united
``update``     weekly windows, the changed ones written by foreachBatch; the last message of a key counts
``append``     weekly windows behind a watermark of 7,000 days, each written once, when it is closed
``shuffled``   every message, after a shuffle whose row order is another one in every run (``--order``)

It reads what is there, reports each batch as a JSON line, and ends with exit code 0 when all of it is written.
"""

from __future__ import annotations

import argparse
import json

from demo.weekly_job import as_messages, weekly_sums
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from tools.spark_classes import SMALL

from geminga.spark import session

EVENT = "repo string, files long, insertions long, deletions long"
WATERMARK = "7000 days"
SHUFFLED_PARTITIONS = 3


def read(spark: SparkSession, options: argparse.Namespace, topics: str) -> DataFrame:
    reader = (
        spark.readStream.format("pulsar")
        .option("service.url", options.service_url)
        .option("topics", topics)
        .option("startingOffsets", "earliest")
        .option("maxMessagesPerTrigger", options.per_trigger)
    )
    return (reader.option("subscription", options.subscription) if options.subscription else reader).load()


def events(messages: DataFrame) -> DataFrame:
    event = f.from_json(f.col("value").cast("string"), EVENT)
    return messages.select(f.col("__eventTime").alias("at"), event.alias("event")).select("at", "event.*")


def copied(messages: DataFrame) -> DataFrame:
    return messages.select("value", f.col("__key").cast("string").alias("__key"), "__eventTime")


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """The query of the mode."""
    sink = {"service.url": options.service_url, "topic": options.output, "guarantee": options.guarantee}
    if options.txn_timeout:
        sink["txnTimeoutMs"] = options.txn_timeout

    def write(rows: DataFrame, _: int) -> None:
        if options.mode == "update":
            rows = as_messages(rows)
        else:
            # Streams can not be sorted, their batches can.
            rows = rows.repartition(SHUFFLED_PARTITIONS, "__key")
            rows = rows.sortWithinPartitions(f.xxhash64("value", f.lit(options.order)))
        rows.write.format("pulsar").mode("append").options(**sink).save()

    if options.mode == "stateless":
        first, *others = options.topics.split(",")
        rows = read(spark, options, first)
        for topic in others:
            rows = rows.union(read(spark, options, topic))
        rows = copied(rows)
    elif options.mode == "shuffled":
        rows = copied(read(spark, options, options.topics))
    elif options.mode == "update":
        rows = weekly_sums(events(read(spark, options, options.topics)))
    else:
        watched = events(read(spark, options, options.topics)).withWatermark("at", WATERMARK)
        rows = as_messages(weekly_sums(watched))
    writer = rows.writeStream.option("checkpointLocation", options.checkpoint).trigger(availableNow=True)
    if options.mode in ("update", "shuffled"):
        return writer.outputMode("update").foreachBatch(write).start()
    return writer.outputMode("append").format("pulsar").options(**sink).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["stateless", "update", "append", "shuffled"])
    for name in ("service-url", "topics", "output", "checkpoint", "guarantee"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--subscription", default="crash", help="empty: none")
    parser.add_argument("--per-trigger", type=int, required=True)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--txn-timeout", default="")
    parser.add_argument("--order", type=int, default=0)
    options = parser.parse_args()
    # Four attempts, so that a killed worker is sometimes a new attempt of its task, and not always the query's end.
    spark = session("crash test", master=f"local[{options.cores},4]", settings=SMALL)
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"ready": True}), flush=True)
    query = start(spark, options)
    told = -1
    is_over = False
    while not is_over:
        is_over = bool(query.awaitTermination(0.1))
        for progress in query.recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                report = {"batch": told, "rows": progress["numInputRows"], "ms": progress["durationMs"]}
                print(json.dumps(report), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
