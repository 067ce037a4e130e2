"""Which messages of a topic may be read while transactions publish to it, and which never (read committed).

Told of each stored entry in the order of the log, at run time as at recovery. Messages of open transactions hold
readers back at the first of them; those of an aborted one are left out. An abort hides what the transaction stored
from its first message up to the marker, and nothing outside.

Format and rules: docs/formats/transactions.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from geminga.model.errors import NotAllowedError
from geminga.model.position import EARLIEST, Position
from geminga.model.txn_id import TxnId
from geminga.transaction.core.numbers import ByNumber

#: Ended transactions above a coordinator's low watermark that are remembered, so that late messages are refused.
ENDED_MAX: Final = 100_000


class Aborted(NamedTuple):
    """What an abort hides: from ``first`` up to ``marker``."""

    first: Position
    marker: Position


class TransactionBufferState:
    """See the module."""

    __slots__ = (
        "_ended",
        "_ended_numbers",
        "_low_watermarks",
        "_open_numbers",
        "aborted",
        "aborted_count",
        "changes",
        "committed_count",
        "open",
    )

    def __init__(self) -> None:
        #: Position of the first message of each open transaction; ascending, for entries come in the log's order.
        self.open: dict[TxnId, Position] = {}
        self.aborted: dict[TxnId, Aborted] = {}
        #: By coordinator: every transaction up to this number is over.
        self._low_watermarks: dict[int, int] = {}
        #: Ended here and above the low watermark, oldest first.
        self._ended: dict[TxnId, None] = {}
        self._open_numbers, self._ended_numbers = ByNumber(), ByNumber()
        #: Ends since the last snapshot.
        self.changes = 0
        self.committed_count = self.aborted_count = 0

    # ---- publishing

    def check_may_publish(self, txn_id: TxnId) -> None:
        """Raise NotAllowedError if the transaction is over: what it publishes could never be committed."""
        if txn_id in self._ended or txn_id in self.aborted or self._is_below(txn_id):
            raise NotAllowedError(
                f"Transaction [{txn_id}] has been ended. Please use a new transaction to send message."
            )

    def stored(self, txn_id: TxnId, position: Position) -> None:
        """A message of a transaction is stored."""
        if txn_id not in self.open and not self.hides(txn_id, position):
            self.open[txn_id] = position
            self._open_numbers.add(txn_id, self.open)

    def restored(self, txn_id: TxnId, marker: Position) -> None:
        """A snapshot says that it was aborted by a marker there."""
        self.aborted[txn_id] = Aborted(EARLIEST, marker)

    # ---- ends

    def committed(self, txn_id: TxnId) -> None:
        """Its commit marker is stored; again is the same as once."""
        self.open.pop(txn_id, None)
        self.committed_count += 1
        self._has_ended(txn_id)

    def was_aborted(self, txn_id: TxnId, marker: Position) -> None:
        """Its abort marker is stored; again is the same as once."""
        first = self.open.pop(txn_id, None)
        self.aborted_count += 1
        self._has_ended(txn_id)
        known = self.aborted.get(txn_id)
        if first is not None:
            self.aborted[txn_id] = Aborted(first if known is None else min(first, known.first), marker)

    def has_ended(self, txn_id: TxnId) -> bool:
        """Whether its marker is known to be in the log."""
        return txn_id in self._ended or txn_id in self.aborted

    def low_watermark(self, coordinator: int, number: int) -> list[TxnId]:
        """Every transaction of ``coordinator`` up to ``number`` is over: those still open here, to be aborted."""
        if number > self._low_watermarks.get(coordinator, -1):
            self._low_watermarks[coordinator] = number
            for txn_id in self._ended_numbers.take_up_to(coordinator, number, self._ended):
                del self._ended[txn_id]
        strays = self._open_numbers.take_up_to(coordinator, self._low_watermarks.get(coordinator, -1), self.open)
        for txn_id in strays:
            self._open_numbers.add(txn_id, self.open)  # until their marker is stored
        return strays

    def _has_ended(self, txn_id: TxnId) -> None:
        self.changes += 1
        if not self._is_below(txn_id):
            self._ended[txn_id] = None
            self._ended_numbers.add(txn_id, self._ended)
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def _is_below(self, txn_id: TxnId) -> bool:
        return txn_id.number <= self._low_watermarks.get(txn_id.coordinator, -1)

    # ---- reading

    @property
    def first_held(self) -> Position | None:
        """Nobody reads this entry or any behind it; None: nothing is held back."""
        return next(iter(self.open.values())) if self.open else None

    def hides(self, txn_id: TxnId, position: Position) -> bool:
        """Whether a message belongs to an aborted transaction."""
        aborted = self.aborted.get(txn_id)
        return aborted is not None and aborted.first <= position <= aborted.marker

    def trimmed(self, first_ledger_id: int) -> int:
        """Ledgers before this one are gone: aborts whose marker went with them are forgotten; how many."""
        gone = [txn_id for txn_id, each in self.aborted.items() if each.marker.ledger_id < first_ledger_id]
        for txn_id in gone:
            del self.aborted[txn_id]
        return len(gone)

    def counts(self) -> tuple[int, int, int]:
        """Transactions that are open, aborted and committed; the latter two since the topic was loaded."""
        return len(self.open), self.aborted_count, self.committed_count

    @property
    def low_watermarks(self) -> dict[int, int]:
        """By coordinator, for statistics."""
        return dict(self._low_watermarks)
