"""Ledger storage: write cache, entry logs, index and checkpoint of one bookie, and how entries get from one to
the other.

A flush turns the halves of the write cache, writes the full one to the entry logs (sorted by ledger and entry),
syncs them, writes an index run, then the checkpoint with the new mark; only then may journals go. Each step is
complete before the next begins, so a crash between any two leaves the previous checkpoint in force and the
journal has the rest. Flush, merge and the switching step of compaction exclude each other by one lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from pyroaring import BitMap64

from geminga.bookie import crash_points as points
from geminga.bookie.config import BookieConfig
from geminga.bookie.core import entry_log_format as log_format
from geminga.bookie.core.checkpoint_format import Checkpoint, encode_checkpoint
from geminga.bookie.core.index import Index, IndexRun, Row, make_location, merge_runs, runs_to_merge
from geminga.bookie.core.index_format import encode_run
from geminga.bookie.core.ledger_states import LedgerStateRow, LedgerStates, encode_states
from geminga.bookie.core.write_cache import WriteCache
from geminga.bookie.disk_io import ONLY_LANES, DiskLanes, DiskReserve, is_disk_full
from geminga.bookie.entry_logs import EntryLogs, LogWriter
from geminga.bookie.limits import (
    CACHED_ENTRY_OVERHEAD_BYTES,
    CHUNK_BYTES_MAX,
    CHUNKS_PER_TURN,
    FLUSH_BYTES,
    INDEX_RUNS_MAX,
    MERGE_ROWS_PER_TURN,
    RESERVE_BYTES,
)
from geminga.bookie.stats import BookieStats
from geminga.model.errors import invariant
from geminga.runtime import Runtime, crash_point, get_logger, next_turn

_log = get_logger(__name__)

CHECKPOINT_NAME = "checkpoint"
RUN_SUFFIX = ".index"

#: (group sequence, journal id): see ``Checkpoint``.
Mark = tuple[int, int]


def run_name(run_id: int) -> str:
    """File name of an index run."""
    return f"{run_id:010d}{RUN_SUFFIX}"


async def merged_in_turns(runs: Sequence[IndexRun], is_dropped: Callable[[int], bool]) -> IndexRun:
    """One run of all, without the rows of ledgers that are dropped; others have their turns meanwhile."""
    steps = merge_runs(runs, is_dropped, MERGE_ROWS_PER_TURN)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            merged: IndexRun = stop.value
            return merged
        await next_turn()


class LedgerStorage:
    """See the module's docstring; ``recovery`` fills it from the disk."""

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        instance_id: bytes,
        config: BookieConfig,
        *,
        stats: BookieStats,
        lanes: DiskLanes = ONLY_LANES,
    ) -> None:
        self.runtime = runtime
        self.lanes = lanes
        self.directory = directory
        self.instance_id = instance_id
        self.config = config
        self.stats = stats
        self.cache = WriteCache(config.write_cache_half_bytes, CACHED_ENTRY_OVERHEAD_BYTES, FLUSH_BYTES)
        self.states = LedgerStates()
        self.index = Index()
        self.logs = EntryLogs(runtime, directory, instance_id, config.open_file_limit, lanes)
        self._reserve = DiskReserve(runtime, directory, lanes.gc)
        #: Bytes of the last checkpoint.
        self._checkpoint_bytes = 0
        #: What is on disk; the mark of the next flush must not be older.
        self.checkpoint = Checkpoint()
        #: Held by whoever changes runs, logs or checkpoint.
        self.lock = asyncio.Lock()
        self._writer: LogWriter | None = None
        self._next_run_id = 1
        #: Mark and changed ledgers of the flush under way (kept while it is retried).
        self._flush_mark: Mark = (0, 0)
        self._flush_dirty: set[int] = set()

    @property
    def active_log_id(self) -> int | None:
        """The log that the next flush writes to."""
        return self._writer.log_id if self._writer is not None else None

    @property
    def has_unflushed(self) -> bool:
        """Whether the filling half holds anything that a checkpoint would have to write."""
        return bool(self.cache.filling or self.states.dirty)

    def path(self, name: str) -> str:
        """Path of a file of the ledger directory."""
        return f"{self.directory}/{name}"

    async def adopt(self, checkpoint: Checkpoint, runs: Iterable[IndexRun]) -> None:
        """Take over what recovery read; go on with the newest log. Raises OSError."""
        self.checkpoint = checkpoint
        self.states.deleted = BitMap64.deserialize(checkpoint.deleted) if checkpoint.deleted else BitMap64()
        self.states.limbo = BitMap64.deserialize(checkpoint.limbo) if checkpoint.limbo else BitMap64()
        self.index.runs = list(runs)
        self.logs.sizes = dict(checkpoint.logs)
        self.logs.next_log_id = checkpoint.next_log_id
        self._next_run_id = checkpoint.next_run_id
        newest = max(self.logs.sizes, default=None)
        if newest is not None and self.logs.sizes[newest] < self.config.log_size_limit:
            self._writer = await self.logs.reopen(newest)

    def begin_flush(self, mark: Mark) -> None:
        """Turn the halves. ``mark``: every record of the half that is full now is at most one group behind it."""
        self.cache.begin_flush()
        self._flush_mark = mark
        self._flush_dirty = self.states.take_dirty()

    async def flush(self) -> None:
        """Carry out the flush begun; raises OSError, after which it can be tried again."""
        async with self.lock:
            entries = self.cache.flushing
            invariant(entries is not None, "flush without begin_flush")
            assert entries is not None
            crash_point(points.FLUSH_SWAPPED)
            flushed_bytes = self.cache.flushing_bytes
            made: list[IndexRun] = []
            if entries or self._flush_dirty:
                run = await self._write_entries(entries)
                run.state_ids.extend(sorted(self._flush_dirty))
                await self.write_run(run)
                crash_point(points.FLUSH_RUN_WRITTEN)
                made = [run]
            try:
                await self.write_checkpoint([*self.index.runs, *made], mark=self._flush_mark)
            except OSError as error:
                await self.unlink_unnamed(made, error)
                raise
            crash_point(points.FLUSH_MARK_WRITTEN)
            self.cache.end_flush()
            self._flush_dirty = set()
            self.stats.flushes += 1
            self.stats.flushed_bytes += flushed_bytes

    async def _write_entries(self, entries: dict[int, dict[int, bytes]]) -> IndexRun:
        """All entries in the entry logs, synced; the rows that say where."""
        run = IndexRun()
        chunks = 0
        try:
            await self._put_states()
            for ledger_id in sorted(entries):
                rows = []
                for first, stretch in log_format.split_into_chunks(entries[ledger_id], CHUNK_BYTES_MAX):
                    writer = await self._writer_with_room()
                    chunk = log_format.encode_entries(ledger_id, first, stretch, writer.seed)
                    offset = writer.put(chunk)
                    rows.append(Row(first, len(stretch), writer.offset - offset, make_location(writer.log_id, offset)))
                    chunks += 1
                    if writer.is_batch_full:
                        await writer.drain()
                    elif chunks % CHUNKS_PER_TURN == 0:
                        await next_turn()
                run.add_ledger(ledger_id, rows)
            if self._writer is not None:
                await self._writer.drain()
                crash_point(points.FLUSH_LOG_WRITTEN)
                await self._sync_writer(self._writer)
        except OSError:
            writer_or_none, self._writer = self._writer, None
            if writer_or_none is not None:
                await self.logs.abandon(writer_or_none)
            raise
        crash_point(points.FLUSH_LOG_SYNCED)
        return run

    async def _put_states(self) -> None:
        """The changed ledger states as a chunk: with the entries, they let the index be rebuilt."""
        if self._flush_dirty:
            writer = await self._writer_with_room()
            rows = self.states.rows(self._flush_dirty)
            writer.put(
                log_format.encode_chunk(log_format.KIND_LEDGERS, 0, 0, len(rows), (encode_states(rows),), writer.seed)
            )

    async def _writer_with_room(self) -> LogWriter:
        """The active log, or a new one that opens with the states of all ledgers."""
        writer = self._writer
        if writer is not None and writer.offset < self.config.log_size_limit:
            return writer
        if writer is not None:
            await self._sync_writer(writer)
            self._writer = None
            await self.logs.close_writer(writer)
        writer = await self.logs.create()
        self._writer = writer
        crash_point(points.FLUSH_LOG_CREATED)
        rows = self.states.rows(self.states.master_keys)
        writer.put(
            log_format.encode_chunk(log_format.KIND_LEDGERS, 0, 0, len(rows), (encode_states(rows),), writer.seed)
        )
        return writer

    async def _sync_writer(self, writer: LogWriter) -> None:
        await writer.sync()
        self.logs.sizes[writer.log_id] = writer.offset

    async def write_run(self, run: IndexRun, states: Sequence[LedgerStateRow] | None = None) -> None:
        """Give the run a file, durably; ``states``: if not those of now. Raises OSError."""
        run_id = self._next_run_id
        self._next_run_id += 1
        rows = self.states.rows(run.state_ids) if states is None else states
        data = encode_run(run, run_id, rows, self.instance_id)
        await self.runtime.disk.write_file(self.path(run_name(run_id)), data)
        run.run_id = run_id

    async def write_checkpoint(
        self,
        runs: Sequence[IndexRun],
        *,
        mark: Mark | None = None,
        deleted: BitMap64 | None = None,
        gives_back: bool = False,
    ) -> None:
        """Make ``runs``, the logs and the mark the ones in force; ``deleted``: if not those of now.

        ``gives_back``: room comes back by it, for which a full disk has a reserve. Raises OSError; the old ones are
        then in force.
        """
        old = self.checkpoint
        sequence, journal_id = mark if mark is not None else (old.mark_sequence, old.mark_journal_id)
        invariant(
            sequence >= old.mark_sequence and journal_id >= old.mark_journal_id,
            f"the mark would go back from {old.mark_sequence}@{old.mark_journal_id} to {sequence}@{journal_id}",
        )
        new = Checkpoint(
            serial=old.serial + 1,
            mark_sequence=sequence,
            mark_journal_id=journal_id,
            next_log_id=self.logs.next_log_id,
            next_run_id=self._next_run_id,
            run_ids=tuple(run.run_id for run in runs),
            logs=tuple(sorted(self.logs.sizes.items())),
            deleted=(self.states.deleted if deleted is None else deleted).serialize(),
            limbo=self.states.limbo.serialize() if self.states.limbo else b"",
        )
        data = encode_checkpoint(new, self.instance_id)
        if gives_back:
            await self.replace_file(CHECKPOINT_NAME, data)
        else:
            await self.runtime.disk.write_file(self.path(CHECKPOINT_NAME), data)
        self._checkpoint_bytes = len(data)
        self.checkpoint = new
        self.index.runs = list(runs)

    async def replace_file(self, name: str, data: bytes) -> None:
        """Replace a small file durably; on a full disk in the room of the reserve. The lock is held. Raises OSError."""
        try:
            await self.runtime.disk.write_file(self.path(name), data)
        except OSError as error:
            if not is_disk_full(error) or not await self._reserve.replace(self.path(name), data):
                raise
            await self.keep_reserve()

    async def keep_reserve(self) -> None:
        """Take the room of the reserve, where it is not there and the disk has it. The lock is held."""
        wanted_bytes = max(RESERVE_BYTES, 2 * self._checkpoint_bytes)
        if self._reserve.size_bytes < wanted_bytes:
            await self._reserve.make(wanted_bytes)

    async def merge_if_needed(self) -> None:
        """Merge the newest index runs once there are too many. Raises OSError; the runs then stay as they are."""
        async with self.lock:
            taken = runs_to_merge([len(run) for run in self.index.runs], INDEX_RUNS_MAX)
            if not taken:
                return
            kept, old = self.index.runs[:-taken], self.index.runs[-taken:]
            deleted = self.states.deleted
            merged = await merged_in_turns(old, lambda ledger_id: ledger_id in deleted)
            await self.write_run(merged)
            crash_point(points.MERGE_RUN_WRITTEN)
            try:
                await self.write_checkpoint([*kept, merged])
            except OSError as error:
                await self.unlink_unnamed([merged], error)
                raise
            crash_point(points.MERGE_MARK_WRITTEN)
            self.stats.merges += 1
            await self.unlink_runs(old)

    async def unlink_unnamed(self, runs: Iterable[IndexRun], error: OSError) -> None:
        """The checkpoint that was to name these could not be written. On a full disk it is nowhere, and each attempt
        would leave its runs; after any other error it may be in place, and the next start finds what it names."""
        if is_disk_full(error):
            await self.unlink_runs(runs)

    async def unlink_runs(self, runs: Iterable[IndexRun]) -> None:
        """Remove files of runs that the checkpoint no longer names."""
        for run in runs:
            try:
                await self.logs.held.unlink(self.path(run_name(run.run_id)))
            except OSError as error:
                _log.warning("could not remove index run %d: %s", run.run_id, error)

    async def close(self) -> None:
        """Close all files; nothing is flushed."""
        if self._writer is not None:
            await self.logs.close_writer(self._writer)
            self._writer = None
        await self.logs.close()
