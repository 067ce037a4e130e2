"""A subscription's cursor as transactions see it: what is acknowledged, what of that would survive a kill."""

from __future__ import annotations

from collections.abc import Callable

from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.transaction.core.pending_acks import Released, TxnAck

#: Messages of every entry.
BATCH = 4
Message = tuple[Position, int]


def messages(position: Position, bits: int, _size: int = BATCH) -> set[Message]:
    """What bits of an entry name."""
    return {(position, index) for index in range(BATCH) if bits >> index & 1}


def merged(acks: list[TxnAck]) -> list[TxnAck]:
    """One for each entry."""
    bits: dict[Position, int] = {}
    for ack in acks:
        bits[ack.position] = bits.get(ack.position, 0) | ack.bits
    return [TxnAck(position, each, BATCH) for position, each in bits.items()]


class AckedEntries:
    """Entries 0:0, 0:1, ... of four messages each."""

    def __init__(self, durable: set[Message] | None = None) -> None:
        self.durable: set[Message] = set(durable or ())
        self.acked = set(self.durable)
        self.released: list[Released] = []
        self._waiting: list[Callable[[StorageError | None], None]] = []

    @property
    def mark_delete_position(self) -> Position:
        entry = 0
        while messages(Position(0, entry), -1) <= self.acked:
            entry += 1
        return Position(0, entry - 1)

    def acked_bits(self, position: Position) -> int:
        bits = sum(1 << index for index in range(BATCH) if (position, index) in self.acked)
        return -1 if bits == (1 << BATCH) - 1 else bits

    def apply(self, released: Released, done: Callable[[StorageError | None], None]) -> None:
        for ack in released.acks:
            self.acked |= messages(*ack)
        if released.cumulative is not None:
            _, position, bits, _ = released.cumulative
            for entry in range(position.entry_id):
                self.acked |= messages(Position(0, entry), -1)
            self.acked |= messages(position, bits)
        self._waiting.append(done)

    def release(self, released: Released) -> None:
        self.released.append(released)

    def flush(self) -> None:
        """It is durable now."""
        self.durable = set(self.acked)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(None)

    async def save(self) -> None:
        self.flush()

    def fail(self, error: StorageError) -> None:
        """It could not be made durable."""
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)
