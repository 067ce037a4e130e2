"""How far somebody was given what is in the delayed index (:mod:`.time_buckets`): an order, and a place in it. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap

from geminga.broker.core.delayed.packed_positions import ENTRY_MASK, Group

#: Bucket, ledger id, entry id: what was given last.
Mark = tuple[int, int, int]
#: Behind every position of a bucket.
LAST: Final = 1 << 64
#: Before every bucket.
FIRST_MARK: Final[Mark] = (-1, -1, -1)


def index_after(ids: Sequence[int] | BitMap, ledger_id: int, mark: Mark) -> int:
    """Where in ``ids``, of the mark's bucket, the first entry behind the mark is."""
    if ledger_id != mark[1]:
        return 0 if ledger_id > mark[1] else len(ids)
    if mark[2] > ENTRY_MASK:
        return len(ids)
    if mark[2] < 0:
        return 0
    return ids.rank(mark[2]) if isinstance(ids, BitMap) else bisect_right(ids, mark[2])


def groups_through(groups: Sequence[Group], mark: Mark) -> int:
    """How many groups of the mark's bucket, from the first, lie entirely at or before the mark."""
    index = bisect_left(groups, mark[1], key=_ledger_of)
    if index < len(groups):
        ledger_id, ids = groups[index]
        index += ledger_id == mark[1] and ids[-1] <= mark[2]
    return index


def _ledger_of(group: Group) -> int:
    return group[0]
