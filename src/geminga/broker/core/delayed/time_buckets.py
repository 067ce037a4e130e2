"""The delayed index of a topic: time -> ledger -> bitmap. Pure.

Times are trimmed to buckets of ``2 ** bits`` ms. Not strict: rounded **down**, so that a message is due less than one
bucket before its time and never after it. Strict: rounded **up**, due less than one bucket after its time and never
before it (rounding down there makes a dispatcher spin: it adds and is given the same message until its time).

```
columns: what was added last, as it came (:mod:`.delayed_column`)    one at the end of the log, one behind it
chunks: full columns, packed (:mod:`.delayed_chunks`)               where messages wait most of their life
far:   slot (256 buckets) -> packed positions, in no order         long runs in one bucket, and what is too little
near:  bucket -> ledger -> entry ids (bitmap, or few in a list)     what is due, and a little more
waiting: ledger -> bitmap of what is in far and near                "is it here?" (:mod:`.waiting_entries`)
```

Nothing is per subscription here. Whoever reads the buckets keeps a :data:`Mark`, what it was given last, and
:meth:`TimeBuckets.take` continues from there; :meth:`TimeBuckets.release` drops what everybody was given.

An entry that follows the one added last, in the same bucket, costs no memory and no call: the run is kept as first and
next entry id until something breaks it. Another one costs a place in the column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Final

from pyroaring import BitMap

from geminga.broker.core.delayed.chunk_shelf import ChunkShelf
from geminga.broker.core.delayed.chunks import ChunkSizes, DelayedChunk, pack
from geminga.broker.core.delayed.column import COLUMN_MAX, NO_BUCKET, Column
from geminga.broker.core.delayed.marks import FIRST_MARK, LAST, Mark
from geminga.broker.core.delayed.packed_positions import (
    ENTRY_MASK,
    SLOT_BITS,
    SLOT_MASK,
    PackedPositions,
)
from geminga.broker.core.delayed.slot_buckets import SlotBuckets
from geminga.broker.core.delayed.waiting_entries import GAP_MIN, absent_count
from geminga.managed_ledger.rules.acked_entries import first_absent
from geminga.model import Position, invariant

_SIZES: Final = ChunkSizes()
#: There is no run under way.
_NO_RUN: Final = -1
#: Bits of a time: no bucket is larger.
BITS_MAX: Final = 48
#: Runs of fewer entries go into the column.
_RUN_MIN: Final = 64
#: So many entries of the ledgers before are a chunk of their own: one of a single ledger is quicker.
_OWN_CHUNK_MIN: Final = 4096
#: Entries brought near together when due ones are taken.
_OPENED_MIN: Final = 8192
#: A larger column of which something is due becomes a chunk, which gives a part at a time.
_COLUMN_OPENED_MAX: Final = 4096
#: Entries looked at together for the first that does not wait.
_WINDOW: Final = 1 << 16


def precision_bits(tick_ms: int) -> int:
    """Bits trimmed for a tick: the largest bucket that is no longer than the tick (1000 ms gives 512), however long."""
    return min(max(0, tick_ms.bit_length() - 1), BITS_MAX - 1)


class TimeBuckets:
    """See the module. Times are milliseconds since the epoch; a bucket's number is its time less the trimmed bits."""

    __slots__ = (
        "_behind",
        "_behind_last",
        "_bucket",
        "_column",
        "_ledger_id",
        "_next_id",
        "_round_up",
        "_run_first",
        "_shelf",
        "_sizes",
        "bits",
        "coarse_bits",
        "slots",
    )

    def __init__(self, bits: int, *, is_strict: bool, sizes: ChunkSizes = _SIZES) -> None:
        invariant(0 <= bits < BITS_MAX, f"{bits} bits of precision")
        self.bits = bits
        self._sizes = sizes
        self._round_up = (1 << bits) - 1 if is_strict else 0
        self.clear()

    def clear(self) -> None:
        """Nothing waits any more."""
        #: The largest buckets that anything here was rounded to, before they became smaller.
        self.coarse_bits = self.bits
        #: What is in ``far`` and ``near``.
        self.slots = SlotBuckets()
        self._shelf = ChunkShelf()
        #: The ledger of the last entry in log order, and the id behind it; the run under way ends there.
        self._ledger_id = self._next_id = self._run_first = -1
        #: The run's bucket.
        self._bucket = _NO_RUN
        #: What was added in log order before the run, and what was added behind that, which ascends too.
        self._column = Column(self._sizes.entries)
        self._behind = Column(self._sizes.entries)
        self._behind_last = (-1, -1)

    def __len__(self) -> int:
        columns = len(self._column.ids) + len(self._behind.ids)
        return self.slots.waiting.count + self._shelf.count + columns + self._next_id - self._run_first

    @property
    def is_strict(self) -> bool:
        """Whether times are rounded up."""
        return bool(self._round_up)

    @property
    def memory_bytes(self) -> int:
        """About what the index takes: arrays and bitmaps as they are, objects by their number."""
        columns = self._column.memory_bytes + self._behind.memory_bytes
        return self.slots.memory_bytes + self._shelf.memory_bytes + columns

    # ---- add

    def due_time(self, deliver_at: int) -> int:
        """The time to :meth:`add` an entry with: in the strict mode moved so that trimming rounds it up."""
        return deliver_at + self._round_up

    def bucket_of(self, deliver_at: int) -> int:
        """The bucket of a message that asks for ``deliver_at``."""
        return (deliver_at + self._round_up) >> self.bits

    def add(self, ledger_id: int, entry_id: int, due_time: int) -> bool:
        """Let an entry wait until ``due_time`` (of :meth:`due_time`); False if it waits already."""
        bucket = due_time >> self.bits
        next_id = self._next_id
        if ledger_id == self._ledger_id and entry_id >= next_id:
            if bucket == self._bucket and entry_id == next_id:
                self._next_id = entry_id + 1
                return True
            first = self._run_first
            if next_id - first == 1:
                ids = self._column.ids
                ids.append(first)
                self._column.buckets.append(self._bucket)
                if len(ids) >= self._column.entries_max:
                    self._end_column()
            else:
                self._end_run()
        elif ledger_id > self._ledger_id:
            self._begin_ledger(ledger_id)
        else:
            return self._add_behind(ledger_id, entry_id, bucket)
        if not 0 <= entry_id <= ENTRY_MASK:
            invariant(False, f"entry id {entry_id}")
        self._run_first = entry_id
        self._next_id = entry_id + 1
        self._bucket = bucket
        return True

    def _begin_ledger(self, ledger_id: int) -> None:
        """What follows in log order is of that ledger."""
        self._end_run()
        if self._column.is_full or len(self._column) >= _OWN_CHUNK_MIN:
            self._end_column()
        self._ledger_id = ledger_id
        self._next_id = self._run_first = 0
        self._column.begin(ledger_id)

    def _add_behind(self, ledger_id: int, entry_id: int, bucket: int) -> bool:
        """Add an entry that lies before the last one in log order."""
        if self.contains(ledger_id, entry_id):
            return False
        if (ledger_id, entry_id) <= self._behind_last or self._behind.is_full:
            self._end_behind()
        self._behind_last = (ledger_id, entry_id)
        column = self._behind
        if column.ledgers[-1:] != [ledger_id]:
            column.begin(ledger_id)
        column.ids.append(entry_id)
        column.buckets.append(bucket)
        return True

    # ---- columns

    def _flush(self) -> None:
        """End the run and both columns."""
        self._end_run()
        self._end_column()
        self._end_behind()

    def _end_run(self) -> None:
        first, next_id, bucket = self._run_first, self._next_id, self._bucket
        self._run_first, self._bucket = next_id, _NO_RUN
        count = next_id - first
        if count >= _RUN_MIN:
            self.slots.add_run(bucket, self._ledger_id, first, count)
        elif count:
            self._column.ids.extend(range(first, next_id))
            self._column.buckets.extend(repeat(bucket, count))
            if self._column.is_full:
                self._end_column()

    def _end_column(self) -> None:
        """What was added in log order before the run becomes a chunk."""
        column, self._column = self._column, Column(self._sizes.entries)
        self._column.begin(self._ledger_id)
        self._shelve(column)

    def _end_behind(self) -> None:
        column, self._behind = self._behind, Column(self._sizes.entries)
        self._behind_last = (-1, -1)
        self._shelve(column)

    def _shelve(self, column: Column) -> None:
        """Make a chunk of a column, or add its entries to the slots if it is not worth one."""
        for part in column.parts():
            chunk = pack(part, self._sizes.unit) if len(part) >= self._sizes.least else None
            if chunk is None or not self._shelf.add(chunk):
                self.slots.add_singles(part.entries())

    # ---- look

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an entry waits."""
        if ledger_id == self._ledger_id and self._run_first <= entry_id < self._next_id:
            return True
        return (
            self._shelf.contains(ledger_id, entry_id)
            or self.slots.waiting.contains(ledger_id, entry_id)
            or self._column.contains(ledger_id, entry_id)
            or self._behind.contains(ledger_id, entry_id)
        )

    def _members(self, ledger_id: int, first: int, end: int) -> BitMap:
        """The entries of a ledger that wait, from ``first`` to before ``end``."""
        found = self.slots.waiting.members(ledger_id, first, end) | self._shelf.members(ledger_id, first, end)
        for column in (self._column, self._behind):
            found |= column.members(ledger_id, first, end)
        if ledger_id == self._ledger_id:
            found |= BitMap(range(max(first, self._run_first), min(end, self._next_id)))
        return found

    def is_through(self, mark: Mark, bucket: int, position: Position) -> bool:
        """Whether an entry that waits, and whose time is in ``bucket``, lies at or before the mark. That is for its
        bucket to say, unless it was rounded to a larger one."""
        spread = (1 << self.coarse_bits - self.bits) - 1
        first = bucket if self.is_strict else bucket - spread
        self._open_through(mark)
        known = self.slots.bucket_of(position, first, min(first + spread, mark[0]))
        return known is not None and (known, *position) <= mark

    def next_due(self, after: Mark, now: int) -> int | None:
        """When the first bucket behind ``after`` is due, or at least not before; None if there is none."""
        bucket = self._next_bucket(after, now)
        return bucket << self.bits if bucket is not None else None

    def first_absent(self, ledger_id: int, entry_id: int) -> int:
        """The first entry id at or behind ``entry_id`` that does not wait."""
        while entry_id >= 0 and self.contains(ledger_id, entry_id):
            end = min(entry_id + _WINDOW, ENTRY_MASK + 1)
            entry_id = first_absent(self._members(ledger_id, entry_id, end), entry_id)
            if entry_id < end or end > ENTRY_MASK:
                break
        return entry_id

    def absent_count(self, ledger_id: int, entry_id: int, count_max: int) -> int:
        """Entries from ``entry_id`` on, at most ``count_max``, before a run of waiting ones that is worth a gap."""
        at = max(0, entry_id)
        members = self._members(ledger_id, at, min(at + count_max + GAP_MIN, ENTRY_MASK + 1))
        return absent_count(members, entry_id, count_max)

    def is_empty_through(self, mark: Mark) -> bool:
        """Whether nothing is left of what lies at or before the mark."""
        return not self.count_between(FIRST_MARK, mark)

    def count_before(self, position: Position) -> int:
        """How many entries wait that lie before ``position`` in the log."""
        count = self.slots.waiting.count_before(position) + self._shelf.count_before(position)
        for column in (self._column, self._behind):
            count += column.count_before(position)
        if position.ledger_id >= self._ledger_id:
            end = self._next_id if position.ledger_id > self._ledger_id else min(self._next_id, position.entry_id)
            count += max(0, end - self._run_first)
        return count

    def count_between(self, after: Mark, mark: Mark) -> int:
        """How many entries lie behind ``after``, up to and including ``mark``."""
        self._open_through(mark)
        return self.slots.count_between(after, mark)

    # ---- take

    def take(self, after: Mark, through: int, count_max: int) -> tuple[list[tuple[int, list[int]]], Mark]:
        """Up to ``count_max`` positions behind ``after`` in the buckets up to ``through``: (ledger id, entry ids
        ascending) in order of bucket, ledger and entry; and the mark behind them. They stay in the index."""
        end = (through, LAST, LAST)
        self._open_columns(through)
        self.slots.open_far(through >> SLOT_BITS)
        result: list[tuple[int, list[int]]] = []
        room = count_max
        while True:
            # What lies before the first of the chunks is near, all of it.
            taken, after = self.slots.take(after, min(self._shelf.first_mark, end), room)
            result += taken
            room -= sum(len(ids) for _, ids in taken)
            if not room:
                return result, after
            if not self._open_chunks(end, _OPENED_MIN):
                return result, max(after, end)

    def release(self, mark: Mark) -> None:
        """Drop everything up to and including ``mark``."""
        self._open_through(mark)
        self.slots.release(mark)
        if not len(self) and self.slots.is_empty:
            self.clear()

    def due(self, now: int, count_max: int) -> list[Position]:
        """Remove and return up to ``count_max`` positions whose bucket has come, earliest first: for an index that has
        one reader."""
        through = now >> self.bits
        groups, mark = self.take(FIRST_MARK, through, count_max)
        self.release(mark)
        new = tuple.__new__
        return [new(Position, (ledger_id, entry_id)) for ledger_id, ids in groups for entry_id in ids]

    def _next_bucket(self, after: Mark, now: int) -> int | None:
        # The slot that is next is opened when its time is near, so that its first bucket need not be guessed.
        self._open_through(after)
        self.slots.open_far((now >> self.bits) + SLOT_MASK >> SLOT_BITS)
        far = min(self._shelf.first_mark[0], self._column.lowest(), self._behind.lowest())
        if self._bucket != _NO_RUN:
            far = min(far, self._bucket)
        if (first_far := self.slots.first_far) is not None:
            far = min(far, first_far)
        near = self.slots.next_after(after)
        far = far if near is None else min(near, far)
        return far if far < NO_BUCKET else None

    def _open_through(self, mark: Mark) -> None:
        """Bring everything up to ``mark`` near."""
        self._open_columns(mark[0])
        self._open_chunks(mark)
        self.slots.open_far(mark[0] >> SLOT_BITS)

    def _open_columns(self, bucket: int) -> None:
        if _NO_RUN < self._bucket <= bucket:
            self._end_run()
        if self._column.lowest() <= bucket and len(self._column) > _COLUMN_OPENED_MAX:
            self._end_column()
        if self._behind.lowest() <= bucket and len(self._behind) > _COLUMN_OPENED_MAX:
            self._end_behind()
        for column in (self._column, self._behind):
            if column.lowest() <= bucket:
                self.slots.add_near(column.take_through(bucket))

    def _open_chunks(self, mark: Mark, enough: int | None = None) -> bool:
        """Bring what chunks have up to ``mark`` near, or ``enough`` entries of it; whether there was any."""
        count = 0
        slots: dict[int, PackedPositions] = {}
        while (enough is None or count < enough) and (taken := self._shelf.take_next(mark)) is not None:
            chunk, keys = taken
            count += max(1, len(keys))
            for slot, packed in chunk.unpack(keys, self.slots.number_of):
                if slot in slots:
                    slots[slot].extend(packed)
                else:
                    slots[slot] = packed
        # Together, since a slot may have a little from each chunk.
        for slot, packed in slots.items():
            self.slots.add_near_slot(slot, packed)
        return bool(count)

    # ---- discard

    def discard_through(self, position: Position) -> int:
        """Forget every entry up to and including ``position``, whatever its time; how many those were."""
        before = len(self)
        self.slots.discard_through(position)
        self._shelf.discard_through(position)
        behind = Position(position.ledger_id, position.entry_id + 1)
        self._column.discard_before(behind)
        self._behind.discard_before(behind)
        if position.ledger_id >= self._ledger_id:
            end = self._next_id if position.ledger_id > self._ledger_id else position.entry_id + 1
            self._run_first = min(self._next_id, max(self._run_first, end))
            if self._run_first == self._next_id:
                self._bucket = _NO_RUN
        left = len(self)
        if not left:
            self.clear()
        return before - left

    def _reach(self, ledger_id: int, next_id: int) -> None:
        """Something was added without :meth:`add`, before ``next_id``: what follows in log order lies behind it."""
        if ledger_id > self._ledger_id:
            self._begin_ledger(ledger_id)
        if ledger_id == self._ledger_id and next_id > self._next_id:
            self._end_run()
            self._run_first = self._next_id = next_id

    # ---- as a whole

    def chunks(self) -> list[DelayedChunk]:
        """Every chunk; what is in columns becomes one, or is in :attr:`slots`."""
        self._flush()
        return list(self._shelf.chunks())

    def _reach_all(self, fresh: Mapping[int, BitMap], ledger_ids: Mapping[int, int]) -> None:
        for ledger_id, ids in sorted((ledger_ids[number], ids) for number, ids in fresh.items()):
            if ids:
                self._reach(ledger_id, ids.max() + 1)

    def merge(self, slot: int, packed: PackedPositions, ledger_ids: Mapping[int, int]) -> None:
        """Add the entries of a slot; ``ledger_ids``: of the numbers that ``packed`` has. What waits already, stays as
        it is. ``packed`` must not be used afterwards."""
        found = packed.by_ledger()
        fresh = {}
        for number, ids in found.items():
            fresh[number] = ids - self._members(ledger_ids[number], ids.min(), ids.max() + 1)
            self.slots.waiting.add_new(ledger_ids[number], fresh[number])
        if any(len(fresh[number]) < len(ids) for number, ids in found.items()):
            packed.keep(fresh.get)
        if packed.is_empty:
            return
        packed.renumber({number: self.slots.number_of(ledger_ids[number]) for number in fresh})
        self.slots.put(slot, packed)
        self._reach_all(fresh, ledger_ids)

    def merge_chunk(self, chunk: DelayedChunk) -> None:
        """Add what a chunk has, which must not be used afterwards. What waits already, stays as it is."""
        first, last = chunk.stretch.first, chunk.stretch.last
        is_new = self._shelf.is_free(first, last) and not self.count_from(first, last)
        if not (is_new and chunk.count and self._shelf.add(chunk)):
            self.merge_entries(chunk.entries())
        else:
            self._reach(last.ledger_id, last.entry_id + 1)

    def count_from(self, first: Position, last: Position) -> int:
        """How many entries wait from ``first`` to ``last``."""
        return self.count_before(Position(last.ledger_id, last.entry_id + 1)) - self.count_before(first)

    def merge_entries(self, entries: Iterable[tuple[int, int, int]]) -> None:
        """Add (bucket, ledger id, entry id) in any order. What waits already, stays as it is."""
        for bucket, ledger_id, entry_id in sorted(entries, key=lambda entry: entry[1:]):
            self.add(ledger_id, entry_id, bucket << self.bits)
        self._flush()

    def check_invariants(self) -> None:
        """Raise InvariantError if the state can not be; tests call it after every step. It ends no run."""
        for column in (self._column, self._behind):
            invariant(len(column.ids) == len(column.buckets) <= 2 * COLUMN_MAX, f"a column of {len(column)}")
            positions = [entry[1:] for entry in column.entries()]
            invariant(positions == sorted(set(positions)), "a column does not ascend")
        invariant(self._run_first <= self._next_id, "a run ends before it begins")
        self._shelf.check_invariants()
        self.slots.check_invariants()
