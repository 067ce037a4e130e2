"""Entries acknowledged beyond the mark-delete position ("holes"), by ledger. Pure.

Each ledger's are an ``AckedEntries``: a Roaring bitmap, or a plain list of ranges. Positions at or below the
mark-delete position are not kept here. A ledger can be *put away*: its entries are in the cursor ledger only, here
stays how many they are, so that counts are right; it must be *brought back* before it is asked about an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from geminga.managed_ledger.rules.acked_entries import AckedBitmap, AckedEntries, MakeAckedEntries
from geminga.model.errors import InvariantError, invariant


class AckedRange(NamedTuple):
    """Acknowledged entries ``first`` to ``last`` of a ledger, both included."""

    ledger_id: int
    first: int
    last: int


class PutAway(NamedTuple):
    """What is known of a ledger whose entries are not in memory."""

    entries: int
    ranges: int
    #: Whether its first entry (id 0) is acknowledged: mark-delete may move into it.
    has_first: bool


class AckRanges:
    """The holes. ``count`` is how many entries they are, those put away included."""

    __slots__ = ("_ledgers", "_make", "away", "count")

    def __init__(self, make: MakeAckedEntries = AckedBitmap) -> None:
        self._make = make
        #: Least recently changed or read first.
        self._ledgers: dict[int, AckedEntries] | None = None
        #: Ledgers whose entries are not in memory; None if there are none.
        self.away: dict[int, PutAway] | None = None
        self.count = 0

    @property
    def ledger_ids(self) -> list[int]:
        """Ledgers that have holes in memory, ascending."""
        return sorted(self._ledgers) if self._ledgers else []

    def add_many(self, ledger_id: int, entry_ids: Sequence[int]) -> int:
        """Add entries of one ledger; returns how many were new."""
        added = self._entries(ledger_id).add_many(entry_ids)
        self.count += added
        return added

    def add_range(self, ledger_id: int, first: int, last: int) -> int:
        """Add entries ``first`` to ``last``; returns how many were new."""
        if last < first:
            return 0
        added = self._entries(ledger_id).add_range(first, last)
        self.count += added
        return added

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the entry is in a hole."""
        entries = self._find(ledger_id)
        return entries is not None and entry_id >= 0 and entries.contains(entry_id)

    def has_ledger(self, ledger_id: int) -> bool:
        """Whether any entry of the ledger is in a hole."""
        return self._find(ledger_id) is not None

    def first_clear(self, ledger_id: int, entry_id: int) -> int:
        """The first entry id at or behind ``entry_id`` that is in no hole."""
        entries = self._find(ledger_id)
        return entry_id if entries is None else entries.first_clear(entry_id)

    def clear_ids(self, ledger_id: int, first: int, last: int) -> Iterable[int]:
        """The entry ids from ``first`` to ``last`` that are in no hole, ascending."""
        entries = self._find(ledger_id)
        return range(first, last + 1) if entries is None else entries.clear_ids(first, last)

    def count_in(self, ledger_id: int) -> int:
        """Entries of a ledger in holes, whether it is put away or not."""
        away = self.find_away(ledger_id)
        if away is not None:
            return away.entries
        entries = self._find(ledger_id)
        return 0 if entries is None else len(entries)

    def count_behind(self, ledger_id: int, entry_id: int) -> int:
        """Entries in holes behind a position; of its ledger, if that is put away, none."""
        in_memory, away = self._ledgers or {}, self.away or {}
        count = sum([len(entries) for known, entries in in_memory.items() if known > ledger_id])
        count += sum([item.entries for known, item in away.items() if known > ledger_id])
        here = in_memory.get(ledger_id)
        return count if here is None else count + here.count_behind(entry_id)

    def discard_through(self, ledger_id: int, entry_id: int) -> None:
        """Forget everything up to and including a position; its ledger is not put away, or the id is -1."""
        if self.away is not None and entry_id >= 0 and ledger_id in self.away:
            raise _put_away_error(ledger_id)
        if self.away:
            for behind in [known for known in self.away if known < ledger_id]:
                self.discard_ledger(behind)
        ledgers = self._ledgers
        if not ledgers:
            return
        for behind in [known for known in ledgers if known < ledger_id]:
            self.count -= len(ledgers.pop(behind))
        entries = ledgers.get(ledger_id)
        if entries is not None and entry_id >= 0:
            self.count -= entries.discard_through(entry_id)
            if not len(entries):
                del ledgers[ledger_id]
        if not ledgers:
            self._ledgers = None

    def discard_behind(self, ledger_id: int, entry_id: int) -> None:
        """Forget the entries of one ledger behind an id (>= -1); nothing of one that is put away."""
        entries = (self._ledgers or {}).get(ledger_id)
        if entries is None or not entries.count_behind(entry_id):
            return
        runs = entries.ranges(entries.range_count)
        self.discard_ledger(ledger_id)
        for first, last in runs:
            self.add_range(ledger_id, first, min(last, entry_id))

    def discard_ledger(self, ledger_id: int) -> None:
        """Forget one ledger."""
        if self._ledgers is not None and ledger_id in self._ledgers:
            self.count -= len(self._ledgers.pop(ledger_id))
            if not self._ledgers:
                self._ledgers = None
        elif self.away is not None and ledger_id in self.away:
            self.count -= self.away.pop(ledger_id).entries
            if not self.away:
                self.away = None

    def clear(self) -> None:
        """Forget everything."""
        self._ledgers = self.away = None
        self.count = 0

    def ranges(self, limit: int) -> list[AckedRange]:
        """The oldest ``limit`` ranges in memory, each as long as possible within its ledger."""
        found: list[AckedRange] = []
        for ledger_id in self.ledger_ids:
            room = limit - len(found)
            if room <= 0:
                break
            found += [AckedRange(ledger_id, first, last) for first, last in self._entries(ledger_id).ranges(room)]
        return found

    @property
    def range_count(self) -> int:
        """How many ranges there are, those put away included."""
        away = sum(item.ranges for item in self.away.values()) if self.away else 0
        return away + sum(entries.range_count for entries in (self._ledgers or {}).values())

    def parts(self) -> Iterator[tuple[int, int]]:
        """(ledger id, part) of every part in memory that has a hole, ascending."""
        for ledger_id in self.ledger_ids:
            for part in self._entries(ledger_id).parts():
                yield ledger_id, part

    def part_bytes(self, ledger_id: int, part: int) -> bytes:
        """The holes of a part, relative to its first entry, as a portable Roaring bitmap; empty for none."""
        entries = self._find(ledger_id)
        return b"" if entries is None else entries.part_bytes(part)

    def load_part(self, ledger_id: int, part: int, data: bytes) -> None:
        """Add what :meth:`part_bytes` gave; raises ValueError on bytes that are no bitmap."""
        if data:
            self.count += self._entries(ledger_id).load_part(part, data)

    # ---- putting away

    @property
    def away_ids(self) -> list[int]:
        """Ledgers whose entries are not in memory, ascending."""
        return sorted(self.away) if self.away else []

    def find_away(self, ledger_id: int) -> PutAway | None:
        """What is known of a ledger that is put away; None if it is not."""
        return self.away.get(ledger_id) if self.away is not None else None

    def put_away(self, ledger_id: int) -> None:
        """Drop the entries of a ledger, which are on disk, and remember how many they are."""
        entries = self._find(ledger_id)
        if self.away is None:
            self.away = {}
        if entries is None or self._ledgers is None:
            self.away[ledger_id] = PutAway(0, 0, has_first=False)
            return
        self.away[ledger_id] = PutAway(len(entries), entries.range_count, entries.contains(0))
        del self._ledgers[ledger_id]
        if not self._ledgers:
            self._ledgers = None

    def begin_bringing_back(self, ledger_id: int) -> int:
        """The parts of a ledger that was put away are added next, in the same step; how many entries it had."""
        if self.away is None or ledger_id not in self.away:
            raise InvariantError(f"ledger {ledger_id} is not put away")
        entries = self.away.pop(ledger_id).entries
        self.count -= entries
        if not self.away:
            self.away = None
        return entries

    def use(self, ledger_id: int) -> None:
        """A ledger is read: it is put away after those that are not."""
        if self._ledgers is not None and ledger_id in self._ledgers:
            self._ledgers[ledger_id] = self._ledgers.pop(ledger_id)

    @property
    def oldest_used_ids(self) -> list[int]:
        """Ledgers in memory, least recently changed or read first."""
        return list(self._ledgers or ())

    def ledger_memory_bytes(self, ledger_id: int) -> int:
        """About how much memory a ledger's holes take; 0 if none are in memory."""
        entries = self._ledgers.get(ledger_id) if self._ledgers else None
        return 0 if entries is None else entries.memory_bytes

    def check_invariants(self) -> None:
        """Raise InvariantError unless the counts agree."""
        ledgers = self._ledgers or {}
        away = self.away or {}
        total = sum(len(entries) for entries in ledgers.values()) + sum(item.entries for item in away.values())
        invariant(total == self.count, f"{self.count} holes counted, {total} there")
        invariant(all(len(entries) for entries in ledgers.values()), "a ledger without holes is kept")
        invariant(not ledgers.keys() & away.keys(), "a ledger is in memory and put away")

    def _find(self, ledger_id: int) -> AckedEntries | None:
        ledgers = self._ledgers
        if ledgers is not None:
            entries = ledgers.get(ledger_id)
            if entries is not None:
                return entries
        if self.away is not None and ledger_id in self.away:
            raise _put_away_error(ledger_id)
        return None

    def _entries(self, ledger_id: int) -> AckedEntries:
        """Those of a ledger, which become the most recently used; made if there are none."""
        ledgers = self._ledgers
        if ledgers is None:
            ledgers = self._ledgers = {}
        entries = ledgers.pop(ledger_id, None)
        if entries is None:
            if self.away is not None and ledger_id in self.away:
                raise _put_away_error(ledger_id)
            entries = self._make()
        ledgers[ledger_id] = entries
        return entries


def _put_away_error(ledger_id: int) -> InvariantError:
    return InvariantError(f"the acknowledgments of ledger {ledger_id} are put away")
