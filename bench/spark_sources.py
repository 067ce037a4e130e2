"""What the Spark bench compares with: a source in memory, one over a bare socket and a sink to nowhere.

Each is as fast as Python can be there: PySpark data sources over Arrow, in workers like Geminga's own.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bench.spark_load import BATCH_BYTES, FIRST_EVENT_MS, KEYS, PAYLOADS, payloads
from geminga.model.crc32c import crc32c
from geminga.spark.rules.columns import arrow_schema, raw_schema
from geminga.spark.rules.metadata_columns import DEFAULT_COLUMNS
from geminga.spark.sink.writer import sink_plan

#: Bytes of payloads in a batch, as the option arrowBatchBytes of Geminga's source.
ARROW_BATCH_BYTES = 4 << 20


class _RawSource(DataSource):
    def schema(self) -> StructType:
        """Of Geminga's source."""
        return raw_schema(DEFAULT_COLUMNS)


class MemorySource(_RawSource):
    """``bench_memory``: ``tasks`` tasks of ``rows`` rows of value and the six metadata columns, in ``batches``."""

    @classmethod
    def name(cls) -> str:
        """For ``format``."""
        return "bench_memory"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """See :class:`_MemoryReader`."""
        return _MemoryReader(
            int(self.options["tasks"]), int(self.options["rows"]), int(self.options.get("offsets", "1"))
        )


class SocketSource(_RawSource):
    """``bench_socket``: the same rows; their payloads come over a socket from a process that does nothing but send.

    What no client can do without: the bytes of a batch are received, and checked once.
    """

    @classmethod
    def name(cls) -> str:
        """For ``format``."""
        return "bench_socket"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """See :class:`_SocketReader`."""
        return _SocketReader(int(self.options["port"]), int(self.options["tasks"]), int(self.options["rows"]))


class _MemoryReader(DataSourceStreamReader):
    def __init__(self, tasks: int, rows: int, offsets: int) -> None:
        self._tasks, self._rows, self._offsets = tasks, rows, offsets

    def initialOffset(self) -> dict[str, int]:
        """Nothing read."""
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        """Everything at once."""
        return {"at": self._offsets}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks."""
        return [InputPartition(self._rows) for _ in range(self._tasks)]

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The columns are built for each batch, from bytes and offsets that are there."""
        yield from memory_batches(partition.value)


class _SocketReader(_MemoryReader):
    def __init__(self, port: int, tasks: int, rows: int) -> None:
        super().__init__(tasks, rows, 1)
        self._port = port

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Into a buffer of its own for each batch, as one that is handed on may still be looked at."""
        size = len(_block()[0])
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            for first in range(0, partition.value, PAYLOADS):
                received = bytearray(size)
                view = memoryview(received)
                while view:
                    view = view[connection.recv_into(view) :]
                crc32c(received)
                yield from memory_batches(min(PAYLOADS, partition.value - first), pa.py_buffer(received))


@lru_cache(maxsize=1)
def _block() -> tuple[pa.Buffer, np.ndarray[Any, Any], pa.Buffer, np.ndarray[Any, Any]]:
    contents = payloads()
    keys = [b"key-%d" % (index % KEYS) for index in range(PAYLOADS)]
    found = []
    for values in (contents, keys):
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        found += [pa.py_buffer(b"".join(values)), offsets]
    return tuple(found)  # type: ignore[return-value]


def memory_batches(rows: int, received: pa.Buffer | None = None) -> Iterator[pa.RecordBatch]:
    """Batches of up to 4 MiB; of the payloads ``received``, if they are given."""
    data, offsets, key_data, key_offsets = _block()
    data = received or data
    schema = arrow_schema(raw_schema(DEFAULT_COLUMNS))
    step = PAYLOADS
    for first in range(0, rows, step):
        count = min(step, rows - first)
        numbers = np.arange(first, first + count, dtype=np.int64)
        arrays = [
            pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data]),
            pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(key_offsets), key_data]),
            pa.repeat(pa.scalar("persistent://public/default/bench", pa.string()), count),
            _ids(numbers),
            pa.array(np.full(count, FIRST_EVENT_MS * 1000)).cast(schema.field(4).type),
            pa.array((FIRST_EVENT_MS + numbers) * 1000).cast(schema.field(5).type),
            pa.MapArray.from_arrays(
                pa.array(np.zeros(count + 1, np.int32)),
                pa.array([], pa.string()),
                pa.array([], pa.string()),
                type=schema.field(6).type,
            ),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _ids(numbers: np.ndarray[Any, Any]) -> pa.Array:
    """Twelve bytes each, as long as message ids are."""
    count = len(numbers)
    data = np.zeros((count, 12), np.uint8)
    data[:, 4:] = numbers.astype(">i8")[:, None].view(np.uint8).reshape(count, 8)
    offsets = np.arange(0, 12 * (count + 1), 12, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())])


class NowhereSink(DataSource):
    """``bench_nowhere``: takes each Arrow batch and looks at its payloads, once each, and nothing else."""

    @classmethod
    def name(cls) -> str:
        """For ``format``."""
        return "bench_nowhere"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """See :class:`_NowhereWriter`."""
        return _NowhereWriter(dict(self.options), schema)


class _NowhereWriter(DataSourceStreamArrowWriter):
    """Geminga's sink up to the entries it would send: rows read, cut and encoded."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._plan = sink_plan(
            {**options, "service.url": "pulsar://nowhere:6650", "topic": "nowhere"}, schema, is_stream=True
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode, and drop."""
        from geminga.spark.sink.arrow_rows import RowReader
        from geminga.spark.sink_rules.entries import encode_entries
        from geminga.spark.sink_rules.message_columns import cut_entries

        reader = RowReader(self._plan.columns, None)
        for batch in iterator:
            messages = reader.read(batch).messages
            cuts = cut_entries(messages, 100_000, BATCH_BYTES)
            for _ in encode_entries(messages, cuts, 0):
                pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing."""
