"""A table of the newest row of each key, as Parquet: what a compacted topic is to consumers.

::

    DIR/current -> v-000000000012     a symbolic link, replaced in one step: what readers read
    DIR/v-000000000012/               the table as batch 12 left it
    DIR/v-000000000009/               the one before, for readers that are at it and for a replay
    DIR/geminga-table.json            which checkpoint it belongs to

A batch writes the whole table anew: the rows of the version before whose key is not in the batch, and the newest row of
each key that is, without those that a tombstone deletes. Its version is complete and synced before the link moves, and
the link says which batches are in it: a batch that is replayed finds itself there and does nothing, one that was cut
off is written again over what it left. So the table is exactly-once, with ``kill -9`` at any moment.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from geminga.spark.pipelines.core.identity import CheckpointInUseError
from geminga.spark.pipelines.files import local_directory, sync_directory, sync_tree
from geminga.spark.pipelines.outputs import TABLE_OWNER, check_not_ahead, claim
from geminga.spark.pipelines.positions import position_of
from geminga.spark.pipelines.spark_rows import TOMBSTONE, output_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from geminga.spark.pipelines.core.definition import Pipeline

CURRENT: Final = "current"
_VERSION: Final = re.compile(r"v-(\d{12})")
#: The key of each row, beside its fields.
KEY_COLUMN: Final = "__key"


class TableWriter:
    """Applies batches to one table; called by ``foreachBatch``."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark = spark
        self._pipeline = pipeline
        directory = local_directory(pipeline.path(pipeline.sink.table))
        if directory is None:
            raise CheckpointInUseError(f"{pipeline.sink.table}: expected a directory of this machine: links move in it")
        self._directory = directory
        claim(directory, TABLE_OWNER, pipeline)
        check_not_ahead(directory, self.version(), pipeline)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Bring the table up to the batch; does nothing for one that it has."""
        current = self.version()
        if current >= batch or (current >= 0 and rows.isEmpty()):
            return
        newest = self._newest(rows)
        base = None
        if current >= 0:
            base = self._spark.read.schema(newest.drop("__gone").schema).parquet(self._path(current))
        found = newest.where("not __gone").drop("__gone")
        if base is not None:
            found = base.join(newest.select(KEY_COLUMN), KEY_COLUMN, "left_anti").unionByName(found)
        target = self._path(batch)
        shutil.rmtree(target, ignore_errors=True)
        found.write.parquet(target)
        self._publish(batch, keep=current)

    def _newest(self, rows: DataFrame) -> DataFrame:
        """One row for each key of the batch: the key, the fields, and whether it was deleted."""
        sink = self._pipeline.sink
        fields = output_fields(self._pipeline, rows)
        key = f.expr(sink.key) if sink.key else f.col("__key").cast("string")
        values = f.struct(*[column.alias(name) for name, column in fields.items()])
        if self._pipeline.is_grouped:
            shaped = rows.select(key.alias(KEY_COLUMN), values.alias("__row"), f.lit(False).alias("__gone"))
            newest = shaped.groupBy(KEY_COLUMN).agg(f.last("__row").alias("__row"), f.last("__gone").alias("__gone"))
        else:
            gone = f.col(TOMBSTONE)
            place = position_of(f.col("__messageId"))
            shaped = rows.select(
                key.alias(KEY_COLUMN),
                f.struct(values.alias("row"), gone.alias("gone")).alias("__all"),
                place.alias("__place"),
            )
            newest = shaped.groupBy(KEY_COLUMN).agg(f.max_by("__all", "__place").alias("__all"))
            newest = newest.select(KEY_COLUMN, f.col("__all.row").alias("__row"), f.col("__all.gone").alias("__gone"))
        newest = newest.where(f.col(KEY_COLUMN).isNotNull())
        return newest.select(KEY_COLUMN, "__row.*", "__gone")

    def version(self) -> int:
        """The batch up to which the table goes; -1: there is none yet. Raises CheckpointInUseError."""
        try:
            match = _VERSION.fullmatch(os.readlink(os.path.join(self._directory, CURRENT)))
        except FileNotFoundError:
            return -1
        if match is None:
            raise CheckpointInUseError(f"{self._directory}/{CURRENT} does not point to a version of the table")
        return int(match[1])

    def _path(self, batch: int) -> str:
        return os.path.join(self._directory, f"v-{batch:012d}")

    def _publish(self, batch: int, keep: int) -> None:
        sync_tree(self._path(batch))
        link = os.path.join(self._directory, f".{CURRENT}")
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(f"v-{batch:012d}", link)
        os.replace(link, os.path.join(self._directory, CURRENT))
        sync_directory(self._directory)
        for name in os.listdir(self._directory):
            match = _VERSION.fullmatch(name)
            if match and int(match[1]) not in (batch, keep):
                shutil.rmtree(os.path.join(self._directory, name), ignore_errors=True)
