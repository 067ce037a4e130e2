"""Negative acknowledgments: entries that wait until the broker is asked to deliver them again.

A wheel of buckets: time -> ledger id -> entry ids, as bits, or as a plain array while they are few, so that a
million waiting entries cost a few bytes each, dense or scattered. The time of an entry is rounded *up* to its bucket:
it is never asked for early, and at most one bucket late. What is due at the same time leaves together, in log order.

Bucket width: the largest power of two of milliseconds up to a third of the delay (Pulsar's tick is a third of it, with
33 ms as the floor), at most 256 ms (Pulsar's ``negativeAckPrecisionBitCnt`` of 8).
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from typing import Final, TypeAlias

from geminga.client.consumer_rules.entry_bits import EntryBits
from geminga.client.consumer_rules.redelivery_backoff import RedeliveryBackoff
from geminga.model.errors import invariant

DELAY_MS_DEFAULT: Final = 60_000
PRECISION_MS_MAX: Final = 256
_TICK_SHARE: Final = 3
_DELAY_MS_FLOOR: Final = 100
#: As many entry ids of one ledger in one bucket become bits.
_FEW: Final = 48
#: Bytes that a ledger takes, one in a bucket, and neighbours in one chunk of bits, wherever they are kept: about.
_LEDGER_BYTES: Final = 400
_CHUNK_BYTES: Final = 600

EntryKey = tuple[int, int]
_EntryIds: TypeAlias = "array[int] | EntryBits"


def precision_ms(delay_ms: float) -> int:
    """Width of the buckets for a delay."""
    third = int(max(delay_ms, _DELAY_MS_FLOOR)) // _TICK_SHARE
    return min(PRECISION_MS_MAX, 1 << (third.bit_length() - 1))


class NegativeAcks:
    """What one consumer wants redelivered, and when. Times are milliseconds of any clock that does not go back."""

    __slots__ = (
        "_backoff",
        "_buckets",
        "_chunks",
        "_delay_ms",
        "_in_buckets",
        "_pending",
        "_precision_ms",
        "_times",
        "count",
    )

    def __init__(self, delay_ms: float = DELAY_MS_DEFAULT, backoff: RedeliveryBackoff | None = None) -> None:
        self._delay_ms = delay_ms
        self._backoff = backoff
        self._precision_ms = precision_ms(backoff.next(0) if backoff is not None else delay_ms)
        #: Heap of the keys of ``_buckets``.
        self._times: list[int] = []
        self._buckets: dict[int, dict[int, _EntryIds]] = {}
        #: Every waiting entry once more, without its time: the same entry does not wait twice.
        self._pending: dict[int, EntryBits] = {}
        #: Entries that wait.
        self.count = 0
        #: Chunks of bits in ``_pending``, and ledgers in buckets.
        self._chunks = 0
        self._in_buckets = 0

    @property
    def size_bytes(self) -> int:
        """Memory of all that wait, about."""
        return _LEDGER_BYTES * (len(self._pending) + self._in_buckets) + _CHUNK_BYTES * self._chunks

    @property
    def next_due_ms(self) -> int | None:
        """When :meth:`due` has something; None if nothing waits."""
        return self._times[0] if self._times else None

    def add(self, entry: EntryKey, now_ms: float, redelivery_count: int = 0) -> bool:
        """Let ``entry`` wait; False if it waits already (its first time stays)."""
        ledger_id, entry_id = entry
        pending = self._pending.get(ledger_id)
        if pending is None:
            pending = self._pending[ledger_id] = EntryBits()
        elif entry_id in pending:
            return False
        self._chunks -= pending.chunk_count
        pending.add(entry_id)
        self._chunks += pending.chunk_count
        self.count += 1
        delay_ms = self._delay_ms if self._backoff is None else self._backoff.next(redelivery_count)
        width = self._precision_ms
        time = -int(-(now_ms + delay_ms) // width) * width
        ledgers = self._buckets.get(time)
        if ledgers is None:
            ledgers = self._buckets[time] = {}
            heappush(self._times, time)
        entries = ledgers.get(ledger_id)
        if entries is None:
            ledgers[ledger_id] = array("Q", (entry_id,))
            self._in_buckets += 1
        elif isinstance(entries, array):
            entries.append(entry_id)
            if len(entries) >= _FEW:
                ledgers[ledger_id] = EntryBits(entries)
        else:
            entries.add(entry_id)
        return True

    def discard(self, entry: EntryKey) -> bool:
        """It was acknowledged after all: it is not asked for. False if it did not wait."""
        ledger_id, entry_id = entry
        pending = self._pending.get(ledger_id)
        if pending is None or entry_id not in pending:
            return False
        self._forget(ledger_id, pending, entry_id)
        for ledgers in self._buckets.values():
            entries = ledgers.get(ledger_id)
            if entries is not None and entry_id in entries:
                entries.remove(entry_id)
                if not entries:
                    del ledgers[ledger_id]
                    self._in_buckets -= 1
                break
        return True

    def due(self, now_ms: float) -> list[EntryKey]:
        """Take every entry whose time has come, in log order."""
        found: list[EntryKey] = []
        while self._times and self._times[0] <= now_ms:
            ledgers = self._buckets.pop(heappop(self._times))
            self._in_buckets -= len(ledgers)
            for ledger_id, entries in ledgers.items():
                pending = self._pending[ledger_id] if entries else None
                for entry_id in entries:
                    found.append((ledger_id, entry_id))
                    if pending is not None:
                        self._forget(ledger_id, pending, entry_id)
        found.sort()
        return found

    def clear(self) -> None:
        """Nothing waits any more (the subscription was moved, or all is redelivered anyway)."""
        self._times.clear()
        self._buckets.clear()
        self._pending.clear()
        self.count = self._chunks = self._in_buckets = 0

    def _forget(self, ledger_id: int, pending: EntryBits, entry_id: int) -> None:
        self._chunks -= pending.chunk_count
        pending.discard(entry_id)
        self._chunks += pending.chunk_count
        self.count -= 1
        if not pending:
            del self._pending[ledger_id]

    def check_invariants(self) -> None:
        """Raises InvariantError for a state that can not be."""
        in_buckets = sum(len(entries) for ledgers in self._buckets.values() for entries in ledgers.values())
        waiting = sum(len(entries) for entries in self._pending.values())
        invariant(
            in_buckets == waiting == self.count, f"{in_buckets} in buckets, {waiting} waiting, {self.count} counted"
        )
        chunks = sum(entries.chunk_count for entries in self._pending.values())
        in_buckets = sum(map(len, self._buckets.values()))
        invariant(
            (chunks, in_buckets) == (self._chunks, self._in_buckets),
            f"{chunks} chunks, {self._chunks} counted; {in_buckets} ledgers in buckets, {self._in_buckets} counted",
        )
        invariant(sorted(self._times) == sorted(self._buckets), "times and buckets differ")
