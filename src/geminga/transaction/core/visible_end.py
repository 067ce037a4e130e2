"""Up to where readers of a topic get what is stored while transactions publish to it: nothing of one before its end.

Messages of transactions that are just being stored hold readers back from the moment they come: nobody knows yet where
the first of them will lie. From then on the message itself does (:class:`.buffer.TransactionBufferState`). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from geminga.model.position import LATEST, Position
from geminga.model.txn_id import TxnId

Batch = TypeVar("Batch", bound=Hashable)


class VisibleEnd(Generic[Batch]):
    """See the module."""

    __slots__ = ("_coming", "_coming_of", "_floor", "told")

    def __init__(self, told: Position) -> None:
        #: Everything up to here is known.
        self.told = told
        #: Batches of transactions that are being stored.
        self._coming: dict[Batch, TxnId] = {}
        #: How many of those each transaction has.
        self._coming_of: dict[TxnId, int] = {}
        #: Readers stop here while there are such, and none is stored yet that stops them.
        self._floor = LATEST

    def comes(self, batch: Batch, txn_id: TxnId) -> None:
        """A batch of a transaction is about to be stored."""
        if not self._coming:
            self._floor = self.told
        self._coming[batch] = txn_id
        self._coming_of[txn_id] = self._coming_of.get(txn_id, 0) + 1

    def coming(self, batch: Batch) -> TxnId | None:
        """The transaction of a batch that is being stored; None: it is of none."""
        return self._coming.get(batch)

    def has_come(self, batch: Batch) -> TxnId | None:
        """It has its answer: its transaction, if that was the last of it that was coming."""
        txn_id = self._coming.pop(batch)
        left = self._coming_of.pop(txn_id) - 1
        if left:
            self._coming_of[txn_id] = left
        return None if left else txn_id

    def awaits(self, txn_id: TxnId) -> bool:
        """Whether anything of a transaction is being stored."""
        return txn_id in self._coming_of

    def marked(self, marker: Position, *, is_open: bool) -> None:
        """An end was stored there; ``is_open``: other transactions have messages in the log and no end."""
        self.told = marker
        if not is_open:
            self._floor = marker

    def limit(self, first_held: Position | None, before: Callable[[Position], Position]) -> Position:
        """The last position that readers may get. ``first_held``: the first message of the first open transaction."""
        if first_held is not None:
            return before(first_held)
        return self._floor if self._coming else LATEST

    def settled(self, first_held: Position | None, before: Callable[[Position], Position]) -> Position:
        """Whoever knows what was aborted up to here reads the log from here on."""
        return self.told if first_held is None else min(before(first_held), self.told)
