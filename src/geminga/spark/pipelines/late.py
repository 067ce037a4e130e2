"""Which rows are late: each held against the watermark that Spark logged for the batch before the batch runs.

Runs in Spark's Python workers. The batch's number is a local property of its tasks, its watermark is in ``offsets/N``
of the checkpoint, which Spark has written by then and never changes: a task that runs again, and a batch that is
replayed by another driver, decide the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from geminga.model.errors import LocalError
from geminga.spark.pipelines.core.checkpoint_text import parse_offsets

if TYPE_CHECKING:
    from pyspark.sql import Column

#: What a row has that is not late; others have the watermark.
IN_TIME: Final = -1


class WatermarkUnknownError(LocalError):
    """The batch's watermark can not be read where a task runs."""


def late_test(checkpoint: str) -> Callable[[Column], Column]:
    """A function of the end of each row's window (ms; null: no time): the watermark, or -1 for a row in time."""
    from pyspark.sql.pandas.functions import arrow_udf

    def watermarks(ends: pa.Array) -> pa.Array:
        from geminga.spark.pipelines.late import late_watermarks

        return late_watermarks(ends, checkpoint)

    made: Callable[[Column], Column] = arrow_udf(watermarks, "bigint")  # type: ignore[call-overload]
    return made


def late_watermarks(ends: pa.Array, checkpoint: str) -> pa.Array:
    """The test of one Arrow array."""
    watermark_ms = batch_watermark_ms(checkpoint)
    is_late = pc.fill_null(pc.less_equal(ends, pa.scalar(watermark_ms, pa.int64())), True)
    return pc.if_else(is_late, pa.scalar(watermark_ms, pa.int64()), pa.scalar(IN_TIME, pa.int64()))


def batch_watermark_ms(checkpoint: str) -> int:
    """Of the batch that this task belongs to; raises WatermarkUnknownError."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if number is None:
        raise WatermarkUnknownError("a row is held against a watermark outside of a batch of a streaming query")
    return read_watermark_ms(checkpoint, number)


def read_watermark_ms(checkpoint: str, number: str) -> int:
    """From the offset log; raises WatermarkUnknownError."""
    from geminga.runtime.local_file import read_local_file
    from geminga.spark.pipelines.files import local_directory

    path = f"{local_directory(checkpoint) or checkpoint}/offsets/{number}"
    try:
        return parse_offsets(read_local_file(path).decode()).watermark_ms
    except OSError as error:
        raise WatermarkUnknownError(
            f"{path} can not be read where a task runs ({error.strerror}): with late rows, the checkpoint lies in a "
            "directory that all workers see under this path"
        ) from None
