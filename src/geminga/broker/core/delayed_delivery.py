"""Messages that must wait for their time: an index from time to positions, in buckets (S1, MISSION 56-69).

Times are trimmed to buckets of ``2 ** floor(log2(tick))`` ms, as Pulsar's tracker does (MISSION F5: a tick of 1000 ms
gives 512 ms), so that the index holds bitmaps of entry ids instead of one record per message.

* not strict (Pulsar's default): the bucket is the time rounded **down**; an entry is due at most one bucket, hence
  less than a tick, before its time, and never later than its time.
* strict (``isDelayedDeliveryDeliverAtTimeStrict``): rounded **up**; never before its time, due at most one bucket late.
  (MISSION F6: rounding down in this mode makes the dispatcher spin.)
"""

from __future__ import annotations

from heapq import heappop, heappush

from pyroaring import BitMap

from geminga.model import Position


class DelayedDeliveryIndex:
    """Which positions wait, and until when. Times are milliseconds since the epoch."""

    __slots__ = ("_bucket_ms", "_buckets", "_count", "_is_strict", "_times")

    def __init__(self, *, tick_ms: int, is_strict: bool) -> None:
        self._bucket_ms = 1 << max(0, tick_ms.bit_length() - 1)
        self._is_strict = is_strict
        #: Heap of the keys of ``_buckets``.
        self._times: list[int] = []
        #: Time of the bucket -> ledger id -> entry ids.
        self._buckets: dict[int, dict[int, BitMap]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def next_due(self) -> int | None:
        """When the first bucket is due; None if nothing waits."""
        return self._times[0] if self._times else None

    def add(self, position: Position, deliver_at: int, now: int) -> bool:
        """Let ``position`` wait; False if it is due already and should be sent now."""
        time = self._bucket_time(deliver_at)
        if time <= now:
            return False
        ledgers = self._buckets.get(time)
        if ledgers is None:
            ledgers = self._buckets[time] = {}
            heappush(self._times, time)
        entries = ledgers.get(position.ledger_id)
        if entries is None:
            entries = ledgers[position.ledger_id] = BitMap()
        if position.entry_id not in entries:
            entries.add(position.entry_id)
            self._count += 1
        return True

    def due(self, now: int, count_max: int) -> list[Position]:
        """Remove and return up to ``count_max`` positions whose time has come, earliest time first."""
        result: list[Position] = []
        while self._times and self._times[0] <= now and len(result) < count_max:
            ledgers = self._buckets[self._times[0]]
            for ledger_id in sorted(ledgers):
                entries = ledgers[ledger_id]
                room = count_max - len(result)
                if len(entries) > room:
                    taken = list(entries[:room])
                    entries -= BitMap(taken)
                    ledgers[ledger_id] = entries
                else:
                    taken = list(entries)
                    del ledgers[ledger_id]
                result.extend(Position(ledger_id, entry_id) for entry_id in taken)
                if len(result) == count_max:
                    break
            if not ledgers:
                del self._buckets[heappop(self._times)]
        self._count -= len(result)
        return result

    def clear(self) -> None:
        """Nothing waits any more: the index is rebuilt by reading."""
        self._times = []
        self._buckets = {}
        self._count = 0

    def _bucket_time(self, deliver_at: int) -> int:
        if self._is_strict:
            return -(-deliver_at // self._bucket_ms) * self._bucket_ms
        return deliver_at // self._bucket_ms * self._bucket_ms
