"""The reads of one cursor, one at a time: from the entry cache at the tail, from the bookies when catching up.

A reader that catches up gets its entries in batches, which are more than it asked for; while one is handed out the next
is on its way, so that it need not wait for a bookie behind a network. It hands them on in turns (``catch_up_turns``),
and fewer at a time while others publish.

What is acknowledged already is left out. Before a ledger is read what is acknowledged of it is brought into memory, and
an operation that waits for such state goes before the read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from geminga.managed_ledger.cursor.cursor_operations import Refuse
from geminga.managed_ledger.log.reads import ReadDone
from geminga.managed_ledger.log.shared_reads import SharedPayloads
from geminga.managed_ledger.log.tail import Tail
from geminga.managed_ledger.rules.cursor import CursorState
from geminga.managed_ledger.rules.extent import Extent
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared.catch_up_turns import CatchUpTurns
from geminga.managed_ledger.shared.entry import Entry
from geminga.managed_ledger.shared.entry_cache import EntryCache, TailWindow
from geminga.model.byte_budget import Claim
from geminga.model.errors import LedgerClosedError, NoSuchLedgerError, StorageError
from geminga.model.position import Position
from geminga.runtime import Contained, Part

EntriesDone = Callable[[Sequence[Entry] | StorageError], None]

#: Bytes of a batch beyond what was asked for. A reader that lags behind holds one, and another one is on its way.
READ_AHEAD_BYTES: Final = 512 * 1024
#: The same of entries of at least so many bytes: the turns of the loop and the hop to a thread that a batch costs are
#: then most of what it costs, and few entries of it take a turn.
READ_AHEAD_LARGE_BYTES: Final = 2 * 1024 * 1024
LARGE_ENTRY_BYTES: Final = 16 * 1024
#: Instead of those while others publish: a batch is checked in one go, and they wait for that.
READ_AHEAD_PACED_BYTES: Final = 64 * 1024
READ_AHEAD_PACED_LARGE_BYTES: Final = 512 * 1024
#: Bytes handed on in one go while others publish.
PACED_BYTES_MAX: Final = 256 * 1024
#: What an entry takes is the mean of about so many turns.
ENTRY_TIMES: Final = 4
#: Entries of one read from the bookies, read-ahead included.
READ_ENTRIES_MAX: Final = 1000


class Read(NamedTuple):
    """The read under way."""

    max_entries: int
    max_bytes: int
    done: EntriesDone
    max_position: Position


class _Coming:
    """The batch that is on its way: what follows the one that is handed out."""

    __slots__ = ("claim", "first", "ledger_id")

    def __init__(self, ledger_id: int, first: int) -> None:
        self.ledger_id = ledger_id
        self.first = first
        #: None while it is being asked for.
        self.claim: Claim | None = None


class ReadingCursor(Protocol):
    """A cursor, as far as it concerns this."""

    name: str
    state: CursorState
    is_closed: bool

    @property
    def part(self) -> Part | None:
        """What is closed if its reads break."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether no operation waits."""
        ...

    def when_loaded(self, ledger_ids: Collection[int], action: Callable[[], None], refuse: Refuse) -> None:
        """Call ``action`` with the acknowledgments of these ledgers in memory, or ``refuse``."""
        ...


class ReadLog(Protocol):
    """The log that is read."""

    extent: Extent
    tail: Tail

    def read_for_cursor(self, info: LedgerInfo, first: int, last: int, bytes_max: int, done: ReadDone) -> Claim:
        """Payloads of consecutive entries of one ledger: see ``LedgerReads.read``. Another's are told as such."""
        ...


class CursorReads:
    """See the module. Made with the cursor's first read."""

    __slots__ = (
        "_ahead",
        "_asked",
        "_awaits_coming",
        "_cache",
        "_catch_up",
        "_claim",
        "_coming",
        "_cursor",
        "_entry_bytes",
        "_entry_s",
        "_epoch",
        "_extent",
        "_is_stepping",
        "_is_waiting",
        "_log",
        "_read",
        "_state",
        "_tail",
        "_turn_s",
        "cache_misses",
        "entries_read",
    )

    def __init__(self, cursor: ReadingCursor, log: ReadLog, cache: EntryCache, catch_up: CatchUpTurns) -> None:
        self._catch_up = catch_up
        #: What is left of its turn; 0: it has none.
        self._turn_s = 0.0
        #: So many of what was read ahead were asked for, and only wait for a turn.
        self._asked = 0
        #: What handing on an entry took lately; 0: nobody knows.
        self._entry_s = 0.0
        self._cursor = cursor
        self._log = log
        self._extent = log.extent
        self._tail = log.tail
        self._cache = cache
        self._state = cursor.state
        self._read: Read | None = None
        #: The read is being served from memory right now / waits for a bookie.
        self._is_stepping = False
        self._is_waiting = False
        #: Payloads read from a bookie beyond what was asked for.
        self._ahead: TailWindow | None = None
        self._coming: _Coming | None = None
        #: The read waits for that.
        self._awaits_coming = False
        #: The last read from the bookies: it may wait for its turn.
        self._claim: Claim | None = None
        #: How large the entries are where it reads; 0 before the first read from the bookies.
        self._entry_bytes = 0
        #: Entries read since then, and those read from bookies, read-ahead included.
        self.entries_read = 0
        self.cache_misses = 0
        #: Grows with every jump of the read position: a read under way then starts anew.
        self._epoch = 0

    @property
    def is_busy(self) -> bool:
        """Whether a read is under way."""
        return self._read is not None

    def start(self, read: Read) -> None:
        """Read forward; none is under way."""
        self._read = read
        if not self._is_stepping:
            self._step()

    def jumped(self) -> None:
        """The read position was changed."""
        self._epoch += 1
        self.drop_ahead()

    def stop(self, error: StorageError) -> None:
        """End the read under way with an error."""
        self._catch_up.leave(self)
        coming, self._coming = self._coming, None
        for claim in (self._claim, None if coming is None else coming.claim):
            if claim is not None and not claim.is_held:
                claim.release()
        if self._read is not None:
            self._finish(error)

    def drop_ahead(self) -> None:
        """Give back what was read ahead."""
        if self._ahead is not None:
            self._cache.give_back(self._ahead.size_bytes)
            self._ahead = None
            self._asked = 0

    def _step(self) -> None:
        """Serve reads from memory as far as that goes, or start one from the bookies."""
        self._is_stepping = True
        try:
            while (read := self._read) is not None and not self._is_waiting:
                start = self._next_unread(read.max_position)
                if start is None:
                    self._finish(())
                    continue
                if isinstance(start, int) or not self._cursor.is_idle:
                    # Behind what waits already: an entry acknowledged before this read is not part of it.
                    self._is_waiting = True
                    self._cursor.when_loaded((self._state.read_position.ledger_id,), self._loaded, self._loaded)
                    continue
                info, last = start
                ledger_id, first = self._state.read_position
                payloads = self._at_tail(ledger_id, first, min(last, first + read.max_entries - 1))
                if payloads:
                    self.drop_ahead()
                    self._cache.hits += len(payloads)
                    self._deliver(ledger_id, first, payloads, read.max_bytes)
                elif self._turn_s or (seconds := self._catch_up.begin(self)):
                    seconds, self._turn_s = self._turn_s or seconds, 0.0
                    self._catch_up_once(info, first, last, read, seconds)
                else:
                    self._is_waiting = True
        finally:
            self._is_stepping = False

    def go(self, seconds: float) -> None:
        """It is its turn to catch up."""
        with Contained(self._cursor.part, "a read"):
            self._is_waiting = False
            if self._read is not None:
                self._turn_s = seconds
                self._step()
                self._turn_s = 0.0

    def _catch_up_once(self, info: LedgerInfo, first: int, last: int, read: Read, seconds: float) -> None:
        """Hand on what is there of the next entries, as many as the time is enough for; or ask for them."""
        began_s = self._catch_up.began_s()
        ledger_id, wanted, bytes_max = info.ledger_id, read.max_entries, read.max_bytes
        if self._catch_up.is_limited:
            bytes_max = min(bytes_max, PACED_BYTES_MAX)
            if self._entry_s:
                wanted = min(wanted, max(1, int(seconds / self._entry_s)))
        payloads = self._from_ahead(ledger_id, first, min(last, first + wanted - 1))
        if payloads:
            self._cache.hits += max(0, len(payloads) - self._asked)
            self._asked = max(0, self._asked - len(payloads))
            count = self._deliver(ledger_id, first, payloads, bytes_max)
            self._fetch_more(info, last)
            took_s = self._catch_up.ended(began_s) / count
            self._entry_s += (took_s - self._entry_s) / ENTRY_TIMES
            return
        self._is_waiting = True
        if self._coming is not None and (self._coming.ledger_id, self._coming.first) == (ledger_id, first):
            self._awaits_coming = True
        else:
            self._read_ledger(info, first, last, read, wanted)
        self._catch_up.ended(began_s)

    def _loaded(self, error: StorageError | None = None) -> None:
        """The state of the ledger to read next is in memory."""
        self._is_waiting = False
        if self._read is None:
            return
        if error is not None:
            self._finish(error)
        elif not self._is_stepping:
            self._step()

    def _next_unread(self, max_position: Position) -> tuple[LedgerInfo, int] | int | None:
        """Move the read position to the next unacknowledged entry; its ledger, and the last id to read there.

        Or only the ledger's id if what is acknowledged of it is not in memory.
        """
        state, ledgers = self._state, self._extent.ledgers
        position = state.read_position
        if position <= state.mark_delete:
            position = Position(state.mark_delete.ledger_id, state.mark_delete.entry_id + 1)
        limit = min(self._extent.readable_position, max_position)
        acked = state.acked
        while True:
            position = ledgers.at_or_after(position)
            info = ledgers.find(position.ledger_id)
            if position > limit or info is None or position.entry_id >= info.entries:
                state.read_position = position
                return None
            if acked.count or acked.away is not None:
                if acked.away is not None and position.ledger_id in acked.away:
                    state.read_position = position
                    return position.ledger_id
                acked.use(position.ledger_id)
                clear = acked.first_clear(*position)
                if clear != position.entry_id:
                    position = Position(position.ledger_id, clear)
                    continue
            state.read_position = position
            last = info.entries - 1
            if limit.ledger_id == position.ledger_id:
                last = min(last, limit.entry_id)
            return info, last

    def _from_ahead(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        ahead = self._ahead
        if ahead is not None:
            if ahead.ledger_id == ledger_id and (payloads := ahead.get(first, last)):
                return payloads
            self.drop_ahead()
        return []

    def _at_tail(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        window = self._tail.window
        if window is not None and window.ledger_id == ledger_id:
            return window.get(first, last)
        return []

    def _read_ledger(self, info: LedgerInfo, first: int, last: int, read: Read, wanted: int) -> None:
        # A guess, for the read-ahead only: what does not fit is not read.
        average = self._entry_bytes or max(1, info.size_bytes // info.entries)
        ahead_bytes = read_ahead_bytes(self._cache, self._catch_up, average)
        bytes_max = min(read.max_bytes, wanted * average + ahead_bytes)
        window = self._tail.window
        if window is not None and window.ledger_id == info.ledger_id and first < window.first_entry_id:
            last = min(last, window.first_entry_id - 1)
        count = min(last - first + 1, READ_ENTRIES_MAX, wanted + ahead_bytes // average)
        epoch = self._epoch

        def arrived(result: Sequence[bytes] | StorageError) -> None:
            self._arrived(epoch, info.ledger_id, first, wanted, result)

        self._claim = self._log.read_for_cursor(info, first, first + count - 1, bytes_max, arrived)

    def _arrived(
        self, epoch: int, ledger_id: int, first: int, wanted: int, result: Sequence[bytes] | StorageError
    ) -> None:
        if not self._cursor.is_idle:
            self._cursor.when_loaded(
                (ledger_id,), partial(self._arrived, epoch, ledger_id, first, wanted, result), self._loaded
            )
            return
        self._is_waiting = False
        read = self._read
        if read is None:
            return
        if self._cursor.is_closed:
            self._finish(LedgerClosedError(f"cursor {self._cursor.name} is closed"))
            return
        if epoch == self._epoch and not isinstance(result, StorageError):
            self._count(result)
            self._entry_bytes = max(1, sum(map(len, result)) // len(result))
            # What comes between turns waits for the next one, if there is room to keep it.
            is_between = not self._is_stepping and self._catch_up.is_limited
            is_kept = (is_between or len(result) > wanted) and self._look_ahead(ledger_id, first, result)
            if is_between and is_kept:
                self._asked = min(wanted, len(result))
            else:
                self._deliver(ledger_id, first, result[:wanted], read.max_bytes)
        elif epoch == self._epoch:
            # A ledger that was trimmed meanwhile is passed over; any other error goes to the caller.
            gone = isinstance(result, NoSuchLedgerError) and self._extent.ledgers.find(ledger_id) is None
            if not gone and isinstance(result, StorageError):
                self._finish(result)
                return
        if not self._is_stepping:
            self._step()

    def _deliver(self, ledger_id: int, first: int, payloads: Sequence[bytes], bytes_max: int) -> int:
        """Complete the read with what is not acknowledged of ``payloads``, or of the first of them; how many that are.

        It is not complete if all of these are acknowledged.
        """
        size_bytes = 0
        count = 0
        for payload in payloads:
            size_bytes += len(payload)
            if size_bytes > bytes_max and count:
                break
            count += 1
        if count < len(payloads) and self._ahead is None:
            self._look_ahead(ledger_id, first + count, payloads[count:])
        if self._ahead is not None and self._ahead.ledger_id == ledger_id:
            self._cache.give_back(self._ahead.evict_through(first + count - 1))
        self.entries_read += count
        state = self._state
        state.read_position = Position(ledger_id, first + count)
        if state.acked.count and state.acked.has_ledger(ledger_id):
            entries = [
                Entry(ledger_id, entry_id, payloads[entry_id - first])
                for entry_id in state.acked.clear_ids(ledger_id, first, first + count - 1)
            ]
        else:
            entries = [Entry(ledger_id, entry_id, payload) for entry_id, payload in enumerate(payloads[:count], first)]
        if state.mark_delete >= (ledger_id, first):
            entries = [entry for entry in entries if (ledger_id, entry.entry_id) > state.mark_delete]
        if entries:
            self._tail.on_read()
            self._finish(entries)
        return count

    def _fetch_more(self, info: LedgerInfo, last: int) -> None:
        """Ask for the batch behind the one that is being handed out, up to entry ``last``."""
        ahead = self._ahead
        if ahead is None or self._coming is not None or ahead.ledger_id != info.ledger_id or not self._entry_bytes:
            return
        first, window = ahead.end_entry_id, self._tail.window
        if window is not None and window.ledger_id == info.ledger_id:
            last = min(last, window.first_entry_id - 1)
        ahead_bytes = read_ahead_bytes(self._cache, self._catch_up, self._entry_bytes)
        count = min(last - first + 1, READ_ENTRIES_MAX, ahead_bytes // self._entry_bytes)
        if count < 1 or ahead.size_bytes > ahead_bytes:
            return
        coming = self._coming = _Coming(info.ledger_id, first)
        came = partial(self._came, coming)
        coming.claim = self._log.read_for_cursor(info, first, first + count - 1, ahead_bytes, came)

    def _came(self, coming: _Coming, result: Sequence[bytes] | StorageError) -> None:
        """The batch is here, or an error: then the read that needs it asks again, and tells."""
        if self._coming is not coming:
            return  # the cursor was closed
        self._coming = None
        if not isinstance(result, StorageError):
            self._count(result)
            size_bytes = sum(map(len, result))
            self._entry_bytes = max(1, size_bytes // len(result))
            ahead = self._ahead
            if ahead is None:
                if self._awaits_coming:  # else nobody reads any more
                    self._look_ahead(coming.ledger_id, coming.first, result)
            elif (ahead.ledger_id, ahead.end_entry_id) == (coming.ledger_id, coming.first) and self._cache.reserve(
                size_bytes
            ):
                ahead.extend(result, size_bytes)
        if self._awaits_coming:
            self._awaits_coming = self._is_waiting = False
            if self._read is not None and not self._is_stepping:
                self._step()

    def _count(self, result: Sequence[bytes]) -> None:
        """What was read, by this cursor or by another one before."""
        if isinstance(result, SharedPayloads):
            self._cache.hits += len(result)
        else:
            self._cache.misses += len(result)
            self.cache_misses += len(result)

    def _look_ahead(self, ledger_id: int, first: int, payloads: Sequence[bytes]) -> bool:
        """Keep payloads for the next read, if the cache's budget allows; whether it did."""
        self.drop_ahead()
        window = self._tail.window
        if window is not None and window.ledger_id == ledger_id and first >= window.first_entry_id:
            return False
        size_bytes = sum(map(len, payloads))
        if not self._cache.reserve(size_bytes):
            return False
        self._ahead = TailWindow(ledger_id, first)
        self._ahead.extend(payloads, size_bytes)
        return True

    def _finish(self, result: Sequence[Entry] | StorageError) -> None:
        read, self._read = self._read, None
        assert read is not None
        read.done(result)


def read_ahead_bytes(cache: EntryCache, catch_up: CatchUpTurns, entry_bytes: int) -> int:
    """What may be read ahead of entries of that size; 0: the cache has no room."""
    usual, large = READ_AHEAD_BYTES, READ_AHEAD_LARGE_BYTES
    if catch_up.is_limited:
        usual, large = READ_AHEAD_PACED_BYTES, READ_AHEAD_PACED_LARGE_BYTES
    if entry_bytes >= LARGE_ENTRY_BYTES and cache.has_room(large):
        return large
    return usual if cache.has_room(usual) else 0
