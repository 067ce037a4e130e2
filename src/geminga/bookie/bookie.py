"""The bookie: one storage node, in this process. Implements the port ``model.bookie_port.Bookie``.

An add goes to the write cache, then to the journal; it is acknowledged when its journal group is on stable
storage. A full write cache is flushed in the background; while both halves are full adds wait their turn. When
the disk is full, adds fail with ``DiskFullError`` until a probe finds space again; nothing acknowledged is lost.
All methods are called on the loop's thread.

A little past 600 lines because what every call of the port may meet, state by state, is in one place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyroaring import BitMap64

from geminga.bookie import crash_points as points
from geminga.bookie.config import BookieConfig, Defects
from geminga.bookie.core.journal_format import encode_add_header, encode_adds, encode_fence, encode_ledger
from geminga.bookie.core.ledger_states import KEY_BYTES_MAX, KEYS_MAX
from geminga.bookie.disk_io import ONLY_LANES, DiskLanes, is_disk_full
from geminga.bookie.entry_reader import EntryReader
from geminga.bookie.garbage_collection import GarbageCollector, GcResult
from geminga.bookie.journal import Journal
from geminga.bookie.ledger_contents import LedgerContents
from geminga.bookie.ledger_storage import LedgerStorage
from geminga.bookie.newcomers import GoOn, Newcomers
from geminga.bookie.ports import LiveLedgers
from geminga.bookie.recovery import enter_limbo, establish_identity, load_storage, replay_journal
from geminga.bookie.stats import BookieStats
from geminga.model.bookie_port import (
    FIRST_ID_SURE,
    IDS_END,
    AddDone,
    Availability,
    AvailabilityListener,
    AvailabilityState,
    FenceDone,
    InfoDone,
    LacDone,
    ListDone,
    ReadDone,
    WriteLacDone,
    ids_error,
)
from geminga.model.errors import (
    DataDirectoryError,
    DiskFullError,
    DiskIOError,
    LedgerFencedError,
    NoSuchLedgerError,
    StorageError,
    WrongMasterKeyError,
)
from geminga.runtime import Runtime, crash_point, get_logger, spawn

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
        defects: Defects,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._storage = storage
        self._journal = Journal(
            runtime,
            journal_directory,
            storage.instance_id,
            config,
            defects=defects,
            on_full=self._became_full,
            lane=storage.lanes.journal,
        )
        self._reader = EntryReader(storage)
        self._contents = LedgerContents(storage, self._reader)
        self._collector = GarbageCollector(storage, self._reader, ledgers)
        self._ledgers = ledgers
        self._newcomers = Newcomers(ledgers, runtime.clock)
        self._collecting = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self.stats: BookieStats = storage.stats
        #: False while the disk is full or nearly so: adds fail with ``DiskFullError``. Read by every add.
        self.is_writable = True
        self._stays_read_only = False
        #: Share of the disk that was in use at the last look; None before the first one.
        self.disk_usage: float | None = None
        self._availability = AvailabilityState(Availability.WRITABLE)
        self._cache = storage.cache
        self._states = storage.states
        self._master_keys = storage.states.master_keys
        self._fenced = storage.states.fenced
        self._has_limbo = bool(storage.states.limbo)
        #: Adds that came while both halves of the cache were full: bounded by what the callers have in flight.
        self._waiting: deque[_Add] = deque()
        #: Ledgers whose fence is being made durable, with those who wait for it.
        self._fencing: dict[int, list[FenceDone]] = {}
        #: Ledgers whose fence could not be made durable.
        self._volatile_fences: set[int] = set()
        #: Known ledgers that are in neither journal nor checkpoint for certain (the disk was full).
        self._unjournaled: set[int] = set()
        self._flush_task: asyncio.Task[None] | None = None
        self._flush_failed: StorageError | None = None
        #: Set for good by a failed sync.
        self._failed: StorageError | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._probing = False
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
        accept_damaged_journal: bool = False,
        defects: Defects | None = None,
        lanes: DiskLanes = ONLY_LANES,
        part: str = "",
    ) -> LocalBookie:
        """Recover the bookie in ``directory``, or make a new one there.

        ``expected_instance_id`` (32 hex digits) is what the metadata store remembers of this bookie: another or a
        wiped directory is refused. ``accept_damaged_journal``: start although acknowledged entries may be lost;
        the ledgers that exist now are then in limbo. ``lanes``: of the disk, where several share a process. ``part``:
        which pair of directories of a bookie that has several, as ``2-of-3`` (``spread``).
        Raises DataDirectoryError, CorruptionError, OSError.
        """
        defects = defects or Defects()
        journal_directory = config.journal_directory or f"{directory}/journal"
        ledger_directory = config.ledger_directory or f"{directory}/ledgers"
        instance_id = await establish_identity(
            runtime, journal_directory, ledger_directory, expected_instance_id, part=part
        )
        storage = LedgerStorage(
            runtime, ledger_directory, instance_id, config, defects=defects, stats=BookieStats(), lanes=lanes
        )
        is_mark_known = await load_storage(storage)
        replay = await replay_journal(
            storage, journal_directory, is_mark_known=is_mark_known, accept_damage=accept_damaged_journal
        )
        if replay.is_damaged:
            live = await ledgers.live_ledger_ids()
            if live is None:
                raise DataDirectoryError("which ledgers exist is not known now: a damaged journal needs that")
            enter_limbo(storage, BitMap64(live))
        bookie = cls(runtime, storage, journal_directory, config, ledgers, defects)
        await bookie._journal.start(
            next_id=replay.next_journal_id, last_sequence=replay.last_sequence, old_ids=replay.journal_ids
        )
        crash_point(points.RECOVERY_JOURNAL_OPENED)
        storage.begin_flush((replay.last_sequence, replay.next_journal_id))
        await storage.flush()
        await bookie._journal.delete_before(replay.next_journal_id)
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
            or not self.is_writable
            or (ledger_id in self._fenced and not recovery)
            or self._unjournaled
            or self._has_limbo
            or self._is_closed
        ):
            if ledger_id not in self._master_keys:
                add = _Add(ledger_id, entry_ids, entries, master_key, recovery, done)
                if self._is_held(ledger_id, partial(self._let_in, add)):
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
            self._start_flush()

    def _is_held(self, ledger_id: int, go_on: GoOn) -> bool:
        """Whether the ledger may not exist: ``go_on`` is called when that is known."""
        if ledger_id in self._master_keys or self._newcomers.is_named(ledger_id):
            return False
        if self._is_closed or not 0 <= ledger_id < IDS_END or ledger_id in self._states.deleted:
            return False
        self._newcomers.hold(ledger_id, go_on)
        return True

    def _let_in(self, add: _Add, error: StorageError | None) -> None:
        if error is not None:
            add.done(add.entry_ids, error)
        else:
            self._add_again(add)

    def _add_again(self, add: _Add) -> None:
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
        if self._failed is not None:
            return self._failed
        if not self.is_writable:
            is_wanted = self._stays_read_only
            full = f"the disk of {self._storage.directory} is full"
            return DiskFullError("the bookie was started read-only" if is_wanted else full)
        states = self._states
        known_key = states.master_keys.get(ledger_id)
        if known_key is None:
            refused = self._unknowable(ledger_id, master_key)
            if refused is not None:
                return refused
            if ledger_id in states.limbo and not recovery:
                return LedgerFencedError(f"ledger {ledger_id} is in limbo: it may have been fenced")
            self._know(ledger_id, master_key)
            return None
        if not recovery and ledger_id in states.limbo:
            return LedgerFencedError(f"ledger {ledger_id} is in limbo: it may have been fenced")
        if known_key != master_key and ledger_id not in states.limbo:
            return WrongMasterKeyError(f"ledger {ledger_id} has another master key")
        if ledger_id in self._unjournaled:
            self._note_ledger(ledger_id, master_key)
        if not recovery and ledger_id in states.fenced:
            return LedgerFencedError(f"ledger {ledger_id} is fenced")
        return None

    def _unknowable(self, ledger_id: int, master_key: bytes, *, is_deleted_fine: bool = False) -> StorageError | None:
        """Why a ledger that is not known can not become so; None if it can."""
        if not 0 <= ledger_id < IDS_END:
            return StorageError(f"{ledger_id} is no ledger id")
        if ledger_id in self._states.deleted and not is_deleted_fine:
            return NoSuchLedgerError(f"ledger {ledger_id} was deleted")
        if len(master_key) > KEY_BYTES_MAX:
            return StorageError(f"ledger {ledger_id}: a master key of {len(master_key)} bytes")
        if not self._states.has_room_for(master_key):
            return StorageError(f"ledger {ledger_id}: this bookie has {KEYS_MAX} master keys already")
        return None

    def _know(self, ledger_id: int, master_key: bytes) -> None:
        self._states.know(ledger_id, master_key)
        self._collector.saw(ledger_id)
        self._note_ledger(ledger_id, master_key)

    def _note_ledger(self, ledger_id: int, master_key: bytes) -> None:
        """Write the ledger to the journal, in front of its first add or fence; once more if that failed."""
        self._unjournaled.discard(ledger_id)
        record = encode_ledger(ledger_id, master_key)
        self._journal.add(record, (), len(record), (), lambda _, error: self._ledger_noted(ledger_id, error))

    def _ledger_noted(self, ledger_id: int, error: StorageError | None) -> None:
        if error is not None:
            self._unjournaled.add(ledger_id)

    def _wait(self, add: _Add) -> None:
        if not self.is_writable or self._is_closed:
            # No flush will make room soon, or ever.
            error = self._refusal(add.ledger_id, add.master_key, recovery=add.recovery)
            add.done(add.entry_ids, error if error is not None else DiskFullError("no room in the write cache"))
            return
        self._waiting.append(add)
        if self._cache.flushing is None:
            self._start_flush()

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
        states = self._states
        known_key = states.master_keys.get(ledger_id)
        refused = self._unknowable(ledger_id, master_key) if known_key is None else None
        if refused is not None:
            done(refused)
            return
        if known_key is not None and known_key != master_key and ledger_id not in states.limbo:
            done(WrongMasterKeyError(f"ledger {ledger_id} has another master key"))
            return
        waiters = self._fencing.get(ledger_id)
        if waiters is not None:
            waiters.append(done)
            return
        if ledger_id in states.fenced and ledger_id not in self._volatile_fences:
            done(None)
            return
        if known_key is None:
            self._know(ledger_id, master_key)
        elif ledger_id in self._unjournaled:
            self._note_ledger(ledger_id, master_key)
        states.fence(ledger_id)
        self._fencing[ledger_id] = [done]
        record = encode_fence(ledger_id)
        self._journal.add(record, (), len(record), (), lambda _, error: self._fence_done(ledger_id, error))

    def readmit(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """Take a deleted ledger again, fenced: see ``readmission``."""
        spawn(self._readmit(ledger_id, master_key, done), name=f"bookie-readmit-{ledger_id}")

    async def _readmit(self, ledger_id: int, master_key: bytes, done: FenceDone) -> None:
        from geminga.bookie.readmission import Readmission  # few bookies ever need it: a start does not pay for it

        readmission = Readmission(self._storage, self._journal, self._ledgers, self._not_again, self._checkpoint)
        try:
            async with self._collecting:
                if await readmission.carry_out(ledger_id, master_key):
                    self._collector.saw(ledger_id)
        except OSError as error:
            is_full = is_disk_full(error)
            if not is_full:
                self._fail("bookie readmission", error)
            done((DiskFullError if is_full else DiskIOError)(f"readmission in {self._storage.directory}: {error}"))
        except StorageError as error:
            done(error)
        else:
            self.fence(ledger_id, master_key=master_key, done=done)

    def _not_again(self, ledger_id: int, master_key: bytes) -> StorageError | None:
        if self._is_closed or not self.is_writable:
            return self._failed or DiskFullError(f"{self._storage.directory} takes nothing now")
        return self._unknowable(ledger_id, master_key, is_deleted_fine=True)

    async def _checkpoint(self) -> None:
        """Also if nothing was added: the mark is what counts."""
        await self.flush()
        if self._cache.flushing is None:
            self._turn_cache()
        await self._continue_flush()
        self._raise_flush_failure()

    def _fence_done(self, ledger_id: int, error: StorageError | None) -> None:
        if error is None:
            self._volatile_fences.discard(ledger_id)
        else:
            self._volatile_fences.add(ledger_id)
        for done in self._fencing.pop(ledger_id):
            done(error)

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """Where the ledger ends here; waits for a fence under way, so that it never reports an end that may move."""
        waiters = self._fencing.get(ledger_id)
        if waiters is not None:
            waiters.append(lambda error: self.read_lac(ledger_id, done=done) if error is None else done(error))
            return
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
        self._reader.read(ledger_id, entry_ids, done, bytes_max=bytes_max)

    @property
    def availability(self) -> Availability:
        """What it can be used for now."""
        return self._availability.current

    def watch(self, listener: AvailabilityListener) -> None:
        """Call ``listener`` after each change."""
        self._availability.watch(listener)

    def read_info(self, *, done: InfoDone) -> None:
        """How much room there is."""
        spawn(self._contents.read_info(self.stats.added_bytes, done), name="bookie-info")

    # ---- flush, disk space, timers ----------------------------------------------------------------------------

    def _start_flush(self) -> asyncio.Task[None]:
        """Turn the halves and flush the full one; the caller made sure that none is being flushed."""
        self._turn_cache()
        return self._continue_flush()

    def _turn_cache(self) -> None:
        """The half that was filling is flushed next; what it holds is in groups up to the next one."""
        self._storage.begin_flush((self._journal.sequence, self._journal.journal_id))

    def _continue_flush(self) -> asyncio.Task[None]:
        if self._flush_task is None:
            self._flush_task = spawn(self._flush(), name="bookie-flush")
        return self._flush_task

    async def _flush(self) -> None:
        """Carry out the flush begun, and those begun meanwhile."""
        self._flush_failed = None
        try:
            while self._cache.flushing is not None:
                await self._storage.flush()
                if self._cache.is_flush_due:
                    self._turn_cache()
                self._drain_waiting()
                await self._journal.delete_before(self._storage.checkpoint.mark_journal_id)
                await self._merge()
        except OSError as error:
            if is_disk_full(error):
                self._flush_failed = DiskFullError(f"no space to flush to {self._storage.directory}: {error}")
                self._became_full(self._flush_failed)
            else:
                self._flush_failed = DiskIOError(f"flushing to {self._storage.directory}: {error}")
                self._fail("bookie flush", error)
        finally:
            self._flush_task = None

    async def _merge(self) -> None:
        """Merging saves work but is not needed: without space the runs stay as they are."""
        try:
            await self._storage.merge_if_needed()
        except OSError as error:
            if not is_disk_full(error):
                raise
            _log.warning("no space to merge the index of %s: %s", self._storage.directory, error)

    def _fail(self, part: str, error: OSError) -> None:
        """After a failed write or sync nothing unsynced may be trusted: take nothing more, tell the process."""
        self._failed = DiskIOError(f"{part}: {error}")
        self.is_writable = False
        self._availability.set(Availability.DOWN)
        self._runtime.on_fatal(part, error)
        self._refuse_waiting(self._failed)

    async def flush(self) -> None:
        """Checkpoint everything added so far. Raises DiskFullError or DiskIOError."""
        if self._cache.flushing is not None:
            await self._continue_flush()
            self._raise_flush_failure()
        if self._storage.has_unflushed and self._cache.flushing is None:
            self._start_flush()
        if self._cache.flushing is not None:
            await self._continue_flush()
            self._raise_flush_failure()

    def _raise_flush_failure(self) -> None:
        if self._flush_failed is not None:
            raise self._flush_failed

    def stay_read_only(self) -> None:
        """Take no entries any more in this life, whatever room there is; what is stored is read as before."""
        self._stays_read_only = True
        self.is_writable = False
        self._availability.set(Availability.READ_ONLY)

    def _became_full(self, error: StorageError) -> None:
        if self.is_writable:
            _log.error("bookie becomes read-only: %s", error)
            self.is_writable = False
            self._availability.set(Availability.READ_ONLY)
            self.stats.disk_full_count += 1
        self._refuse_waiting(error)

    def _refuse_waiting(self, error: StorageError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for add in waiting:
            add.done(add.entry_ids, error)

    def _start_timers(self) -> None:
        config = self._config
        self._timers = [
            self._loop.call_later(config.flush_interval_ms / 1000, self._flush_due, 0),
            self._loop.call_later(config.disk_check_interval_ms / 1000, self._probe_due, 1),
            self._loop.call_later(config.gc_wait_time_ms / 1000, self._gc_due, 2),
        ]

    def _flush_due(self, timer: int) -> None:
        self._timers[timer] = self._loop.call_later(self._config.flush_interval_ms / 1000, self._flush_due, timer)
        if self._storage.has_unflushed and self._cache.flushing is None and self.is_writable:
            self._start_flush()

    def _probe_due(self, timer: int) -> None:
        self._timers[timer] = self._loop.call_later(self._config.disk_check_interval_ms / 1000, self._probe_due, timer)
        if not self._probing:
            spawn(self.probe_disk(), name="bookie-disk-check")

    def _gc_due(self, timer: int) -> None:
        self._timers[timer] = self._loop.call_later(self._config.gc_wait_time_ms / 1000, self._gc_due, timer)
        if not self._collecting.locked():
            spawn(self._collect_on_timer(), name="bookie-gc")

    async def probe_disk(self) -> None:
        """Read-only when the disk is nearly full; writable again once there is space and what failed succeeds."""
        if self._probing or self._is_closed or self._failed is not None:
            return
        self._probing = True
        try:
            usage = max([await self._usage(path) for path in {self._storage.directory, self._journal.directory}])
            self.disk_usage = usage
            if usage > self._config.disk_usage_threshold:
                self._became_full(DiskFullError(f"{usage:.1%} of the disk of {self._storage.directory} is used"))
                return
            if self.is_writable or self._is_closed or self._stays_read_only:
                return
            await self._journal.resume()
            if self._cache.flushing is not None:
                await self._continue_flush()
            if self._cache.flushing is None and not self._journal.is_full:
                _log.warning("bookie is writable again: there is space in %s", self._storage.directory)
                self.is_writable = True
                self._availability.set(Availability.WRITABLE)
        except OSError as error:
            if not is_disk_full(error):
                self._fail("bookie disk check", error)
        finally:
            self._probing = False

    async def _usage(self, path: str) -> float:
        disk = self._runtime.disk
        total = await disk.total_bytes(path)
        return 1 - await disk.free_bytes(path) / total if total > 0 else 0.0

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
                self._fail("bookie garbage collection", error)
                raise DiskIOError(f"garbage collection in {self._storage.directory}: {error}") from error

    async def _collect_on_timer(self) -> None:
        try:
            await self.collect_garbage()
        except StorageError as error:
            _log.error("garbage collection: %s", error)

    async def _forget_deleted(self) -> None:
        """What was deleted in our sight: the next process could not tell it from what the metadata store lost."""
        if self._failed is not None:
            return
        try:
            await self._collector.delete_ledgers()
        except OSError as error:
            _log.warning("deleted ledgers in %s are not forgotten yet: %s", self._storage.directory, error)

    async def close(self) -> None:
        """Flush, checkpoint and close. A flush that fails is left to the journal and the next start."""
        if self._is_closed:
            return
        while self._waiting and self._cache.flushing is not None:
            await self._continue_flush()
        self._is_closed = True
        self._newcomers.close(DiskIOError("the bookie is closed"))
        self._availability.set(Availability.DOWN)
        for timer in self._timers:
            timer.cancel()
        async with self._collecting:
            await self._forget_deleted()
            await self._journal.close()
            try:
                await self.flush()
            except StorageError as error:
                _log.warning("closing without a checkpoint: %s", error)
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
