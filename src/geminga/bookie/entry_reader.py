"""Reading entries: write cache, cache of chunks, entry logs.

Reads that arrive while a batch is on the read lane form the next batch; neighbouring chunks share a pread. A
whole chunk is read, checked and kept for a while, so that a consumer catching up finds the following entries in
memory. Certain absence, damage and I/O errors are told apart.

A read with a limit of bytes is cut before anything is read: the index says how large the chunks are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from geminga.bookie.core import entry_log_format as fmt
from geminga.bookie.core.index import Row, log_of, make_location, offset_of
from geminga.bookie.disk_io import read
from geminga.bookie.ledger_storage import LedgerStorage
from geminga.bookie.limits import READ_ATTEMPTS_MAX, READ_BATCH_BYTES_MAX, READ_MERGE_BYTES_MAX, READ_TURN_S_MAX
from geminga.model.bookie_port import EntryData, ReadDone
from geminga.model.errors import (
    CorruptionError,
    DiskIOError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
    UnknownEntryError,
)
from geminga.model.limits import count_within
from geminga.runtime import ReadRequest, get_logger, next_turn, spawn

if TYPE_CHECKING:
    from geminga.bookie.core.read_plan import PlannedRead

_log = get_logger(__name__)


#: An entry of so many bytes is given as a view of its chunk: who takes its payload out copies it anyway.
VIEW_BYTES_MIN: Final = 16 * 1024


class LoadedChunk(NamedTuple):
    """A checked chunk of entries; entry i of it is ``body[ends[i]:ends[i + 1]]``."""

    ledger_id: int
    first_entry_id: int
    body: memoryview
    ends: list[int]

    def entry(self, entry_id: int) -> EntryData:
        """The bytes of an entry that the chunk holds."""
        i = entry_id - self.first_entry_id
        view = self.body[self.ends[i] : self.ends[i + 1]]
        return view if len(view) >= VIEW_BYTES_MIN else bytes(view)

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the entry is in the chunk."""
        i = entry_id - self.first_entry_id
        return self.ledger_id == ledger_id and 0 <= i < len(self.ends) - 1


class _Read:
    """One call of :meth:`EntryReader.read` that has to wait for the disk."""

    __slots__ = ("attempts", "bytes_max", "chunks", "done", "ledger_id", "missing", "results", "since_s")

    def __init__(
        self,
        ledger_id: int,
        results: list[EntryData | StorageError],
        done: ReadDone,
        bytes_max: int | None,
        since_s: float,
    ) -> None:
        #: When it was asked for, on the monotonic clock.
        self.since_s = since_s
        self.ledger_id = ledger_id
        self.results = results
        self.done = done
        self.bytes_max = bytes_max
        #: (place in results, entry id, where to read it).
        self.missing: list[tuple[int, int, Row]] = []
        #: The chunks in which they lie: (place of its first one in ``missing``, bytes).
        self.chunks: list[tuple[int, int]] = []
        self.attempts = 0

    def cut(self) -> None:
        """Leave out what the limit does not allow, before the disk is asked."""
        if self.bytes_max is None or not self.missing:
            return
        # Absent ones have no bytes yet. A chunk is read whole, with its first entry.
        sizes = _sizes(self.results)
        for first, size_bytes in self.chunks:
            sizes[self.missing[first][0]] += size_bytes
        count = count_within(sizes, self.bytes_max)
        if count < len(sizes):
            del self.results[count:]
            del self.missing[bisect_left(self.missing, count, key=itemgetter(0)) :]

    def finish(self) -> None:
        """Everything is there: answer."""
        self.done(_first(self.results, self.bytes_max))


class EntryReader:
    """Answers reads of one bookie's entries."""

    def __init__(self, storage: LedgerStorage) -> None:
        self._storage = storage
        self._queue: deque[_Read] = deque()
        self._is_running = False
        #: Location -> chunk, least recently used first.
        self._chunks: OrderedDict[int, LoadedChunk] = OrderedDict()
        self._chunk_bytes = 0
        #: Reads whose chunks are asked of the disk now.
        self._loading = 0
        self._chunk_bytes_max = storage.config.read_cache_bytes

    def read(self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None) -> None:
        """Read entries; ``done`` is called within the call if all of them are in memory.

        With ``bytes_max``: the first ones that have no more bytes together, at least one.
        """
        storage = self._storage
        if ledger_id not in storage.states.master_keys:
            done([self.absent_ledger(ledger_id)] * len(entry_ids))
            return
        storage.stats.read_entries += len(entry_ids)
        since_s = storage.runtime.clock.monotonic()
        get = storage.cache.get
        entries = [get(ledger_id, entry_id) for entry_id in entry_ids]
        if None not in entries:
            found = cast("list[bytes]", entries)
            if bytes_max is not None and sum(map(len, found)) > bytes_max:
                del found[count_within(map(len, found), bytes_max) :]
            storage.stats.read_latency.add((storage.runtime.clock.monotonic() - since_s) * 1000, len(entry_ids))
            done(found)
            return
        results: list[EntryData | StorageError] = [b"" if entry is None else entry for entry in entries]
        pending = _Read(ledger_id, results, done, bytes_max, since_s)
        wanted = [(i, entry_ids[i]) for i, entry in enumerate(entries) if entry is None]
        storage.stats.write_cache_misses += len(wanted)
        self._look_up(pending, wanted)
        pending.cut()
        self._finish_or_queue(pending)

    @property
    def waiting_reads(self) -> int:
        """Reads that wait for the disk."""
        return len(self._queue) + self._loading

    @property
    def cached_bytes(self) -> int:
        """What the chunks in memory take."""
        return self._chunk_bytes

    @property
    def cached_entries(self) -> int:
        """Entries of the chunks in memory."""
        return sum(len(chunk.ends) - 1 for chunk in self._chunks.values())

    def absent_ledger(self, ledger_id: int) -> StorageError:
        """What to say of a ledger that is not known here."""
        if self._storage.states.is_in_limbo(ledger_id):
            return UnknownEntryError(f"ledger {ledger_id} is in limbo: part of the journal was lost")
        return NoSuchLedgerError(f"no ledger {ledger_id}")

    def _look_up(self, pending: _Read, wanted: Sequence[tuple[int, int]]) -> None:
        """Resolve what is in memory or certainly absent; note where the rest lies."""
        storage = self._storage
        ledger_id = pending.ledger_id
        results = pending.results
        missing: list[tuple[int, int, Row]] = []
        row: Row | None = None
        chunk: LoadedChunk | None = None
        absent = 0
        for i, entry_id in wanted:
            if row is None or not row.first_entry_id <= entry_id < row.first_entry_id + row.entry_count:
                row = storage.index.find(ledger_id, entry_id)
                chunk = self._chunks.get(row.location) if row is not None else None
                if chunk is not None and row is not None:
                    self._chunks.move_to_end(row.location)
                elif row is not None:
                    pending.chunks.append((len(missing), row.size_bytes))
            if row is None:
                absent += 1
                cached = storage.cache.get(ledger_id, entry_id)
                results[i] = cached if cached is not None else self._absent_entry(ledger_id, entry_id)
            elif chunk is None:
                missing.append((i, entry_id, row))
            elif chunk.holds(ledger_id, entry_id):
                results[i] = chunk.entry(entry_id)
            else:
                results[i] = self._damaged(row.location, f"does not hold entry {ledger_id}:{entry_id}")
        pending.missing = missing
        storage.stats.read_cache_misses += len(missing)
        storage.stats.read_cache_hits += len(wanted) - len(missing) - absent

    def _absent_entry(self, ledger_id: int, entry_id: int) -> StorageError:
        if ledger_id in self._storage.states.limbo:
            return UnknownEntryError(f"entry {ledger_id}:{entry_id}: part of the journal was lost")
        return NoSuchEntryError(f"no entry {ledger_id}:{entry_id}")

    def _damaged(self, location: int, what: str) -> StorageError:
        self._storage.stats.damaged_chunks += 1
        error = CorruptionError(
            f"{self._storage.logs.path(log_of(location))} at offset {offset_of(location)}: the chunk {what}"
        )
        _log.error("%s", error)
        return error

    def _finish_or_queue(self, pending: _Read) -> None:
        if not pending.missing:
            storage = self._storage
            took_s = storage.runtime.clock.monotonic() - pending.since_s
            storage.stats.read_latency.add(took_s * 1000, len(pending.results))
            pending.finish()
            return
        self._queue.append(pending)
        if not self._is_running:
            self._is_running = True
            spawn(self._run(), name="bookie-read")

    async def _run(self) -> None:
        worked = self._storage.runtime.clock.worked
        while self._queue:
            batch: list[_Read] = []
            locations: dict[int, int] = {}
            total = 0
            while self._queue and total < READ_BATCH_BYTES_MAX:
                pending = self._queue.popleft()
                batch.append(pending)
                for _, _, row in pending.missing:
                    if row.location not in locations:
                        locations[row.location] = row.size_bytes
                        total += row.size_bytes
            self._loading = len(batch)
            loaded = await self._load(locations)
            self._loading = 0
            began_s = worked()
            for pending in batch:
                # Who asked checks, and passes on, what it gets: many of those are not one turn of the loop.
                if worked() - began_s > READ_TURN_S_MAX:
                    await next_turn()
                    began_s = worked()
                self._resolve(pending, loaded)
        self._is_running = False

    async def _load(self, locations: dict[int, int]) -> dict[int, LoadedChunk | StorageError]:
        """Read and check the chunks; one whose log is gone (compacted meanwhile) is left out."""
        from geminga.bookie.core.read_plan import plan_reads  # nothing is read from a disk before somebody is behind

        storage = self._storage
        loaded: dict[int, LoadedChunk | StorageError] = {}
        planned: list[tuple[PlannedRead, ReadRequest]] = []
        pinned: list[int] = []
        try:
            for plan in plan_reads(locations.items(), READ_MERGE_BYTES_MAX):
                log_id = log_of(plan.location)
                try:
                    file = await storage.logs.pin(log_id)
                except OSError as error:
                    if log_id in storage.logs.sizes:
                        failure = DiskIOError(f"{storage.logs.path(log_id)}: {error}")
                        loaded.update(dict.fromkeys((location for location, _ in plan.chunks), failure))
                    continue
                pinned.append(log_id)
                planned.append((plan, ReadRequest(file, offset_of(plan.location), plan.size_bytes)))
            results = await read(storage.runtime.disk, [request for _, request in planned], lane=storage.lanes.read)
        finally:
            for log_id in pinned:
                storage.logs.unpin(log_id)
        storage.stats.chunk_reads += len(planned)
        storage.stats.read_bytes += sum(plan.size_bytes for plan, _ in planned)
        for (plan, _), data in zip(planned, results, strict=True):
            self._check(plan, data, loaded)
        return loaded

    def _check(self, plan: PlannedRead, data: bytes | OSError, loaded: dict[int, LoadedChunk | StorageError]) -> None:
        log_id = log_of(plan.location)
        if isinstance(data, OSError):
            if log_id in self._storage.logs.sizes:
                failure = DiskIOError(f"{self._storage.logs.path(log_id)}: {data}")
                loaded.update(dict.fromkeys((location for location, _ in plan.chunks), failure))
            return
        seed = self._storage.logs.seed(log_id)
        for location, size in plan.chunks:
            at = location - plan.location
            # A chunk of its own, so that keeping it does not keep its neighbours.
            view = memoryview(data[at : at + size] if len(plan.chunks) > 1 else data)
            chunk = fmt.decode_chunk(view, 0, seed)
            if chunk is None or chunk.kind != fmt.KIND_ENTRIES:
                loaded[location] = self._damaged(location, "fails its checksum")
                continue
            found = LoadedChunk(chunk.ledger_id, chunk.first_entry_id, chunk.body, fmt.chunk_entry_ends(chunk))
            loaded[location] = found
            self._keep(location, found)

    def _keep(self, location: int, chunk: LoadedChunk) -> None:
        if location in self._chunks:
            return
        self._chunks[location] = chunk
        self._chunk_bytes += _cost(chunk)
        while self._chunk_bytes > self._chunk_bytes_max and self._chunks:
            _, oldest = self._chunks.popitem(last=False)
            self._chunk_bytes -= _cost(oldest)

    def _resolve(self, pending: _Read, loaded: dict[int, LoadedChunk | StorageError]) -> None:
        unresolved: list[tuple[int, int]] = []
        for i, entry_id, row in pending.missing:
            chunk = loaded.get(row.location)
            if chunk is None:
                unresolved.append((i, entry_id))
            elif isinstance(chunk, StorageError):
                pending.results[i] = chunk
            elif chunk.holds(pending.ledger_id, entry_id):
                pending.results[i] = chunk.entry(entry_id)
            else:
                pending.results[i] = self._damaged(row.location, f"does not hold {pending.ledger_id}:{entry_id}")
        pending.missing = []
        if unresolved:
            pending.attempts += 1
            if pending.attempts >= READ_ATTEMPTS_MAX:
                for i, entry_id in unresolved:
                    pending.results[i] = DiskIOError(f"entry {pending.ledger_id}:{entry_id} moved too often")
            elif pending.ledger_id not in self._storage.states.master_keys:
                for i, _ in unresolved:
                    pending.results[i] = self.absent_ledger(pending.ledger_id)
            else:
                self._look_up(pending, unresolved)
        self._finish_or_queue(pending)

    def forget_log(self, log_id: int) -> None:
        """Drop cached chunks of a removed log."""
        low, high = make_location(log_id, 0), make_location(log_id + 1, 0)
        for location in [location for location in self._chunks if low <= location < high]:
            self._chunk_bytes -= _cost(self._chunks.pop(location))


def _first(results: list[EntryData | StorageError], bytes_max: int | None) -> list[EntryData | StorageError]:
    """As many results as the limit allows."""
    if bytes_max is None:
        return results
    count = count_within(_sizes(results), bytes_max)
    return results[:count] if count < len(results) else results


def _sizes(results: Sequence[EntryData | StorageError]) -> list[int]:
    """Bytes of each; an error has none."""
    try:
        return list(map(len, cast("Sequence[EntryData]", results)))
    except TypeError:
        return [0 if isinstance(result, StorageError) else len(result) for result in results]


def _cost(chunk: LoadedChunk) -> int:
    """Bytes a cached chunk holds on to: its bytes and its list of ends."""
    return chunk.body.nbytes + 8 * len(chunk.ends) + 32 * len(chunk.ends)
