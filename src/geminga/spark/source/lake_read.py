"""What a task does whose rows lie in files of a lake, or on both sides of the seam.

A row group is read as a whole before any of its rows is given, so where a file is gone or damaged the broker goes on
exactly there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from geminga.lake.core.rows import MESSAGE
from geminga.lake.parquet import LedgerFileReader
from geminga.model.errors import CorruptionError, DiskIOError, GemingaError
from geminga.runtime import get_logger
from geminga.spark.process.clients import ClientSession, session_for
from geminga.spark.rules import metadata_columns as names
from geminga.spark.rules.columns import KEY_PART, VALUE
from geminga.spark.source.lake_files import store_of
from geminga.spark.source.lake_rows import LakeRows
from geminga.spark.source.task_read import Decode, read_range
from geminga.spark.source_rules.errors import LakeError
from geminga.spark.source_rules.lake_plan import LakeRange, Piece
from geminga.spark.source_rules.offsets import ReadPosition
from geminga.spark.source_rules.options import ReaderConfiguration, SourceOptions
from geminga.spark.source_rules.planner import TopicRange

_log = get_logger(__name__)

#: Columns of Spark -> those of files.
_COLUMNS: Final = {
    VALUE: ("value",),
    KEY_PART: ("key",),
    names.KEY: ("key",),
    names.MESSAGE_ID: ("entry", "batch_index", "batch_size"),
    names.PUBLISH_TIME: ("publish_time",),
    names.EVENT_TIME: ("event_time",),
    names.PROPERTIES: ("properties",),
    names.PRODUCER_NAME: ("producer_name",),
    names.SEQUENCE_ID: ("sequence_id",),
    names.SCHEMA_VERSION: ("schema_version",),
}

#: What goes along with a message that does not fit, whatever columns are read.
_SENT_ON: Final = frozenset(("value", "key", "event_time", "properties"))


@dataclass(frozen=True, slots=True)
class LakeTask:
    """One task as it travels to its worker."""

    pieces: tuple[Piece, ...]


def read_lake_task(
    task: LakeTask, options: SourceOptions, decode: Decode, arrow: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of the task, in the order of its topics."""
    session = session_for(options.client)
    config = options.bounded_reader
    for piece in task.pieces:
        if isinstance(piece, TopicRange):
            yield from read_range(session, piece, config, decode)
        else:
            yield from _read_file(session, piece, options, decode, arrow)


def _read_file(
    session: ClientSession, piece: LakeRange, options: SourceOptions, decode: Decode, arrow: pa.Schema
) -> Iterator[pa.RecordBatch]:
    assert options.lake is not None
    config = options.bounded_reader
    at = piece.start
    try:
        file = LedgerFileReader(store_of(options.lake), piece.path)
        wanted = _columns(arrow, options, config)
        is_pure = set(file.contents.kinds) <= {MESSAGE} and config.time_from_ms is None and config.time_to_ms is None
        if is_pure:
            wanted.remove("kind")
        for group in range(piece.first_group, piece.end_group):
            ids = file.entries_of(group)
            table = file.read_columns(group, wanted)
            first, behind = ReadPosition(at.ledger_id, ids.start), ReadPosition(at.ledger_id, ids.stop)
            if not is_pure or first < piece.start or behind > piece.end:
                table = _kept(table, piece, config)
            rows = LakeRows(table, piece.topic, at.ledger_id)
            at = max(at, behind)
            parts = max(1, -(-rows.size_bytes // config.arrow_batch_bytes))
            for part in rows.parts(parts):
                yield decode(part, piece.topic)
        return
    except (CorruptionError, DiskIOError) as error:
        _log.warning("%s from %s on is read from the broker: %s", piece.topic, at, error)
        cause = error
    if at >= piece.end:
        return
    try:
        yield from read_range(session, TopicRange(piece.topic, at, piece.end), config, decode)
    except GemingaError as error:
        raise LakeError(f"{cause}; nor does the broker have it: {error}") from error


def _columns(arrow: pa.Schema, options: SourceOptions, config: ReaderConfiguration) -> list[str]:
    """What is read of a file."""
    found = {"kind", "entry", "batch_index"}
    if options.schema_mode != "raw":
        found |= {"value", "schema_version"}
    if config.time_from_ms is not None or config.time_to_ms is not None:
        found.add("publish_time")
    if options.bad_records_topic:
        found |= _SENT_ON
    for field in arrow:
        found.update(_COLUMNS.get(field.name, ()))
    return sorted(found)


def _kept(table: pa.Table, piece: LakeRange, config: ReaderConfiguration) -> pa.Table:
    """The messages of a row group that belong to the range."""
    entry = table.column("entry")
    index = pc.max_element_wise(table.column("batch_index"), pa.scalar(0, pa.int32()))
    is_kept = pa.repeat(pa.scalar(value=True), table.num_rows)
    if "kind" in table.column_names:
        is_kept = pc.equal(table.column("kind"), MESSAGE)
    (_, first, first_index), (_, last, last_index) = piece.start, piece.end
    from_start = pc.or_(pc.greater(entry, first), pc.and_(pc.equal(entry, first), pc.greater_equal(index, first_index)))
    to_end = pc.or_(pc.less(entry, last), pc.and_(pc.equal(entry, last), pc.less(index, last_index)))
    is_kept = pc.and_(is_kept, pc.and_(from_start, to_end))
    for bound, compare in ((config.time_from_ms, pc.greater_equal), (config.time_to_ms, pc.less)):
        if bound is not None:
            times = pc.cast(table.column("publish_time"), pa.int64())
            is_kept = pc.and_(is_kept, compare(times, bound))
    return table if pc.all(is_kept, min_count=0).as_py() else table.filter(is_kept)
