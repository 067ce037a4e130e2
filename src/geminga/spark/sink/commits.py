"""What a task tells the driver when its rows are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from geminga.spark.sink_rules.sink_options import Guarantee

if TYPE_CHECKING:
    from geminga.spark.sink_rules.commit_steps import TaskTransaction


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
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    #: What its rows are in; None: the guarantee has none, or there were no rows.
    transaction: TaskTransaction | None = None
    #: The run of the query; empty: none, or not known.
    run: str = ""
    #: The query's id; empty: none.
    query: str = ""
