"""The writers that Spark calls: made in the driver, pickled to the tasks, made again in the driver to commit.

No state of an object survives from one of these places to the next: only options and messages do. A message comes from
every task, also from one without rows. Only the process of a task imports the client and what writes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from geminga.runtime import get_logger
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink.commits import TaskCommit
from geminga.spark.sink_rules.errors import SinkError
from geminga.spark.sink_rules.numbering import TaskIdentity, sink_id_of
from geminga.spark.sink_rules.record_schema import has_decimal, record_definition, struct_fields
from geminga.spark.sink_rules.sink_columns import SinkColumns, ValueKind, sink_columns
from geminga.spark.sink_rules.sink_options import BATCH_ID_MAX, Guarantee, SinkOptions, ValueSchema, sink_options

if TYPE_CHECKING:
    import pyarrow as pa

_log = get_logger(__name__)

#: Local properties of a task in a streaming query.
QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
#: In a streaming query its run, which has another one after each start.
RUN_PROPERTY: Final = "spark.jobGroup.id"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"
#: Settings that Spark gives to the session of a query, and nobody else to any: a task has them from the session of its
#: rows, whichever thread it was asked for from, and be that on the other side of Spark Connect.
QUERY_SETTINGS: Final = (
    "spark.sql.streaming.internal.stateStore.partitions",
    "spark.sql.requireAllClusterKeysForDistribution",
)
_UNKNOWN_BATCH: Final = (
    "this writes rows of a streaming query (foreachBatch) and does not know of which batch, so that a batch that Spark "
    "replays would be written again: it runs in a thread of its own, or over Spark Connect. Give txnAppId, a name for "
    "the query, and txnVersion, the number of the batch that foreachBatch was called with; or, in a thread, call it "
    "through geminga.spark.inheriting(batch.sparkSession, function), made in foreachBatch's own thread; or choose "
    "guarantee=at-least-once"
)
#: What this process told already; bounded by the sinks of one driver.
_logged: set[str] = set()


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What both writers do, whatever Spark calls them; picklable."""

    options: SinkOptions
    columns: SinkColumns
    #: The Avro definition of the rows; empty: payloads are bytes.
    definition: str = ""
    #: Of ``writeStream``, whose batches come one after the other.
    is_stream: bool = False

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
        """In a task: write its rows, and wait until they are stored."""
        from geminga.spark.process.clients import session_for
        from geminga.spark.sink.arrow_rows import RowReader
        from geminga.spark.sink.at_least_once import AtLeastOnceWriter
        from geminga.spark.sink.effectively_once import EffectivelyOnceWriter
        from geminga.spark.sink.exactly_once import ExactlyOnceWriter
        from geminga.spark.sink.records import RecordEncoder
        from geminga.spark.sink_rules.routing import KEYLESS_RUN_ROWS

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        attempt = context.attemptNumber() if context is not None else 0
        records = RecordEncoder(self.columns.schema, self.definition) if self.columns.schema is not None else None
        reader = RowReader(self.columns, records, self.options.ordered_by)
        schema = records.schema if records is not None else None
        guarantee = self._guarantee(context)
        if guarantee is Guarantee.AT_LEAST_ONCE:
            session = session_for(self.options.client)
            writer = AtLeastOnceWriter(session, self.options, schema, partition * KEYLESS_RUN_ROWS)
            return TaskCommit(partition, attempt, writer.write(reader, batches))
        sink_id, batch_id = self._numbers_of(context, guarantee)
        identity = TaskIdentity(sink_id, batch_id, partition, attempt)
        given = (session_for(self.options.client), self.options, schema, identity)
        run = query = context.getLocalProperty(QUERY_ID_PROPERTY) if context is not None else None
        if context is not None and query:
            run = context.getLocalProperty(RUN_PROPERTY)  # without a query it is a job group that anybody may set
        checksum, transaction = 0, None
        if guarantee is Guarantee.EFFECTIVELY_ONCE:
            numbered = EffectivelyOnceWriter(*given)
            rows = numbered.write(reader, batches)
            checksum = numbered.checksum
        else:
            rows, transaction = ExactlyOnceWriter(*given).write(reader, batches)
        fields = (sink_id, batch_id, checksum, guarantee, transaction, run or "", query or "")
        return TaskCommit(partition, attempt, rows, *fields)

    def _guarantee(self, context: TaskContext | None) -> Guarantee:
        """What was chosen; else exactly once wherever a repetition can be known.

        Raises OptionError where it can not and rows are those of a query: less is for the user to choose.
        """
        options = self.options
        if options.guarantee is not None:
            return options.guarantee
        is_query = context is not None and context.getLocalProperty(QUERY_ID_PROPERTY) is not None
        is_numbered = self.is_stream or is_query or bool(options.application_id) or options.version is not None
        if is_numbered:
            return Guarantee.EXACTLY_ONCE
        if context is not None and any(context.getLocalProperty(name) is not None for name in QUERY_SETTINGS):
            raise OptionError(_UNKNOWN_BATCH)
        return Guarantee.AT_LEAST_ONCE

    def _numbers_of(self, context: TaskContext | None, guarantee: Guarantee) -> tuple[str, int]:
        """Whose numbers the rows get, and which batch's: of the options, else of the streaming query."""
        options = self.options
        query = batch = None
        if context is not None:
            query = context.getLocalProperty(QUERY_ID_PROPERTY)
            batch = context.getLocalProperty(BATCH_ID_PROPERTY)
        application = options.application_id or query
        version = options.version if options.version is not None else batch
        if application is None or version is None:
            raise OptionError(
                f"guarantee={guarantee.value} needs txnAppId and txnVersion here: a batch write has neither a query "
                "nor the number of a batch, by which a repetition could be known (in foreachBatch it has both, in the "
                "query's thread or through geminga.spark.inheriting; over Spark Connect it has none)"
            )
        batch_id = int(version)
        if not 0 <= batch_id <= BATCH_ID_MAX:
            raise SinkError(f"batch {batch_id} of {application} can not be numbered: {BATCH_ID_MAX} is the last one")
        return sink_id_of(application, options.sink_name), batch_id

    def commit(self, messages: Sequence[WriterCommitMessage | None], what: str, batch_id: int | None = None) -> None:
        """In the driver: every task must have written, and all of them the same batch. Raises SinkError."""
        missing = sum(message is None for message in messages)
        if missing and missing == len(messages):
            raise SinkError(
                f"{what}: no task says that it wrote anything, so nothing is known to be in a topic. Spark does not "
                "call this sink under Trigger.Continuous: use processingTime or availableNow"
            )
        commits = [message for message in messages if isinstance(message, TaskCommit)]
        if len(commits) < len(messages):
            raise SinkError(
                f"{what}: {len(messages) - len(commits)} of {len(messages)} tasks do not say that they wrote their rows"
            )
        guarantees = {commit.guarantee for commit in commits}
        if len(guarantees) > 1:
            raise SinkError(f"{what}: its tasks wrote with different guarantees: {sorted(map(str, guarantees))}")
        if Guarantee.AT_LEAST_ONCE in guarantees:
            _tell_guarantee(self.options, Guarantee.AT_LEAST_ONCE)
        elif Guarantee.EXACTLY_ONCE in guarantees:
            from geminga.spark.sink.exactly_once import commit_batch

            commit_batch(self.options, commits, batch_id, what, is_stream=self.is_stream)
        elif Guarantee.EFFECTIVELY_ONCE in guarantees:
            from geminga.spark.sink.committing import check_numbered

            check_numbered(self.options, commits, batch_id, what)

    def abort(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        """In the driver: what tasks wrote does not count, unless it was decided that it does. Raises PulsarException.

        Nothing that must be right depends on it: Spark does not always call it, nor tell of every task.
        """
        commits = [message for message in messages if isinstance(message, TaskCommit)]
        decided = [commit for commit in commits if commit.guarantee is Guarantee.EXACTLY_ONCE]
        if decided:
            from geminga.spark.sink.exactly_once import abort_batch

            abort_batch(self.options, decided, what)
        if self.options.guarantee is Guarantee.EFFECTIVELY_ONCE:
            from geminga.spark.sink.committing import forget_tasks

            forget_tasks()
        if len(decided) < len(commits) or (self.options.guarantee not in (None, Guarantee.EXACTLY_ONCE)):
            _log.warning("%s failed: rows of the tasks that were done or under way are in the topics", what)


def sink_plan(options: Mapping[str, str], schema: StructType, *, is_stream: bool) -> SinkPlan:
    """Options and columns, checked in the driver before any task runs; raises OptionError."""
    read = sink_options(options)
    document = schema.jsonValue()
    fields = struct_fields(document)
    columns = sink_columns([(name, kind) for name, kind, _ in fields], read)
    definition = ""
    if columns.schema is not None:
        values = [entry for entry in fields if entry[0] in columns.values]
        if columns.value_kind is ValueKind.STRUCT:
            record = values[0][1]
            assert not isinstance(record, str)
            values = struct_fields(record)
        if columns.schema is ValueSchema.JSON and any(has_decimal(kind) for _, kind, _ in values):
            raise OptionError("schemaType=json holds no decimals: cast them, or use schemaType=avro")
        definition = record_definition(values)
    guarantee = read.guarantee
    if guarantee is None:
        is_numbered = is_stream or bool(read.application_id) or read.version is not None
        guarantee = Guarantee.EXACTLY_ONCE if is_numbered else None
    _tell_guarantee(read, guarantee)
    if guarantee not in (None, Guarantee.AT_LEAST_ONCE) and read.admin_url:
        from geminga.spark.sink.plan_hold import hold_plan_topic

        hold_plan_topic(read, guarantee)
    return SinkPlan(read, columns, definition, is_stream)


def _tell_guarantee(options: SinkOptions, guarantee: Guarantee | None) -> None:
    where = options.topic or "the topics of __topic"
    if guarantee is None:
        return  # a task knows: foreachBatch has numbers, a write of its own has none
    if guarantee is Guarantee.AT_LEAST_ONCE:
        text = (
            f"sink pulsar to {where}: guarantee at-least-once, a batch that Spark replays is written again "
            "(guarantee=exactly-once does not)"
        )
    else:
        text = f"sink pulsar to {where}: guarantee {guarantee.value}"
    if text not in _logged:
        _logged.add(text)
        _log.warning("%s", text)


class BatchWriter(DataSourceArrowWriter):
    """``df.write.format("pulsar")``."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raises OptionError."""
        if overwrite:
            raise OptionError('mode("overwrite"): a topic is only ever appended to; use mode("append")')
        self.plan = sink_plan(options, schema, is_stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """See :meth:`SinkPlan.write`."""
        return self.plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Everything is in the topics already; raises SinkError if a task does not say so."""
        self.plan.commit(messages, "write")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """See :meth:`SinkPlan.abort`."""
        self.plan.abort(messages, "write")


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("pulsar")``."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """``overwrite``: output mode complete, whose whole result is appended each time. Raises OptionError."""
        self.plan = sink_plan(options, schema, is_stream=True)
        if self.plan.options.version is not None:
            raise OptionError("txnVersion is not for writeStream: the query numbers its batches")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """See :meth:`SinkPlan.write`."""
        return self.plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Everything is in the topics already; raises SinkError if a task does not say so."""
        self.plan.commit(messages, f"batch {batchId}", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """See :meth:`SinkPlan.abort`; what an earlier commit decided stays: Spark aborts after a failed one, too."""
        self.plan.abort(messages, f"batch {batchId}")
