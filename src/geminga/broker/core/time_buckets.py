"""The delayed index of a topic: time -> ledger -> bitmap (S1 "TimeBucket", MISSION 56-69). Pure.

Times are trimmed to buckets of ``2 ** bits`` ms. Not strict: rounded **down**, so that a message is due less than one
bucket before its time and never after it. Strict: rounded **up**, due less than one bucket after its time and never
before it (MISSION F6: rounding down there makes a dispatcher spin).

```
column: buckets of the entries added last, in log order            what is far off there is not looked at
chunks: columns sorted by slot (:mod:`.delayed_chunks`)            the cheapest form for delays drawn at random
far:   slot (256 buckets) -> packed positions, in no order         where other messages wait most of their life
near:  bucket -> ledger -> entry ids (bitmap, or few in a list)     made from a slot when its time comes
waiting: ledger -> bitmap of everything that waits                  "is it here?" (:mod:`.waiting_entries`)
```

Nothing is per subscription here. Whoever reads the buckets keeps a :data:`Mark`, what it was given last, and
:meth:`TimeBuckets.take` continues from there; :meth:`TimeBuckets.release` drops what everybody was given.

An entry that follows the one added last, in the same bucket, costs no memory and no call: the run of equal buckets, and
that of members, are kept as first and next entry id until something breaks them. In another bucket it costs a place in
the column. A slot of which a chunk has anything is in ``far``, if only as an empty set.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyroaring import BitMap

from geminga.broker.core.delayed_chunks import CHUNK_MIN, NO_SLOT, Column, chunk_of
from geminga.broker.core.delayed_marks import FIRST_MARK, LAST, Mark, groups_through, index_after
from geminga.broker.core.far_slots import FarSlots
from geminga.broker.core.packed_positions import (
    BUCKET_SHIFT,
    ENTRY_BITS,
    ENTRY_MASK,
    LEDGERS_MAX,
    SLOT_BITS,
    SLOT_MASK,
    Group,
    PackedPositions,
)
from geminga.broker.core.waiting_entries import WaitingEntries
from geminga.model import Position, invariant

#: Discarded positions that buckets may still name before they are searched for them.
_STALE_MIN: Final = 4096
#: Ledgers that may be numbered in vain before numbers are given anew.
_LEDGERS_MIN: Final = 1024
#: Entries added between two looks whether singles should become bitmaps.
_COMPACT_STEP: Final = 1 << 14
#: What a small object takes: a bitmap, an array, a place in a dict.
_OBJECT_BYTES: Final = 250
_NO_BUCKET: Final = -1
#: Bits of a time: no bucket is larger.
BITS_MAX: Final = 48
#: Runs no longer than this stay in the column: they take no more there.
_COLUMN_RUN_MAX: Final = 2


def precision_bits(tick_ms: int) -> int:
    """Bits trimmed for a tick: the largest bucket that is no longer than the tick (MISSION F5: 1000 ms gives 512)."""
    return max(0, tick_ms.bit_length() - 1)


class TimeBuckets:
    """See the module. Times are milliseconds since the epoch; a bucket's number is its time less the trimmed bits."""

    __slots__ = (
        "_base",
        "_bucket",
        "_chunk_min",
        "_column",
        "_far",
        "_fresh",
        "_ledger_id",
        "_ledger_ids",
        "_ledger_numbers",
        "_members_first",
        "_near",
        "_near_order",
        "_next_id",
        "_opened",
        "_purging",
        "_round_up",
        "_run_second",
        "_stale",
        "_waiting",
        "bits",
        "coarse_bits",
    )

    def __init__(self, bits: int, *, is_strict: bool, chunk_min: int = CHUNK_MIN) -> None:
        """``chunk_min``: entries from which a column becomes a chunk."""
        invariant(0 <= bits < BITS_MAX, f"{bits} bits of precision")
        self.bits = bits
        self._chunk_min = chunk_min
        self._round_up = (1 << bits) - 1 if is_strict else 0
        self.clear()

    def clear(self) -> None:
        """Nothing waits any more."""
        #: The largest buckets that anything here was rounded to, before they became smaller.
        self.coarse_bits = self.bits
        #: All that waits but for the run under way.
        self._waiting = WaitingEntries()
        #: Entries added since anybody looked whether singles should become bitmaps.
        self._fresh = 0
        #: Entries discarded that buckets still name.
        self._stale = 0
        #: The search for them, while there is one.
        self._purging: Iterator[bool] | None = None
        self._far = FarSlots()
        self._near: dict[int, PackedPositions] = {}
        self._near_order: list[int] = []
        #: Slots whose buckets are in ``_near``.
        self._opened: set[int] = set()
        self._ledger_ids: list[int] = []
        self._ledger_numbers: dict[int, int] = {}
        #: The entry behind the last one in log order, and its ledger's number, shifted.
        self._ledger_id = self._next_id = -1
        self._base = 0
        #: Its last bucket stands for the run under way.
        self._column = Column()
        #: The run of entries in one bucket: its bucket, and the id behind its first entry. It ends before ``_next_id``.
        self._bucket = _NO_BUCKET
        self._run_second = -1
        #: First of the entries before ``_next_id`` that are not in ``_waiting`` yet.
        self._members_first = -1

    def __len__(self) -> int:
        return self._waiting.count + self._next_id - self._members_first

    @property
    def is_strict(self) -> bool:
        """Whether times are rounded up."""
        return bool(self._round_up)

    @property
    def ledger_ids(self) -> Sequence[int]:
        """Ledger ids by the number that packed items have."""
        return self._ledger_ids

    @property
    def memory_bytes(self) -> int:
        """About what the index takes: arrays and bitmaps as they are, objects by their number."""
        near = sum(_OBJECT_BYTES + packed.memory_bytes for packed in self._near.values())
        return near + self._far.memory_bytes + self._waiting.memory_bytes + 8 * len(self._column)

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
        if entry_id == next_id and ledger_id == self._ledger_id:
            self._next_id = after = entry_id + 1
            if bucket == self._bucket:
                return True
            if next_id != self._run_second:
                self._end_run(next_id)
        elif ledger_id > self._ledger_id or (ledger_id == self._ledger_id and entry_id > next_id):
            self._jump(ledger_id, entry_id)
            after = entry_id + 1
        else:
            return self._add_behind(ledger_id, entry_id, bucket)
        column = self._column
        column.append(bucket)
        self._run_second = after
        self._bucket = bucket
        if after >= column.end:
            self._end_column(after)
        return True

    def _jump(self, ledger_id: int, entry_id: int) -> None:
        """The next entry in log order does not follow the last one."""
        self._flush()
        if ledger_id != self._ledger_id:
            self._ledger_id = ledger_id
            self._base = self._number_of(ledger_id) << ENTRY_BITS
        invariant(0 <= entry_id <= ENTRY_MASK, f"entry id {entry_id}")
        self._members_first = entry_id
        self._next_id = entry_id + 1
        self._column.restart(entry_id)

    def _add_behind(self, ledger_id: int, entry_id: int, bucket: int) -> bool:
        """Add an entry that lies before the last one in log order."""
        self._flush()
        if not self._waiting.add(ledger_id, entry_id):
            return False
        target = self._target_of(bucket)
        target.compact()
        target.singles.append(
            (bucket & SLOT_MASK) << BUCKET_SHIFT | self._number_of(ledger_id) << ENTRY_BITS | entry_id
        )
        return True

    def _flush(self) -> None:
        """End both runs and the column."""
        self._end_column(self._next_id)
        self._flush_members()

    def _flush_members(self) -> None:
        next_id = self._next_id
        count = next_id - self._members_first
        if count:
            self._waiting.add_range(self._ledger_id, self._members_first, next_id)
            self._members_first = next_id
            self._fresh += count
            if self._fresh > _COMPACT_STEP:
                self._fresh = 0
                self._far.compact()

    # ---- column

    def _end_run(self, next_id: int) -> None:
        """The last bucket of the column stands for all entries before ``next_id``."""
        first = self._run_second - 1
        count = next_id - first
        column = self._column
        if count <= _COLUMN_RUN_MAX and len(column) > 1:
            column.extend([self._bucket] * (count - 1))
            if next_id >= column.end:
                self._end_column(next_id)
            return
        if len(column) > 1:
            column.pop()
            self._spread_column()
            column.restart(next_id)
        else:
            column.restart_empty(next_id)
        bucket = self._bucket
        self._target_of(bucket).add_range((bucket & SLOT_MASK) << BUCKET_SHIFT | self._base | first, count)

    def _end_column(self, next_id: int) -> None:
        """Everything before ``next_id`` goes where looks find it; what follows begins a run, and a column."""
        if next_id != self._run_second:
            self._end_run(next_id)
        self._bucket = _NO_BUCKET
        self._run_second = next_id
        if self._column:
            self._spread_column()
            self._column.restart(next_id)

    def _spread_column(self) -> None:
        column = self._column
        chunk = chunk_of(column, self._base >> ENTRY_BITS) if len(column) >= self._chunk_min else None
        if chunk is None:
            for bucket, entry_id in column.entries():
                self._add_single(bucket, entry_id)
            return
        for slot in self._opened.intersection(chunk.slots):
            packed = PackedPositions()
            chunk.give_to(slot, packed)
            self._put(slot, packed)
        self._far.add_chunk(chunk)

    def _show_column(self, slot: int) -> None:
        """What the column has in slots up to ``slot`` goes where looks find it."""
        column, next_id = self._column, self._next_id
        if column.lowest_slot <= slot:
            self._end_column(next_id)
        elif column.look(slot):
            if next_id != self._run_second:
                self._end_run(next_id)
            self._bucket = _NO_BUCKET
            self._run_second = next_id
            for bucket, entry_id in column.take_near(slot):
                self._add_single(bucket, entry_id)

    def _add_single(self, bucket: int, entry_id: int) -> None:
        self._target_of(bucket).singles.append((bucket & SLOT_MASK) << BUCKET_SHIFT | self._base | entry_id)

    def _target_of(self, bucket: int) -> PackedPositions:
        slot = bucket >> SLOT_BITS
        if slot in self._opened:
            target = self._near.get(bucket)
            if target is None:
                target = self._near[bucket] = PackedPositions()
                insort(self._near_order, bucket)
            return target
        return self._far.of(slot)

    def _number_of(self, ledger_id: int) -> int:
        number = self._ledger_numbers.get(ledger_id)
        if number is None:
            number = self._ledger_numbers[ledger_id] = len(self._ledger_ids)
            invariant(number < LEDGERS_MAX, f"{number} ledgers numbered")
            self._ledger_ids.append(ledger_id)
        return number

    # ---- look

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an entry waits."""
        if ledger_id == self._ledger_id and self._members_first <= entry_id < self._next_id:
            return True
        return self._waiting.contains(ledger_id, entry_id)

    def is_through(self, mark: Mark, bucket: int, position: Position) -> bool:
        """Whether an entry that waits, and whose time is in ``bucket``, lies at or before the mark. That is for its
        bucket to say, unless it was rounded to a larger one."""
        spread = (1 << self.coarse_bits - self.bits) - 1
        first = bucket if self.is_strict else bucket - spread
        self._open_through(mark[0])
        order = self._near_order
        for known in order[bisect_left(order, first) : bisect_right(order, min(first + spread, mark[0]))]:
            if any(ledger_id == position[0] and position[1] in ids for ledger_id, ids in self._sealed(known)):
                return (known, *position) <= mark
        return False

    def next_due(self, after: Mark, now: int) -> int | None:
        """When the first bucket behind ``after`` is due, or at least not before; None if there is none."""
        bucket = self._next_bucket(after, now)
        return bucket << self.bits if bucket is not None else None

    def first_absent(self, ledger_id: int, entry_id: int) -> int:
        """The first entry id at or behind ``entry_id`` that does not wait."""
        self._flush_members()
        return self._waiting.first_absent(ledger_id, entry_id)

    def absent_count(self, ledger_id: int, entry_id: int, count_max: int) -> int:
        """Entries from ``entry_id`` on, at most ``count_max``, before a run of waiting ones that is worth a gap."""
        self._flush_members()
        return self._waiting.absent_count(ledger_id, entry_id, count_max)

    def is_empty_through(self, mark: Mark) -> bool:
        """Whether nothing is left of what lies at or before the mark."""
        self._show_column(mark[0] >> SLOT_BITS)
        order = self._near_order
        if (far := self._far.first) is not None and far << SLOT_BITS <= mark[0]:
            return False
        return not order or order[0] > mark[0] or not self.count_between(FIRST_MARK, mark)

    def count_before(self, position: Position) -> int:
        """How many entries wait that lie before ``position`` in the log."""
        self._flush_members()
        return self._waiting.count_before(position)

    def count_between(self, after: Mark, mark: Mark) -> int:
        """How many entries of the buckets that are near lie behind ``after``, up to and including ``mark``."""
        self._show_column(mark[0] >> SLOT_BITS)
        count = 0
        order = self._near_order
        for bucket in order[bisect_left(order, after[0]) : bisect_right(order, mark[0])]:
            for ledger_id, ids in self._sealed(bucket):
                low = index_after(ids, ledger_id, after) if bucket == after[0] else 0
                high = index_after(ids, ledger_id, mark) if bucket == mark[0] else len(ids)
                count += max(0, high - low)
        return count

    # ---- take

    def take(self, after: Mark, through: int, count_max: int) -> tuple[list[tuple[int, list[int]]], Mark]:
        """Up to ``count_max`` positions behind ``after`` in the buckets up to ``through``: (ledger id, entry ids
        ascending) in order of bucket, ledger and entry; and the mark behind them. They stay in the index."""
        self._open_through(through)
        result: list[tuple[int, list[int]]] = []
        room = count_max
        order = self._near_order
        for bucket in order[bisect_left(order, after[0]) : bisect_right(order, through)]:
            for ledger_id, ids in self._sealed(bucket):
                start = index_after(ids, ledger_id, after) if bucket == after[0] else 0
                taken = list(ids[start : start + room])
                if not taken:
                    continue
                result.append((ledger_id, taken))
                room -= len(taken)
                if not room:
                    return result, (bucket, ledger_id, taken[-1])
        return result, max(after, (through, LAST, LAST))

    def release(self, mark: Mark) -> None:
        """Drop everything up to and including ``mark``."""
        self._open_through(mark[0])
        order = self._near_order
        end = bisect_right(order, mark[0])
        for bucket in order[:end]:
            groups = self._sealed(bucket)
            if bucket == mark[0] and (split := groups_through(groups, mark)) < len(groups):
                end -= 1
                self._waiting.remove(groups[:split])
                ledger_id, ids = groups[split]
                through = index_after(ids, ledger_id, mark)
                if through:
                    self._waiting.remove([(ledger_id, ids[:through])])
                    groups[split] = (ledger_id, ids[through:])
                del groups[:split]
            else:
                self._waiting.remove(groups)
                del self._near[bucket]
        del order[:end]
        if self._opened:
            first = order[0] >> SLOT_BITS if order else mark[0] >> SLOT_BITS
            self._opened = {slot for slot in self._opened if slot >= first}
        if not self._waiting.count and not self._near and self._far.first is None:
            self.clear()
        elif len(self._ledger_ids) > _LEDGERS_MIN + 4 * len(self._waiting.by_ledger):
            self._renumber()

    def due(self, now: int, count_max: int) -> list[Position]:
        """Remove and return up to ``count_max`` positions whose bucket has come, earliest first: for an index that has
        one reader."""
        through = now >> self.bits
        groups, mark = self.take(FIRST_MARK, through, count_max)
        self.release(mark)
        new = tuple.__new__
        return [new(Position, (ledger_id, entry_id)) for ledger_id, ids in groups for entry_id in ids]

    def _next_bucket(self, after: Mark, now: int) -> int | None:
        # The slot that is next is opened when its time is near, so that its first bucket need not be guessed; so are
        # those that begin before the mark of a reader with larger buckets.
        self._open_through(max((now >> self.bits) + SLOT_MASK, after[0]))
        order = self._near_order
        slot = self._far.first
        if slot is None or self._column.lowest_slot < slot:
            slot = self._column.lowest_slot
        far = slot << SLOT_BITS if slot < NO_SLOT else None
        for index in range(bisect_left(order, after[0]), len(order)):
            bucket = order[index]
            groups = self._sealed(bucket)
            if groups and (bucket > after[0] or groups_through(groups, after) < len(groups)):
                return bucket if far is None else min(bucket, far)
        return far

    def _open_through(self, bucket: int) -> None:
        """Spread the slots up to that of ``bucket`` into buckets."""
        self._flush_members()
        slot = bucket >> SLOT_BITS
        self._show_column(slot)
        while (far := self._far.first) is not None and far <= slot:
            first, found = self._far.take_first()
            self._opened.add(first)
            for number, packed in found.split().items():
                at = first << SLOT_BITS | number
                self._near[at] = packed
                insort(self._near_order, at)

    def _sealed(self, bucket: int) -> list[Group]:
        packed = self._near.get(bucket)
        if packed is None:
            return []
        return packed.seal(self._ledger_ids, self._waiting.by_ledger.get if self._stale else None)

    # ---- discard

    def discard_through(self, position: Position) -> int:
        """Forget every entry up to and including ``position``, whatever its time; how many those were."""
        self._flush_members()
        gone = self._waiting.remove_through(position)
        self._stale += gone
        if not self._waiting.count:
            self.clear()
        elif gone:
            self._purge_near()
        if self._stale > _STALE_MIN and self._stale > self._waiting.count and self._purging is None:
            self._purging = self._purge()
        return gone

    def purge_step(self) -> bool:
        """Search some slots for what was discarded; whether to call again. Until all are searched, it takes memory."""
        self._flush_members()
        if self._purging is not None and next(self._purging, False):
            return True
        self._purging = None
        return False

    def _purge(self) -> Iterator[bool]:
        self._flush()
        stale = self._stale
        for _ in self._far.keep(self._members_by_number):
            yield True
        self._stale -= stale

    def _members_by_number(self, number: int) -> BitMap | None:
        return self._waiting.by_ledger.get(self._ledger_ids[number])

    def _purge_near(self) -> None:
        for bucket in self._near_order:
            self._sealed(bucket)
            packed = self._near[bucket]
            packed.groups = [
                (ledger_id, left)
                for ledger_id, ids in packed.groups
                if (members := self._waiting.by_ledger.get(ledger_id)) and (left := BitMap(ids) & members)
            ]

    def _renumber(self) -> None:
        """Number only the ledgers of which something waits."""
        self._flush()
        for bucket in self._near_order:
            self._sealed(bucket)
        self._purging = self._purge()
        while self.purge_step():
            pass
        old = self._ledger_numbers
        self._ledger_ids = sorted(self._waiting.by_ledger)
        self._ledger_numbers = {ledger_id: number for number, ledger_id in enumerate(self._ledger_ids)}
        numbers = {old[ledger_id]: number for ledger_id, number in self._ledger_numbers.items()}
        self._far.renumber(numbers)
        self._restart_runs()

    def _restart_runs(self) -> None:
        """After the last member in log order the runs go on."""
        last = max(self._waiting.by_ledger, default=-1)
        next_id = self._waiting.by_ledger[last].max() + 1 if last >= 0 else -1
        self._ledger_id, self._base = last, self._number_of(last) << ENTRY_BITS if last >= 0 else 0
        self._next_id = self._run_second = self._members_first = next_id
        self._column.restart(next_id)

    # ---- as a whole

    def slots(self) -> Iterator[tuple[int, PackedPositions]]:
        """Every slot and what is in it, some in parts, less what was discarded. Not to be changed. The index may
        change between two of them: what is added or moved meanwhile may be missing."""
        self._flush()
        for slot, packed in self._far.parts():
            if self._stale:
                self._flush_members()
                packed.keep(self._members_by_number)
            yield slot, packed
        for bucket in list(self._near_order):
            part = PackedPositions()
            base = (bucket & SLOT_MASK) << BUCKET_SHIFT
            for ledger_id, ids in self._sealed(bucket):
                key = base | self._ledger_numbers[ledger_id] << ENTRY_BITS
                if isinstance(ids, BitMap):
                    part.bitmaps[key >> ENTRY_BITS] = ids
                else:
                    part.singles.extend([key | entry_id for entry_id in ids])
            yield bucket >> SLOT_BITS, part

    def merge_new(
        self, slots: Sequence[tuple[int, PackedPositions]], fresh: Mapping[int, BitMap], ledger_ids: Mapping[int, int]
    ) -> bool:
        """As :meth:`merge` of several slots, whose entries by ledger number are ``fresh``; False, and nothing changed,
        if something of them waits already or is there twice. Costs little by entry."""
        self._flush()
        count = sum(map(len, fresh.values()))
        if count != sum(packed.entries_count for _, packed in slots):
            return False
        for number, ids in fresh.items():
            members = self._waiting.by_ledger.get(ledger_ids[number])
            if members is not None and not members.isdisjoint(ids):
                return False
        numbers = {number: self._number_of(ledger_ids[number]) for number in sorted(fresh)}
        is_renumbered = any(old != new for old, new in numbers.items())
        for number, ids in fresh.items():
            self._waiting.add_new(ledger_ids[number], ids)
        for slot, packed in slots:
            if is_renumbered:
                packed.renumber(numbers)
            self._put(slot, packed)
        self._restart_runs()
        return True

    def _put(self, slot: int, packed: PackedPositions) -> None:
        if slot in self._opened:
            for number, part in packed.split().items():
                self._target_of(slot << SLOT_BITS | number).extend(part)
        elif not packed.is_empty:
            self._target_of(slot << SLOT_BITS).extend(packed)

    def merge(self, slot: int, packed: PackedPositions, ledger_ids: Mapping[int, int]) -> None:
        """Add the entries of a slot; ``ledger_ids``: of the numbers that ``packed`` has. What waits already, stays as
        it is. ``packed`` must not be used afterwards."""
        self._flush()
        found = packed.by_ledger()
        fresh = {number: self._waiting.add_new(ledger_ids[number], ids) for number, ids in found.items()}
        if any(len(fresh[number]) < len(ids) for number, ids in found.items()):
            packed.keep(fresh.get)
        if packed.is_empty:
            return
        packed.renumber({number: self._number_of(ledger_ids[number]) for number in fresh})
        self._put(slot, packed)
        self._restart_runs()

    def check_invariants(self) -> None:
        """Raise InvariantError if the state can not be; tests call it after every step. It ends no run."""
        column = self._column
        if column:
            last = self._run_second if self._bucket != _NO_BUCKET else self._next_id
            invariant(column.first + len(column) == last, f"a column of {len(column)} ends before {last}")
            invariant(last <= column.end, "a column has outgrown its block")
        self._waiting.check_invariants()
        invariant(sorted(self._near) == self._near_order, "near buckets and their order differ")
        self._far.check_invariants(self._opened)
        invariant(all(b >> SLOT_BITS in self._opened for b in self._near), "a near bucket of a slot not opened")
