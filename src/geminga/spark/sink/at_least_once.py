"""At least once: rows leave as they come, in entries as large as the options say; a replay writes them again.

Exactly once writes so, too, in a transaction that is begun before the first entry is handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from geminga.client import Transaction
from geminga.model.topic_name import TopicName
from geminga.spark.process.clients import ClientSession
from geminga.spark.sink.arrow_rows import RowReader, SinkRows
from geminga.spark.sink.producers import (
    TASK_PRODUCERS_MAX,
    KeptProducer,
    forget_producers,
    kept_producer,
    partition_names,
    release_producers,
)
from geminga.spark.sink.records import EncodedPayload
from geminga.spark.sink.sending import EntryPump
from geminga.spark.sink_rules.entries import encode_entries
from geminga.spark.sink_rules.errors import SinkError
from geminga.spark.sink_rules.message_columns import MessageColumns, cut_entries
from geminga.spark.sink_rules.routing import Router, rows_by_destination
from geminga.spark.sink_rules.sink_options import SinkOptions

#: Rows that wait for a full entry, over all destinations, bytes; more and all of them leave.
WAITING_ROWS_BYTES_MAX: Final = 64 << 20


@dataclass(slots=True)
class _Topic:
    """One output topic of the task."""

    names: list[str]
    #: None: it has no partitions.
    router: Router | None
    destinations: list[_Destination | None]
    rows: int = 0


@dataclass(slots=True)
class _Destination:
    """One producer, and the rows that are no full entry yet."""

    kept: KeptProducer
    waiting: MessageColumns | None = None
    waiting_bytes: int = field(default=0)
    #: What its producer had sent again before this task.
    unsure_before: int = field(init=False)

    def __post_init__(self) -> None:
        self.unsure_before = self.kept.producer.unsure_resends

    @property
    def is_unsure(self) -> bool:
        """Whether rows may be stored twice: see :attr:`EntryProducer.unsure_resends`."""
        return self.kept.producer.unsure_resends > self.unsure_before


class AtLeastOnceWriter:
    """Writes the rows of one task."""

    __slots__ = (
        "_begin",
        "_opened",
        "_options",
        "_pump",
        "_schema",
        "_session",
        "_spread",
        "_topics",
        "_waiting_bytes",
    )

    def __init__(
        self,
        session: ClientSession,
        options: SinkOptions,
        schema: EncodedPayload | None,
        spread: int,
        begin: Callable[[], Transaction] | None = None,
    ) -> None:
        """``spread``: where rows without key begin; tasks that differ in it begin at other partitions. ``begin`` gives
        the transaction that the rows are sent in, and is called before the first is."""
        self._begin = begin
        self._session = session
        self._options = options
        self._schema = schema
        self._spread = spread
        self._pump = EntryPump(session, options.producer.send_timeout_ms)
        self._topics: dict[str, _Topic] = {}
        self._waiting_bytes = 0
        #: Topics and partitions that it has rows for.
        self._opened = 0

    def write(self, reader: RowReader, batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
        """Send all rows and wait for their receipts; topic -> rows. Raises what went wrong."""
        try:
            for batch in batches:
                if batch.num_rows:
                    self._add(reader.read(batch))
            self._for_each_waiting(self._send_all)
            self._pump.finish(one.kept.producer for one in self._destinations())
        except BaseException:
            forget_producers([one.kept for one in self._destinations()])
            raise
        finally:
            self._pump.close()
            release_producers([one.kept for one in self._destinations()])
        return {name: topic.rows for name, topic in self._topics.items()}

    @property
    def unsure_topics(self) -> list[str]:
        """Topics and partitions that may have rows twice."""
        return [one.kept.producer.topic() for one in self._destinations() if one.is_unsure]

    def _destinations(self) -> list[_Destination]:
        return [one for topic in self._topics.values() for one in topic.destinations if one is not None]

    def _add(self, rows: SinkRows) -> None:
        if rows.topics is None:
            self._add_to(self._options.topic, rows.messages, rows.partitions)
        else:
            numbers = {name: number for number, name in enumerate(dict.fromkeys(rows.topics))}
            grouped = rows_by_destination([numbers[name] for name in rows.topics])
            names = list(numbers)
            for number, indices in grouped.items():
                if len(indices) == len(rows.messages):
                    self._add_to(names[number], rows.messages, rows.partitions)
                else:
                    given = rows.partitions
                    partitions = None if given is None else [given[index] for index in indices]
                    self._add_to(names[number], rows.messages.take(indices), partitions)
        if self._waiting_bytes > WAITING_ROWS_BYTES_MAX:
            self._for_each_waiting(self._send_all)

    def _add_to(self, name: str, messages: MessageColumns, partitions: list[int | None] | None) -> None:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = self._open(name)
        topic.rows += len(messages)
        router = topic.router or Router(1, is_murmur3=False)
        if topic.router is None and partitions is None:
            self._add_rows(topic, 0, messages)
            return
        for index, rows in rows_by_destination(router.route(messages.keys, partitions, len(messages))).items():
            self._add_rows(topic, index, messages if len(rows) == len(messages) else messages.take(rows))

    def _open(self, name: str) -> _Topic:
        if self._begin is not None and not TopicName.parse(name).is_persistent:
            raise SinkError(
                f"guarantee=exactly-once can not be kept on {name}: what is not stored is in no transaction"
            )
        partitions = self._session.run(lambda: self._session.client.lookup.partitions(name))
        names = partition_names(name, partitions)
        router = None
        if partitions:
            murmur3 = self._options.producer.is_murmur3
            router = Router(partitions, is_murmur3=murmur3, keyless_rows=self._spread)
        return _Topic(names, router, [None] * len(names))

    def _add_rows(self, topic: _Topic, index: int, messages: MessageColumns) -> None:
        destination = topic.destinations[index]
        if destination is None:
            self._opened += 1
            if self._opened > TASK_PRODUCERS_MAX:
                raise SinkError(
                    f"a task has rows for more than {TASK_PRODUCERS_MAX} topics and partitions: repartition the rows "
                    "by their topic before the write, so that each task has fewer"
                )
            kept = kept_producer(self._session, topic.names[index], self._options.producer, self._schema)
            kept.is_used = True
            destination = topic.destinations[index] = _Destination(kept)
        self._waiting_bytes -= destination.waiting_bytes
        if destination.waiting is not None:
            destination.waiting.extend(messages)
            messages = destination.waiting
        settings = self._options.producer
        cuts = cut_entries(messages, settings.batch_messages_max, settings.batch_bytes_max)
        start = cuts[-1][0]
        self._send(destination, messages, cuts[:-1])
        destination.waiting = messages.part(start, len(messages))
        destination.waiting_bytes = sum(destination.waiting.sizes())
        self._waiting_bytes += destination.waiting_bytes

    def _for_each_waiting(self, send: Callable[[_Destination, MessageColumns], None]) -> None:
        for destination in self._destinations():
            if destination.waiting is not None:
                send(destination, destination.waiting)
                destination.waiting, destination.waiting_bytes = None, 0
        self._waiting_bytes = 0

    def _send_all(self, destination: _Destination, messages: MessageColumns) -> None:
        settings = self._options.producer
        self._send(destination, messages, cut_entries(messages, settings.batch_messages_max, settings.batch_bytes_max))

    def _send(self, destination: _Destination, messages: MessageColumns, cuts: list[tuple[int, int]]) -> None:
        if not cuts:
            return
        if self._begin is not None and self._pump.txn is None:
            self._pump.txn = self._begin()
        kept = destination.kept
        alone_above = self._options.producer.alone_above
        for entry in encode_entries(messages, cuts, kept.next_sequence_id, alone_above):
            self._pump.put(kept.producer, entry)
        kept.next_sequence_id += cuts[-1][1]
