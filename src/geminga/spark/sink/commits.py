"""What a task tells the driver when its rows are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True, slots=True)
class TaskCommit(WriterCommitMessage):
    """What a task wrote: every row of it has its receipt."""

    partition: int
    attempt: int
    #: Topic -> rows.
    rows: Mapping[str, int] = field(default_factory=dict)
    #: Of a guarantee that numbers rows: whose numbers they are; empty otherwise, as the next two.
    sink_id: str = ""
    batch_id: int = -1
    #: Of what the task was going to write.
    checksum: int = 0
