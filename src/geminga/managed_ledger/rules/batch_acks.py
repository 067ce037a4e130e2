"""Partly acknowledged batches: per entry a bit set of the indexes NOT yet acknowledged. Pure.

As on the wire, a set bit means unacknowledged and int64 words hold 64 bits each, lowest first. The set comes
from a client that knows the batch's size, so bits behind the batch's end are clear. Sets merge by AND; an
empty result means that the whole entry is acknowledged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

#: Bytes of one entry's bit set with its place in a dict (measured, 64 messages in a batch); larger sets cost more.
_ENTRY_BYTES: Final = 160
#: Bits that this holds for.
_SMALL_BITS: Final = 256


class BatchAck(NamedTuple):
    """An entry and the bit set (as an int) of its unacknowledged indexes."""

    ledger_id: int
    entry_id: int
    bits: int


def bits_of_words(words: Sequence[int]) -> int:
    """The bit set of int64 words as an int."""
    if len(words) == 1:
        return words[0] & 0xFFFFFFFFFFFFFFFF
    return int.from_bytes(struct.pack(f"<{len(words)}q", *words), "little")


def words_of_bits(bits: int) -> tuple[int, ...]:
    """The int64 words of a bit set, without trailing zero words."""
    count = (bits.bit_length() + 63) // 64
    return struct.unpack(f"<{count}q", bits.to_bytes(count * 8, "little"))


def _extra_bytes(bits: int) -> int:
    """What a bit set costs beyond a usual one."""
    return max(0, bits.bit_length() - _SMALL_BITS) // 7  # an int of Python has 30 bits in 4 bytes


class BatchAcks:
    """Bit sets by ledger and entry; ``count`` is the number of entries."""

    __slots__ = ("_large_bytes", "_ledgers", "count")

    def __init__(self) -> None:
        self._ledgers: dict[int, dict[int, int]] | None = None
        #: Ledger id -> bytes of the bit sets that are larger than usual; None: there is none.
        self._large_bytes: dict[int, int] | None = None
        self.count = 0

    def merge(self, ledger_id: int, entry_id: int, bits: int) -> int:
        """Keep only bits also in ``bits``; returns what is left. 0: the entry is done and no longer kept."""
        ledgers = self._ledgers
        if ledgers is None:
            ledgers = self._ledgers = {}
        entries = ledgers.get(ledger_id)
        if entries is None:
            entries = ledgers[ledger_id] = {}
        known = entries.get(entry_id)
        if known is None:
            if bits:
                entries[entry_id] = bits
                self.count += 1
                if bits >> _SMALL_BITS:
                    self._count_large(ledger_id, bits)
            elif not entries:
                del ledgers[ledger_id]
            return bits
        left = known & bits
        if left:
            entries[entry_id] = left
            if known >> _SMALL_BITS and left != known:
                self._count_large(ledger_id, left, known)
        else:
            self.discard(ledger_id, entry_id)
        return left

    def get(self, ledger_id: int, entry_id: int) -> int:
        """The unacknowledged bits; 0 if nothing is kept for the entry."""
        if self._ledgers is None:
            return 0
        entries = self._ledgers.get(ledger_id)
        return entries.get(entry_id, 0) if entries else 0

    def discard(self, ledger_id: int, entry_id: int) -> bool:
        """Forget one entry; returns whether it was there."""
        entries = self._ledgers.get(ledger_id) if self._ledgers else None
        known = entries.pop(entry_id, 0) if entries is not None else 0
        if entries is None or not known:
            return False
        self.count -= 1
        if known >> _SMALL_BITS:
            self._count_large(ledger_id, 0, known)
        if not entries and self._ledgers is not None:
            del self._ledgers[ledger_id]
        return True

    def discard_through(self, ledger_id: int, entry_id: int) -> None:
        """Forget everything up to and including a position."""
        ledgers = self._ledgers
        if not ledgers:
            self._ledgers = None
            return
        for behind in [known for known in ledgers if known < ledger_id]:
            self.discard_ledger(behind)
        entries = ledgers.get(ledger_id)
        if entries:
            for known in [known for known in entries if known <= entry_id]:
                self.discard(ledger_id, known)

    def discard_ledger(self, ledger_id: int) -> None:
        """Forget one ledger."""
        if self._ledgers is not None:
            self.count -= len(self._ledgers.pop(ledger_id, ()))
        if self._large_bytes is not None:
            self._large_bytes.pop(ledger_id, None)

    def ledger_memory_bytes(self, ledger_id: int) -> int:
        """About how much memory the bit sets of a ledger take."""
        entries = self._ledgers.get(ledger_id) if self._ledgers else None
        if not entries:
            return 0
        return len(entries) * _ENTRY_BYTES + (self._large_bytes.get(ledger_id, 0) if self._large_bytes else 0)

    def _count_large(self, ledger_id: int, bits: int, before: int = 0) -> None:
        large = self._large_bytes
        if large is None:
            large = self._large_bytes = {}
        size_bytes = large.get(ledger_id, 0) + _extra_bytes(bits) - _extra_bytes(before)
        if size_bytes:
            large[ledger_id] = size_bytes
        else:
            large.pop(ledger_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self._ledgers = None
        self._large_bytes = None
        self.count = 0

    def __iter__(self) -> Iterator[BatchAck]:
        """Every entry, in order of position."""
        for ledger_id in sorted(self._ledgers or ()):
            yield from self.of_ledger(ledger_id)

    @property
    def ledger_ids(self) -> list[int]:
        """Ledgers with partly acknowledged batches, ascending."""
        return sorted(self._ledgers or ())

    def of_ledger(self, ledger_id: int) -> Iterator[BatchAck]:
        """Every entry of one ledger, ascending."""
        entries = self._ledgers.get(ledger_id) if self._ledgers else None
        for entry_id in sorted(entries or ()):
            yield BatchAck(ledger_id, entry_id, entries[entry_id] if entries else 0)
