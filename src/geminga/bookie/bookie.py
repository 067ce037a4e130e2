"""The bookie: one storage node, in this process. Implements the port ``model.bookie_port.Bookie``.

An add goes to the write cache, then to the journal; it is acknowledged when its journal group is on stable
storage. A full write cache is flushed in the background (``checkpoints``); while both halves are full adds wait their
turn. When the disk is full (``disk_room``), adds fail with ``DiskFullError`` until a probe finds space again; nothing
acknowledged is lost. All methods are called on the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from geminga.bookie import crash_points as points
from geminga.bookie.checkpoints import Checkpoints
from geminga.bookie.config import BookieConfig
from geminga.bookie.core.journal_format import encode_add_header, encode_adds
from geminga.bookie.disk_io import ONLY_LANES, DiskLanes, is_disk_full
from geminga.bookie.disk_room import DiskRoom
from geminga.bookie.entry_reader import EntryReader
from geminga.bookie.garbage_collection import GarbageCollector, GcResult
from geminga.bookie.journal import Journal
from geminga.bookie.ledger_contents import LedgerContents
from geminga.bookie.ledger_notes import LedgerNotes
from geminga.bookie.ledger_storage import LedgerStorage
from geminga.bookie.newcomers import GoOn, Newcomers
from geminga.bookie.ports import LiveLedgers
from geminga.bookie.questions import LedgerQuestions
from geminga.bookie.recovery import enter_limbo, establish_identity, load_storage, replay_journal
from geminga.bookie.stats import BookieStats
from geminga.model.bookie_port import (
    FIRST_ID_SURE,
    IDS_END,
    AddDone,
    Availability,
    AvailabilityListener,
    FenceDone,
    InfoDone,
    LacDone,
    ListDone,
    ReadDone,
    WriteLacDone,
    fence_then_read_lac,
    ids_error,
)
from geminga.model.errors import (
    CorruptionError,
    DiskFullError,
    DiskIOError,
    StorageError,
)
from geminga.runtime import Runtime, again, crash_point, get_logger, spawn

_log = get_logger(__name__)


class LocalBookie:
    """See the module's docstring. Made by :meth:`open`."""

    def __init__(
        self,
        runtime: Runtime,
        storage: LedgerStorage,
        journal_directory: str,
        config: BookieConfig,
        ledgers: LiveLedgers,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._storage = storage
        directories = tuple(dict.fromkeys((storage.directory, journal_directory)))
        #: Whether the disks let it take entries.
        self.room = DiskRoom(
            runtime, storage.directory, directories, config.disk_usage_threshold, storage.stats, self._refuse_waiting
        )
        self._journal = Journal(
            runtime,
            journal_directory,
            storage.instance_id,
            config,
            on_full=self.room.became_full,
            lane=storage.lanes.journal,
        )
        #: For inspection and metrics.
        self.reader = EntryReader(storage)
        self._contents = LedgerContents(storage, self.reader)
        self._ledgers = LedgerQuestions(ledgers)
        self._collector = GarbageCollector(storage, self.reader, self._ledgers)
        self._newcomers = Newcomers(ledgers, runtime.clock)
        self._collecting = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self.stats: BookieStats = storage.stats
        self._cache = storage.cache
        self._states = storage.states
        self._master_keys = storage.states.master_keys
        self._fenced = storage.states.fenced
        self._has_limbo = bool(storage.states.limbo)
        #: Adds that came while both halves of the cache were full: bounded by what the callers have in flight.
        self._waiting: deque[_Add] = deque()
        self._notes = LedgerNotes(storage.states, self._journal, self._collector.saw)
        self._unjournaled = self._notes.unjournaled
        self._checkpoints = Checkpoints(storage, self._journal, self.room, self._drain_waiting)
        self._timers: list[asyncio.TimerHandle] = []
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        directory: str,
        config: BookieConfig,
        *,
        ledgers: LiveLedgers,
        expected_instance_id: str | None = None,
        lanes: DiskLanes = ONLY_LANES,
        part: str = "",
    ) -> LocalBookie:
        """Recover the bookie in ``directory``, or make a new one there.

        ``expected_instance_id`` (32 hex digits) is what the metadata store remembers of this bookie: another or a
        wiped directory is refused. ``lanes``: of the disk, where several share a process. ``part``: which pair of
        directories of a bookie that has several, as ``2-of-3`` (``spread``).
        Raises DataDirectoryError, CorruptionError, OSError.
        """
        journal_directory = config.journal_directory or f"{directory}/journal"
        ledger_directory = config.ledger_directory or f"{directory}/ledgers"
        instance_id = await establish_identity(
            runtime, journal_directory, ledger_directory, expected_instance_id, part=part
        )
        storage = LedgerStorage(runtime, ledger_directory, instance_id, config, stats=BookieStats(), lanes=lanes)
        await load_storage(storage)

        async def damaged(what: str) -> None:
            if not config.accept_damaged_journal:
                raise CorruptionError(
                    f"{what}. Acknowledged entries may be lost with it: bring back what it was; if that is lost, start "
                    "once with gemingaAcceptDamagedJournal=true"
                )
            await enter_limbo(storage, ledgers, what)

        replay = await replay_journal(storage, journal_directory, damaged)
        if config.accept_damaged_journal and not storage.states.limbo:
            _log.warning("%s is whole: start without gemingaAcceptDamagedJournal", journal_directory)
        bookie = cls(runtime, storage, journal_directory, config, ledgers)
        await bookie._journal.start(
            next_id=replay.next_journal_id,
            last_sequence=replay.last_sequence,
            old_ids=replay.journal_ids,
            old_ends=replay.journal_ends,
        )
        crash_point(points.RECOVERY_JOURNAL_OPENED)
        await bookie._checkpoints.flush_replayed()
        async with storage.lock:
            await storage.keep_reserve()
        await bookie._collector.start()
        await bookie._newcomers.start()
        bookie._start_timers()
        return bookie

    @property
    def instance_id(self) -> str:
        """Identity of the data, 32 hex digits; made when the directories were new."""
        return self._storage.instance_id.hex()

    @property
    def has_ledgers(self) -> bool:
        """Whether it ever stored anything."""
        return bool(self._states.master_keys or self._states.deleted)

    @property
    def newest_ledger_id(self) -> int:
        """The greatest id of a ledger that was ever stored here; -1: there was none."""
        states = self._states
        return max(max(states.master_keys, default=-1), states.deleted.max() if states.deleted else -1)

    @property
    def storage(self) -> LedgerStorage:
        """For inspection: index, entry logs, checkpoint."""
        return self._storage

    @property
    def journal(self) -> Journal:
        """For inspection and metrics."""
        return self._journal

    @property
    def is_writable(self) -> bool:
        """Whether its disks let it take entries."""
        return self.room.is_writable

    @property
    def waiting_adds(self) -> int:
        """Adds that wait for room in the write cache."""
        return len(self._waiting)

    # ---- adds -------------------------------------------------------------------------------------------------

    def add_entries(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """Store entries durably; ``done`` once, with all of ``entry_ids``, possibly within the call if refused."""
        count = len(entries)
        first = -1
        if count == 1 == len(entry_ids):
            first = entry_ids[0]
        elif isinstance(entry_ids, range) and entry_ids.stop - entry_ids.start == count == len(entry_ids) > 1:
            first = entry_ids.start
        if not 0 <= first < FIRST_ID_SURE:
            error = ids_error(ledger_id, entry_ids, entries)
            if error is not None:
                done(entry_ids, error)
                return
        cache = self._cache
        if self._waiting or cache.filling_bytes >= cache.half_bytes_max:
            self._wait(_Add(ledger_id, entry_ids, entries, master_key, recovery, done))
            return
        if (
            self._master_keys.get(ledger_id) != master_key
            or not self.room.is_writable
            or (ledger_id in self._fenced and not recovery)
            or self._unjournaled
            or self._has_limbo
            or self._is_closed
        ):
            if ledger_id not in self._master_keys:
                add = _Add(ledger_id, entry_ids, entries, master_key, recovery, done)
                if self._is_held(ledger_id, partial(self._add_again, add)):
                    return
            error = self._refusal(ledger_id, master_key, recovery=recovery)
            if error is not None:
                done(entry_ids, error)
                return
        if first >= 0:
            size_bytes = len(entries[0]) if count == 1 else sum(map(len, entries))
            cache.put(ledger_id, first, entries, size_bytes)
            crash_point(points.CACHE_AFTER_PUT)
            header = encode_add_header(ledger_id, first, entries, size_bytes)
            self._journal.add(header, entries, len(header) + size_bytes, entry_ids, done)
        else:
            size_bytes = sum(map(len, entries))
            cache.put_each(ledger_id, entry_ids, entries, size_bytes)
            crash_point(points.CACHE_AFTER_PUT)
            buffers, records, header_bytes = encode_adds(ledger_id, entry_ids, entries)
            self._journal.add(buffers[0], buffers[1:], header_bytes + size_bytes, entry_ids, done, records)
        stats = self.stats
        stats.added_entries += count
        stats.added_bytes += size_bytes
        if cache.filling_bytes >= cache.flush_bytes and cache.flushing is None:
            self._checkpoints.start()

    def _is_held(self, ledger_id: int, go_on: GoOn) -> bool:
        """Whether the ledger may not exist: ``go_on`` is called when that is known."""
        if ledger_id in self._master_keys or self._newcomers.is_named(ledger_id):
            return False
        if self._is_closed or not 0 <= ledger_id < IDS_END or ledger_id in self._states.deleted:
            return False
        self._newcomers.hold(ledger_id, go_on)
        return True

    def _add_again(self, add: _Add, error: StorageError | None = None) -> None:
        """It has waited; ``error``: in vain."""
        if error is not None:
            add.done(add.entry_ids, error)
            return
        self.add_entries(
            add.ledger_id,
            add.entry_ids,
            add.entries,
            master_key=add.master_key,
            recovery=add.recovery,
            done=add.done,
        )

    def _refusal(self, ledger_id: int, master_key: bytes, *, recovery: bool) -> StorageError | None:
        """Why an add may not go in; None if it may, a ledger first heard of being noted then."""
        if self._is_closed:
            return DiskIOError("the bookie is closed")
        return self.room.refusal(is_recovery=recovery) or self._notes.refusal(ledger_id, master_key, recovery=recovery)

    def _wait(self, add: _Add) -> None:
        if not self.room.is_writable or self._is_closed:
            # No flush will make room soon, or ever.
            error = self._refusal(add.ledger_id, add.master_key, recovery=add.recovery)
            add.done(add.entry_ids, error if error is not None else DiskFullError("no room in the write cache"))
            return
        self._waiting.append(add)
        if self._cache.flushing is None:
            self._checkpoints.start()

    def _drain_waiting(self) -> None:
        waiting = self._waiting
        while waiting and not self._cache.is_full:
            self._waiting = deque()
            self._add_again(waiting.popleft())
            waiting.extend(self._waiting)
            self._waiting = waiting

    # ---- fencing and reads ------------------------------------------------------------------------------------

    def fence(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """Durably refuse further ordinary adds; a ledger never heard of is noted as fenced."""
        if self._is_held(
            ledger_id,
            lambda error: done(error) if error is not None else self.fence(ledger_id, master_key=master_key, done=done),
        ):
            return
        self._notes.fence(ledger_id, master_key, done)

    def fence_and_read_lac(self, ledger_id: int, *, master_key: bytes, done: LacDone) -> None:
        """See the port."""
        fence_then_read_lac(self, ledger_id, master_key, done)

    def readmit(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """Take a deleted ledger again, fenced: see ``readmission``."""
        spawn(self._readmit(ledger_id, master_key, done), name=f"bookie-readmit-{ledger_id}")

    async def _readmit(self, ledger_id: int, master_key: bytes, done: FenceDone) -> None:
        from geminga.bookie.readmission import Readmission  # few bookies ever need it: a start does not pay for it

        readmission = Readmission(
            self._storage, self._journal, self._ledgers, self._not_again, self._checkpoints.pass_mark
        )
        try:
            async with self._collecting:
                if await readmission.carry_out(ledger_id, master_key):
                    self._collector.saw(ledger_id)
        except OSError as error:
            is_full = is_disk_full(error)
            if not is_full:
                self.room.fail("bookie readmission", error)
            done((DiskFullError if is_full else DiskIOError)(f"readmission in {self._storage.directory}: {error}"))
        except StorageError as error:
            done(again(error))  # this frame has who is told, and the error has this frame
        else:
            self.fence(ledger_id, master_key=master_key, done=done)

    def _not_again(self, ledger_id: int, master_key: bytes) -> StorageError | None:
        if self._is_closed or not self.room.is_writable:
            return self.room.failed or DiskFullError(f"{self._storage.directory} takes nothing now")
        return self._notes.unknowable(ledger_id, master_key, is_deleted_fine=True)

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """Where the ledger ends here; waits for a fence under way, so that it never reports an end that may move."""
        if not self._notes.after_fence(
            ledger_id, lambda error: self.read_lac(ledger_id, done=done) if error is None else done(error)
        ):
            self._contents.read_lac(ledger_id, done)

    def write_lac(self, ledger_id: int, lac: bytes, *, master_key: bytes, done: WriteLacDone) -> None:
        """Keep an announced LAC, in memory: a restart forgets it, as the port allows."""
        if self._is_held(
            ledger_id,
            lambda error: (
                done(error) if error is not None else self.write_lac(ledger_id, lac, master_key=master_key, done=done)
            ),
        ):
            return
        error = self._contents.malformed_lac(ledger_id, lac) or self._refusal(ledger_id, master_key, recovery=True)
        if error is None:
            self._contents.keep_lac(ledger_id, lac)
        done(error)

    def list_entries(self, ledger_id: int, *, done: ListDone) -> None:
        """Which entries of the ledger are here, as runs."""
        done(self._contents.entry_runs(ledger_id))

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        """Read entries, whole, with their headers; within the call if they are in memory.

        With ``bytes_max``: the first ones that have no more bytes together, at least one.
        """
        self.reader.read(ledger_id, entry_ids, done, bytes_max=bytes_max)

    @property
    def availability(self) -> Availability:
        """What it can be used for now."""
        return self.room.availability.current

    def watch(self, listener: AvailabilityListener) -> None:
        """Call ``listener`` after each change."""
        self.room.availability.watch(listener)

    def read_info(self, *, done: InfoDone) -> None:
        """How much room there is."""
        spawn(self._contents.read_info(self.stats.added_bytes, done), name="bookie-info")

    # ---- flush, disk space, timers ----------------------------------------------------------------------------

    async def flush(self) -> None:
        """Checkpoint everything added so far. Raises DiskFullError or DiskIOError."""
        await self._checkpoints.flush()

    def _refuse_waiting(self, error: StorageError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for add in waiting:
            add.done(add.entry_ids, error)

    def _start_timers(self) -> None:
        config = self._config
        self._every(config.flush_interval_ms, self._checkpoints.start_if_due)
        self._every(config.disk_check_interval_ms, lambda: spawn(self.probe_disk(), name="bookie-disk-check"))
        self._every(config.gc_wait_time_ms, self._collect_if_idle)

    def _every(self, interval_ms: int, action: Callable[[], object]) -> None:
        number = len(self._timers)

        def due() -> None:
            self._timers[number] = self._loop.call_later(interval_ms / 1000, due)
            action()

        self._timers.append(self._loop.call_later(interval_ms / 1000, due))

    def _collect_if_idle(self) -> None:
        if not self._collecting.locked():
            spawn(self._collect_on_timer(), name="bookie-gc")

    async def probe_disk(self) -> None:
        """Read-only when the disk is nearly full; writable again once there is space and what failed succeeds."""
        if not self._is_closed:
            await self.room.look(self._make_good)

    async def _make_good(self) -> bool:
        """Do what failed for want of space; whether it is done. Raises OSError."""
        if self._is_closed:
            return False
        await self._journal.resume()
        if self._cache.flushing is not None:
            await self._checkpoints.go_on()
        return self._cache.flushing is None and not self._journal.is_full

    # ---- garbage collection, close ----------------------------------------------------------------------------

    async def collect_garbage(self, *, compact_below: float | None = None) -> GcResult:
        """One round now; ``compact_below``: live share under which logs are compacted (None: what is due by time).

        Raises DiskFullError and DiskIOError.
        """
        async with self._collecting:
            try:
                due = self._collector.due_threshold() if compact_below is None else compact_below
                return await self._collector.collect(due)
            except OSError as error:
                if is_disk_full(error):
                    raise DiskFullError(f"no space to compact in {self._storage.directory}: {error}") from error
                self.room.fail("bookie garbage collection", error)
                raise DiskIOError(f"garbage collection in {self._storage.directory}: {error}") from error

    async def _collect_on_timer(self) -> None:
        try:
            await self.collect_garbage()
        except StorageError as error:
            _log.error("garbage collection: %s", error)

    async def _forget_deleted(self) -> None:
        """What was deleted in our sight: the next process could not tell it from what the metadata store lost."""
        if self.room.failed is not None:
            return
        try:
            await self._collector.delete_ledgers()
        except (OSError, StorageError) as error:
            _log.warning("deleted ledgers in %s are not forgotten yet: %s", self._storage.directory, error)

    async def close(self) -> None:
        """Flush, checkpoint and close. A flush that fails is left to the journal and the next start."""
        if self._is_closed:
            return
        while self._waiting and self._cache.flushing is not None:
            await self._checkpoints.go_on()
        self._is_closed = True
        self._newcomers.close(DiskIOError("the bookie is closed"))
        self.room.availability.set(Availability.DOWN)
        for timer in self._timers:
            timer.cancel()
        self._ledgers.hurry()
        await self._journal.close()
        # Before anything that may take its time: whoever is killed then need not replay it.
        try:
            await self.flush()
        except StorageError as error:
            _log.warning("closing without a checkpoint: %s", error)
        async with self._collecting:
            await self._forget_deleted()
            await self._storage.close()


@dataclass(frozen=True, slots=True)
class _Add:
    """An add that waits for room in the write cache."""

    ledger_id: int
    entry_ids: Sequence[int]
    entries: Sequence[bytes]
    master_key: bytes
    recovery: bool
    done: AddDone
