"""``spark.read.format("pulsar")``: the reader that Spark plans with and sends to its workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from geminga.client import MessageId
from geminga.spark.process.clients import session_for
from geminga.spark.rules import metadata_columns as names
from geminga.spark.rules.columns import arrow_schema
from geminga.spark.source.batch_plan import bounds_of_batch, plan_batch
from geminga.spark.source.decoding import decoder
from geminga.spark.source.lake_files import plan_with_lake
from geminga.spark.source.lake_read import LakeTask, read_lake_task
from geminga.spark.source.task_read import TaskPlan, read_task
from geminga.spark.source_rules.offsets import ReadPosition
from geminga.spark.source_rules.options import SourceOptions

#: Filters that bound a time.
COMPARISONS: Final = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class PulsarBatchReader(DataSourceReader):
    """Picklable; connects when it is asked for partitions or rows."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """One for each task; called once, in the driver."""
        if self._options.plan is not None:
            clipped = [[self._options.narrowed.clip(piece) for piece in task] for task in self._options.plan]
            kept = [tuple(piece for piece in task if piece is not None) for task in clipped]
            return [InputPartition(LakeTask(task)) for task in kept if task]
        session = session_for(self._options.client)
        if self._options.lake is not None:
            bounds = session.run(lambda: bounds_of_batch(session.client, self._options))
            return [InputPartition(LakeTask(task)) for task in plan_with_lake(*bounds, self._options)]
        tasks = session.run(lambda: plan_batch(session.client, self._options))
        return [InputPartition(TaskPlan(task)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; called in a worker."""
        plan = partition.value
        if plan is None:  # Spark's own partition when there is nothing to read
            return iter(())
        options = self._options
        if isinstance(plan, LakeTask):
            return read_lake_task(plan, options, decoder(options, self._schema), arrow_schema(self._schema))
        return read_task(plan, options.client, options.bounded_reader, decoder(options, self._schema))


class FilteringBatchReader(PulsarBatchReader):
    """Reads less where filters on topic, publish time or message id allow it; Spark applies every filter again.

    A class of its own, as Spark refuses a reader that takes filters unless
    ``spark.sql.python.filterPushdown.enabled`` is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow what is read; all filters stay with Spark."""
        narrowed = self._options.narrowed
        for one in filters:
            if isinstance(one, EqualTo | In) and one.attribute == (names.TOPIC,):
                values = one.value if isinstance(one, In) else (one.value,)
                narrowed = narrowed.of_topics(str(value) for value in values)
            elif isinstance(one, EqualTo) and one.attribute == (names.MESSAGE_ID,):
                try:
                    message_id = MessageId.deserialize(bytes(one.value))
                except ValueError:
                    continue  # no row has it, as Spark finds out
                at = (message_id.ledger_id(), message_id.entry_id(), max(0, message_id.batch_index()))
                narrowed = narrowed.at_message(ReadPosition(*at))
            elif isinstance(one, COMPARISONS) and one.attribute == (names.PUBLISH_TIME,):
                at_ms = (one.value - _EPOCH) // _MILLISECOND
                is_lower = isinstance(one, GreaterThan | GreaterThanOrEqual | EqualTo)
                is_upper = isinstance(one, LessThan | LessThanOrEqual | EqualTo)
                # Times of rows are whole milliseconds; a bound within one keeps it.
                narrowed = narrowed.in_time(at_ms if is_lower else None, at_ms + 1 if is_upper else None)
        self._options = replace(self._options, narrowed=narrowed)
        return filters
