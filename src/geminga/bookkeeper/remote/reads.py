"""Reads of a remote bookie: which requests they are, and when there is enough.

Entries that follow each other are asked for with batch reads, which the bookie bounds by count and bytes; others one by
one, several at once. A batch read says nothing of where it stopped: the next one begins there, and tells an absence.
Where one had no answer the call ends: whoever asks has other copies, and waits no longer than for one entry.

BookKeeper's bookies have batch reads since 4.17; an older one closes the connection on which one comes, without a word.
What a lost connection left unread is read entry by entry, on the other one. If the bookie answers there, and two
connections in a row went so (one may have gone by itself), it has none: it gets no more of them until it was connected
to anew, for then it may be another version.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from geminga.bookkeeper.remote.channel import Channel
from geminga.model.bookie_port import ID_MAX, EntryData, ReadDone
from geminga.model.errors import NoSuchEntryError, StorageError
from geminga.runtime import get_logger
from geminga.wire.bookkeeper import v2, v3
from geminga.wire.bookkeeper.answers import Answer, BatchReadAnswer, ReadAnswer
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX, StatusCode, error_of_status

#: Entries asked for by one batch read.
BATCH_ENTRIES_MAX: Final = 5000
#: What one says that its answer may have, which needs room in a frame.
BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - 1024
#: Single reads under way for one call.
SINGLE_READS_MAX: Final = 64
#: The first ones of a call with a limit of bytes: how large entries are is known by them, and beyond the limit some are
#: read in vain.
SINGLE_READS_FIRST: Final = 4


#: Connections lost under batch reads, one after the other, that show that a bookie has none.
BATCH_LOSSES_MAX: Final = 2

_log = get_logger(__name__)


class BatchReads:
    """What is known of the batch reads of one bookie."""

    __slots__ = ("_in_a_row", "_last_loss", "_name", "are_refused")

    def __init__(self, name: str) -> None:
        self._name = name
        #: It has none, as far as was seen.
        self.are_refused = False
        #: Connections that were lost under batch reads, with a bookie that answered single ones then.
        self._in_a_row = 0
        self._last_loss = 0

    def connected(self) -> None:
        """A connection to it was made: what was seen before need not be so any more."""
        self.are_refused = False
        self._in_a_row = 0

    def answered(self) -> None:
        """It answered one."""
        self._in_a_row = 0

    def lost(self, loss: int) -> None:
        """It answers single reads, and the connection of a batch read was lost: number ``loss``, told once or more."""
        if loss == self._last_loss:
            return
        self._last_loss = loss
        self._in_a_row += 1
        if self._in_a_row >= BATCH_LOSSES_MAX:
            self.refused("it closes the connection")

    def refused(self, how: str) -> None:
        """It has none."""
        if not self.are_refused:
            self.are_refused = True
            _log.warning(
                "bookie %s has no batch reads (%s; BookKeeper's have them since 4.17): it is read entry by entry",
                self._name,
                how,
            )


class EntriesRead:
    """One call of ``read_entries``."""

    def __init__(
        self,
        name: str,
        singles: Channel,
        batches: Channel,
        ledger_id: int,
        entry_ids: Sequence[int],
        done: ReadDone,
        bytes_max: int | None,
        batch_reads: BatchReads,
    ) -> None:
        """``name``: of the bookie. ``singles`` speaks version 3, ``batches`` version 2."""
        self._name = name
        self._singles = singles
        self._batches = batches
        self._ledger_id = ledger_id
        self._ids = entry_ids
        self._done = done
        self._bytes_max = bytes_max
        self._batch_reads = batch_reads
        #: The connection that was lost under a batch read, by number; 0: none was. The rest is asked for one by one.
        self._loss = 0
        self._lost_before = 0
        self._results: list[EntryData | StorageError] = []
        self._size_bytes = 0
        #: Single reads under way: by place, and how many.
        self._found: dict[int, bytes | StorageError] = {}
        self._missing = 0
        #: A request that had no answer: nothing more is asked, each of which would be waited for as long.
        self._silence: StorageError | None = None

    def go_on(self) -> None:
        """Ask for what comes next, or be done."""
        start = len(self._results)
        if self._silence is not None:
            self._results += [self._silence] * (len(self._ids) - start)
            start = len(self._results)
        if start >= len(self._ids):
            self._done(self._results)
            return
        count = 1 if self._loss or self._batch_reads.are_refused else self._run_length(start)
        if count > 1:
            first = self._ids[start]
            room = BATCH_BYTES_MAX
            if self._bytes_max is not None:
                left = self._bytes_max - self._size_bytes + v2.BATCH_ANSWER_BYTES + 2 * v2.ENTRY_SIZE_BYTES
                # The sizes in front of entries are no bytes of theirs.
                room = min(room, left + v2.ENTRY_SIZE_BYTES * count)
            make = partial(_batch_read, self._ledger_id, first, count, room)
            self._lost_before = self._batches.lost_count
            self._batches.send(make, self._have_batch)
            return
        self._ask_singly(start)

    def _run_length(self, start: int) -> int:
        ids = self._ids
        first = ids[start]
        if not 0 <= first <= ID_MAX:
            return 0
        limit = min(len(ids) - start, BATCH_ENTRIES_MAX)
        count = 1
        while count < limit and ids[start + count] == first + count <= ID_MAX:
            count += 1
        return count

    def _ask_singly(self, start: int) -> None:
        places = range(start, min(start + self._window(), len(self._ids)))
        self._found.clear()
        self._missing = len(places)
        absent: list[int] = []
        for place in places:
            entry_id = self._ids[place]
            if 0 <= entry_id <= ID_MAX:
                self._singles.send(partial(_read, self._ledger_id, entry_id), self._have_one, place)
            else:
                absent.append(place)
        for place in absent:
            self._keep(place, NoSuchEntryError(f"ledger {self._ledger_id} can have no entry {self._ids[place]}"))

    def _window(self) -> int:
        """How many single reads are made now: as many as the limit is likely to let."""
        if self._bytes_max is None:
            return SINGLE_READS_MAX
        if not self._size_bytes:
            return SINGLE_READS_FIRST
        mean = -(-self._size_bytes // len(self._results))
        return min(SINGLE_READS_MAX, max(1, (self._bytes_max - self._size_bytes) // mean))

    def _have_batch(self, _: int, answer: Answer | StorageError) -> None:
        entry_id = self._ids[len(self._results)]
        if not isinstance(answer, BatchReadAnswer):
            if self._batches.lost_count > self._lost_before:
                self._loss = self._batches.lost_count
                self.go_on()
                return
            self._take([self._failure(answer, entry_id)])
            return
        if answer.status == StatusCode.EBADREQ:
            self._batch_reads.refused("EBADREQ")
            self.go_on()
            return
        self._batch_reads.answered()
        error = error_of_status(answer.status, self._story(entry_id))
        if error is None and not answer.entries:
            error = StorageError(f"{self._story(entry_id)}: an answer without entries")
        self._take([error] if error is not None else answer.entries[: self._run_length(len(self._results))])

    def _have_one(self, place: int, answer: Answer | StorageError) -> None:
        entry_id = self._ids[place]
        if not isinstance(answer, ReadAnswer):
            self._keep(place, self._failure(answer, entry_id))
            return
        if self._loss:
            self._batch_reads.lost(self._loss)
        error = error_of_status(answer.status, self._story(entry_id))
        self._keep(place, error or answer.entry or StorageError(f"{self._story(entry_id)}: an answer without entry"))

    def _keep(self, place: int, result: bytes | StorageError) -> None:
        self._found[place] = result
        self._missing -= 1
        if not self._missing:
            self._take([self._found[place] for place in sorted(self._found)])

    def _take(self, results: Sequence[EntryData | StorageError]) -> None:
        """The next results, in order: as many as the limit lets."""
        for result in results:
            size = 0 if isinstance(result, StorageError) else len(result)
            if self._results and self._bytes_max is not None and self._size_bytes + size > self._bytes_max:
                self._done(self._results)
                return
            self._size_bytes += size
            self._results.append(result)
        self.go_on()

    def _failure(self, answer: Answer | StorageError, entry_id: int) -> StorageError:
        error = failure_of(answer, self._story(entry_id))
        if isinstance(answer, StorageError):
            self._silence = error
        return error

    def _story(self, entry_id: int) -> str:
        return f"bookie {self._name}, ledger {self._ledger_id}, entry {entry_id}"


def _read(ledger_id: int, entry_id: int, number: int) -> bytes:
    return v3.encode_read(number, ledger_id, entry_id)


def _batch_read(ledger_id: int, entry_id: int, entries_max: int, bytes_max: int, number: int) -> bytes:
    return v2.encode_batch_read(number, ledger_id, entry_id, entries_max=entries_max, bytes_max=bytes_max)


def failure_of(answer: Answer | StorageError, story: str) -> StorageError:
    """Why an answer that is not of the kind that was asked for is none."""
    if isinstance(answer, StorageError):
        return answer
    return error_of_status(answer.status, story) or StorageError(f"{story}: an answer to something else")
