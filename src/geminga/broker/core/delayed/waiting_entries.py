"""Which entries of a topic wait, whenever that ends: ledger -> bitmap of entry ids. Pure.

The half of the delayed index (:mod:`.time_buckets`) that knows no times: "is it here?", and what a reader may pass
over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap

from geminga.broker.core.delayed.packed_positions import Group, bitmap_bytes
from geminga.managed_ledger.rules.acked_entries import first_absent
from geminga.model import Position, invariant

#: Waiting entries in a row that are not read along with what lies around them.
GAP_MIN: Final = 16
#: What a small object takes: a bitmap, a place in a dict.
_OBJECT_BYTES: Final = 500


class WaitingEntries:
    """See the module."""

    __slots__ = ("by_ledger", "count")

    def __init__(self) -> None:
        #: Ledger id -> entry ids; no ledger of which nothing waits.
        self.by_ledger: dict[int, BitMap] = {}
        #: Entries in all of them.
        self.count = 0

    @property
    def memory_bytes(self) -> int:
        """About what it takes."""
        return _OBJECT_BYTES * len(self.by_ledger) + sum(map(bitmap_bytes, self.by_ledger.values()))

    # ---- look

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an entry waits."""
        ids = self.by_ledger.get(ledger_id)
        return ids is not None and entry_id >= 0 and entry_id in ids

    def members(self, ledger_id: int, first: int, end: int) -> BitMap:
        """The entry ids of a ledger from ``first`` to before ``end``."""
        ids = self.by_ledger.get(ledger_id)
        return BitMap() if ids is None else ids & BitMap(range(first, end))

    def count_before(self, position: Position) -> int:
        """How many entries wait that lie before ``position`` in the log."""
        count = 0
        for ledger_id, ids in self.by_ledger.items():
            if ledger_id < position.ledger_id:
                count += len(ids)
            elif ledger_id == position.ledger_id and position.entry_id > 0:
                count += ids.range_cardinality(0, position.entry_id)
        return count

    # ---- change

    def add(self, ledger_id: int, entry_id: int) -> bool:
        """Add an entry; False if it is there already."""
        ids = self._of(ledger_id)
        if entry_id in ids:
            return False
        ids.add(entry_id)
        self.count += 1
        return True

    def add_range(self, ledger_id: int, first: int, end: int) -> None:
        """Add entries in a row of which none is there; ``end`` lies behind the last one."""
        self._of(ledger_id).add_range(first, end)
        self.count += end - first

    def add_new(self, ledger_id: int, ids: BitMap) -> BitMap:
        """Add entries; gives those that were not there."""
        known = self.by_ledger.get(ledger_id)
        new = ids - known if known is not None else ids
        if new:
            self.by_ledger[ledger_id] = known | new if known is not None else BitMap(new)
            self.count += len(new)
        return new

    def remove(self, groups: Sequence[Group]) -> None:
        """Remove entries by ledger, of which some may be gone already."""
        for ledger_id, ids in groups:
            known = self.by_ledger.get(ledger_id)
            if known is None:
                continue
            before = len(known)
            if len(ids) == 1:
                known.discard(ids[0])
            else:
                known -= ids if isinstance(ids, BitMap) else BitMap(ids)
                self.by_ledger[ledger_id] = known
            self.count -= before - len(known)
            if not known:
                del self.by_ledger[ledger_id]

    def remove_through(self, position: Position) -> int:
        """Remove every entry up to and including ``position``; how many those were."""
        before = self.count
        for ledger_id in [known for known in self.by_ledger if known <= position.ledger_id]:
            ids = self.by_ledger[ledger_id]
            behind = BitMap() if ledger_id < position.ledger_id else ids
            if ledger_id == position.ledger_id and position.entry_id >= 0:
                self.count -= ids.range_cardinality(0, position.entry_id + 1)
                ids.remove_range(0, position.entry_id + 1)
            elif not behind:
                self.count -= len(ids)
            if not behind:
                del self.by_ledger[ledger_id]
        return before - self.count

    def check_invariants(self) -> None:
        """Raise InvariantError if the state can not be."""
        invariant(self.count == sum(map(len, self.by_ledger.values())), f"{self.count} counted")
        invariant(all(self.by_ledger.values()), "a ledger of which nothing waits is kept")

    def _of(self, ledger_id: int) -> BitMap:
        ids = self.by_ledger.get(ledger_id)
        if ids is None:
            ids = self.by_ledger[ledger_id] = BitMap()
        return ids


def absent_count(ids: BitMap, entry_id: int, count_max: int) -> int:
    """Ids from ``entry_id`` on, at most ``count_max``, before a run in ``ids`` that is worth a gap."""
    at = max(0, entry_id)
    end = at + count_max
    while at < end:
        behind = ids.rank(at - 1) if at else 0
        if behind == len(ids) or (first := ids[behind]) >= end:
            break
        if ids.contains_range(first, first + GAP_MIN):
            return max(1, first - max(0, entry_id))
        at = first_absent(ids, first)
    return count_max
