"""Which rows are late: a decision that a replay makes again, whatever was killed.

Spark drops the rows behind its watermark and only counts them. To keep them, they must be told from the others before
Spark looks, by the watermark that Spark will use, and a batch that is run again must come to the same answer. Spark
writes the watermark of a batch down before it runs it, beside the batch's offsets (``offsets/<batch>`` in the
checkpoint, ``batchWatermarkMs``), and takes both from there when it runs the batch again. So that file is the decision:
each task reads the one of its batch. Operators with state drop what is behind the watermark of the batch *before*,
which is never later: what is let through here is never dropped there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


class WatermarkError(Exception):
    """The checkpoint says no watermark for a batch that runs."""


def watermark_ms(checkpoint: Path, batch: int) -> int:
    """The watermark that a batch was given, from the offsets that Spark logged for it."""
    path = checkpoint / "offsets" / str(batch)
    try:
        told = json.loads(path.read_text(encoding="utf-8").splitlines()[1])["batchWatermarkMs"]
    except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise WatermarkError(f"{path} has no batchWatermarkMs in its second line: {error!r}") from error
    if not isinstance(told, int):
        raise WatermarkError(f"{path}: batchWatermarkMs is {told!r}, not a number of milliseconds")
    return told


def watermark_of_batch(checkpoint: str) -> Callable[[object], object]:
    """For a column of any kind: in each row the watermark of the batch that is under way, as a number.

    The directory must be one that the workers see, too.
    """
    from pyspark import TaskContext
    from pyspark.sql import functions as f

    directory = Path(checkpoint)

    @f.arrow_udf("long")
    def watermark(values):
        import pyarrow as pa

        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if batch is None:
            raise WatermarkError("only a batch of a stream has a watermark")
        return pa.array([watermark_ms(directory, int(batch))] * len(values), pa.int64())

    return watermark.asNondeterministic()
