"""``spark.readStream.format("pulsar")``: the reader that Spark asks for offsets and tasks, and sends to its workers.

One object lives in a process of the driver as long as the query runs and keeps a :class:`StreamDriver`; copies of
another one are sent to the workers, so nothing that is connected is ever pickled. The process that only pickles it does
not import what the others need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from geminga.spark.source_rules.admission import Limits
from geminga.spark.source_rules.offsets import StreamOffset
from geminga.spark.source_rules.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from geminga.spark.process.clients import ClientSession
    from geminga.spark.source.stream_driver import StreamDriver

Offset = dict[str, object]

#: With ``targetBytesPerTask`` and no limit, tasks of one batch.
TASKS_COUNTED_MAX: Final = 256


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._driver: StreamDriver | None = None

    def __getstate__(self) -> tuple[SourceOptions, StructType]:
        return self._options, self._schema

    def __setstate__(self, state: tuple[SourceOptions, StructType]) -> None:
        self._options, self._schema = state
        self._driver = None

    def _connected(self) -> tuple[ClientSession, StreamDriver]:
        from geminga.spark.process.clients import session_for
        from geminga.spark.source.stream_driver import StreamDriver

        session = session_for(self._options.client)
        if self._driver is None:
            self._driver = session.thread.call(lambda: StreamDriver(session.client, self._options))
        return session, self._driver

    # ---- asked by the driver

    def initialOffset(self) -> Offset:
        """A function of the options alone: Spark asks several times, and again when it replays the first batch."""
        return self._options.start.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit in bytes, else in messages; what else the options limit is done by :meth:`latestOffset`."""
        limits = self._options.limits
        if limits.bytes_max:
            return ReadMaxBytes(limits.bytes_max)
        return ReadMaxRows(limits.messages_max) if limits.messages_max else ReadAllAvailable()

    def _limits(self, limit: ReadLimit) -> Limits:
        """What a batch may take: if Spark asks for everything though there are limits, it gets everything."""
        limits = self._options.limits
        has_maximum = bool(limits.bytes_max or limits.messages_max)
        if isinstance(limit, ReadMaxBytes):
            return replace(limits, bytes_max=limit.max_bytes)
        if isinstance(limit, ReadMaxRows):
            return replace(limits, messages_max=limit.max_rows)
        if has_maximum:
            return Limits()
        # Cuts are found by counting, and counting has a bound.
        return replace(limits, bytes_max=limits.bytes_per_task * TASKS_COUNTED_MAX)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch, or ``start`` itself."""
        session, driver = self._connected()
        begin = StreamOffset.from_dict(start)
        limits = self._limits(limit)
        end = session.run(lambda: driver.latest(begin, limits))
        return start if end is begin else end.to_dict()

    def reportLatestOffset(self) -> Offset | None:
        """For the query's progress: the ends of the topics as they were found last, and the lag behind them."""
        return None if self._driver is None else self._driver.report()

    def prepareForTriggerAvailableNow(self) -> None:
        """This run ends where the topics end now."""
        session, driver = self._connected()
        session.run(driver.prepare_available_now)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of a batch, new or replayed."""
        session, driver = self._connected()
        begin, stop = StreamOffset.from_dict(start), StreamOffset.from_dict(end)
        return [InputPartition(task) for task in session.run(lambda: driver.plan(begin, stop))]

    def commit(self, end: Offset) -> None:
        """Spark has committed everything before ``end``."""
        session, driver = self._connected()
        offset = StreamOffset.from_dict(end)
        session.run(lambda: driver.commit(offset))

    def stop(self) -> None:
        """Not always called, and nothing depends on it."""
        driver, self._driver = self._driver, None
        if driver is not None:
            from geminga.spark.process.clients import session_for

            session_for(self._options.client).run(driver.close)

    # ---- in a worker

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        from geminga.spark.source.decoding import decoder
        from geminga.spark.source.task_read import read_task

        options = self._options
        return read_task(partition.value, options.client, options.reader, decoder(options, self._schema))
