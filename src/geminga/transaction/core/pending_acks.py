"""What a subscription holds acknowledged for transactions that are open: neither delivered again, nor acknowledged yet.

Parts of an entry are ints of bits, a set bit being a message that IS acknowledged; :data:`WHOLE` is all of it, however
many messages it has. An acknowledgment is checked and held before it is stored, so that two that come at the same time
see each other; it stays held until its transaction ends, also if nobody knows whether it was stored.

Format and rules: docs/formats/transactions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from geminga.model.errors import TransactionConflictError
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.transaction.core.numbers import ByNumber

#: Every message of an entry. (-1 has every bit.)
WHOLE: Final = -1

#: More entries than any transaction holds.
EVERY_ENTRY: Final = 1 << 62

#: What of an entry is acknowledged for good, as bits; 0: nothing.
AckedBits = Callable[[Position], int]


class TxnAck(NamedTuple):
    """Messages of an entry that a transaction acknowledges; ``batch_size`` of them there are, 0: not asked."""

    position: Position
    bits: int = WHOLE
    batch_size: int = 0


def whole_or_part(ack: TxnAck) -> TxnAck:
    """The same, all messages of an entry being :data:`WHOLE`."""
    position, bits, batch_size = ack
    return TxnAck(position) if batch_size and bits == (1 << batch_size) - 1 else ack


class CumulativeAck(NamedTuple):
    """Everything before ``position``, and of that entry ``bits``."""

    txn_id: TxnId
    position: Position
    bits: int = WHOLE
    batch_size: int = 0


class Released(NamedTuple):
    """What a transaction held when it ended."""

    acks: tuple[TxnAck, ...] = ()
    cumulative: CumulativeAck | None = None

    def __bool__(self) -> bool:
        return bool(self.acks) or self.cumulative is not None


class PendingAcks:
    """See the module."""

    __slots__ = ("_by_transaction", "_held", "_numbers", "_sizes", "cumulative")

    def __init__(self) -> None:
        #: By entry, what all transactions together hold of it.
        self._held: dict[Position, int] = {}
        #: Messages of the entries of which a part is held.
        self._sizes: dict[Position, int] = {}
        #: Transactions in the order in which they came.
        self._by_transaction: dict[TxnId, dict[Position, int]] = {}
        self._numbers = ByNumber()
        #: Only one transaction at a time acknowledges cumulatively.
        self.cumulative: CumulativeAck | None = None

    # ---- acknowledging

    def individual(self, txn_id: TxnId, acks: Iterable[TxnAck], acked: AckedBits) -> list[TxnAck]:
        """Hold all of these, or none; those that are new to the transaction, to be stored.

        What the same transaction holds already is no conflict: a client that lost the answer asks again. (Pulsar
        calls it one.) Raises TransactionConflictError.
        """
        mine = self._by_transaction.get(txn_id, {})
        wanted: dict[Position, TxnAck] = {}
        for ack in acks:
            before = wanted.get(ack.position)
            wanted[ack.position] = ack if before is None else ack._replace(bits=before.bits | ack.bits)
        fresh: list[TxnAck] = []
        for position, bits, batch_size in wanted.values():
            gone = acked(position)
            # WHOLE, where a part is acknowledged, means the rest: who had all of it before names each message.
            if gone == WHOLE or (bits != WHOLE and bits & gone):
                raise TransactionConflictError(
                    f"Transaction:{txn_id} try to ack message:{position} already acked before."
                )
            own = mine.get(position, 0)
            if bits & self._held.get(position, 0) & ~own:
                raise TransactionConflictError(
                    f"Transaction:{txn_id} try to ack message:{position} in pending ack status."
                )
            if bits & ~own:
                fresh.append(whole_or_part(TxnAck(position, bits, batch_size)))
        self._hold(txn_id, fresh)
        return fresh

    def accumulate(self, ack: CumulativeAck, mark_delete: Position) -> bool:
        """Hold everything up to there; False if the transaction holds that already. Raises TransactionConflictError."""
        held = self.cumulative
        if held == ack:
            return False
        if ack.position <= mark_delete:
            raise TransactionConflictError(
                f"Transaction:{ack.txn_id} try to cumulative ack position: {ack.position} within range of cursor's "
                f"markDeletePosition: {mark_delete}"
            )
        if held is not None and (held.txn_id != ack.txn_id or not _is_behind(ack, held)):
            raise TransactionConflictError(
                f"Transaction:{ack.txn_id} try to cumulative batch ack position: {ack.position} within range of "
                f"current currentPosition: {held.position}"
            )
        self.cumulative = ack
        return True

    def replayed(self, txn_id: TxnId, acks: Iterable[TxnAck]) -> None:
        """A stored acknowledgment is read again; of two that can not both have been granted the first counts."""
        mine = self._by_transaction.get(txn_id, {})
        granted = [ack for ack in acks if not ack.bits & self._held.get(ack.position, 0) & ~mine.get(ack.position, 0)]
        self._hold(txn_id, granted)

    def replayed_cumulative(self, ack: CumulativeAck) -> None:
        """As :meth:`replayed`."""
        held = self.cumulative
        if held is None or (held.txn_id == ack.txn_id and _is_behind(ack, held)):
            self.cumulative = ack

    def _hold(self, txn_id: TxnId, acks: Iterable[TxnAck]) -> None:
        for position, bits, batch_size in acks:
            mine = self._by_transaction.get(txn_id)
            if mine is None:
                mine = self._by_transaction[txn_id] = {}
                self._numbers.add(txn_id, self._by_transaction)
            mine[position] = mine.get(position, 0) | bits
            if bits != WHOLE:
                self._sizes[position] = batch_size
            self._held[position] = self._held.get(position, 0) | bits

    # ---- ends

    def released(self, txn_id: TxnId, count_max: int = EVERY_ENTRY) -> Released:
        """The transaction ended: what it held, which is free now; nothing the second time.

        Of more than ``count_max`` entries the last ones, and the others at the next call.
        """
        acks: list[TxnAck] = []
        mine = self._by_transaction.get(txn_id, {})
        is_part = len(mine) > count_max
        if not is_part:
            self._by_transaction.pop(txn_id, None)
        for _ in range(min(len(mine), count_max)):
            position, bits = mine.popitem()
            acks.append(TxnAck(position, bits, 0 if bits == WHOLE else self._sizes[position]))
            # Nobody else holds any of these bits.
            left = 0 if bits == WHOLE else self._held[position] & ~bits
            if left:
                self._held[position] = left
            else:
                del self._held[position]
                self._sizes.pop(position, None)
        acks.reverse()
        cumulative = self.cumulative
        if is_part or cumulative is None or cumulative.txn_id != txn_id:
            return Released(tuple(acks))
        self.cumulative = None
        return Released(tuple(acks), cumulative)

    def holds(self, txn_id: TxnId) -> bool:
        """Whether it holds anything."""
        return txn_id in self._by_transaction or (self.cumulative is not None and self.cumulative.txn_id == txn_id)

    def is_only_cumulative(self, txn_id: TxnId) -> bool:
        """Whether it holds something, and no single entry."""
        return txn_id not in self._by_transaction and self.holds(txn_id)

    def below(self, coordinator: int, number: int) -> list[TxnId]:
        """Transactions of ``coordinator`` up to ``number`` that hold something: they are over, and lost track of."""
        found = self._numbers.take_up_to(coordinator, number, self._by_transaction)
        for txn_id in found:
            self._numbers.add(txn_id, self._by_transaction)  # until their end is stored
        held = self.cumulative
        if held is not None and held.txn_id.coordinator == coordinator and held.txn_id.number <= number:
            found += [] if held.txn_id in found else [held.txn_id]
        return found

    # ---- dispatching

    def held(self, position: Position) -> int:
        """Which messages of an entry must not be delivered again now; 0: none is held."""
        return self._held.get(position, 0)

    def batch_size(self, position: Position) -> int:
        """Messages of an entry of which a part is held; 0: all of it is held, or nothing."""
        return self._sizes.get(position, 0)

    def __iter__(self) -> Iterator[TxnId]:
        """Transactions that hold something."""
        yield from self._by_transaction
        if self.cumulative is not None and self.cumulative.txn_id not in self._by_transaction:
            yield self.cumulative.txn_id

    def __len__(self) -> int:
        """Entries of which something is held."""
        return len(self._held)

    def __bool__(self) -> bool:
        return bool(self._held) or self.cumulative is not None


def _is_behind(later: CumulativeAck, earlier: CumulativeAck) -> bool:
    """Whether ``later`` acknowledges more: a later entry, or more messages of the same."""
    if later.position != earlier.position:
        return later.position > earlier.position
    return later.bits != earlier.bits and later.bits | earlier.bits == later.bits
