"""The state of one cursor: mark-delete position, holes, partly acknowledged batches, read position. Pure.

Takes batches of acknowledgments and answers with flags (:data:`CHANGED`, :data:`MOVED`, :data:`CROSSED`) that
tell the shell what to do: persist, and look whether ledgers can be trimmed. The mark-delete position moves only
over a contiguous prefix of acknowledged entries, across ledgers too.

What is kept of a ledger can be put away (``rules.ack_ranges``). The caller brings back the ledgers of the positions it
names first; where the state itself comes upon one that is put away, it stops there and says so in ``wanted``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from geminga.managed_ledger.rules.ack_ranges import AckRanges
from geminga.managed_ledger.rules.acked_entries import PART_BITS, AckedBitmap, MakeAckedEntries
from geminga.managed_ledger.rules.batch_acks import BatchAcks, bits_of_words, words_of_bits
from geminga.managed_ledger.rules.positions import LedgerList
from geminga.model.errors import InvariantError, invariant
from geminga.model.position import EARLIEST, LATEST, Position

NOTHING: Final = 0
#: There is something to persist.
CHANGED: Final = 1
#: The mark-delete position moved.
MOVED: Final = 2
#: ... into another ledger: those behind it may be trimmed.
CROSSED: Final = 4

#: Number, acknowledged entries (bytes of a bitmap), and (entry id, unacknowledged bits) of one part of a ledger.
LedgerPart = tuple[int, bytes, Sequence[tuple[int, int]]]

_NO_PROPERTIES: Final[Mapping[str, int]] = {}
#: One object for all idle cursors: an empty set takes 216 bytes.
_NO_PARTS: Final[frozenset[tuple[int, int]]] = frozenset()


#: Saved along with the position where the subscription is replicated, as in Pulsar; its value there and here.
REPLICATED_PROPERTY: Final = "pulsar.replicated.subscription"
REPLICATED: Final = 1


def kept_along(properties: Mapping[str, int], before: Mapping[str, int]) -> Mapping[str, int]:
    """What is saved along with a position from now on: ``properties``, and what of those ``before`` is said of the
    subscription and not of the position."""
    kept = before.get(REPLICATED_PROPERTY)
    return properties if kept is None else {**properties, REPLICATED_PROPERTY: kept}


class CursorState:
    """See the module. ``ledgers`` arguments are the managed ledger's list, which never goes past its LAC."""

    __slots__ = ("acked", "batches", "dirty_parts", "mark_delete", "properties", "read_position", "wanted")

    def __init__(
        self,
        mark_delete: Position,
        properties: Mapping[str, int] = _NO_PROPERTIES,
        make: MakeAckedEntries = AckedBitmap,
    ) -> None:
        #: Every entry up to and including it is acknowledged.
        self.mark_delete = mark_delete
        #: The next entry to read; may lie where no entry is yet, or no longer.
        self.read_position = Position(mark_delete.ledger_id, mark_delete.entry_id + 1)
        self.acked = AckRanges(make)
        self.batches = BatchAcks()
        #: Saved along with the position (Pulsar: deduplication keeps its sequence ids here).
        self.properties = properties
        #: (ledger id, part) whose holes or batches changed since they were last written.
        self.dirty_parts: AbstractSet[tuple[int, int]] = _NO_PARTS
        #: A ledger to bring back, so that :meth:`advance` (or :meth:`skipping`) can go on.
        self.wanted: int | None = None

    def acknowledge(
        self,
        positions: Sequence[Position],
        ack_sets: Sequence[Sequence[int] | None] | None,
        ledgers: LedgerList,
    ) -> int:
        """Individual acknowledgments; positions that name no entry are ignored. Returns flags."""
        mark_delete = self.mark_delete
        if len(positions) == 1 and ack_sets is None:
            ledger_id, entry_id = positions[0]
            if (
                entry_id == mark_delete.entry_id + 1
                and ledger_id == mark_delete.ledger_id
                and not self.acked.count
                and not self.batches.count
            ):
                info = ledgers.find(ledger_id)
                if info is None or entry_id >= info.entries:
                    return NOTHING
                self.mark_delete = Position(ledger_id, entry_id)
                return CHANGED | MOVED
        whole, flags = self._sort_out(positions, ack_sets, ledgers)
        for ledger_id, entry_ids in whole.items():
            if self._add_whole(ledger_id, entry_ids, ledgers):
                flags = CHANGED
        return flags | self.advance(ledgers) if flags else NOTHING

    def acknowledge_cumulative(self, position: Position, ack_set: Sequence[int] | None, ledgers: LedgerList) -> int:
        """Everything up to ``position``; with an ack set, of the entry itself only the clear bits. Returns flags."""
        if position <= self.mark_delete:
            # Said again. Its ledger may be gone: what comes in its place must not move who stands at its end.
            return NOTHING
        target = self._existing(position, ledgers)
        flags = NOTHING
        if ack_set is not None and target == position and target > self.mark_delete:
            bits = bits_of_words(ack_set)
            if bits and not self.acked.contains(target.ledger_id, target.entry_id):
                before = self.batches.get(target.ledger_id, target.entry_id)
                left = self.batches.merge(target.ledger_id, target.entry_id, bits)
                self._touch(target.ledger_id, target.entry_id)
                if left != before:
                    flags = CHANGED
                if left:
                    target = ledgers.previous_position(target)
                else:
                    self.acked.add_many(target.ledger_id, (target.entry_id,))
        if target > self.mark_delete:
            return flags | self._move(target) | self.advance(ledgers)
        return flags | self.advance(ledgers) if flags else NOTHING

    def advance(self, ledgers: LedgerList) -> int:
        """Move the mark-delete position over acknowledged entries that touch it. Returns flags."""
        ledger_id, entry_id = start = self.mark_delete
        acked = self.acked
        while acked.count:
            away = acked.find_away(ledger_id) if acked.away is not None else None
            info = ledgers.find(ledger_id)
            entries = info.entries if info is not None else 0
            if entry_id + 1 < entries:
                if away is not None:
                    if away.has_first and entry_id < 0:
                        self.wanted = ledger_id
                    break
                clear = acked.first_clear(ledger_id, entry_id + 1)
                if clear == entry_id + 1:
                    break
                entry_id = min(clear, entries) - 1
                if entry_id + 1 < entries:
                    break
            following = ledgers.at_or_after(Position(ledger_id, max(entries, entry_id + 1)))
            if following.ledger_id == ledger_id:
                break
            away = acked.find_away(following.ledger_id) if acked.away is not None else None
            if away is not None:
                if away.has_first:
                    self.wanted = following.ledger_id
                break
            if not acked.contains(*following):
                break
            ledger_id, entry_id = following.ledger_id, -1
        if (ledger_id, entry_id) == start:
            return NOTHING
        return self._move(Position(ledger_id, entry_id))

    def reset(self, position: Position, ledgers: LedgerList) -> int:
        """Make ``position`` the next entry to deliver and forget all holes, and what was saved along with the position
        before but what belongs to the subscription (:func:`kept_along`); EARLIEST and LATEST are understood."""
        self.mark_delete = before(position, ledgers)
        self.properties = kept_along({}, self.properties)
        self.acked.clear()
        self.batches.clear()
        self.dirty_parts = _NO_PARTS
        self.wanted = None
        self.read_position = ledgers.next_position(self.mark_delete)
        return CHANGED | MOVED | CROSSED

    def forget_missing(self, ledgers: LedgerList) -> None:
        """Drop what is kept of ledgers that were trimmed while the mark-delete position was before them, and of entries
        behind the end of a closed one, which was given up: they would count as others that are not acknowledged."""
        for ledger_id in self.acked.ledger_ids:
            info = ledgers.find(ledger_id)
            if info is None:
                self.acked.discard_ledger(ledger_id)
            elif info.closed_ms:
                self.acked.discard_behind(ledger_id, info.entries - 1)
        for ledger_id in self.acked.away_ids:
            if ledgers.find(ledger_id) is None:
                self.acked.discard_ledger(ledger_id)
        for ledger_id in self.batches.ledger_ids:
            if ledgers.find(ledger_id) is None:
                self.batches.discard_ledger(ledger_id)
        self.advance(ledgers)

    def rewind(self, ledgers: LedgerList) -> None:
        """Read again from the first entry that is not acknowledged."""
        self.read_position = ledgers.next_position(self.mark_delete)

    def is_acknowledged(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        return position <= self.mark_delete or self.acked.contains(*position)

    def ack_set(self, position: Position) -> tuple[int, ...] | None:
        """Unacknowledged indexes of a partly acknowledged batch as int64 words; None if none is acknowledged."""
        if self.acked.away is not None and position.ledger_id in self.acked.away and position > self.mark_delete:
            raise InvariantError(f"the acknowledgments of {position} are put away")
        bits = self.batches.get(*position) if self.batches.count else 0
        return words_of_bits(bits) if bits else None

    def backlog(self, ledgers: LedgerList, *, is_cut: bool = False) -> int:
        """Entries not acknowledged; ``is_cut``: there may be acknowledged ones behind the end of ``ledgers``."""
        if not len(ledgers):
            return 0
        acknowledged = self.acked.count
        if is_cut and acknowledged:
            acknowledged -= self.acked.count_behind(*ledgers.last_position)
        behind = Position(self.mark_delete.ledger_id, self.mark_delete.entry_id + 1)
        return max(0, ledgers.entry_count - ledgers.index_of(behind) - acknowledged)

    def skipping(self, count: int, ledgers: LedgerList) -> Position:
        """The position to acknowledge cumulatively so that ``count`` unacknowledged entries are passed.

        With ``wanted`` set: not yet known, bring that ledger back and ask again.
        """
        position = self.mark_delete
        while count > 0:
            candidate = ledgers.next_position(position)
            info = ledgers.find(candidate.ledger_id)
            if info is None or candidate.entry_id >= info.entries:
                break
            away = self.acked.find_away(info.ledger_id)
            if away is not None:
                left = info.entries - candidate.entry_id - away.entries
                if left > count:
                    self.wanted = info.ledger_id
                    break
                count -= left
                position = Position(info.ledger_id, info.entries - 1)
                continue
            clear = self.acked.clear_ids(candidate.ledger_id, candidate.entry_id, info.entries - 1)
            for entry_id in clear:
                position = Position(candidate.ledger_id, entry_id)
                count -= 1
                if not count:
                    break
            else:
                position = Position(candidate.ledger_id, info.entries - 1)
        return position

    def clean(self) -> None:
        """The state as it is now is being written."""
        self.dirty_parts = _NO_PARTS

    # ---- putting away

    def put_away(self, ledger_id: int) -> None:
        """Drop what is kept of a ledger: all of it is on disk, as it is."""
        self.acked.put_away(ledger_id)
        self.batches.discard_ledger(ledger_id)

    def bring_back(self, ledger_id: int, parts: Iterable[LedgerPart]) -> None:
        """What :meth:`put_away` dropped, as it was written. Raises ValueError on bytes that are no bitmap."""
        expected = self.acked.begin_bringing_back(ledger_id)
        before = self.acked.count
        self.load(ledger_id, parts)
        found = self.acked.count - before
        invariant(found == expected, f"ledger {ledger_id}: {expected} entries put away, {found} brought back")

    def load(self, ledger_id: int, parts: Iterable[LedgerPart]) -> None:
        """Add the parts of a ledger as they were written, perhaps when mark-delete was further back."""
        batches: list[tuple[int, int]] = []
        for part, acknowledged, part_batches in parts:
            self.acked.load_part(ledger_id, part, acknowledged)
            batches += part_batches
        if ledger_id == self.mark_delete.ledger_id and self.acked.has_ledger(ledger_id):
            self.acked.discard_through(*self.mark_delete)
        for entry_id, bits in batches:
            if bits and not self.is_acknowledged(Position(ledger_id, entry_id)):
                self.batches.merge(ledger_id, entry_id, bits)

    @property
    def ledger_ids(self) -> list[int]:
        """Ledgers with holes or partly acknowledged batches in memory, least recently used first."""
        known = dict.fromkeys(self.acked.oldest_used_ids)
        return [*(ledger_id for ledger_id in self.batches.ledger_ids if ledger_id not in known), *known]

    def ledger_memory_bytes(self, ledger_id: int) -> int:
        """About how much memory is taken by what is kept of a ledger."""
        return self.acked.ledger_memory_bytes(ledger_id) + self.batches.ledger_memory_bytes(ledger_id)

    def touched_parts(self) -> Iterable[tuple[int, int]]:
        """Every part that holds any state in memory, ascending."""
        parts = set(self.acked.parts())
        parts.update((batch.ledger_id, batch.entry_id >> PART_BITS) for batch in self.batches)
        return sorted(parts)

    def check_invariants(self) -> None:
        """Raise InvariantError if the state can not be; tests call it after every step."""
        self.acked.check_invariants()
        ledger_id, entry_id = self.mark_delete
        for acked in self.acked.ranges(1):
            invariant((acked.ledger_id, acked.first) > (ledger_id, entry_id), f"hole {acked} before {self.mark_delete}")
        for batch in self.batches:
            position = Position(batch.ledger_id, batch.entry_id)
            invariant(batch.bits > 0, f"empty ack set kept at {position}")
            invariant(not self.is_acknowledged(position), f"ack set kept of acknowledged {position}")

    def _sort_out(
        self,
        positions: Sequence[Position],
        ack_sets: Sequence[Sequence[int] | None] | None,
        ledgers: LedgerList,
    ) -> tuple[dict[int, list[int]], int]:
        """Merge ack sets of batches; the rest, by ledger, are whole entries to add."""
        marked_ledger, marked_entry = self.mark_delete
        whole: dict[int, list[int]] = {}
        flags = NOTHING
        for index, (ledger_id, entry_id) in enumerate(positions):
            if ledger_id < marked_ledger or (ledger_id == marked_ledger and entry_id <= marked_entry):
                continue
            words = ack_sets[index] if ack_sets is not None else None
            bits = bits_of_words(words) if words is not None else 0
            if bits:
                info = ledgers.find(ledger_id)
                if info is None or not 0 <= entry_id < info.entries:
                    continue
                if self.acked.contains(ledger_id, entry_id):
                    continue
                known = self.batches.get(ledger_id, entry_id)
                left = self.batches.merge(ledger_id, entry_id, bits)
                if left:
                    if left != known:
                        self._touch(ledger_id, entry_id)
                        flags = CHANGED
                    continue
            entry_ids = whole.get(ledger_id)
            if entry_ids is None:
                whole[ledger_id] = [entry_id]
            else:
                entry_ids.append(entry_id)
        return whole, flags

    def _add_whole(self, ledger_id: int, entry_ids: list[int], ledgers: LedgerList) -> bool:
        info = ledgers.find(ledger_id)
        if info is None:
            return False
        lowest, highest = min(entry_ids), max(entry_ids)
        if lowest < 0 or highest >= info.entries:
            entry_ids = [entry_id for entry_id in entry_ids if 0 <= entry_id < info.entries]
            if not entry_ids:
                return False
            highest = max(entry_ids)
        if self.batches.count:
            for entry_id in entry_ids:
                self.batches.discard(ledger_id, entry_id)
        if not self.acked.add_many(ledger_id, entry_ids):
            return False
        for part in {entry_id >> PART_BITS for entry_id in entry_ids} if highest >> PART_BITS else (0,):
            self._touch(ledger_id, part << PART_BITS)
        return True

    def _move(self, target: Position) -> int:
        invariant(target >= self.mark_delete, f"mark-delete back from {self.mark_delete} to {target}")
        crossed = target.ledger_id != self.mark_delete.ledger_id
        self.mark_delete = target
        self.acked.discard_through(*target)
        if self.batches.count:
            self.batches.discard_through(*target)
        if not (self.acked.count or self.batches.count):
            self.dirty_parts = _NO_PARTS
        return CHANGED | MOVED | (CROSSED if crossed else 0)

    def _existing(self, position: Position, ledgers: LedgerList) -> Position:
        """``position``, or the last entry before it that exists."""
        info = ledgers.find(position.ledger_id)
        if info is not None and 0 <= position.entry_id < info.entries:
            return position
        return ledgers.previous_position(position)

    def _touch(self, ledger_id: int, entry_id: int) -> None:
        if isinstance(self.dirty_parts, set):
            self.dirty_parts.add((ledger_id, entry_id >> PART_BITS))
        else:
            self.dirty_parts = {(ledger_id, entry_id >> PART_BITS)}


def before(position: Position, ledgers: LedgerList) -> Position:
    """The mark-delete position that makes ``position`` (or EARLIEST, LATEST) the next entry to deliver."""
    if position == LATEST:
        return ledgers.last_position
    if position == EARLIEST:
        return ledgers.previous_position(ledgers.first_position)
    return ledgers.previous_position(position)
