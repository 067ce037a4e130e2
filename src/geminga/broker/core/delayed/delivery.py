"""Delayed delivery of a topic: one index for all its Shared and Key_Shared subscriptions. Pure.

:class:`TopicDelays` holds the index; a :class:`DelayReader` is one subscription's view of it and costs a few numbers.
An entry that a subscription reads is given at once if it lies at or before the reader's mark in the order (bucket,
ledger, entry), and otherwise waits in the index, which the first reader to see it fills. When time moves on,
:meth:`DelayReader.take` moves the mark and gives what it passes, less what the subscription has not read yet: that is
given when it is read, since it lies before the mark then. So each entry is given once to each subscription, whatever
the others did, and what all readers have passed is dropped.

Bounds, for a bucket of ``2 ** bits`` ms (the largest not longer than the tick): not strict, less than a bucket early
and never late; strict, never early and less than a bucket late. A subscription may ask for a coarser tick; the index
is kept at the finest, and the coarser one is applied when due messages are taken.

The wall clock may step. Forward: what is due by it is given. Back: what was given stays given, messages that come
afterwards wait by the new time, and marks go back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from geminga.broker.core.delayed.marks import FIRST_MARK, LAST, Mark
from geminga.broker.core.delayed.snapshot import encode, load
from geminga.broker.core.delayed.time_buckets import TimeBuckets, precision_bits
from geminga.model import Position
from geminga.model.errors import invariant

#: The clock going back by less is taken for none: messages may be early by as much.
BACK_STEP_MS: Final = 1000
#: No time lies before this: clocks that show less are taken for it.
_TIME_MIN: Final = 0
#: Positions taken from the index in one go when a clock stepped back.
_REBASE_MAX: Final = 10_000
#: Delivery times behind this (the year 10889) are taken for it.
DELIVER_AT_MAX: Final = (1 << 48) - 1


class TopicDelays:
    """What waits in a topic. Times are milliseconds since the epoch."""

    __slots__ = ("_clock", "_readers", "fresh", "fresh_count", "fresh_max", "index", "is_unsaved", "on_fresh")

    def __init__(self, *, tick_ms: int, is_strict: bool, fresh_max: int = 0) -> None:
        """``fresh_max``: note what is added for snapshots until :meth:`take_fresh`, and say when it is so much; 0: no
        snapshots."""
        self.index = TimeBuckets(precision_bits(tick_ms), is_strict=is_strict)
        #: What was added since the last snapshot; None: nobody takes snapshots.
        self.fresh = TimeBuckets(self.index.bits, is_strict=is_strict) if fresh_max else None
        self.fresh_count = 0
        self.fresh_max = fresh_max
        #: Some of what waits is neither fresh nor in a record: the next snapshot must have everything.
        self.is_unsaved = False
        #: Called with False when the first entry since the last snapshot was added, with True at ``fresh_max``.
        self.on_fresh: Callable[[bool], None] | None = None
        self._readers: list[DelayReader] = []
        #: The latest time seen since the clock last stepped back.
        self._clock = _TIME_MIN

    def __len__(self) -> int:
        return len(self.index)

    @property
    def reader_count(self) -> int:
        """Subscriptions that use the index now."""
        return len(self._readers)

    def attach(self, now: int, tick_ms: int) -> DelayReader:
        """A subscription begins to read, from its first entry that is not acknowledged."""
        self.observe(now)
        bits = precision_bits(tick_ms)
        if bits < self.index.bits or (bits != self.index.bits and not self._readers and not len(self.index)):
            self._set_bits(bits)
        reader = DelayReader(self, bits, now)
        self._readers.append(reader)
        self.release()
        return reader

    def detach(self, reader: DelayReader) -> None:
        """The subscription has no consumers any more; what waits, waits for when it comes back."""
        if reader in self._readers:
            self._readers.remove(reader)
            self.release()

    def discard_through(self, position: Position) -> None:
        """Every subscription has acknowledged everything up to and including ``position``."""
        self.index.discard_through(position)
        if self.fresh is not None:
            self.fresh.discard_through(position)

    def purge_step(self) -> bool:
        """Give back some of the memory of what was discarded; whether to call again."""
        return self.index.slots.purge_step() or (self.fresh is not None and self.fresh.slots.purge_step())

    def add(self, position: Position, deliver_at: int) -> None:
        """Let an entry wait, if it does not already."""
        due_time = self.index.due_time(deliver_at)
        if self.index.add(*position, due_time) and self.fresh is not None:
            self.fresh.add(*position, due_time)
            self.fresh_count += 1
            if self.on_fresh is not None and (self.fresh_count == 1 or self.fresh_count % self.fresh_max == 0):
                self.on_fresh(self.fresh_count >= self.fresh_max)

    def release(self) -> None:
        """Drop what every reader has passed."""
        if self._readers:
            self.index.release(min(reader.mark for reader in self._readers))

    def trim_fresh(self, now: int) -> None:
        """What is due by now need not be saved any more."""
        if self.fresh is not None:
            self.fresh.release((now >> self.fresh.bits, LAST, LAST))
            self.fresh_count = len(self.fresh)

    def take_fresh(self, now: int) -> Iterator[bytes]:
        """Records of what was added since the last call and is not due yet. They are made one by one as they are asked
        for, of what was fresh at the call."""
        self.trim_fresh(now)
        fresh = self.fresh
        self.drop_fresh()
        return encode(fresh) if fresh is not None else iter(())

    def drop_fresh(self) -> None:
        """Note from now on what is added: all records are about to be written."""
        if self.fresh is not None:
            self.fresh = TimeBuckets(self.index.bits, is_strict=self.index.is_strict)
        self.fresh_count = 0

    def records(self) -> Iterator[bytes]:
        """Records of everything that waits. The index may change between two of them: what is added or moved
        meanwhile may then be missing."""
        return encode(self.index)

    def load(self, record: bytes, now: int) -> bool:
        """Add what a snapshot says is not due yet; False if it has another mode or larger buckets. CorruptionError."""
        return load(record, self.index, now)

    def observe(self, now: int) -> None:
        """The clock shows ``now``: see whether it stepped back."""
        if now + max(BACK_STEP_MS, 1 << self.index.bits) < self._clock:
            for reader in self._readers:
                reader.step_back(self._clock)
            if self._readers:
                self.release()
                for reader in self._readers:
                    reader.mark = (reader.horizon(now), LAST, LAST)
            self._clock = now
        elif now > self._clock:
            self._clock = now

    def _set_bits(self, bits: int) -> None:
        """Buckets become smaller (or, with nothing in them, larger). What waits keeps the time it was rounded to."""
        old, self.index = self.index, TimeBuckets(bits, is_strict=self.index.is_strict)
        # In the old buckets they would not be as exact as the index is now.
        self.is_unsaved = self.is_unsaved or self.fresh_count > 0
        self.drop_fresh()
        for record in encode(old):
            is_loaded = load(record, self.index, -1, refines=True)
            invariant(is_loaded, "an index does not take its own records")
        for reader in self._readers:
            reader.rescale(old.bits - bits)


class DelayReader:
    """One subscription's view. Made by :meth:`TopicDelays.attach`."""

    __slots__ = ("_bits", "_delays", "_owed", "mark", "suspect_until")

    def __init__(self, delays: TopicDelays, bits: int, now: int) -> None:
        self._delays = delays
        self._bits = bits
        #: Everything up to here, in the order of the index, was given to the subscription if it had read it.
        self.mark: Mark = FIRST_MARK
        self.mark = (self.horizon(now), LAST, LAST)
        #: Taken from the index when the clock stepped back, and not yet given.
        self._owed: dict[Position, None] = {}
        #: Until this time the index may hold, for other subscriptions, entries that this one was given already.
        self.suspect_until = _TIME_MIN

    def horizon(self, now: int) -> int:
        """The last bucket that is due for this subscription."""
        index, bits = self._delays.index, max(self._bits, self._delays.index.bits)
        now = max(_TIME_MIN, now)
        if index.is_strict:
            return (now >> bits << bits) >> index.bits
        return (((now >> bits) + 1 << bits) - 1) >> index.bits

    def must_wait(self, position: Position, deliver_at: int) -> bool:
        """Whether an entry that was just read waits; :meth:`take` gives it then."""
        if deliver_at <= 0:
            return False
        if position in self._owed:
            return True
        deliver_at = min(deliver_at, DELIVER_AT_MAX)
        index = self._delays.index
        bucket = index.bucket_of(deliver_at)
        is_due = (bucket, *position) <= self.mark
        if index.coarse_bits > index.bits and index.contains(*position):
            # It may lie on the other side of the mark, where :meth:`take` gives it or gave it.
            is_due = index.is_through(self.mark, bucket, position)
        if is_due:
            return False
        self._delays.add(position, deliver_at)
        return True

    def take(self, now: int, read_position: Position, count_max: int) -> list[Position]:
        """Up to ``count_max`` entries that are due and lie before ``read_position``; earliest first."""
        self._delays.observe(now)
        result: list[Position] = []
        while self._owed and len(result) < count_max:
            owed = next(iter(self._owed))
            del self._owed[owed]
            if owed < read_position:
                result.append(owed)
        through = self.horizon(now)
        index = self._delays.index
        while len(result) < count_max and self.mark < (through, LAST, LAST):
            groups, self.mark = index.take(self.mark, through, count_max - len(result))
            result += _before(groups, read_position)
        self._delays.release()
        return result

    def next_due(self, now: int) -> int | None:
        """When to :meth:`take` again; None while nothing waits."""
        if self._owed:
            return now
        index = self._delays.index
        due = index.next_due(self.mark, now)
        if due is None or self._bits <= index.bits:
            return due
        width = 1 << self._bits
        return -(-due // width) * width if index.is_strict else due // width * width

    @property
    def may_skip(self) -> bool:
        """Whether all that is in the index waits for this subscription too, so that it need not be read now."""
        return self._delays.index.is_empty_through(self.mark)

    def first_to_read(self, position: Position) -> Position:
        """``position``, or the first entry id behind it in its ledger that does not wait."""
        return Position(position.ledger_id, self._delays.index.first_absent(*position))

    def run_ahead(self, position: Position, entries_max: int) -> int:
        """How many entries can be read from ``position`` before a long run of waiting ones."""
        return self._delays.index.absent_count(*position, entries_max)

    def count(self, mark_delete: Position, read_position: Position) -> int:
        """How many entries wait for this subscription."""
        index = self._delays.index
        acknowledged = index.count_before(Position(mark_delete.ledger_id, mark_delete.entry_id + 1))
        return max(0, index.count_before(read_position) - acknowledged - index.count_between(FIRST_MARK, self.mark))

    def step_back(self, clock: int) -> None:
        """The clock stepped back from ``clock``: what was due stays due, and is owed."""
        through = self.horizon(clock)
        index = self._delays.index
        while self.mark < (through, LAST, LAST):
            groups, self.mark = index.take(self.mark, through, _REBASE_MAX)
            self._owed.update((Position(ledger_id, entry_id), None) for ledger_id, ids in groups for entry_id in ids)
        self.suspect_until = max(self.suspect_until, clock + (1 << max(self._bits, index.bits)))

    def rescale(self, bits: int) -> None:
        """Buckets became ``2 ** bits`` times smaller."""
        bucket, ledger_id, entry_id = self.mark
        if ledger_id == LAST and not self._delays.index.is_strict:
            self.mark = ((bucket + 1 << bits) - 1, LAST, LAST)
        else:
            self.mark = (bucket << bits, ledger_id, entry_id)


def _before(groups: list[tuple[int, list[int]]], position: Position) -> Iterator[Position]:
    for ledger_id, ids in groups:
        if ledger_id > position.ledger_id:
            continue
        for entry_id in ids:
            if ledger_id < position.ledger_id or entry_id < position.entry_id:
                yield Position(ledger_id, entry_id)
