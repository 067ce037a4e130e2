"""What a Spark task does: read its ranges one after the other, as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from geminga.spark.process.clients import ClientSession, session_for
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.source.arrow import MessageRows, RowColumns, cut_by_bytes
from geminga.spark.source.entry_rows import Piece
from geminga.spark.source.range_read import RangeReader
from geminga.spark.source_rules.options import ReaderConfiguration
from geminga.spark.source_rules.planner import Task, TopicRange

#: (messages of one topic, the topic) -> rows.
Decode = Callable[[RowColumns, str], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task as it travels to its worker."""

    ranges: Task
    #: Topics where nothing can be missing at the start of their range.
    known_starts: frozenset[str] = frozenset()
    #: Of a stream that was started by a time; None: the configuration's holds.
    time_from_ms: int | None = None
    #: Topics that are read for the first time.
    first_reads: frozenset[str] = frozenset()


def read_task(
    plan: TaskPlan, client: ClientConfiguration, config: ReaderConfiguration, decode: Decode
) -> Iterator[pa.RecordBatch]:
    """The rows of the task. Closing the iterator leaves the broker."""
    session = session_for(client)
    if plan.time_from_ms is not None:
        config = replace(config, time_from_ms=plan.time_from_ms)
    for wanted in plan.ranges:
        is_known = wanted.is_first and wanted.topic in plan.known_starts
        given = replace(config, is_first_read=True) if wanted.topic in plan.first_reads else config
        yield from read_range(session, wanted, given, decode, is_start_known=is_known)


def read_range(
    session: ClientSession,
    wanted: TopicRange,
    config: ReaderConfiguration,
    decode: Decode,
    *,
    is_start_known: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of one range, from its broker."""
    reader = RangeReader(session.client, wanted, config, is_start_known=is_start_known)
    waiting: list[Piece] = []
    size = 0
    try:
        while (pieces := session.run(reader.next)) is not None:
            # What came in small portions is gathered: a batch of few rows costs as much as one of many.
            waiting += in_time(pieces, config)
            size = sum(piece.entry.size_bytes for piece in waiting)
            if size < config.arrow_batch_bytes:
                continue
            *full, waiting = cut_by_bytes(waiting, config.arrow_batch_bytes)
            for group in full:
                yield decode(MessageRows(group), wanted.topic)
        for group in cut_by_bytes(waiting, config.arrow_batch_bytes):
            yield decode(MessageRows(group), wanted.topic)
    finally:
        session.run(reader.close)


def in_time(pieces: list[Piece], config: ReaderConfiguration) -> list[Piece]:
    """Those published within the time bounds; all messages of a batch have one publish time."""
    first, last = config.time_from_ms, config.time_to_ms
    if first is None and last is None:
        return pieces
    return [
        piece
        for piece in pieces
        if (first is None or piece.entry.metadata.publish_time >= first)
        and (last is None or piece.entry.metadata.publish_time < last)
    ]
