"""The messages of one batch that are not acknowledged yet (Pulsar's ``BatchMessageAcker``).

One bit per message, set while it is NOT acknowledged, as many as the batch has messages: 8,192 messages take 1 KB.
Most batches are acknowledged one message after the other, from the first: as long as one is, a count says it all, and
the bits are brought up to date when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from geminga.model.errors import invariant

_BIT: Final = tuple(1 << index for index in range(8))
_WORD_BITS: Final = 64
#: Equal to no index, and before all of them.
_NO_RUN: Final = -2


class BatchAcker:
    """Bit set of one batch; shared by every delivery of the entry to one consumer."""

    __slots__ = ("_bits", "_last", "_remaining", "_run", "is_waiting", "size", "withheld")

    def __init__(self, size: int) -> None:
        """``size`` messages, none of them acknowledged."""
        invariant(size > 0, f"a batch of {size} messages")
        self.size = size
        #: A group that was not sent yet will hold what is left by then: nothing need be said of further messages.
        self.is_waiting = False
        #: Bits of what the broker did not deliver: acknowledged for good, or held by a transaction that may be aborted.
        #: The broker alone knows which, so nothing may be said of them: where they are, the entry is never whole.
        self.withheld = 0
        #: Bits set in ``_bits``.
        self._remaining = size
        #: Messages acknowledged from the first on, not in ``_bits`` yet; :data:`_NO_RUN` once there were others.
        self._run = 0
        self._last = size - 1
        # Whole words, so that they need no padding when they are sent; bits past the size are clear.
        bits = bytearray(b"\xff" * (size >> 3))
        if size & 7:
            bits.append((1 << (size & 7)) - 1)
        bits.extend(bytes(-len(bits) % 8))
        self._bits = bits

    @classmethod
    def from_words(cls, words: Sequence[int], size: int = 0) -> BatchAcker:
        """From what travels: 64-bit words, lowest first; ``size`` 0: as many messages as they have bits."""
        acker = cls(size or max(1, len(words) * _WORD_BITS))
        acker.retain(words)
        return acker

    @property
    def remaining(self) -> int:
        """Messages not acknowledged."""
        return self._remaining - self._run if self._run > 0 else self._remaining

    @property
    def is_complete(self) -> bool:
        """Whether every message is acknowledged."""
        return self.remaining == 0

    def is_acknowledged(self, index: int) -> bool:
        """Whether the message at ``index`` is."""
        return index < self._run or not self._bits[index >> 3] & _BIT[index & 7]

    def acknowledge(self, index: int) -> bool:
        """One message; True if it was the last. Again: nothing changes."""
        if index == self._run and index != self._last:
            self._run = index + 1
            return False
        if self._run >= 0:
            self._end_run()
        bits = self._bits
        at = index >> 3
        byte = bits[at]
        bit = _BIT[index & 7]
        if byte & bit:
            bits[at] = byte ^ bit
            self._remaining -= 1
        elif self.withheld:
            # Not delivered with the batch the last time, but before that.
            self.withheld &= ~(1 << index)
        return self._remaining == 0

    def acknowledge_many(self, indexes: Sequence[int]) -> bool:
        """Several messages; True if none is left. Cheap for ascending neighbours."""
        self._end_run()
        first, count = indexes[0], len(indexes)
        if count > 8 and indexes == list(range(first, first + count)):
            bits = int.from_bytes(self._bits, "little") & ~(((1 << count) - 1) << first)
            self._bits = bytearray(bits.to_bytes(len(self._bits), "little"))
            self._remaining = bits.bit_count()
            self.withheld &= ~(((1 << count) - 1) << first)
        else:
            for index in indexes:
                self.acknowledge(index)
        return self._remaining == 0

    def acknowledge_all(self) -> None:
        """Every message."""
        self.withheld = 0
        self._run = _NO_RUN
        self._bits = bytearray(len(self._bits))
        self._remaining = 0

    def acknowledge_cumulative(self, index: int) -> bool:
        """Every message up to and with ``index``; True if none is left."""
        self._end_run()
        self.withheld &= ~((1 << (index + 1)) - 1)
        self._clear(index + 1)
        return self._remaining == 0

    def withhold(self, words: Sequence[int]) -> None:
        """Only the messages whose bit is set in ``words`` were delivered (a broker's ``ack_set``)."""
        self.withhold_nothing()
        ours = int.from_bytes(self._bits, "little")
        self.retain(words)
        self.withheld = ours & ~int.from_bytes(self._bits, "little")

    def withhold_nothing(self) -> None:
        """All was delivered that is not acknowledged."""
        self._end_run()
        ours = int.from_bytes(self._bits, "little") | self.withheld
        self._bits = bytearray(ours.to_bytes(len(self._bits), "little"))
        self.withheld = 0
        self._count()

    def retain(self, words: Sequence[int]) -> None:
        """Only the messages whose bit is set in ``words`` may still be unacknowledged."""
        self._end_run()
        wanted = b"".join([(word & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little") for word in words])
        size = len(self._bits)
        kept = int.from_bytes(wanted[:size], "little") & int.from_bytes(self._bits, "little")
        self._bits = bytearray(kept.to_bytes(size, "little"))
        self._count()

    def words(self) -> tuple[int, ...] | None:
        """Signed 64-bit words, lowest first, without empty ones at the end; None if nothing is left, or withheld."""
        self._end_run()
        bits = self._bits
        if self.withheld:
            bits = bytearray((int.from_bytes(bits, "little") | self.withheld).to_bytes(len(bits), "little"))
        elif not self._remaining:
            return None
        used = bits.rstrip(b"\0")
        count = -(-len(used) // 8)
        words: tuple[int, ...] = Struct(f"<{count}q").unpack_from(bits)
        return words

    def unacknowledged(self) -> list[int]:
        """Indexes not acknowledged, ascending."""
        self._end_run()
        bits = self._bits
        return [index for index in range(self.size) if bits[index >> 3] & _BIT[index & 7]]

    def _end_run(self) -> None:
        run, self._run = self._run, _NO_RUN
        if run > 0:
            self._clear(run)

    def _clear(self, count: int) -> None:
        bits = self._bits
        whole, part = divmod(count, 8)
        bits[:whole] = bytes(whole)
        if part:
            bits[whole] &= 0xFF & ~((1 << part) - 1)
        self._count()

    def _count(self) -> None:
        self._remaining = int.from_bytes(self._bits, "little").bit_count()
        invariant(self._remaining <= self.size, f"{self._remaining} of {self.size} messages are left")
