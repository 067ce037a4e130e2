"""Cases for the sink: writers called as Spark calls them, without a JVM, and what is in the topic afterwards."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pulsar
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tools.standalone_process import StandaloneProcess

from geminga.spark.sink.writer import BATCH_ID_PROPERTY, QUERY_ID_PROPERTY, RUN_PROPERTY, BatchWriter, StreamWriter

Writer = BatchWriter | StreamWriter


TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "decimal": DecimalType(10, 2),
    "map": MapType(StringType(), StringType()),
    "array": ArrayType(LongType()),
    "point": StructType([StructField("x", LongType()), StructField("y", DoubleType())]),
}


def schema_of(columns: str) -> StructType:
    """``"value binary, __key string"`` as Spark's schema; Spark's own reader of such text needs a JVM."""
    fields = [part.split() for part in columns.split(",")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def arrow_batches(columns: str, rows: Sequence[tuple], size: int = 1000) -> list[pa.RecordBatch]:
    """Rows as Spark hands them to a writer, ``size`` in a batch."""
    schema = to_arrow_schema(schema_of(columns), timezone="UTC")
    batches = []
    for start in range(0, len(rows), size):
        values = list(zip(*rows[start : start + size], strict=True))
        arrays = [pa.array(column, type=field.type) for column, field in zip(values, schema, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return batches


@contextmanager
def task(
    partition: int = 0,
    *,
    query: str | None = None,
    batch: int | None = None,
    attempt: int = 0,
    run: str | None = None,
) -> Iterator[None]:
    """What a Python worker knows of its task."""
    properties = {}
    if query is not None:
        properties = {QUERY_ID_PROPERTY: query, BATCH_ID_PROPERTY: str(batch)}
    if run is not None:
        properties[RUN_PROPERTY] = run
    # The context is one object for the whole process, which a worker gets anew for each task.
    TaskContext._setTaskContext(None)
    context = TaskContext(
        stageId=0, partitionId=partition, attemptNumber=attempt, taskAttemptId=0, localProperties=properties
    )
    TaskContext._setTaskContext(context)
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def run_task(
    writer: Writer,
    batches: Iterable[pa.RecordBatch],
    partition: int = 0,
    *,
    query: str | None = None,
    batch: int | None = None,
    attempt: int = 0,
    run: str | None = None,
) -> WriterCommitMessage:
    """One task, with a writer and a message that were pickled on the way."""
    copy = pickle.loads(pickle.dumps(writer))
    with task(partition, query=query, batch=batch, attempt=attempt, run=run):
        message = copy.write(iter(list(batches)))
    return pickle.loads(pickle.dumps(message))


def publish_rows(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str, count: int, *, partitions: int
) -> None:
    """A partitioned topic with the numbers from 0 on, of ten keys."""
    path = f"/admin/v2/persistent/{topic.removeprefix('persistent://')}/partitions"
    standalone.request("PUT", path, partitions)
    producer = client.create_producer(topic)
    for number in range(count):
        producer.send_async(str(number).encode(), None, partition_key=f"k{number % 10}")
    producer.flush()
    producer.close()


def all_stored(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    """Every message of a topic."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        messages = []
        while reader.has_message_available():
            messages.append(reader.read_next(10_000))
        return messages
    finally:
        reader.close()


def stored(client: pulsar.Client, topic: str, count: int, *, more_ms: int = 200) -> list[pulsar.Message]:
    """The first ``count`` messages of a topic; fails if there are fewer, or if one more is there."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        messages = [reader.read_next(10_000) for _ in range(count)]
        extra = reader.has_message_available()
        assert not extra, f"more than {count} messages in {topic}"
        return messages
    finally:
        reader.close()
