"""Acknowledgments of a subscription in transactions: stored in a log of their own, and in its cursor once they count.

Order on a commit: the record, then the answer, then the cursor. Whoever opens the log again does what the cursor may
have lost once more, which is the same as once. A transaction's records are deleted together, when what it acknowledged
is durable in the cursor, or it was aborted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from geminga.model.errors import GemingaError, LedgerClosedError, StorageError, UnavailableError
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.runtime import Bell, next_turn
from geminga.transaction.core.pending_acks import WHOLE, CumulativeAck, PendingAcks, Released, TxnAck
from geminga.transaction.core.shared_entries import SharedEntries
from geminga.transaction.ports import RecordLog
from geminga.wire.pulsar.transaction_log import (
    AckOp,
    PendingAck,
    PendingAckRecord,
    decode_pending_ack_records,
    encode_pending_ack_record,
)

#: Entries of a transaction that is over that are acknowledged, or given back, in one turn of the loop.
SETTLED_PER_TURN: Final = 2_000
_WORD_BYTES: Final = 8
_WORD_BITS: Final = 64


class AcknowledgedCursor(Protocol):
    """The subscription's cursor, as transactions use it."""

    @property
    def mark_delete_position(self) -> Position:
        """Everything up to it is acknowledged."""
        ...

    def acked_bits(self, position: Position) -> int:
        """Which messages of an entry are acknowledged, as bits; -1: all of them."""
        ...

    def apply(self, released: Released, done: Callable[[StorageError | None], None]) -> None:
        """Acknowledge for good; ``done`` once that is durable."""
        ...

    def release(self, released: Released) -> None:
        """What was held may be delivered again."""
        ...

    async def save(self) -> None:
        """Until all that is acknowledged is durable. Raises StorageError."""
        ...


class PendingAckHandle:
    """See the module. Made by :meth:`open`."""

    __slots__ = (
        "_cursor",
        "_is_closed",
        "_log",
        "_lost",
        "_records",
        "_settled_one",
        "_settling",
        "_shared",
        "_unsaved",
        "aborted",
        "acks",
        "committed",
        "low_watermarks",
    )

    def __init__(self, log: RecordLog, cursor: AcknowledgedCursor, lost: Callable[[GemingaError], None]) -> None:
        """``lost`` is called once, when nobody knows what the log holds: it must be opened anew."""
        self._log = log
        self._cursor = cursor
        self._lost = lost
        self.acks = PendingAcks()
        #: Where the records of each transaction lie; they go together.
        self._records: dict[TxnId, list[Position]] = {}
        self._shared: SharedEntries[TxnId] = SharedEntries()
        #: By coordinator: every transaction up to this number is over.
        self.low_watermarks: dict[int, int] = {}
        self._is_closed = False
        #: Transactions whose end is being stored, and then what they held is settled in turns; and that one is.
        self._settling: set[TxnId] = set()
        self._settled_one = Bell()
        #: Transactions that are settled, and their records, where the cursor has it and could not be saved then.
        self._unsaved: list[tuple[TxnId, Sequence[Position]]] = []
        #: Transactions that held something and ended since it was opened.
        self.committed = self.aborted = 0

    @classmethod
    async def open(
        cls, log: RecordLog, cursor: AcknowledgedCursor, lost: Callable[[GemingaError], None]
    ) -> PendingAckHandle:
        """Read the log: what is open is held, what was committed is acknowledged again. Raises StorageError."""
        self = cls(log, cursor, lost)
        ended: list[tuple[TxnId, Sequence[Position], Released]] = []

        def take(data: bytes, position: Position) -> None:
            records = decode_pending_ack_records(data)
            self._shared.add(record.txn_id for record in records)
            for record in records:
                self._records.setdefault(record.txn_id, []).append(position)
                if record.op is AckOp.ACK:
                    self._replay(record)
                else:
                    released = self.acks.released(record.txn_id)
                    counts = released if record.op is AckOp.COMMIT else Released()
                    ended.append((record.txn_id, self._records.pop(record.txn_id), counts))

        await log.replay(take)
        # Not before all that shares an entry is known.
        for txn_id, positions, counts in ended:
            await self._settle(txn_id, positions, _cut(counts), commit=True)
        return self

    async def close(self) -> None:
        """Nothing is taken any more. Raises StorageError."""
        self._is_closed = True
        await self._log.close()

    async def abandon(self) -> None:
        """As :meth:`close`, of one that is not to be trusted any more: nothing is saved."""
        self._is_closed = True
        await self._log.abandon()

    # ---- what transactions do

    async def acknowledge(self, txn_id: TxnId, acks: Sequence[TxnAck]) -> None:
        """Hold these; durable on return. Raises TransactionConflictError, GemingaError."""
        await self.store(self.hold(txn_id, acks))

    async def acknowledge_cumulative(self, ack: CumulativeAck) -> None:
        """Hold everything up to there; durable on return. Raises TransactionConflictError, GemingaError."""
        await self.store(self.hold_up_to(ack))

    def hold(self, txn_id: TxnId, acks: Sequence[TxnAck]) -> PendingAckRecord | None:
        """Hold these from now on; what is to be stored next, None: nothing is new. What the cursor has acknowledged of
        their ledgers is in memory. Raises TransactionConflictError, UnavailableError."""
        self._check_open()
        fresh = self.acks.individual(txn_id, acks, self._cursor.acked_bits)
        return PendingAckRecord(AckOp.ACK, txn_id, acks=tuple(_stored(each) for each in fresh)) if fresh else None

    def hold_up_to(self, ack: CumulativeAck) -> PendingAckRecord | None:
        """As :meth:`hold`, everything up to there."""
        self._check_open()
        if not self.acks.accumulate(ack, self._cursor.mark_delete_position):
            return None
        stored = (_stored(TxnAck(ack.position, ack.bits, ack.batch_size)),)
        return PendingAckRecord(AckOp.ACK, ack.txn_id, is_cumulative=True, acks=stored)

    async def store(self, record: PendingAckRecord | None) -> None:
        """What :meth:`hold` gave; durable on return. Raises UnavailableError."""
        if record is not None:
            await self._store(record)

    async def end(self, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Let what it holds count, or free it; durable on return, and the same if it is done again.

        ``low_watermark``: everything of that coordinator up to this number is over; what is held for it is freed.
        """
        self._check_open()
        await self._end(txn_id, commit=commit)
        coordinator = txn_id.coordinator
        if low_watermark > self.low_watermarks.get(coordinator, -1):
            self.low_watermarks[coordinator] = low_watermark
            for lost_track_of in self.acks.below(coordinator, low_watermark):
                if lost_track_of not in self._settling:
                    await self._end(lost_track_of, commit=False)

    async def _end(self, txn_id: TxnId, *, commit: bool) -> None:
        if txn_id in self._settling:
            raise UnavailableError(f"what transaction {txn_id} acknowledged is being settled")
        if not self.acks.holds(txn_id):
            return  # it never acknowledged here, or has ended here before
        op = AckOp.COMMIT if commit else AckOp.ABORT
        self._settling.add(txn_id)
        try:
            await self._store(PendingAckRecord(op, txn_id, is_cumulative=self.acks.is_only_cumulative(txn_id)))
            await self._settle(txn_id, self._records.pop(txn_id, []), self._released(txn_id), commit=commit)
        finally:
            self._settling.discard(txn_id)
            self._settled_one.ring()
        if commit:
            self.committed += 1
        else:
            self.aborted += 1

    async def leave_to_cursor(self) -> None:
        """Whoever opens the log next acknowledges nothing once more of what ended until now: the cursor has it, and may
        be moved back. No end may come meanwhile. Raises StorageError."""
        while self._settling:
            self._settled_one.silence()
            await self._settled_one.wait()
        await self._cursor.save()
        unsaved, self._unsaved = self._unsaved, []
        self._forget(unsaved)
        await self._log.flush()

    # ---- inside

    def _check_open(self) -> None:
        if self._is_closed:
            raise UnavailableError("the acknowledgments of transactions are being closed")

    async def _store(self, record: PendingAckRecord) -> None:
        try:
            position = await self._log.append(encode_pending_ack_record(record))
        except GemingaError as error:
            if not self._is_closed:
                self._is_closed = True
                self._lost(error)
            raise UnavailableError(f"nobody knows whether this is stored for {record.txn_id}: {error}") from error
        self._records.setdefault(record.txn_id, []).append(position)

    def _replay(self, record: PendingAckRecord) -> None:
        for ack in record.acks:
            position = Position(ack.ledger_id, ack.entry_id)
            bits, size = _bits_and_size(ack)
            if record.is_cumulative:
                self.acks.replayed_cumulative(CumulativeAck(record.txn_id, position, bits, size))
            else:
                self.acks.replayed(record.txn_id, [TxnAck(position, bits, size)])

    def _released(self, txn_id: TxnId) -> Iterator[Released]:
        while self.acks.holds(txn_id):
            yield self.acks.released(txn_id, SETTLED_PER_TURN)

    async def _settle(
        self, txn_id: TxnId, records: Sequence[Position], pieces: Iterator[Released], *, commit: bool
    ) -> None:
        """Acknowledge for good what one that is over held, piece by piece, or give it back.

        Its records, which lie there, go when all of that is durable. Raises UnavailableError if it is closed meanwhile:
        whoever opens it next goes on.
        """
        waiting, is_saved = 1, False
        errors: list[StorageError] = []

        def done(error: StorageError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                errors.append(error)
            if not waiting and not self._is_closed:
                self._settled(txn_id, records, errors, is_saved=is_saved)

        is_first = True
        for released in pieces:
            if not is_first:
                await next_turn()
                self._check_open()
            is_first = False
            if commit:
                waiting, is_saved = waiting + 1, True
                self._cursor.apply(released, done)
            else:
                self._cursor.release(released)
        done(None)

    def _settled(
        self, txn_id: TxnId, records: Sequence[Position], errors: Sequence[StorageError], *, is_saved: bool
    ) -> None:
        if errors:
            # One that is closed has not even taken it: then whoever opens the log next settles it.
            if not any(isinstance(error, LedgerClosedError) for error in errors):
                self._unsaved.append((txn_id, records))
            return
        settled = [(txn_id, records)]
        if is_saved:
            # As a whole, after those that failed.
            settled, self._unsaved = [*self._unsaved, *settled], []
        self._forget(settled)

    def _forget(self, settled: Sequence[tuple[TxnId, Sequence[Position]]]) -> None:
        """Nobody needs the records of these transactions any more."""
        for each, positions in settled:
            for together in self._shared.over(each, positions):
                self._log.delete(together)

    def __len__(self) -> int:
        """Transactions that hold something."""
        return sum(1 for _ in self.acks)


def _cut(released: Released) -> Iterator[Released]:
    """The same in pieces of a turn."""
    acks = released.acks
    for start in range(0, len(acks), SETTLED_PER_TURN):
        yield Released(acks[start : start + SETTLED_PER_TURN])
    if released.cumulative is not None:
        yield Released((), released.cumulative)


def _stored(ack: TxnAck) -> PendingAck:
    ledger_id, entry_id = ack.position
    return PendingAck(ledger_id, entry_id, left_words(ack), ack.batch_size or None)


def left_words(ack: TxnAck | CumulativeAck) -> tuple[int, ...]:
    """Which messages of the entry are NOT acknowledged, as int64 words; none: the whole entry is acknowledged."""
    if ack.bits == WHOLE:
        return ()
    left = ~ack.bits & ((1 << ack.batch_size) - 1)
    count = -(-left.bit_length() // _WORD_BITS)
    return struct.unpack(f"<{count}q", left.to_bytes(count * _WORD_BYTES, "little"))


def _bits_and_size(ack: PendingAck) -> tuple[int, int]:
    if not ack.words:
        return WHOLE, 0
    left = int.from_bytes(struct.pack(f"<{len(ack.words)}q", *ack.words), "little")
    size = ack.batch_size or left.bit_length()
    return ~left & ((1 << size) - 1), size
