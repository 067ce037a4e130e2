"""What to write of a cursor's state, and how to find it again (docs/formats/cursor.md). Pure.

Writing: :func:`plan_write` says which parts go out as segments; the shell appends them, then the marker that
:meth:`WritePlan.marker` makes of the entry ids they got. Recovery: :func:`recovery` is a generator that yields
the entries of the cursor ledger it wants to read and returns the newest complete state.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from geminga.managed_ledger.rules.acked_entries import ENTRY_ID_MAX, PART_BITS, AckedBitmap, MakeAckedEntries
from geminga.managed_ledger.rules.batch_acks import BatchAck, bits_of_words, words_of_bits
from geminga.managed_ledger.rules.cursor import CursorState, LedgerPart
from geminga.managed_ledger.rules.positions import LedgerList
from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire.managed_ledger import (
    BatchAckRecord,
    CursorInfoRecord,
    MarkerRecord,
    PartBatchAck,
    PositionRecord,
    RangeRecord,
    SegmentRecord,
    SegmentRef,
    decode_position_info,
    decode_segment_body,
    encode_marker,
    encode_position,
    encode_segment,
    encode_segment_body,
)

#: Ranges, and batches, that a marker holds itself. A state with no more needs no segments.
INLINE_RANGES_MAX: Final = 128
#: Words of these batches, of up to ten bytes each: 128 half acknowledged batches of a million messages are 20 MB.
INLINE_WORDS_MAX: Final = 1 << 16
#: Bytes of a part's body in one entry.
SEGMENT_BYTES_MAX: Final = 1024 * 1024
#: Bytes of a marker that its bookies are sure to take: theirs are 5 MiB with what goes around it.
MARKER_BYTES_MAX: Final = 5 * 1024 * 1024 - 64 * 1024
#: Bytes that Pulsar's own fields take in all segments of a write together; where they would be more, the marker alone
#: has them.
REPEATED_BYTES_MAX: Final = 1024 * 1024
#: Entries read at once while walking back.
RECOVERY_READ_ENTRIES: Final = 8

#: Bytes of what stays in memory of a part: where it lies, how many entries its ledger has (measured).
REF_BYTES: Final = 340

#: Entry ids of a cursor ledger that hold a part, by (message ledger id, part).
Refs = dict[tuple[int, int], tuple[int, ...]]


class PulsarFields(NamedTuple):
    """Holes as ranges or as bit sets, never both: Pulsar reads no bit sets where there are ranges."""

    ranges: list[RangeRecord]
    batches: list[BatchAckRecord]
    #: By ledger, int64 words of acknowledged entries.
    bit_sets: Mapping[int, tuple[int, ...]]


#: How much of a state Pulsar's own fields hold beside the segments.
ChooseFields = Callable[[CursorState], PulsarFields]


@dataclass(slots=True)
class WritePlan:
    """One write: segment entries to append first, then the marker."""

    mark_delete: Position
    is_inline: bool
    #: Mark-delete position, properties and what Pulsar reads beside them, as every entry of this write may begin.
    position: bytes
    #: Without what Pulsar reads beside them: what a marker begins with that has no room for more.
    bare_position: bytes
    #: Segment entries, in the order of ``pieces``.
    segments: list[bytes] = field(default_factory=list)
    #: Part and number of entries of each part written.
    pieces: list[tuple[tuple[int, int], int]] = field(default_factory=list)
    #: Parts whose entries stay as they are.
    kept: Refs = field(default_factory=dict)

    def refs(self, first_segment_entry_id: int) -> Refs:
        """Where every part lies once the segments were appended from ``first_segment_entry_id``."""
        refs = dict(self.kept)
        next_id = first_segment_entry_id
        for part, count in self.pieces:
            refs[part] = tuple(range(next_id, next_id + count))
            next_id += count
        return refs

    def marker(self, refs: Refs) -> bytes:
        """The marker entry."""
        named = () if self.is_inline else tuple(SegmentRef(*part, refs[part]) for part in sorted(refs))
        marker = encode_marker(self.position, MarkerRecord(self.is_inline, named))
        if len(marker) <= MARKER_BYTES_MAX or self.is_inline:
            return marker
        return encode_marker(self.bare_position, MarkerRecord(self.is_inline, named))


def plan_write(state: CursorState, refs: Refs, choose_fields: ChooseFields | None = None) -> WritePlan:
    """What to append to a cursor ledger in which the parts in ``refs`` lie already and, unless dirty, still hold.

    ``choose_fields``: None where no broker of Apache's reads them.
    """
    ranges = range_records(state, INLINE_RANGES_MAX + 1)
    batches = batch_records(state, INLINE_RANGES_MAX + 1)
    away = state.acked.away or {}
    is_inline = not away and len(ranges) <= INLINE_RANGES_MAX and len(batches) <= INLINE_RANGES_MAX
    if sum(len(batch.words) for batch in batches) > INLINE_WORDS_MAX:
        # They would be in the marker beside the segments, too.
        is_inline, batches = False, []
    if is_inline or choose_fields is None:
        fields = PulsarFields(ranges[:INLINE_RANGES_MAX], batches[:INLINE_RANGES_MAX], {})
    else:
        fields = choose_fields(state)
    plan = WritePlan(
        state.mark_delete,
        is_inline,
        encode_position(state.mark_delete, properties=state.properties, **fields._asdict()),
        encode_position(state.mark_delete, properties=state.properties),
    )
    if is_inline:
        # Parts written before stay known, so that growing past the limit again writes only what changed.
        plan.kept = {part: ids for part, ids in refs.items() if part not in state.dirty_parts}
        return plan
    # What is put away lies where it was written, and did not change since.
    plan.kept = {part: ids for part, ids in refs.items() if part[0] in away}
    bodies: dict[int, list[BatchAck]] = {}
    pieces: list[SegmentRecord] = []
    for part in state.touched_parts():
        known = refs.get(part)
        if known is not None and part not in state.dirty_parts:
            plan.kept[part] = known
            continue
        ledger_id = part[0]
        if ledger_id not in bodies:
            bodies = {ledger_id: list(state.batches.of_ledger(ledger_id))}
        body = _part_body(state, part, bodies[ledger_id])
        chunks = [body[at : at + SEGMENT_BYTES_MAX] for at in range(0, len(body), SEGMENT_BYTES_MAX)]
        pieces += [SegmentRecord(*part, index, len(chunks), chunk) for index, chunk in enumerate(chunks)]
        plan.pieces.append((part, len(chunks)))
    # Cut off between segments and marker, a segment is what Apache's broker finds.
    is_small = choose_fields is not None and len(plan.position) * len(pieces) <= REPEATED_BYTES_MAX
    position = plan.position if is_small else plan.bare_position
    plan.segments = [encode_segment(position, piece) for piece in pieces]
    return plan


def range_records(state: CursorState, limit: int) -> list[RangeRecord]:
    """The oldest ``limit`` holes as (lower, upper] ranges."""
    return [
        RangeRecord(Position(acked.ledger_id, acked.first - 1), Position(acked.ledger_id, acked.last))
        for acked in (state.acked.ranges(limit) if state.acked.count else ())
    ]


def batch_records(state: CursorState, limit: int) -> list[BatchAckRecord]:
    """The oldest ``limit`` partly acknowledged batches."""
    found: list[BatchAckRecord] = []
    if state.batches.count:
        for batch in state.batches:
            if len(found) == limit:
                break
            found.append(BatchAckRecord(batch.ledger_id, batch.entry_id, words_of_bits(batch.bits)))
    return found


def state_of_record(
    record: PositionRecord | CursorInfoRecord, ledgers: LedgerList, make: MakeAckedEntries = AckedBitmap
) -> CursorState:
    """The state that a node or a cursor entry by itself stands for; ``ledgers`` cuts ranges over several ledgers."""
    state = CursorState(record.mark_delete, dict(record.properties), make)
    for lower, upper in record.ranges:
        _add_range(state, lower, upper, ledgers)
    if isinstance(record, PositionRecord):
        for ledger_id, words in record.bit_sets.items():
            _add_bit_set(state, ledger_id, words)
    for ledger_id, entry_id, words in record.batches:
        _add_batch(state, ledger_id, entry_id, bits_of_words(words))
    return state


@dataclass(slots=True)
class Recovered:
    """The newest complete state of a cursor ledger, and where its parts lie there; none if the marker holds it all."""

    state: CursorState
    refs: Refs
    #: The marker; -1: none, the state is the metadata node's.
    marker_entry_id: int = -1


def recovery(
    last_entry_id: int,
    ledgers: LedgerList,
    make: MakeAckedEntries = AckedBitmap,
    *,
    memory_bytes_max: int = 1 << 62,
) -> Generator[tuple[int, int], Sequence[bytes | None], Recovered | None]:
    """Walk back from a cursor ledger's last entry to the newest complete state; None if there is none.

    Yields (first, last) entry ids to read; expects their payloads, None for one that can not be read. Every segment is
    read, but of what takes more than ``memory_bytes_max`` whole ledgers are put away.
    """
    last = last_entry_id
    while last >= 0:
        first = max(0, last - RECOVERY_READ_ENTRIES + 1)
        payloads = yield first, last
        for entry_id, payload in zip(range(last, -1, -1), reversed(payloads), strict=False):
            record = _decoded(payload)
            if record is None or record.segment is not None:
                continue
            if record.marker is None or record.marker.is_inline:
                state = state_of_record(record, ledgers, make)
                state.forget_missing(ledgers)
                return Recovered(state, {}, entry_id)
            # The ranges in the marker itself are among those of the segments.
            state = CursorState(record.mark_delete, dict(record.properties), make)
            refs = yield from _load_segments(state, record.marker, ledgers, memory_bytes_max)
            if refs is not None:
                state.forget_missing(ledgers)
                return Recovered(state, refs, entry_id)
        last = first - 1
    return None


def _load_segments(
    state: CursorState, marker: MarkerRecord, ledgers: LedgerList, memory_bytes_max: int
) -> Generator[tuple[int, int], Sequence[bytes | None], Refs | None]:
    """Load every part that still counts, ledger by ledger; where they lie, or None if one does not read back."""
    refs: Refs = {}
    memory_bytes = len(marker.segments) * REF_BYTES
    for ledger_id, group in groupby(sorted(marker.segments), attrgetter("ledger_id")):
        if ledger_id < state.mark_delete.ledger_id or ledgers.find(ledger_id) is None:
            continue
        for ref in group:
            try:
                # One after another: not all bytes of a large ledger at once.
                state.load(ledger_id, [(yield from _read_part((ledger_id, ref.part), ref.entry_ids))])
            except (CorruptionError, ValueError):
                return None
            refs[ledger_id, ref.part] = ref.entry_ids
        size_bytes = state.ledger_memory_bytes(ledger_id)
        if size_bytes and memory_bytes + size_bytes > memory_bytes_max:
            state.put_away(ledger_id)
        else:
            memory_bytes += size_bytes
    return refs


def read_parts(refs: Refs) -> Generator[tuple[int, int], Sequence[bytes | None], list[LedgerPart]]:
    """Read the parts that lie at ``refs``. Raises CorruptionError if one does not read back whole."""
    parts: list[LedgerPart] = []
    for part, entry_ids in refs.items():
        parts.append((yield from _read_part(part, entry_ids)))
    return parts


def _read_part(
    name: tuple[int, int], entry_ids: Sequence[int]
) -> Generator[tuple[int, int], Sequence[bytes | None], LedgerPart]:
    ledger_id, part = name
    body = b""
    for index, entry_id in enumerate(entry_ids):
        payloads = yield entry_id, entry_id
        record = _decoded(payloads[0] if payloads else None)
        piece = record.segment if record is not None else None
        if piece is None or piece[:4] != (ledger_id, part, index, len(entry_ids)):
            raise CorruptionError(f"entry {entry_id} is not piece {index} of part {part} of ledger {ledger_id}")
        body += piece.data
    acknowledged, batches = decode_segment_body(body)
    base = part << PART_BITS
    return part, acknowledged, [(base + b.entry_offset, int.from_bytes(b.unacknowledged, "little")) for b in batches]


def _decoded(payload: bytes | None) -> PositionRecord | None:
    if payload is None:
        return None
    try:
        return decode_position_info(payload)
    except CorruptionError:
        return None


def _part_body(state: CursorState, part: tuple[int, int], batches: list[BatchAck]) -> bytes:
    ledger_id, number = part
    base = number << PART_BITS
    return encode_segment_body(
        state.acked.part_bytes(ledger_id, number),
        (
            PartBatchAck(batch.entry_id - base, batch.bits.to_bytes((batch.bits.bit_length() + 7) // 8, "little"))
            for batch in batches
            if batch.entry_id >> PART_BITS == number
        ),
    )


def _add_range(state: CursorState, lower: Position, upper: Position, ledgers: LedgerList) -> None:
    """Add (lower, upper]; Pulsar's ranges may reach over ledgers."""
    lower = max(lower, state.mark_delete)
    if lower >= upper or upper.entry_id > ENTRY_ID_MAX:
        return
    if lower.ledger_id == upper.ledger_id:
        state.acked.add_range(upper.ledger_id, lower.entry_id + 1, upper.entry_id)
        return
    for info in ledgers.infos:
        if lower.ledger_id <= info.ledger_id < upper.ledger_id:
            first = lower.entry_id + 1 if info.ledger_id == lower.ledger_id else 0
            state.acked.add_range(info.ledger_id, first, info.entries - 1)
    state.acked.add_range(upper.ledger_id, 0, upper.entry_id)


def _add_bit_set(state: CursorState, ledger_id: int, words: Sequence[int]) -> None:
    # Loaded by the first cursor that Pulsar wrote so.
    from geminga.managed_ledger.rules.bit_words import part_count, part_of_words

    if ledger_id >= state.mark_delete.ledger_id:
        state.load(ledger_id, [(part, part_of_words(words, part), ()) for part in range(part_count(words))])


def _add_batch(state: CursorState, ledger_id: int, entry_id: int, bits: int) -> None:
    if bits and not state.is_acknowledged(Position(ledger_id, entry_id)):
        state.batches.merge(ledger_id, entry_id, bits)
