"""Garbage collection: forgets ledgers that exist no more, removes entry logs nobody needs, compacts sparse ones.

Order of a round. Deleting: note which ledgers are known here, then ask which exist (a ledger is in the metadata
store before its first entry is here, so one that is missing was deleted, or the store lost it:
``core.deletion_guard``), ask once more, write the deletion to the checkpoint.
Compacting: copy the live chunks of the chosen logs to a new log of their own and sync it; then, under the lock,
write the index runs with the new places and a checkpoint that names neither the old runs nor the old logs; only
then unlink those. A crash anywhere leaves either the old or the new checkpoint in force, each complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from pyroaring import BitMap64

from geminga.bookie import crash_points as points
from geminga.bookie.core import entry_log_format as fmt
from geminga.bookie.core.deletion_guard import (
    DeletionGuard,
    Doubt,
    Quarantine,
    decode_mark,
    decode_quarantine,
    encode_mark,
    encode_quarantine,
    lineage,
)
from geminga.bookie.core.gc_plan import GcPlan, LiveBytes, plan_gc
from geminga.bookie.core.index import IndexRun, live_rows, log_of, make_location, offset_of, relocate
from geminga.bookie.core.ledger_states import encode_states
from geminga.bookie.disk_io import is_disk_full, read, unlink_if_there
from geminga.bookie.entry_logs import LogWriter
from geminga.bookie.entry_reader import EntryReader
from geminga.bookie.ledger_storage import LedgerStorage
from geminga.bookie.limits import (
    COMPACTION_BYTES_MAX,
    COMPACTION_ROOM_SHARE,
    FLUSH_BATCH_BYTES_MAX,
    GC_ROWS_PER_TURN,
    UNREAD_LOG_RETRY_S,
)
from geminga.bookie.ports import LiveLedgers
from geminga.model.errors import StorageError, invariant
from geminga.runtime import ReadRequest, crash_point, get_logger, next_turn

_log = get_logger(__name__)

#: File of the ledger directory that names the ledgers in quarantine; none: there are none.
QUARANTINE_NAME = "quarantine"
#: File of the ledger directory with the last mark that the bookie left in the metadata store.
MARK_NAME = "metadata-mark"

#: Location of a chunk -> its new location and size.
Moves = dict[int, tuple[int, int]]


class GcResult(NamedTuple):
    """What one round did."""

    deleted_ledgers: int = 0
    removed_logs: int = 0
    compacted_logs: int = 0
    copied_bytes: int = 0


class GarbageCollector:
    """Runs rounds, one at a time (the bookie sees to that), after :meth:`start`."""

    def __init__(self, storage: LedgerStorage, reader: EntryReader, ledgers: LiveLedgers) -> None:
        self._storage = storage
        self._reader = reader
        self._ledgers = ledgers
        self._guard = DeletionGuard(None, storage.config.quarantine_share)
        #: The quarantine on disk.
        self._noted: Quarantine | None = None
        #: The mark on disk; None: there is none.
        self._mark: int | None = None
        #: The counter of ids when it was left: behind it nothing new can have come to be.
        self._marked_next_id: int | None = None
        #: Logs with a damaged chunk: kept as they are while anybody needs them.
        self._damaged_logs: set[int] = set()
        #: Logs that could not be read, and until when they are left alone: it may pass.
        self._unread_logs: dict[int, float] = {}
        #: True while deletions are not in the checkpoint (there was no space for it).
        self._is_deletion_pending = False
        self._last_minor_s = self._last_major_s = storage.runtime.clock.monotonic()

    def due_threshold(self) -> float:
        """The live share under which logs are due for compaction now; asking counts as doing it."""
        config, now = self._storage.config, self._storage.runtime.clock.monotonic()
        if now - self._last_major_s >= config.major_compaction_interval_s:
            self._last_major_s = self._last_minor_s = now
            self._storage.stats.major_compactions += 1
            return config.major_compaction_threshold
        if now - self._last_minor_s >= config.minor_compaction_interval_s:
            self._last_minor_s = now
            self._storage.stats.minor_compactions += 1
            return config.minor_compaction_threshold
        return 0.0

    def saw(self, ledger_id: int) -> None:
        """A ledger was heard of for the first time: it exists."""
        self._guard.saw(ledger_id)

    async def collect(self, compact_below: float) -> GcResult:
        """One round; logs with a live share under ``compact_below`` are compacted. Raises OSError."""
        deleted = await self.delete_ledgers()
        async with self._storage.lock:
            await self._storage.keep_reserve()
        plan = await self._plan(compact_below)
        if plan.remove:
            # Before anything is copied: that may take the space that these give back.
            unneeded = self._sizes_of(plan.remove)
            await self._switch(plan.remove, {}, None)
            self._storage.stats.reclaimed_by_deletion_bytes += unneeded
        if not plan.compact:
            return GcResult(deleted, len(plan.remove))
        writer, moves, compacted = await self._copy(plan.compact)
        copied_bytes = sum(size for _, size in moves.values())
        if compacted:
            before = self._sizes_of(compacted)
            await self._switch(compacted, moves, writer)
            self._storage.stats.reclaimed_by_compaction_bytes += max(0, before - copied_bytes)
        self._storage.stats.compacted_bytes += copied_bytes
        return GcResult(deleted, len(plan.remove), len(compacted), copied_bytes)

    def _sizes_of(self, log_ids: Iterable[int]) -> int:
        return sum(self._storage.logs.sizes[log_id] for log_id in log_ids)

    async def start(self) -> None:
        """Before the first round: what the last process kept, and which ledgers exist now. Deletes nothing."""
        storage = self._storage
        path = storage.path(QUARANTINE_NAME)
        kept: Quarantine | None
        try:
            kept = decode_quarantine(await storage.runtime.disk.read_file(path), storage.instance_id)
        except FileNotFoundError:
            kept = Quarantine(BitMap64())
        if kept is None:
            _log.error("%s is damaged: no ledger that the metadata store does not list now is deleted", path)
        self._guard = DeletionGuard(kept, storage.config.quarantine_share)
        self._noted = kept
        if kept is not None and kept.ledger_ids:
            storage.stats.quarantined_ledgers = len(kept.ledger_ids)
            _log.error("%s", _quarantine_text(kept, None))
        try:
            self._mark = decode_mark(await storage.runtime.disk.read_file(storage.path(MARK_NAME)), storage.instance_id)
        except FileNotFoundError:
            self._mark = None
        try:
            await self._judge()
        except OSError as error:
            if not is_disk_full(error):
                raise
            _log.warning("no space to note the ledgers in quarantine in %s: %s", path, error)

    async def delete_ledgers(self) -> int:
        """Forget the ledgers that were deleted, not those in quarantine; how many. Raises OSError."""
        storage = self._storage
        dead = await self._judge()
        if not dead and not self._is_deletion_pending:
            return 0
        # Asked once more at the moment of deletion: whatever was wrong with the first list has to be wrong twice.
        live = await self._ledgers.live_ledger_ids() if dead else frozenset()
        if live is None:
            return 0
        async with storage.lock:
            self._is_deletion_pending = True
            dead = [ledger_id for ledger_id in dead if ledger_id not in live]
            storage.states.delete(dead)
            for ledger_id in dead:
                storage.cache.drop_ledger(ledger_id)
            await storage.write_checkpoint(storage.index.runs, gives_back=True)
            self._is_deletion_pending = False
        crash_point(points.GC_LEDGERS_DELETED)
        storage.stats.deleted_ledgers += len(dead)
        return len(dead)

    async def _judge(self) -> list[int]:
        """The ledgers that may be forgotten; the quarantine is noted on disk before. Raises OSError."""
        storage = self._storage
        # First what is known here: a ledger is in the list before its first entry is here.
        known = set(storage.states.master_keys)
        try:
            live = await self._ledgers.live_ledger_ids()
            next_id = await self._ledgers.next_ledger_id()
            mark = await self._ledgers.read_mark(storage.instance_id.hex())
        except StorageError as error:
            _log.warning("which ledgers exist can not be told now: %s", error)
            return []
        if live is None:
            return []
        judgement = self._guard.judge(known, live, next_id, lineage(self._mark, mark))
        quarantine = self._guard.quarantine
        storage.stats.quarantined_ledgers = len(quarantine.ledger_ids)
        if quarantine != self._noted:
            await self._note(quarantine)
        if judgement.quarantined:
            tell = _log.warning if judgement.doubt is Doubt.DELETED else _log.error
            tell("%s", _quarantine_text(quarantine, judgement.doubt))
        elif judgement.released:
            _log.warning("%d ledgers left the quarantine, %d are in it", judgement.released, len(quarantine.ledger_ids))
        if next_id is not None and next_id != self._marked_next_id:
            await self._leave_mark(max(self._mark or 0, mark or 0) + 1, next_id)
        return judgement.deleted

    async def _leave_mark(self, mark: int, next_id: int) -> None:
        """In the store first: one that is noted here and was never there would say that the store is older."""
        storage = self._storage
        try:
            await self._ledgers.write_mark(storage.instance_id.hex(), mark)
        except StorageError as error:
            _log.warning("the bookie's mark can not be left in the metadata store now: %s", error)
            return
        try:
            await storage.runtime.disk.write_file(storage.path(MARK_NAME), encode_mark(mark, storage.instance_id))
        except OSError as error:
            if not is_disk_full(error):
                raise
            # As if it had not been left: what is to be deleted gives room for the next one.
            _log.warning("no space to note the bookie's mark in %s: %s", storage.path(MARK_NAME), error)
            return
        self._mark, self._marked_next_id = mark, next_id

    async def _note(self, quarantine: Quarantine) -> None:
        storage = self._storage
        path = storage.path(QUARANTINE_NAME)
        if quarantine.ledger_ids:
            async with storage.lock:
                await storage.replace_file(QUARANTINE_NAME, encode_quarantine(quarantine, storage.instance_id))
        else:
            await unlink_if_there(storage.runtime.disk, path)
        self._noted = quarantine

    async def _plan(self, compact_below: float) -> GcPlan:
        storage = self._storage
        async with storage.lock:
            # All of one moment. No log but the active one gets rows after it, so that counting may take its time.
            deleted = storage.states.deleted
            rows = live_rows(storage.index.runs, lambda ledger_id: ledger_id in deleted)
            sizes, active_log_id = dict(storage.logs.sizes), storage.active_log_id
        room = await storage.runtime.disk.free_bytes(storage.directory)
        now = storage.runtime.clock.monotonic()
        self._unread_logs = {log_id: until for log_id, until in self._unread_logs.items() if until > now}
        live = LiveBytes()
        while live.add(islice(rows, GC_ROWS_PER_TURN)) == GC_ROWS_PER_TURN:
            await next_turn()
        return plan_gc(
            sizes,
            live.by_log,
            active_log_id=active_log_id,
            compact_below=compact_below,
            # Copies are there beside the originals: who needs the space gets it in steps, each of which finds its own.
            copy_bytes_max=min(COMPACTION_BYTES_MAX, room // COMPACTION_ROOM_SHARE),
            excluded=self._damaged_logs | self._unread_logs.keys(),
        )

    async def _locations(self, log_ids: Iterable[int]) -> dict[int, dict[int, int]]:
        """Of each of the logs: location -> size of its live chunks."""
        deleted = self._storage.states.deleted
        found: dict[int, dict[int, int]] = {log_id: {} for log_id in log_ids}
        rows = live_rows(self._storage.index.runs, lambda ledger_id: ledger_id in deleted)
        while batch := list(islice(rows, GC_ROWS_PER_TURN)):
            for row in batch:
                chunks = found.get(log_of(row.location))
                if chunks is not None:
                    chunks[row.location] = row.size_bytes
            if len(batch) == GC_ROWS_PER_TURN:
                await next_turn()
        return found

    async def _copy(self, log_ids: Collection[int]) -> tuple[LogWriter | None, Moves, list[int]]:
        """Copy live chunks to a new log, synced. Returns its writer, the moves, and the logs copied whole."""
        storage = self._storage
        moves: Moves = {}
        copied: list[int] = []
        writer = await storage.logs.create()
        try:
            rows = storage.states.rows(storage.states.master_keys)
            table = encode_states(rows)
            writer.put(fmt.encode_chunk(fmt.KIND_LEDGERS, 0, 0, len(rows), (table,), writer.seed))
            for log_id, chunks in (await self._locations(log_ids)).items():
                copied_moves = await self._copy_log(log_id, chunks, writer)
                if copied_moves is None:
                    continue
                moves.update(copied_moves)
                copied.append(log_id)
            await writer.sync()
            crash_point(points.GC_ENTRIES_COPIED)
        except OSError:
            await storage.logs.abandon(writer)
            raise
        if not copied:
            await storage.logs.abandon(writer)
            return None, {}, []
        return writer, moves, copied

    async def _copy_log(self, log_id: int, chunks: Mapping[int, int], writer: LogWriter) -> Moves | None:
        """Copy the live ``chunks`` of one log (location -> size).

        None if one of them is damaged, or can not be read: the log is left alone then, or for a while.
        Raises OSError of the new log, or without a descriptor for the old one.
        """
        from geminga.bookie.core.read_plan import plan_reads  # a bookie has little to compact

        storage = self._storage
        moves: Moves = {}
        old_seed = storage.logs.seed(log_id)
        try:
            file = await storage.logs.pin(log_id)
        except OSError as error:
            if is_disk_full(error):
                raise
            self._leave_unread(log_id, "", error)
            return None
        try:
            for plan in plan_reads(chunks.items(), FLUSH_BATCH_BYTES_MAX):
                request = ReadRequest(file, offset_of(plan.location), plan.size_bytes)
                (data,) = await read(storage.runtime.disk, [request], lane=storage.lanes.gc)
                if isinstance(data, OSError):
                    # Of its entries alone, as for who reads them: what is written elsewhere can be trusted still.
                    self._leave_unread(log_id, f" at offset {offset_of(plan.location)}", data)
                    return None
                for location, size in plan.chunks:
                    at = location - plan.location
                    chunk = fmt.decode_chunk(memoryview(data)[at : at + size], 0, old_seed)
                    if chunk is None:
                        path = storage.logs.path(log_id)
                        _log.error("%s at offset %d: damaged, not compacted", path, offset_of(location))
                        self._damaged_logs.add(log_id)
                        return None
                    body = (bytes(chunk.body),)
                    moved = fmt.encode_chunk(
                        chunk.kind, chunk.ledger_id, chunk.first_entry_id, chunk.entry_count, body, writer.seed
                    )
                    offset = writer.put(moved)
                    moves[location] = (make_location(writer.log_id, offset), writer.offset - offset)
                if writer.is_batch_full:
                    await writer.drain()
        finally:
            storage.logs.unpin(log_id)
        return moves

    def _leave_unread(self, log_id: int, place: str, error: OSError) -> None:
        _log.error("%s%s: not compacted: %s", self._storage.logs.path(log_id), place, error)
        self._unread_logs[log_id] = self._storage.runtime.clock.monotonic() + UNREAD_LOG_RETRY_S

    async def _switch(self, removed: Collection[int], moves: Moves, writer: LogWriter | None) -> None:
        """Put index and checkpoint on the new places, then unlink the old logs and runs."""
        storage = self._storage
        async with storage.lock:
            gone = frozenset(removed)
            new_runs, old_runs, moved_runs = [], [], []
            try:
                for run in storage.index.runs:
                    moved = await self._without(run, gone, moves)
                    if moved is not run and not await self._is_written(moved, is_needed=writer is not None):
                        moved = run
                    if moved is run:
                        new_runs.append(run)
                        continue
                    old_runs.append(run)
                    moved_runs.append(moved)
                    new_runs.append(moved)
            except OSError:
                # No checkpoint names any of it, and there is no space to keep it for nothing.
                await storage.unlink_runs(moved_runs)
                if writer is not None:
                    await storage.logs.abandon(writer)
                raise
            crash_point(points.GC_RUN_WRITTEN)
            sizes = {log_id: storage.logs.sizes[log_id] for log_id in removed}
            for log_id in removed:
                del storage.logs.sizes[log_id]
            if writer is not None:
                storage.logs.sizes[writer.log_id] = writer.offset
            try:
                await storage.write_checkpoint(new_runs, gives_back=writer is None)
            except OSError as error:
                storage.logs.sizes.update(sizes)
                if writer is not None:
                    del storage.logs.sizes[writer.log_id]
                await self._leave_unnamed(moved_runs, writer, error)
                raise
            crash_point(points.GC_BEFORE_UNLINK)
            if writer is not None:
                await storage.logs.close_writer(writer)
            for log_id in removed:
                self._reader.forget_log(log_id)
                try:
                    await storage.logs.remove(log_id)
                except OSError as error:
                    _log.warning("could not remove %s: %s", storage.logs.path(log_id), error)
            await storage.unlink_runs(old_runs)
            await storage.keep_reserve()
            storage.stats.removed_logs += len(removed)
            crash_point(points.GC_AFTER_UNLINK)

    async def _leave_unnamed(self, runs: Iterable[IndexRun], writer: LogWriter | None, error: OSError) -> None:
        """The checkpoint that was to name these could not be written: see ``LedgerStorage.unlink_unnamed``."""
        storage = self._storage
        await storage.unlink_unnamed(runs, error)
        if writer is None:
            return
        if is_disk_full(error):
            await storage.logs.abandon(writer)
            return
        try:
            await storage.logs.close_writer(writer)
        except OSError as failure:
            _log.warning("closing %s: %s", storage.logs.path(writer.log_id), failure)

    async def _is_written(self, run: IndexRun, *, is_needed: bool) -> bool:
        """Whether the run has a file now. Where it is not needed, the old one may stay: it has rows of deleted ledgers
        in logs that are gone, which nobody asks for and the next merge leaves out. Raises OSError."""
        try:
            await self._storage.write_run(run)
        except OSError as error:
            if is_needed or not is_disk_full(error):
                raise
            return False
        return True

    async def _without(self, run: IndexRun, gone: frozenset[int], moves: Moves) -> IndexRun:
        """The run itself if it does not refer to the logs that go; else one with the new places.

        Rows of deleted ledgers in those logs are left out.
        """
        there = self._storage.logs.sizes.keys() - gone
        if all(log_of(location) in there for location in run.locations):
            return run
        await next_turn()
        deleted = self._storage.states.deleted
        kept = IndexRun()
        moved = relocate(run, moves)
        for i, ledger_id in enumerate(moved.ledger_ids):
            if ledger_id not in deleted:
                kept.add_slice(ledger_id, moved, moved.starts[i], moved.starts[i + 1])
        written = {log_of(location) for location, _ in moves.values()}
        invariant(
            all(log_of(location) in there or log_of(location) in written for location in kept.locations),
            f"run {run.run_id} lost a chunk",
        )
        kept.state_ids.extend(ledger_id for ledger_id in moved.state_ids if ledger_id not in deleted)
        return kept


_BACKUP = "Was it restored from an older backup? Bring the newer one back, or start"
#: Why ledgers are in quarantine, and what to do; None: it was found before the last start.
_WHY = {
    Doubt.IDS: f"the metadata store gave out no such ids yet. {_BACKUP}",
    Doubt.MARK: f"the metadata store is older than what this bookie last saw of it. {_BACKUP}",
    Doubt.RECORD: "the metadata store does not list them, and the record of those that were kept is damaged. Start",
    Doubt.DELETED: (
        "the metadata store does not list them, but newer ones. That is so after many were deleted just before the "
        "last process here was killed. If it was, start"
    ),
    Doubt.UNSEEN: f"the metadata store does not list them, and nobody here saw them being deleted. {_BACKUP}",
    None: (
        "the metadata store does not list them, and an earlier start found that they may not have been deleted (its "
        "log says why). Bring the store back that lists them, or start"
    ),
}


def _quarantine_text(quarantine: Quarantine, doubt: Doubt | None) -> str:
    ids = quarantine.ledger_ids
    return (
        f"{len(ids)} ledgers ({ids.min()} to {ids.max()}) of the {quarantine.of} that were stored here are kept: "
        f"{_WHY[doubt]} once with gemingaGarbageQuarantineShare=1 to delete them"
    )
