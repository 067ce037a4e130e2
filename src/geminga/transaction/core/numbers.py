"""Transactions by coordinator and number, the smallest at hand: what a low watermark reaches."""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import Final

from geminga.model.txn_id import TxnId

#: Numbers of transactions that are gone, before those that are left are gathered anew.
_STALE_MAX: Final = 1_000


class ByNumber:
    """See the module; beside a collection of transactions, which may lose some without telling."""

    __slots__ = ("_heaps",)

    def __init__(self) -> None:
        #: By coordinator; may hold numbers of transactions that are gone, and numbers twice.
        self._heaps: dict[int, list[int]] = {}

    def add(self, txn_id: TxnId, among: Collection[TxnId]) -> None:
        """``among``: the collection, with this one."""
        heap = self._heaps.setdefault(txn_id.coordinator, [])
        heappush(heap, txn_id.number)
        if len(heap) > 2 * len(among) + _STALE_MAX:
            heap[:] = [number for coordinator, number in among if coordinator == txn_id.coordinator]
            heapify(heap)

    def take_up_to(self, coordinator: int, number: int, among: Collection[TxnId]) -> list[TxnId]:
        """Those of a coordinator up to ``number`` that are still there, ascending; they are not given again."""
        heap = self._heaps.get(coordinator)
        if not heap or heap[0] > number:
            return []
        found: dict[TxnId, None] = {}
        while heap and heap[0] <= number:
            txn_id = TxnId(coordinator, heappop(heap))
            if txn_id in among:
                found[txn_id] = None
        if not heap:
            del self._heaps[coordinator]
        return list(found)
