"""A pipeline as a streaming query of a Spark session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geminga.spark.pipelines.core.checking import require_valid
from geminga.spark.pipelines.core.connector_options import sink_option_values
from geminga.spark.pipelines.core.definition import Emit, Pipeline
from geminga.spark.pipelines.outputs import claim_files
from geminga.spark.pipelines.spark_rows import message_rows, output_fields, result_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(spark: SparkSession, pipeline: Pipeline) -> StreamingQuery:
    """Begin, or go on where the checkpoint says. For a program that looks after checkpoint and query by itself.

    :func:`geminga.spark.pipelines.run` does that, too, and is what most want. Raises PipelineError, and what Spark
    raises for columns that are not there.
    """
    require_valid(pipeline)
    rows = result_rows(spark, pipeline)
    sink = pipeline.sink
    changes = pipeline.is_grouped and pipeline.emit is Emit.CHANGES
    if sink.table:
        from geminga.spark.pipelines.table import TableWriter

        writer = rows.writeStream.foreachBatch(TableWriter(spark, pipeline))
    elif sink.parquet:
        claim_files(pipeline)
        shaped = rows.select(*[column.alias(name) for name, column in output_fields(pipeline, rows).items()])
        writer = (
            shaped.writeStream.format("parquet").options(**sink.options).option("path", pipeline.path(sink.parquet))
        )
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
    elif changes:
        writer = message_rows(pipeline, rows).writeStream.foreachBatch(_append(pipeline))
    else:
        writer = message_rows(pipeline, rows).writeStream.format("pulsar").options(**sink_option_values(pipeline))
    writer = writer.outputMode("update" if changes else "append").queryName(pipeline.name)
    writer = writer.option("checkpointLocation", pipeline.checkpoint_path)
    if pipeline.every_ms is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{pipeline.every_ms} milliseconds")
    return writer.start()


def _append(pipeline: Pipeline) -> Callable[[DataFrame, int], None]:
    """Write a batch's changes: Spark refuses the update mode to sinks in Python, not to batches."""

    def write(rows: DataFrame, _: int) -> None:
        rows.write.format("pulsar").mode("append").options(**sink_option_values(pipeline)).save()

    return write
