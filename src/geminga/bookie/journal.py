"""The journal: group commit of records, one write and one sync at a time.

Whatever arrives while a group is being synced forms the next one; where records come densely it waits a little for
more of them (``core.group_pacing``). A record's ``done`` is called once: with None
when its group is on stable storage, with an error otherwise, in the order of the records. A group is durable
before the next is written (that is what recovery relies on), so a failed one is never written over: its file is
given up and the next group goes to a new file. Without space the journal refuses records until :meth:`resume`;
any other failure is fatal for the process: after a failed fsync nothing unsynced may be trusted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from geminga.bookie import crash_points as points
from geminga.bookie.config import BookieConfig
from geminga.bookie.core.group_pacing import GroupPacing
from geminga.bookie.core.journal_format import (
    FILE_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    encode_file_header,
    encode_group,
    group_seed,
)
from geminga.bookie.disk_io import ONLY_LANES, HeldFiles, append, is_disk_full, unlink_if_there
from geminga.bookie.limits import (
    JOURNAL_FILLED_GROUP_BYTES_MAX,
    JOURNAL_GROUP_BYTES_MAX,
    JOURNAL_SMALL_FILE_BYTES,
)
from geminga.model.errors import DiskFullError, DiskIOError, StorageError
from geminga.model.histogram import Latencies
from geminga.runtime import DiskFile, Runtime, crash_point, get_logger, spawn

_log = get_logger(__name__)

SUFFIX = ".journal"
#: Id of the first file of a bookie; ids are never used again.
FIRST_JOURNAL_ID = 1

#: Timers of the loop are no finer; a shorter wait ends with the next record, if one comes.
TIMER_MIN_S: Final = 0.001

#: ``done(entry_ids, error)``, with the ids that came with the record.
RecordDone = Callable[[Sequence[int], StorageError | None], None]


def journal_name(journal_id: int) -> str:
    """File name of a journal."""
    return f"{journal_id:010d}{SUFFIX}"


class _NewFile(NamedTuple):
    """One that has taken no group yet."""

    journal_id: int
    file: DiskFile
    #: It takes groups up to here.
    size_bytes: int


class _Group:
    """Records that are or will be written together."""

    __slots__ = ("buffers", "dones", "entries", "records", "since_s", "size_bytes")

    def __init__(self) -> None:
        #: When its first record came, on the monotonic clock; entries count from then on.
        self.since_s = 0.0
        self.entries = 0
        self.buffers: list[bytes] = []
        #: By call: who is told, and of which entries.
        self.dones: list[tuple[RecordDone, Sequence[int]]] = []
        self.records = 0
        self.size_bytes = 0


class Journal:
    """See the module's docstring. ``on_full`` is told once when space runs out.

    ``lane``: of the disk; reads and flushes never wait behind it.
    """

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        instance_id: bytes,
        config: BookieConfig,
        *,
        on_full: Callable[[StorageError], None],
        lane: str = ONLY_LANES.journal,
    ) -> None:
        self._runtime = runtime
        self._lane = lane
        #: Where the files are.
        self.directory = directory
        self._instance_id = instance_id
        self._seed = group_seed(instance_id)
        self._usual_size_bytes = config.journal_file_size_bytes
        self._large_size_bytes = config.journal_large_file_size_bytes
        #: Of the file that takes groups.
        self._file_size_bytes = 0
        self._is_synced = config.journal_sync_data
        self._flush_when_queue_empty = config.journal_flush_when_queue_empty
        self._group_wait_s = config.journal_max_group_wait_ms / 1000
        paces = config.journal_adaptive_group_writes and self._flush_when_queue_empty and self._group_wait_s > 0
        self._pacing = GroupPacing(self._group_wait_s) if paces else None
        self._monotonic = runtime.clock.monotonic
        #: The group being filled waits for more records: the next one, or the timer, looks again.
        self._is_held = False
        self._hold_timer: asyncio.TimerHandle | None = None
        self._buffered_writes_threshold = config.journal_buffered_writes_threshold
        self._on_full = on_full
        self._loop = asyncio.get_running_loop()
        #: Ids of the files on disk, ascending, the spare one included.
        self._ids: list[int] = []
        self._next_id = 1
        #: Where the groups end in files of this life that take no more.
        self._ends: dict[int, int] = {}
        self.held = HeldFiles(runtime.disk)
        self._file: DiskFile | None = None
        self._spare: asyncio.Task[_NewFile | None] | None = None
        self._offset = FILE_HEADER_BYTES
        self._durable_sequence = 0
        self._filling = _Group()
        self._sealed: deque[_Group] = deque()
        self._in_flight: _Group | None = None
        self._in_flight_bytes = 0
        #: True while a write, a roll, its scheduling or a wait is under way: then nothing else starts one.
        self._is_busy = False
        self._error: StorageError | None = None
        #: The file is one that found little room.
        self._is_small = False
        self._idle: asyncio.Future[None] | None = None
        #: Id of the file that takes groups.
        self.journal_id = 0
        #: Sequence of the group last handed to the disk; later groups have larger ones.
        self.sequence = 0
        self.groups_written = 0
        #: Of the file that takes groups.
        self._groups_in_file = 0
        self.bytes_written = 0
        self._submitted_s = 0.0
        #: Of each group: write and sync. Of each entry: from the first of its group until it is on stable storage.
        self.sync_latency = Latencies()
        self.add_latency = Latencies()

    async def start(
        self, *, next_id: int, last_sequence: int, old_ids: Iterable[int], old_ends: Mapping[int, int] | None = None
    ) -> None:
        """Open a new file; ``old_ids`` are files on disk that :meth:`delete_before` may remove. Raises OSError.

        Where there are old ones, a full disk is no error: records are refused until :meth:`resume`. ``old_ends``: where
        the groups end in those that may be needed still.
        """
        self._next_id = next_id
        self._ids = sorted(old_ids)
        self._ends.update(old_ends or {})
        self.sequence = self._durable_sequence = last_sequence
        try:
            self._use(await self._create())
        except OSError as error:
            if not self._ids or not is_disk_full(error):
                raise error
            # A mark names a file that is there: until there is a new one it is the newest.
            self.journal_id = self._ids[-1]
            self._offset = self._ends.get(self.journal_id, FILE_HEADER_BYTES)
            self._fail(error, None)
            await self._cut_old_files()
            await self._squeeze_in()

    def _use(self, new: _NewFile) -> None:
        """Groups go there from now on."""
        if self.journal_id:
            self._ends[self.journal_id] = self._offset
        self.journal_id, self._file, self._file_size_bytes = new
        self._offset = FILE_HEADER_BYTES
        self._groups_in_file = 0
        self._is_small = False

    def durable_files(self) -> list[tuple[int, int]]:
        """Ids of the files that have groups, ascending, and the offset behind the last that is on stable storage."""
        ends = {**self._ends, self.journal_id: self._offset}
        return [(i, ends[i]) for i in self._ids if i in ends]

    @property
    def is_full(self) -> bool:
        """Whether records are refused for want of space."""
        return isinstance(self._error, DiskFullError)

    @property
    def waiting_entries(self) -> int:
        """Entries that wait for a group before theirs, or for more to come; not those being written."""
        return self._filling.entries + sum(group.entries for group in self._sealed)

    @property
    def unwritten_entries(self) -> int:
        """Those, and the ones being written."""
        return self.waiting_entries + (self._in_flight.entries if self._in_flight is not None else 0)

    @property
    def waiting_groups(self) -> int:
        """Full groups that wait for the disk to have the one before theirs."""
        return len(self._sealed)

    def add(
        self,
        header: bytes,
        rest: Sequence[bytes],
        size_bytes: int,
        entry_ids: Sequence[int],
        done: RecordDone,
        records: int = 1,
    ) -> None:
        """Queue a record made of ``header`` and ``rest``, ``size_bytes`` in all; ``done`` gets ``entry_ids``.

        With ``records`` more than one: so many back to back, which are answered together.
        """
        if self._error is not None:
            done(entry_ids, self._error)
            return
        group = self._filling
        if not group.records:
            group.since_s = self._runtime.clock.monotonic()
        group.entries += len(entry_ids)
        group.buffers.append(header)
        group.buffers.extend(rest)
        group.dones.append((done, entry_ids))
        group.records += records
        group.size_bytes += size_bytes
        if group.size_bytes >= JOURNAL_GROUP_BYTES_MAX:
            self._sealed.append(group)
            self._filling = _Group()
        if not self._is_busy:
            self._schedule()
        elif self._is_held:
            self._is_held = False
            self._loop.call_soon(self._look)

    def _schedule(self) -> None:
        self._is_busy = True
        if self._flush_when_queue_empty or self._filling.size_bytes >= self._buffered_writes_threshold:
            # One turn later: every add of this turn of the loop is in the same group.
            self._loop.call_soon(self._look)
        else:
            self._loop.call_later(self._group_wait_s, self._submit)

    def _look(self) -> None:
        """Write the group that is being filled, unless it waits for more records."""
        pacing, group = self._pacing, self._filling
        if pacing is not None and not self._sealed:
            wait_s = pacing.wait_s(self._monotonic(), len(group.dones), group.entries)
            if wait_s > 0:
                self._is_held = True
                if self._hold_timer is None:
                    self._hold_timer = self._loop.call_later(max(wait_s, TIMER_MIN_S), self._on_hold_over)
                return
        self._submit()

    def _on_hold_over(self) -> None:
        self._hold_timer = None
        if self._is_held:
            self._is_held = False
            self._look()

    def _submit(self) -> None:
        group = self._sealed[0] if self._sealed else self._filling
        if self._error is not None or not group.records:
            self._become_idle()
            return
        size_bytes = GROUP_HEADER_BYTES + group.size_bytes
        if self._offset + size_bytes > self._file_size_bytes and self._offset > FILE_HEADER_BYTES:
            spawn(self._roll(), name="bookie-journal-roll")
            return
        if self._sealed:
            self._sealed.popleft()
        else:
            self._filling = _Group()
        self._submitted_s = self._monotonic()
        if self._pacing is not None:
            self._pacing.begun(self._submitted_s, len(group.dones))
        self.sequence += 1
        buffers = encode_group(
            group.buffers,
            seed=self._seed,
            journal_id=self.journal_id,
            sequence=self.sequence,
            previous=self._durable_sequence,
            record_count=group.records,
        )
        group.buffers = []
        self._in_flight, self._in_flight_bytes = group, size_bytes
        crash_point(points.JOURNAL_BEFORE_WRITE)
        assert self._file is not None
        self._runtime.disk.append(self._file, self._offset, buffers, sync=self._is_synced, done=self._written)
        crash_point(points.JOURNAL_AFTER_SUBMIT)

    def _written(self, error: OSError | None) -> None:
        group = self._in_flight
        assert group is not None
        self._in_flight = None
        if error is not None:
            self._fail(error, group)
            return
        crash_point(points.JOURNAL_AFTER_SYNC)
        self._offset += self._in_flight_bytes
        self._durable_sequence = self.sequence
        self.groups_written += 1
        self._groups_in_file += 1
        self.bytes_written += self._in_flight_bytes
        now_s = self._runtime.clock.monotonic()
        self.sync_latency.add((now_s - self._submitted_s) * 1000)
        if group.entries:
            self.add_latency.add((now_s - group.since_s) * 1000, group.entries)
        if self._pacing is not None:
            self._pacing.durable(len(group.dones) + len(self._filling.dones))
        # The next group goes to the disk before this one's callbacks run: the disk is what is scarce.
        if self._sealed or (self._flush_when_queue_empty and self._filling.records):
            self._look()
        elif self._filling.records:
            self._schedule()
        else:
            self._become_idle()
        self._acknowledge(group)
        crash_point(points.JOURNAL_AFTER_ACK)
        if self._spare is None and 2 * self._offset > self._file_size_bytes and self._error is None:
            self._spare = spawn(self._create_spare(), name="bookie-journal-spare")

    def _acknowledge(self, group: _Group) -> None:
        dones, group.dones = group.dones, []
        for done, entry_ids in dones:
            done(entry_ids, None)

    def _become_idle(self) -> None:
        self._is_busy = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _fail(self, error: OSError, group: _Group | None) -> None:
        """Refuse everything that is not durable; the file is given up."""
        is_full = is_disk_full(error)
        if is_full:
            self._error = DiskFullError(f"no space for the journal in {self.directory}: {error}")
        else:
            self._error = DiskIOError(f"journal {journal_name(self.journal_id)}: {error}")
        failed = [*([group] if group is not None else []), *self._sealed, self._filling]
        self._sealed.clear()
        self._filling = _Group()
        if self._file is not None:
            spawn(self._close_quietly(self._file), name="bookie-journal-close")
            self._file = None
        self._become_idle()
        if is_full:
            self._on_full(self._error)
        else:
            self._runtime.on_fatal("journal", error)
        for failed_group in failed:
            for done, entry_ids in failed_group.dones:
                done(entry_ids, self._error)

    async def _roll(self) -> None:
        crash_point(points.JOURNAL_BEFORE_ROLL)
        try:
            new = await self._take_file()
        except OSError as error:
            self._fail(error, None)
            return
        old = self._file
        self._use(new)
        crash_point(points.JOURNAL_AFTER_ROLL)
        self._submit()
        if old is not None:
            await self._close_quietly(old)

    async def _take_file(self) -> _NewFile:
        """The spare file if there is one, or a new one."""
        spare, self._spare = self._spare, None
        if spare is not None:
            created = await spare
            if created is not None:
                return created
        return await self._create()

    async def _create_spare(self) -> _NewFile | None:
        """A file for the next roll; None if it could not be made: then the roll itself tries and reports."""
        try:
            return await self._create()
        except OSError as error:
            _log.warning("no spare journal file: %s", error)
            return None

    async def _create(self) -> _NewFile:
        if self._offset < JOURNAL_FILLED_GROUP_BYTES_MAX * max(1, self._groups_in_file):
            return await self._create_file(self._usual_size_bytes, is_written=True)
        try:
            return await self._create_file(self._large_size_bytes, is_written=False)
        except OSError as error:
            if not is_disk_full(error):
                raise error
        return await self._create_file(self._usual_size_bytes, is_written=False)

    async def _create_file(self, size_bytes: int, *, is_written: bool) -> _NewFile:
        disk = self._runtime.disk
        journal_id = self._next_id
        self._next_id += 1
        path = f"{self.directory}/{journal_name(journal_id)}"
        file: DiskFile | None = None
        try:
            file = await disk.open_file(
                path, lane=self._lane, create=True, preallocate_bytes=size_bytes, is_written=is_written
            )
            header = encode_file_header(journal_id, self._instance_id)
            await append(disk, file, 0, (header,), sync=True)
            await disk.sync_dir(self.directory)
        except OSError as failure:
            if file is not None:
                await self._close_quietly(file)
            try:
                await unlink_if_there(disk, path)
            except OSError as error:
                _log.warning("could not remove %s: %s", path, error)
            raise failure
        crash_point(points.JOURNAL_FILE_CREATED)
        self._ids.append(journal_id)
        return _NewFile(journal_id, file, size_bytes)

    async def _cut_old_files(self) -> None:
        """Give back what was taken for groups that never came."""
        for journal_id, end in self._ends.items():
            try:
                file = await self._runtime.disk.open_file(
                    f"{self.directory}/{journal_name(journal_id)}", lane=self._lane
                )
                try:
                    await self._runtime.disk.truncate(file, end)
                finally:
                    await self._close_quietly(file)
            except OSError as error:
                _log.warning("%s keeps its preallocated size: %s", journal_name(journal_id), error)

    async def _squeeze_in(self) -> None:
        """Take records again in a small file, if there is room for that: fences, so that ledgers can be taken over."""
        size_bytes = min(JOURNAL_SMALL_FILE_BYTES, self._usual_size_bytes // 4)
        try:
            new = await self._create_file(size_bytes, is_written=True)
        except OSError as error:
            if not is_disk_full(error):
                raise error
            return
        self._use(new)
        self._error = None
        self._is_small = True

    async def resume(self) -> None:
        """Take records again after the disk was full; raises OSError if it still is.

        Where there is room for a small file, records are taken there all the same: the caller sees to it that these are
        few.
        """
        if not self.is_full and not self._is_small:
            return
        try:
            new = await self._take_file()
        except OSError as error:
            if self.is_full and is_disk_full(error):
                await self._squeeze_in()
            raise error
        await self._until_idle()
        old = self._file
        self._use(new)
        if self.is_full:
            self._error = None
        if old is not None:
            await self._close_quietly(old)

    async def delete_before(self, journal_id: int) -> None:
        """Remove files whose groups are all behind the checkpoint mark."""
        old = [i for i in self._ids if i < journal_id]
        if not old:
            return
        crash_point(points.JOURNAL_BEFORE_DELETE)
        for i in old:
            try:
                await self.held.unlink(f"{self.directory}/{journal_name(i)}")
            except OSError as error:
                _log.warning("could not remove journal %d: %s", i, error)
                continue
            self._ids.remove(i)
            self._ends.pop(i, None)
        crash_point(points.JOURNAL_AFTER_DELETE)

    async def _until_idle(self) -> None:
        """Nothing is queued or being written."""
        while self._is_busy:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    async def close(self) -> None:
        """Wait until nothing is queued or being written, then close the files."""
        await self._until_idle()
        files = [self._file]
        is_whole = self._error is None
        # At once: what comes while the files are being closed must not be written to them.
        self._error = self._error or DiskIOError("the journal is closed")
        if self._file is not None and is_whole:
            try:
                await self._runtime.disk.truncate(self._file, self._offset)
            except OSError as error:
                _log.warning("%s keeps its preallocated size: %s", self._file.path, error)
        if self._spare is not None:
            spare = await self._spare
            files.append(spare.file if spare is not None else None)
        self._file = self._spare = None
        for file in files:
            if file is not None:
                await self._close_quietly(file)

    async def _close_quietly(self, file: DiskFile) -> None:
        """Close a file that holds nothing unsynced that anybody was told of."""
        try:
            await self._runtime.disk.close_file(file)
        except OSError as error:
            _log.warning("closing %s: %s", file.path, error)
