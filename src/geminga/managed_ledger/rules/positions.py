"""The ledger list of a managed ledger, and arithmetic on positions over it. Pure.

A position names an entry; the list says which entries there are. Ledger ids ascend, so positions compare as
tuples. All ledgers but the last have their final number of entries; the last one's grows as appends are
confirmed (never past the last add confirmed).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence

from geminga.model.errors import invariant
from geminga.model.position import EARLIEST, Position
from geminga.wire.managed_ledger.ledger_info import is_complete


class LedgerInfo:
    """One ledger of the list."""

    __slots__ = ("closed_ms", "entries", "ledger_id", "offload_context", "opened_ms", "properties", "size_bytes")

    def __init__(
        self,
        ledger_id: int,
        entries: int = 0,
        size_bytes: int = 0,
        closed_ms: int = 0,
        offload_context: bytes = b"",
        opened_ms: int = 0,
        properties: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.ledger_id = ledger_id
        #: Readable entries: final unless this is the open ledger.
        self.entries = entries
        #: Payload bytes of them.
        self.size_bytes = size_bytes
        #: When it was closed, ms since the epoch; 0 while open.
        self.closed_ms = closed_ms
        #: Pulsar's OffloadContext as found, serialised.
        self.offload_context = offload_context
        #: When it was made, ms since the epoch, as far as its metadata were read; 0: not known. Not in the list's node.
        self.opened_ms = opened_ms
        #: Pulsar's properties of the ledger as found.
        self.properties = properties

    @property
    def is_offloaded(self) -> bool:
        """Whether it is in the lake as a whole, or wherever one of Pulsar's drivers put it."""
        return bool(self.offload_context) and is_complete(self.offload_context)

    def __repr__(self) -> str:
        return f"LedgerInfo({self.ledger_id}, entries={self.entries}, closed_ms={self.closed_ms})"


class LedgerList:
    """Ledgers in order, and what is before, behind and between positions."""

    __slots__ = ("_ids", "_infos", "_prefix")

    def __init__(self, infos: Iterable[LedgerInfo] = ()) -> None:
        self._infos: list[LedgerInfo] = list(infos)
        self._ids: list[int] = [info.ledger_id for info in self._infos]
        invariant(self._ids == sorted(set(self._ids)), f"ledger ids do not ascend: {self._ids}")
        #: Entries before each ledger; None when it must be counted again. Needs no last ledger's count.
        self._prefix: list[int] | None = None

    def __len__(self) -> int:
        return len(self._infos)

    @property
    def infos(self) -> Sequence[LedgerInfo]:
        """The ledgers, oldest first; not to be changed."""
        return self._infos

    @property
    def last(self) -> LedgerInfo | None:
        """The newest ledger, the only one that may be open."""
        return self._infos[-1] if self._infos else None

    def find(self, ledger_id: int) -> LedgerInfo | None:
        """The ledger of that id, or None."""
        ids = self._ids
        if not ids:
            return None
        if ids[-1] == ledger_id:
            return self._infos[-1]
        index = bisect_left(ids, ledger_id)
        return self._infos[index] if ids[index if index < len(ids) else -1] == ledger_id else None

    def after(self, ledger_id: int) -> LedgerInfo | None:
        """The first ledger whose id is greater."""
        index = bisect_right(self._ids, ledger_id)
        return self._infos[index] if index < len(self._ids) else None

    def lengths_from(self, ledger_id: int) -> Iterator[tuple[int, int]]:
        """Id and entries of the ledgers from ``ledger_id`` on that have some, without the newest."""
        for index in range(bisect_left(self._ids, ledger_id), len(self._ids) - 1):
            info = self._infos[index]
            if info.entries:
                yield info.ledger_id, info.entries

    def before(self, ledger_id: int) -> LedgerInfo | None:
        """The last ledger whose id is smaller."""
        index = bisect_left(self._ids, ledger_id)
        return self._infos[index - 1] if index else None

    def append(self, info: LedgerInfo) -> None:
        """A new last ledger; the one before it has its final count now."""
        invariant(not self._ids or info.ledger_id > self._ids[-1], f"ledger {info.ledger_id} after {self._ids}")
        self._infos.append(info)
        self._ids.append(info.ledger_id)
        self._prefix = None

    def remove(self, ledger_ids: Collection[int]) -> None:
        """Take ledgers out of the list."""
        gone = frozenset(ledger_ids)
        self._infos = [info for info in self._infos if info.ledger_id not in gone]
        self._ids = [info.ledger_id for info in self._infos]
        self._prefix = None

    def cut(self, last: Position) -> LedgerList:
        """The log as if it ended with ``last``: that entry's ledger, copied, is the last of the list, and open.

        Ledgers before it are shared. All entries up to ``last`` are there: what grows later is not in it.
        """
        end = bisect_left(self._ids, last.ledger_id)
        infos = self._infos[:end]
        if end < len(self._ids) and self._ids[end] == last.ledger_id:
            here = self._infos[end]
            entries = min(here.entries, last.entry_id + 1)
            infos.append(LedgerInfo(here.ledger_id, entries, here.size_bytes, opened_ms=here.opened_ms))
        return LedgerList(infos)

    @property
    def entry_count(self) -> int:
        """Entries of all ledgers."""
        return self._prefix_sums()[-1] + self._infos[-1].entries if self._infos else 0

    @property
    def size_bytes(self) -> int:
        """Payload bytes of all ledgers."""
        return sum(info.size_bytes for info in self._infos)

    @property
    def offloaded_bytes(self) -> int:
        """Payload bytes of the ledgers that are in the lake."""
        return sum(info.size_bytes for info in self._infos if info.is_offloaded)

    def bytes_behind(self, position: Position) -> int:
        """Payload bytes of the entries behind ``position``; of its own ledger by the mean entry."""
        size_bytes = 0
        for info in reversed(self._infos):
            if info.ledger_id < position.ledger_id:
                break
            left = info.entries
            if info.ledger_id == position.ledger_id:
                left = min(left, left - position.entry_id - 1)
            if left > 0:
                size_bytes += info.size_bytes * left // info.entries
        return size_bytes

    @property
    def first_position(self) -> Position:
        """The oldest entry, or where the next one would be; (-1, 0) without any ledger."""
        return self.at_or_after(Position(-1, 0))

    @property
    def last_position(self) -> Position:
        """The newest entry; before the first ledger's first entry if there is none; EARLIEST without ledgers."""
        for info in reversed(self._infos):
            if info.entries:
                return Position(info.ledger_id, info.entries - 1)
        return Position(self._infos[0].ledger_id, -1) if self._infos else EARLIEST

    @property
    def end_position(self) -> Position:
        """Where the next entry of the newest ledger would be."""
        return Position(self._ids[-1], self._infos[-1].entries) if self._infos else Position(-1, 0)

    def at_or_after(self, position: Position) -> Position:
        """The first entry at or behind ``position``, or the place behind the last entry."""
        ledger_id, entry_id = position
        info = self.find(ledger_id)
        if info is not None:
            entry_id = max(entry_id, 0)
            if entry_id < info.entries:
                return Position(ledger_id, entry_id)
        else:
            entry_id = max(entry_id, 0)
        while (info := self.after(ledger_id)) is not None:
            ledger_id, entry_id = info.ledger_id, 0
            if info.entries:
                break
        return Position(ledger_id, entry_id)

    def next_position(self, position: Position) -> Position:
        """The entry behind ``position``, or the place behind the last entry."""
        return self.at_or_after(Position(position.ledger_id, position.entry_id + 1))

    def previous_position(self, position: Position) -> Position:
        """The entry before ``position``; if there is none, the place before the first entry (entry id -1)."""
        ledger_id, entry_id = position
        index = bisect_left(self._ids, ledger_id)
        if index < len(self._ids) and self._ids[index] == ledger_id:
            entry_id = min(entry_id, self._infos[index].entries)
            if entry_id > 0:
                return Position(ledger_id, entry_id - 1)
        for info in reversed(self._infos[:index]):
            if info.entries:
                return Position(info.ledger_id, info.entries - 1)
        if self._ids:
            return Position(self._ids[0], -1)
        return EARLIEST

    def index_of(self, position: Position) -> int:
        """Number of entries before ``position``."""
        ledger_id, entry_id = position
        index = bisect_left(self._ids, ledger_id)
        if index == len(self._ids):
            return self.entry_count
        before = self._prefix_sums()[index]
        if self._ids[index] != ledger_id:
            return before
        return before + min(max(entry_id, 0), self._infos[index].entries)

    def position_at(self, index: int) -> Position:
        """The entry with ``index`` entries before it; the place behind the last one if there are fewer."""
        if not self._infos or index >= self.entry_count:
            return self.end_position
        sums = self._prefix_sums()
        # Empty ledgers share their sum with the next: bisect_right takes the last of them, which has entries.
        found = bisect_right(sums, max(index, 0)) - 1
        return Position(self._ids[found], max(index, 0) - sums[found])

    def count_between(self, first: Position, last: Position) -> int:
        """Entries from ``first`` to ``last``, both included; 0 if ``last`` is before ``first``."""
        behind = Position(last.ledger_id, last.entry_id + 1)
        return max(0, self.index_of(behind) - self.index_of(first))

    def _prefix_sums(self) -> list[int]:
        sums = self._prefix
        if sums is None:
            sums = []
            total = 0
            for info in self._infos:
                sums.append(total)
                total += info.entries
            self._prefix = sums
        return sums
