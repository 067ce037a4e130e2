"""What a ledger has here: its end, what its writer announced of it, and which entries.

An announced last add confirmed is a hint for readers and lives in memory: recovery finds the end by the entries, so one
that is forgotten costs nobody an entry. At most one is kept for each ledger that the bookie knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from geminga.bookie.entry_reader import EntryReader
from geminga.bookie.ledger_storage import LedgerStorage
from geminga.model.bookie_port import BookieInfo, EntryData, InfoDone, LacDone, LacResult
from geminga.model.errors import CorruptionError, DiskIOError, StorageError, UnknownEntryError
from geminga.wire.bookkeeper.digest import read_lac_ids

#: Bytes of an announced LAC: its ids (16) and a digest of at most 20.
LAC_BYTES_MAX: Final = 64


class LedgerContents:
    """Answers for one bookie."""

    __slots__ = ("_announced", "_reader", "_storage")

    def __init__(self, storage: LedgerStorage, reader: EntryReader) -> None:
        self._storage = storage
        self._reader = reader
        #: Ledger -> (LAC, as it was announced).
        self._announced: dict[int, tuple[int, bytes]] = {}

    def read_lac(self, ledger_id: int, done: LacDone) -> None:
        """The newest entry, whole, and what was announced."""
        storage = self._storage
        if storage.states.is_in_limbo(ledger_id):
            done(UnknownEntryError(f"ledger {ledger_id} is in limbo: part of the journal was lost"))
            return
        if ledger_id not in storage.states.master_keys:
            done(self._reader.absent_ledger(ledger_id))
            return
        announced = self._announced.get(ledger_id)
        packet = announced[1] if announced is not None else None
        last = max(storage.cache.last_entry_id(ledger_id), storage.index.last_entry_id(ledger_id))
        if last < 0:
            done(LacResult(-1, None, packet))
            return

        def have_entry(results: Sequence[EntryData | StorageError]) -> None:
            entry = results[0]
            done(entry if isinstance(entry, StorageError) else LacResult(last, bytes(entry), packet))

        self._reader.read(ledger_id, (last,), have_entry)

    def malformed_lac(self, ledger_id: int, packet: bytes) -> StorageError | None:
        """Why these bytes announce nothing for the ledger; None if they do."""
        try:
            found_ledger, lac = read_lac_ids(packet)
        except CorruptionError as error:
            return StorageError(f"ledger {ledger_id}: {error}")
        if found_ledger != ledger_id or lac < -1 or len(packet) > LAC_BYTES_MAX:
            return StorageError(
                f"ledger {ledger_id}: announced LAC {lac} of ledger {found_ledger}, {len(packet)} bytes"
            )
        return None

    def keep_lac(self, ledger_id: int, packet: bytes) -> None:
        """Remember it unless a newer one is known; forget those of ledgers that are gone when there are too many."""
        announced, keys = self._announced, self._storage.states.master_keys
        lac = read_lac_ids(packet)[1]
        known = announced.get(ledger_id)
        if known is None or lac > known[0]:
            announced[ledger_id] = (lac, bytes(packet))
        if len(announced) > len(keys):
            for gone in [found for found in announced if found not in keys]:
                del announced[gone]

    def entry_runs(self, ledger_id: int) -> Sequence[range] | StorageError:
        """The entries that are stored here as ascending runs without gaps between their members."""
        storage = self._storage
        if storage.states.is_in_limbo(ledger_id):
            return UnknownEntryError(f"ledger {ledger_id} is in limbo: part of the journal was lost")
        if ledger_id not in storage.states.master_keys:
            return self._reader.absent_ledger(ledger_id)
        indexed = (
            range(row.first_entry_id, row.first_entry_id + row.entry_count)
            for row in storage.index.ledger_rows(ledger_id)
        )
        cached = (range(entry_id, entry_id + 1) for entry_id in storage.cache.entry_ids(ledger_id))
        return joined_runs(sorted([*indexed, *cached], key=lambda run: (run.start, run.stop)))

    async def read_info(self, added_bytes: int, done: InfoDone) -> None:
        """How much room there is where entries are kept in the end; ``added_bytes``: what was added until now."""
        disk, directory = self._storage.runtime.disk, self._storage.directory
        try:
            info = BookieInfo(await disk.total_bytes(directory), await disk.free_bytes(directory), added_bytes)
        except OSError as error:
            done(DiskIOError(f"{directory}: {error}"))
            return
        done(info)


def joined_runs(runs: Iterable[range]) -> list[range]:
    """Runs in the order of their starts, which may overlap or touch, as few as can say the same."""
    joined: list[range] = []
    for run in runs:
        if joined and run.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, run.stop))
        else:
            joined.append(run)
    return joined
