"""The append path of one managed ledger: its open ledger, rollover, and what follows a failed write.

Made by the first append. Entries are confirmed in the order they were appended, over rollovers too: a new
ledger gets its first entry only when everything in the one before is confirmed. After a failed write the
ledger is closed at its last confirmed entry, so that entries reported as failed are not in the log, and later
appends go to a new one. What was appended behind a failed entry, before its caller was told, fails as well: whoever
sends it again finds nothing in front of it that came later.

A full ledger that can be written is left once the next one is made, not before: while none can be made (metadata
out of reach, too few bookies) it takes entries beyond its limits, unless its quorums are no longer those wanted.

What waits for a new ledger is sent to its bookies while the list that names it is written, and not after that: both are
synced, and the first message of a topic would wait for one after the other. It is confirmed when both are done. Should
the list not be written it failed, and the ledger goes; where that is not known, with the next list that is written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from geminga.managed_ledger.log.ledger_end import LedgerEnd, RecoveredLog, close_quietly
from geminga.managed_ledger.log.reader import LogReader
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.rules.rollover import Room, part_that_fits
from geminga.managed_ledger.rules.write_stats import WriteStats
from geminga.managed_ledger.shared.entry import AppendDone, AppendResult
from geminga.managed_ledger.shared.ports import Ledger, OpenLedger
from geminga.managed_ledger.shared.services import StorageServices, TrimsLater
from geminga.model.errors import (
    GemingaError,
    LedgerClosedError,
    LedgerFencedError,
    StorageError,
    TopicTerminatedError,
    invariant,
)
from geminga.runtime import again, get_logger, spawn

if TYPE_CHECKING:
    from geminga.managed_ledger.log.new_ledgers import NewLedgers

#: Appends fail at once for so long after a ledger could not be opened, milliseconds.
RETRY_DELAY_MS: Final = 200
#: Appends wait so long for a ledger that is being made before they go on in the full one, seconds.
MAKING_PATIENCE_S: Final = 1.0

_log = get_logger(__name__)


class AppenderState(Enum):
    """What happens to the next append."""

    #: No open ledger: it opens one.
    IDLE = "idle"
    #: It is written.
    OPEN = "open"
    #: It waits for the ledger that is being opened.
    SWITCHING = "switching"
    #: The open ledger had a failed write: it closes that and opens another.
    FAILED = "failed"
    #: It fails.
    STOPPED = "stopped"


#: Done, entries, index of the first, bytes, when they were appended, when they were written; monotonic seconds.
_Pending = tuple[AppendDone, Sequence[bytes], int, int, float, float]


class _Early:
    """What became of entries that were sent before the list named their ledger; told when it does."""

    __slots__ = ("appended", "ledger", "results")

    def __init__(self, ledger: OpenLedger, appended: Callable[[int, int, StorageError | None], None]) -> None:
        self.ledger = ledger
        #: None: they were given up.
        self.appended: Callable[[int, int, StorageError | None], None] | None = appended
        #: Of these and of any behind them, in order.
        self.results: deque[tuple[int, int, StorageError | None]] = deque()

    def done(self, first_entry_id: int, count: int, error: StorageError | None) -> None:
        """As of an append."""
        if self.appended is not None:
            self.appended(first_entry_id, count, error)


class AppendedLog(RecoveredLog, Protocol):
    """The managed ledger that is appended to."""

    stored: StoredList
    reader: LogReader

    @property
    def trimmer(self) -> TrimsLater:
        """What deletes ledgers."""
        ...

    def on_confirmed(self, ledger_id: int, first_entry_id: int, entries: Sequence[bytes], size_bytes: int) -> None:
        """Entries of the open ledger are stored."""
        ...


class Appender:
    """See the module."""

    __slots__ = (
        "_clock",
        "_drained",
        "_early",
        "_end",
        "_handle",
        "_info",
        "_is_making",
        "_ledgers",
        "_managed",
        "_new",
        "_opened_ms",
        "_pending",
        "_refused",
        "_refusing",
        "_retry_error",
        "_retry_ms",
        "_rollover",
        "_room_bytes",
        "_room_entries",
        "_stop_error",
        "_waiting",
        "state",
        "stats",
    )

    def __init__(self, log: AppendedLog, new: NewLedgers, services: StorageServices) -> None:
        self._managed = log
        self._new = new
        self._clock = services.clock
        self._ledgers = services.ledgers
        self._rollover = services.rollover
        self.state = AppenderState.IDLE
        self._handle: OpenLedger | None = None
        self._info: LedgerInfo | None = None
        #: Of the open ledger, if it failed and its end is being fixed.
        self._end: LedgerEnd | None = None
        #: What was stored, since the managed ledger was opened.
        self.stats = WriteStats()
        #: Written and not confirmed, in order.
        self._pending: deque[_Pending] = deque()
        #: Not written yet: the ledger is being switched. Bounded by what producers may have pending.
        self._waiting: deque[tuple[Sequence[bytes], AppendDone, int, float]] = deque()
        #: Appends that were refused, and whose callers are told in the next turn of the loop; and why.
        self._refusing = 0
        self._refused: GemingaError | None = None
        self._drained: asyncio.Future[None] | None = None
        #: While the list that names the new ledger is written.
        self._early: _Early | None = None
        #: The next ledger is being made; the open one may be written meanwhile.
        self._is_making = False
        self._opened_ms = 0
        #: What the open ledger takes before its limits are looked at again.
        self._room_entries = 0
        self._room_bytes = 0
        self._retry_ms = 0
        self._retry_error: GemingaError | None = None
        self._stop_error: GemingaError = LedgerClosedError(f"{log.name} is closed")

    @property
    def pending_entries(self) -> int:
        """Entries written or waiting that were not answered."""
        written = sum(len(pending[1]) for pending in self._pending)
        return written + sum(len(entries) - index for entries, _, index, _ in self._waiting)

    @property
    def has_failed(self) -> bool:
        """Whether a write to the open ledger failed, be it while it was left: where it ends is not known until it is
        closed."""
        return self._handle is not None and self._handle.error is not None

    # ---- append

    def append(self, entries: Sequence[bytes], done: AppendDone) -> None:
        """See ``ManagedLedger.append``."""
        count = len(entries)
        now_s = self._clock.monotonic()
        handle = self._handle
        if (
            handle is not None
            and self.state is AppenderState.OPEN
            and count <= self._room_entries
            and not self._refusing
        ):
            size_bytes = sum(map(len, entries))
            if size_bytes <= self._room_bytes:
                self._room_entries -= count
                self._room_bytes -= size_bytes
                self._pending.append((done, entries, 0, size_bytes, now_s, now_s))
                handle.append(entries, self._on_appended)
                return
        self._append_slowly(entries, done, 0, now_s)

    def _append_slowly(self, entries: Sequence[bytes], done: AppendDone, index: int, since_s: float) -> None:
        """Write what fits into the open ledger, part by part; the rest waits for the next one."""
        invariant(entries, f"{self._managed.name}: append of no entries")
        if self._refusing and self._refused is not None:
            self._refuse(entries, done, index, self._refused)
            return
        while index < len(entries):
            state = self.state
            if state is AppenderState.STOPPED:
                self._refuse(entries, done, index, self._stop_error)
                return
            if state is not AppenderState.OPEN or not self._has_room():
                if not self._is_making and not self._may_switch():
                    self._refuse(entries, done, index, self._retry_error or self._stop_error)
                    return
                self._waiting.append((entries, done, index, since_s))
                self._start_switch()
                return
            index = self._write_part(entries, done, index, since_s)

    def _write_part(self, entries: Sequence[bytes], done: AppendDone, index: int, since_s: float) -> int:
        """Write entries from ``index`` until the room is used up (the one that crosses the size included)."""
        position, size_bytes = part_that_fits(entries, index, Room(self._room_entries, self._room_bytes))
        part = entries[index:position] if position - index < len(entries) else entries
        self._room_entries -= len(part)
        self._room_bytes -= size_bytes
        self._pending.append((done, part, index, size_bytes, since_s, self._clock.monotonic()))
        handle = self._handle
        invariant(handle is not None, f"{self._managed.name}: open without a ledger")
        assert handle is not None
        handle.append(part, self._on_appended)
        return position

    def _on_appended(self, first_entry_id: int, count: int, error: StorageError | None) -> None:
        if self._early is not None:
            self._early.results.append((first_entry_id, count, error))
            return
        self._appended(first_entry_id, count, error)

    def _appended(self, first_entry_id: int, count: int, error: StorageError | None) -> None:
        done, entries, index, size_bytes, since_s, written_s = self._pending.popleft()
        info = self._info
        assert info is not None
        if error is None:
            info.entries = first_entry_id + count
            info.size_bytes += size_bytes
            now_s = self._clock.monotonic()
            self.stats.stored(entries, size_bytes, now_s - since_s, now_s - written_s)
            self._managed.on_confirmed(info.ledger_id, first_entry_id, entries, size_bytes)
        else:
            self._on_failure(error)
        done(AppendResult(info.ledger_id, first_entry_id, index, count, error))
        if not self._pending and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _on_failure(self, error: StorageError) -> None:
        if isinstance(error, LedgerFencedError):
            self._managed.on_fenced(error)
        elif self.state is AppenderState.OPEN:
            _log.warning("%s: a write to ledger %d failed: %s", self._managed.name, self._ledger_id, error)
            self.state = AppenderState.FAILED
        self._fail_waiting(error)

    def _refuse(self, entries: Sequence[bytes], done: AppendDone, index: int, error: GemingaError) -> None:
        self._refusing += 1
        self._refused = error
        # Its own: what refuses many would grow by the frames of all who raise it.
        result = AppendResult(-1, -1, index, len(entries) - index, again(error))
        asyncio.get_running_loop().call_soon(self._tell_refused, done, result)

    def _tell_refused(self, done: AppendDone, result: AppendResult) -> None:
        self._refusing -= 1
        done(result)

    # ---- rollover

    def roll_if_full(self) -> None:
        """Start a new ledger if the open one is full by now; the factory's timer asks."""
        info = self._info
        if self.state is AppenderState.OPEN and info is not None and self._is_to_be_left():
            self._start_switch()

    def _has_room(self) -> bool:
        """Whether the open ledger takes the next entry; renews the room if its limits leave any."""
        if self._room_entries > 0 and self._room_bytes > 0:
            return True
        if self._is_to_be_left():
            return False
        self._measure_room()
        return True

    def _is_to_be_left(self) -> bool:
        """Whether the open ledger is full and another can be asked for; if it can not, the full one goes on."""
        if not self._is_full() or not self._may_switch() or self._is_making:
            return False
        return not self._new.is_metadata_away and not self._new.is_list_full

    def _is_full(self) -> bool:
        handle = self._handle
        assert handle is not None
        return self._rollover.is_full(
            entries=handle.last_add_pushed + 1, size_bytes=handle.length_bytes, age_ms=self._age_ms()
        )

    def _measure_room(self) -> None:
        handle = self._handle
        assert handle is not None
        room = self._rollover.room(entries=handle.last_add_pushed + 1, size_bytes=handle.length_bytes)
        self._room_entries, self._room_bytes = room

    def _age_ms(self) -> int:
        return int(self._clock.monotonic() * 1000) - self._opened_ms

    def _may_switch(self) -> bool:
        return self._retry_error is None or self._clock.monotonic() * 1000 >= self._retry_ms

    async def open(self) -> None:
        """Have an open ledger without an append; nothing while one is being opened, or can not be."""
        if self.state is AppenderState.IDLE and self._may_switch() and not self._is_making:
            self.state = AppenderState.SWITCHING
            await self._switch()

    def _start_switch(self) -> None:
        if self.state is AppenderState.SWITCHING or self._is_making:
            return
        self.state = AppenderState.SWITCHING
        spawn(self._switch(), name=f"open-ledger-of-{self._managed.name}")

    async def _switch(self) -> None:
        """Make a ledger, leave the one that was open, write what waits."""
        previous: Ledger | None = None
        self._is_making = True
        # From now on, not from when it has the list: a trim of many ledgers may keep that for long.
        patience = asyncio.get_running_loop().call_later(MAKING_PATIENCE_S, self._go_on)

        def made_it() -> None:
            patience.cancel()
            self._is_making = False

        try:
            try:
                async with self._managed.stored.lock():
                    if not self._is_ledger_wanted():
                        return
                    handle = self._handle
                    if handle is not None and not self._can_go_on(handle):
                        self.state = AppenderState.SWITCHING  # it may have gone on, or failed, meanwhile
                        previous = await self._detach()
                        made = await self._new.make()
                        made_it()
                    else:
                        made = await self._new.make()
                        made_it()
                        previous = await self._leave_for(made)
                    self._send_early(made)
                    await self._new.add(made, self._open)
            finally:
                made_it()
        except StorageError as error:
            early = self._early
            self._switch_failed(error)
            is_listed_perhaps = isinstance(error, LedgerFencedError) or self._managed.stored.is_in_doubt
            if early is not None and not is_listed_perhaps:
                # Else another owner may have it by now.
                await self._new.give_up(early.ledger)
        else:
            if self._retry_error is not None:
                _log.warning("%s: has a new ledger again", self._managed.name)
                self._retry_error = None
            if self.state is AppenderState.SWITCHING:
                self.state = AppenderState.OPEN
            self._flush_waiting()
            self._tell_early()
        if previous is not None:
            await close_quietly(previous)
            self._managed.trimmer.trim_later()

    def _send_early(self, made: OpenLedger) -> None:
        """Send what waits, as much as the ledger takes, though no list names it yet."""
        waiting = self._waiting
        self._room_entries, self._room_bytes = self._rollover.room(entries=0, size_bytes=0)
        if not waiting:
            return
        early = self._early = _Early(made, self._on_appended)
        while waiting and self._room_entries > 0 and self._room_bytes > 0:
            entries, done, index, since_s = waiting.popleft()
            end, size_bytes = part_that_fits(entries, index, Room(self._room_entries, self._room_bytes))
            part = entries[index:end]
            self._room_entries -= len(part)
            self._room_bytes -= size_bytes
            self._pending.append((done, part, index, size_bytes, since_s, self._clock.monotonic()))
            if end < len(entries):
                waiting.appendleft((entries, done, end, since_s))
            made.append(part, early.done)

    def _tell_early(self) -> None:
        """The list names their ledger: what was stored is. What comes meanwhile is behind it."""
        early = self._early
        while early is not None and early.results:
            self._appended(*early.results.popleft())
        self._early = None

    def _give_up_early(self, error: StorageError) -> None:
        """No list names their ledger: what was sent into it failed, whatever becomes of it there."""
        early, self._early = self._early, None
        if early is None:
            return
        early.appended = None
        pending, self._pending = self._pending, deque()
        for done, entries, index, *_ in pending:
            done(AppendResult(-1, -1, index, len(entries), again(error)))
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _is_ledger_wanted(self) -> bool:
        """Whether one is to be made, now that the list may be changed: the open one may have been left meanwhile."""
        if self.state is AppenderState.IDLE and self._waiting:
            self.state = AppenderState.SWITCHING
        return self.state not in (AppenderState.IDLE, AppenderState.STOPPED)

    def _go_on(self) -> None:
        """No other ledger came: the open one takes more, whatever its limits say."""
        handle = self._handle
        if self.state is AppenderState.SWITCHING and handle is not None and self._can_go_on(handle):
            self.state = AppenderState.OPEN
            self._measure_room()
            self._flush_waiting()

    def _can_go_on(self, handle: OpenLedger) -> bool:
        """Whether a full ledger may be written on: after a failed write its end is fixed first, and nobody gets fewer
        copies than are wanted by now."""
        return handle.error is None and self._new.is_as_wanted(handle)

    async def _leave_for(self, made: OpenLedger) -> Ledger | None:
        """Leave the open ledger, for one that is made. Raises StorageError; ``made`` is given up then."""
        try:
            if self.state in (AppenderState.OPEN, AppenderState.FAILED):
                self.state = AppenderState.SWITCHING  # it went on meanwhile
            if self.state is not AppenderState.SWITCHING:
                raise LedgerClosedError(f"{self._managed.name}: no ledger is wanted any more")
            return await self._detach()
        except StorageError as failure:
            await self._new.give_up(made)
            raise failure

    def _open(self, handle: OpenLedger, info: LedgerInfo) -> None:
        """The new ledger is in the list."""
        self._handle, self._info = handle, info
        self._managed.reader.open_ledger = handle
        self._opened_ms = int(self._clock.monotonic() * 1000)

    def _switch_failed(self, error: StorageError) -> None:
        self._give_up_early(error)
        if self._retry_error is None or str(self._retry_error) != str(error):
            _log.warning("%s: no new ledger: %s", self._managed.name, error)
        if isinstance(error, LedgerFencedError):
            self._managed.on_fenced(error)
            return
        self._retry_error = again(error)
        self._retry_ms = int(self._clock.monotonic() * 1000) + RETRY_DELAY_MS
        self._go_on()
        if self.state is AppenderState.SWITCHING:
            self.state = AppenderState.FAILED if self._handle is not None else AppenderState.IDLE
        if self.state is not AppenderState.OPEN:
            self._fail_waiting(error)

    async def _detach(self) -> Ledger | None:
        """Wait for what is written, and fix the open ledger's end in the list in memory."""
        await self.drain()
        handle, info = self._handle, self._info
        if handle is None or info is None:
            return None
        ledger: Ledger = handle
        if handle.error is not None:
            # The end is fixed before the list says so: what failed must not come back.
            if self._end is None:
                self._end = LedgerEnd(self._managed, self._ledgers)
            ledger = await self._end.fix(handle, info)
            self._end = None
        info.closed_ms = max(1, self._clock.wall_ms())
        self._managed.reader.keep(ledger)
        self._handle = self._info = None
        return ledger

    async def drain(self) -> None:
        """Until every written entry is confirmed or failed."""
        while self._pending:
            if self._drained is None or self._drained.done():
                self._drained = asyncio.get_running_loop().create_future()
            # Several wait, and who is cut off must not take it from the others.
            await asyncio.shield(self._drained)

    async def detach(self) -> Ledger | None:
        """Leave the open ledger, with the list lock held: the next append opens another."""
        if self.state not in (AppenderState.OPEN, AppenderState.FAILED, AppenderState.SWITCHING):
            return None
        self.state = AppenderState.SWITCHING
        try:
            return await self._detach()
        finally:
            if self.state is AppenderState.SWITCHING:
                self.state = AppenderState.IDLE if self._handle is None else AppenderState.FAILED

    def resume(self) -> None:
        """After :meth:`detach`, also one that failed: open a ledger if appends came meanwhile."""
        if self._waiting and self.state in (AppenderState.IDLE, AppenderState.FAILED):
            self._start_switch()

    def stop(self, error: GemingaError) -> None:
        """Appends from now on, and those waiting for a ledger, fail with ``error``; written ones finish."""
        if self.state is not AppenderState.STOPPED or isinstance(error, TopicTerminatedError):
            self.state = AppenderState.STOPPED
            self._stop_error = again(error)
        self._fail_waiting(error)

    async def leave(self) -> Ledger | None:
        """After :meth:`stop`: the ledger that was open, its end fixed in the list in memory."""
        return await self._detach()

    @property
    def _ledger_id(self) -> int:
        return self._info.ledger_id if self._info is not None else -1

    def _flush_waiting(self) -> None:
        waiting = self._waiting
        while waiting and self.state is not AppenderState.SWITCHING:
            entries, done, index, since_s = waiting.popleft()
            held = len(waiting)
            self._append_slowly(entries, done, index, since_s)
            if len(waiting) > held:
                # Its rest waits for yet another ledger: it stays first.
                waiting.appendleft(waiting.pop())
                break

    def _fail_waiting(self, error: GemingaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for entries, done, index, _ in waiting:
            self._refuse(entries, done, index, error)
