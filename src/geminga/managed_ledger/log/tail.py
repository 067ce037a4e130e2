"""The tail of one managed ledger: its newest entries in the entry cache, and who is told that there is more to read.

Entries are kept while any cursor reads, and until all that do have passed. Listeners are told once for all that one
turn of the loop brought.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from geminga.managed_ledger.rules.slowest import SlowestReader, TailReader
from geminga.managed_ledger.shared.entry_cache import EntryCache, TailWindow
from geminga.model.position import Position
from geminga.runtime import Contained, Part

#: Keeps payloads of a window in the cache, with their bytes.
KeepEntries = Callable[[TailWindow, Sequence[bytes], int], None]


#: What one log may keep of the cache for cursors that catch up: one of so many parts.
BEHIND_PART: Final = 4
#: One object for all idle managed ledgers: an empty set takes 216 bytes.
_NO_READERS: Final[frozenset[TailReader]] = frozenset()


class Tail:
    """See the module."""

    __slots__ = ("_cache", "_is_due", "_keep", "_listeners", "_readers", "_slowest", "behind", "window")

    def __init__(self, cache: EntryCache, keep: KeepEntries) -> None:
        #: Recently appended entries of the open ledger; None: nobody reads.
        self.window: TailWindow | None = None
        #: What cursors that catch up read, for others near behind them (:mod:`.shared_reads`); in order.
        self.behind: tuple[TailWindow, ...] = ()
        self._cache = cache
        self._keep = keep
        self._readers: set[TailReader] | frozenset[TailReader] = _NO_READERS
        self._slowest: SlowestReader | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._is_due = False

    # ---- the newest entries

    def confirmed(self, ledger_id: int, first_entry_id: int, entries: Sequence[bytes], size_bytes: int) -> None:
        """The next entries of the open ledger are stored."""
        if not self._readers:
            return
        window = self.window
        if window is None or window.ledger_id != ledger_id or window.end_entry_id != first_entry_id:
            self._drop_window()
            window = self.window = TailWindow(ledger_id, first_entry_id)
        self._keep(window, entries, size_bytes)

    def add_reader(self, reader: TailReader) -> None:
        """It began to read."""
        if not isinstance(self._readers, set):
            self._readers, self._slowest = set(), SlowestReader()
        self._readers.add(reader)
        self.went_back(reader)

    def went_back(self, reader: TailReader) -> None:
        """It reads again what it had read."""
        if self._slowest is not None:
            self._slowest.see(reader)

    def remove_reader(self, reader: TailReader) -> None:
        """It reads no more."""
        if isinstance(self._readers, set):
            self._readers.discard(reader)
        if not self._readers:
            self._readers, self._slowest = _NO_READERS, None
            self.drop()

    def on_read(self) -> None:
        """A reader moved on: what all have passed is not kept."""
        window = self.window
        if window is None or self._slowest is None:
            return
        slowest = self._slowest.position(self._readers)
        if slowest > (window.ledger_id, window.first_entry_id):
            through = slowest.entry_id - 1 if slowest.ledger_id == window.ledger_id else window.end_entry_id
            self._cache.evict_through(window, through)

    def drop(self) -> None:
        """Keep nothing."""
        self._drop_window()
        for window in self.behind:
            self.drop_behind(window)

    def _drop_window(self) -> None:
        if self.window is not None:
            self._cache.drop(self.window)
            self.window = None

    # ---- what was read behind it

    @property
    def reader_count(self) -> int:
        """How many cursors read."""
        return len(self._readers)

    def positions(self) -> list[Position]:
        """The next entry of each cursor that reads, in order."""
        return sorted(reader.read_position for reader in self._readers)

    def keep_behind(self, ledger_id: int, first_entry_id: int, payloads: Sequence[bytes]) -> None:
        """Keep entries that were read, with those before them or alone; not beyond this log's part of the cache."""
        size_bytes = sum(map(len, payloads))
        kept_bytes = sum(window.size_bytes for window in self.behind)
        if kept_bytes + size_bytes > self._cache.budget_bytes // BEHIND_PART:
            return
        for window in self.behind:
            if (window.ledger_id, window.end_entry_id) == (ledger_id, first_entry_id):
                break
        else:
            window = TailWindow(ledger_id, first_entry_id)
            self.behind = tuple(sorted((*self.behind, window), key=attrgetter("ledger_id", "first_entry_id")))
        self._keep(window, payloads, size_bytes)

    def pass_behind(self, window: TailWindow, entry_id: int) -> None:
        """Up to here all have passed; what holds nothing goes."""
        self._cache.evict_through(window, entry_id)
        if window.end_entry_id == window.first_entry_id:
            self.drop_behind(window)

    def drop_behind(self, window: TailWindow) -> None:
        """Nobody comes for it."""
        self._cache.drop(window)
        self.behind = tuple(each for each in self.behind if each is not window)

    # ---- who is told of more

    @property
    def listener_count(self) -> int:
        """How many are told."""
        return len(self._listeners)

    def add_listener(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Tell ``callback`` from now on; returns what removes it."""
        self._listeners += (callback,)

        def remove() -> None:
            listeners = list(self._listeners)
            if callback in listeners:
                listeners.remove(callback)
                self._listeners = tuple(listeners)

        return remove

    def tell_later(self, part: Part | None) -> None:
        """On the loop's next turn; what fails there closes ``part``."""
        if self._listeners and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._tell, part)

    def _tell(self, part: Part | None) -> None:
        self._is_due = False
        with Contained(part, "new entries"):
            for callback in self._listeners:
                callback()
