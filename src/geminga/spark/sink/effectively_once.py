"""Effectively once: a task's rows get the same numbers in every attempt, and the broker drops what it has.

The steps, each of which may end the task but never lose a row (the reasoning is in ``docs/spark-sink.md``):

1. Open the plan producer: it waits for an older attempt that still runs, and tells the newest plan of this task.
2. Read all rows (at most ``maxTaskBytes``), sort them, and take the checksum of what is going to be written.
3. Record the plan, unless the same one is recorded already; another one for this batch is an error.
4. Open the output producers, which tell how many rows of the batch are stored, and send the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from geminga.client import EntryProducer
from geminga.client.producer_rules.message import EncodedMessage
from geminga.model.topic_name import TopicName
from geminga.runtime import crash_point, get_logger
from geminga.spark.process.clients import ClientSession
from geminga.spark.sink import crash_points
from geminga.spark.sink.arrow_rows import RowReader, SinkRows
from geminga.spark.sink.named_producers import NamedProducers
from geminga.spark.sink.plans import PLAN_PRODUCER, plan_topic
from geminga.spark.sink.producers import partition_names
from geminga.spark.sink.records import EncodedPayload
from geminga.spark.sink.sending import EntryPump
from geminga.spark.sink_rules.entries import encode_entries
from geminga.spark.sink_rules.errors import ReplayDiffersError, SinkError
from geminga.spark.sink_rules.message_columns import MessageColumns, cut_entries
from geminga.spark.sink_rules.numbering import (
    ROWS_MAX,
    TaskIdentity,
    batch_of,
    check_not_superseded,
    columns_checksum,
    is_planned,
    plan_checksum,
    plan_record,
    plan_sequence_id,
    planned_partitions,
    row_sequence_id,
    stored_rows,
    text_checksum,
)
from geminga.spark.sink_rules.routing import KEYLESS_RUN_ROWS, Router, rows_by_destination
from geminga.spark.sink_rules.row_order import sorted_rows
from geminga.spark.sink_rules.sink_options import SinkOptions

_log = get_logger(__name__)

#: What a row takes in Python beside its bytes.
ROW_OVERHEAD_BYTES: Final = 128


class EffectivelyOnceWriter:
    """Writes the rows of one task."""

    __slots__ = (
        "_bytes",
        "_identity",
        "_is_loss_logged",
        "_last_plan",
        "_options",
        "_producers",
        "_rows",
        "_schema",
        "_session",
        "checksum",
    )

    def __init__(
        self, session: ClientSession, options: SinkOptions, schema: EncodedPayload | None, identity: TaskIdentity
    ) -> None:
        self._session = session
        self._options = options
        self._schema = schema
        self._identity = identity
        self._producers = NamedProducers(session, options, identity.producer_name)
        #: Topic -> its rows, and what is known of their partitions and their order.
        self._rows: dict[str, SinkRows] = {}
        self._bytes = 0
        #: The newest plan's sequence id when the task began.
        self._last_plan = -1
        self._is_loss_logged = False
        #: Of the plan; known once the rows are.
        self.checksum = 0

    def write(self, reader: RowReader, batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
        """Send what is not stored yet and wait for the receipts; topic -> rows of the task. Raises what went wrong."""
        try:
            plans = self._producers.open(plan_topic(self._options), PLAN_PRODUCER, None)
            crash_point(crash_points.PLANS_OPENED)
            self._last_plan = plans.last_sequence_id()
            check_not_superseded(self._identity, self._last_plan)
            for batch in batches:
                if batch.num_rows:
                    self._count(batch.nbytes + ROW_OVERHEAD_BYTES * batch.num_rows)
                    self._collect(reader.read(batch))
            crash_point(crash_points.ROWS_READ)
            counts = {topic: len(rows.messages) for topic, rows in sorted(self._rows.items())}
            partitions, was_planned = self._plan(plans, counts)
            crash_point(crash_points.PLAN_RECORDED)
            if counts:
                self._send(partitions, was_planned=was_planned)
            crash_point(crash_points.ROWS_STORED)
        finally:
            self._producers.close()
        crash_point(crash_points.NAMES_LEFT)
        return counts

    # ---- rows

    def _count(self, bytes_read: int) -> None:
        self._bytes += bytes_read
        if self._bytes > self._options.task_bytes_max:
            raise SinkError(
                f"guarantee=effectively-once sorts the rows of a task, and those of task {self._identity.partition} "
                f"are more than {self._options.task_bytes_max} bytes: make the batches smaller (maxBytesPerTrigger of "
                "the source) or the tasks more (repartition by a column), or raise maxTaskBytes"
            )

    def _collect(self, rows: SinkRows) -> None:
        if rows.topics is None:
            self._add(self._options.topic, rows)
            return
        names = list(dict.fromkeys(rows.topics))
        if len(names) == 1:
            self._add(names[0], rows)
            return
        numbers = {name: number for number, name in enumerate(names)}
        for number, indices in rows_by_destination([numbers[name] for name in rows.topics]).items():
            self._add(names[number], rows.take(indices))

    def _add(self, topic: str, rows: SinkRows) -> None:
        known = self._rows.get(topic)
        if known is None:
            self._rows[topic] = rows
        else:
            known.extend(rows)

    # ---- the plan

    def _partitions(self, topic: str) -> int:
        if not TopicName.parse(topic).is_persistent:
            raise SinkError(f"guarantee=effectively-once can not be kept on {topic}: what is not stored is forgotten")
        return self._session.run(lambda: self._session.client.lookup.partitions(topic))

    def _sort(self, topics: Iterable[str]) -> int:
        """Put the rows in order; the checksum of all that is in them."""
        settings = self._options.producer
        checksum = text_checksum(f"{settings.batch_messages_max} {settings.batch_bytes_max} {settings.is_murmur3}", 0)
        for topic in topics:
            rows = self._rows[topic]
            order = sorted_rows(rows.messages, rows.ordered_by, rows.partitions)
            rows = self._rows[topic] = rows.take(order)
            rows.ordered_by = []
            checksum = columns_checksum(rows.messages, text_checksum(topic, checksum))
            if rows.partitions is not None:
                checksum = text_checksum(",".join(map(str, rows.partitions)), checksum)
        return checksum

    def _plan(self, plans: EntryProducer[bytes], counts: dict[str, int]) -> tuple[Mapping[str, int], bool]:
        """Record what is going to be written; the partitions of each topic, and whether it was recorded already."""
        identity, last = self._identity, plans.last_sequence_id()
        rows_checksum = self._sort(counts)
        partitions: Mapping[str, int] = {topic: self._partitions(topic) for topic in counts}
        partitions = planned_partitions(identity, last, rows_checksum, partitions)
        self.checksum = plan_checksum(rows_checksum, partitions)
        was_planned = is_planned(identity, last, self.checksum)
        if not was_planned and counts:
            self._record(plans, plan_record(identity, self.checksum, counts), is_first=last < 0)
        return partitions, was_planned

    def _record(self, plans: EntryProducer[bytes], record: bytes, *, is_first: bool) -> None:
        sequence_id = plan_sequence_id(self._identity.batch_id, self.checksum)
        message = EncodedMessage(record, partition_key=self._identity.producer_name, sequence_id=sequence_id)
        if is_first:
            self._producers.send_first(plans, message, sequence_id, PLAN_PRODUCER, None)
        else:
            self._producers.send(plans, message)

    # ---- sending

    def _send(self, partitions: Mapping[str, int], *, was_planned: bool) -> None:
        destinations: list[str] = []
        parts: list[MessageColumns] = []
        for topic, count in partitions.items():
            rows = self._rows.pop(topic)
            names = partition_names(topic, count)
            for index, indices in self._route(rows, count).items():
                destinations.append(names[index])
                parts.append(rows.messages if len(indices) == len(rows.messages) else rows.messages.take(indices))
        opened = self._producers.open_all(destinations, self._schema)
        crash_point(crash_points.OUTPUT_OPENED)
        pump = EntryPump(self._session, self._options.producer.send_timeout_ms)
        used: list[EntryProducer[bytes]] = []
        try:
            for topic, producer, messages in zip(destinations, opened, parts, strict=True):
                used.append(self._send_rows(pump, topic, producer, messages, was_planned=was_planned))
            pump.finish(used)
        finally:
            pump.close()

    def _route(self, rows: SinkRows, partitions: int) -> dict[int, list[int]]:
        count = len(rows.messages)
        if not partitions and rows.partitions is None:
            return {0: list(range(count))}
        first = self._identity.partition * KEYLESS_RUN_ROWS
        router = Router(max(partitions, 1), is_murmur3=self._options.producer.is_murmur3, keyless_rows=first)
        return rows_by_destination(router.route(rows.messages.keys, rows.partitions, count))

    def _send_rows(
        self,
        pump: EntryPump,
        topic: str,
        producer: EntryProducer[bytes],
        messages: MessageColumns,
        *,
        was_planned: bool,
    ) -> EntryProducer[bytes]:
        """Send what is not stored; the producer whose receipts are to be waited for."""
        count = len(messages)
        if count > ROWS_MAX:
            raise SinkError(f"a task can not number {count} rows for {topic}: {ROWS_MAX} at most")
        batch_id = self._identity.batch_id
        settings = self._options.producer
        last = producer.last_sequence_id()
        self._look_for_lost_plans(topic, last)
        is_trusted = was_planned or self._options.resume_without_plan == batch_id
        stored = stored_rows(self._identity, topic, last, count, was_planned=is_trusted)
        cuts = self._remaining(
            cut_entries(messages, settings.batch_messages_max, settings.batch_bytes_max), stored, topic
        )
        entries = encode_entries(messages, cuts, row_sequence_id(batch_id, 0), settings.alone_above)
        if last < 0 and cuts:
            highest = row_sequence_id(batch_id, cuts[0][1] - 1)
            producer = self._producers.send_first(producer, next(entries), highest, settings, self._schema)
            crash_point(crash_points.FIRST_ENTRY_STORED)
        for entry in entries:
            pump.put(producer, entry)
            crash_point(crash_points.ENTRY_SENT)
        return producer

    def _look_for_lost_plans(self, topic: str, last: int) -> None:
        """Rows of a batch are behind its plan: an output that knows more batches than the plans' topic tells on it."""
        if batch_of(last) > batch_of(self._last_plan) and not self._is_loss_logged:
            self._is_loss_logged = True
            _log.warning(
                "%s has rows of batch %d by %s, and the plans' topic %s knows none of its plans: it was deleted, or "
                "commitStateTopic was changed",
                topic,
                batch_of(last),
                self._identity.producer_name,
                plan_topic(self._options),
            )

    def _remaining(self, cuts: Sequence[tuple[int, int]], stored: int, topic: str) -> list[tuple[int, int]]:
        """The entries behind what is stored; an entry is stored as a whole or not at all."""
        remaining = [cut for cut in cuts if cut[1] > stored]
        if remaining and remaining[0][0] < stored:
            raise ReplayDiffersError(
                f"batch {self._identity.batch_id} of sink {self._identity.sink_id}, task {self._identity.partition}: "
                f"{topic} holds {stored} rows, which is no end of an entry: they were cut otherwise"
            )
        return remaining
