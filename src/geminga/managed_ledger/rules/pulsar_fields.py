"""What Pulsar's own fields of a cursor's entry hold, where brokers of Apache's share the metadata. Pure.

Format: docs/formats/cursor.md. Whatever is left out Apache's broker delivers once more; nothing is ever there that is
not acknowledged.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from geminga.managed_ledger.rules.bit_words import PART_WORDS, bits_of_part, range_count, words_of_parts
from geminga.managed_ledger.rules.cursor import CursorState
from geminga.managed_ledger.rules.cursor_format import PulsarFields, batch_records, range_records
from geminga.wire.managed_ledger import BatchAckRecord

#: Bytes that batches take together: what is left of an entry's 5 MiB behind the other fields, and not more.
BATCH_BYTES_MAX: Final = 3 * 1024 * 1024
#: About how much one range takes: two positions with ids of some size.
_RANGE_BYTES: Final = 20
#: A word without a bit, and at most what one with bits takes more.
_WORD_BYTES: Final = 2
_WORD_BYTES_MORE: Final = 9
#: A batch without its words.
_BATCH_BYTES: Final = 24


class PulsarLimits(NamedTuple):
    """How much goes into Pulsar's fields; its own settings of these names."""

    #: ``managedLedgerMaxUnackedRangesToPersist``.
    ranges: int = 10_000
    #: ``managedLedgerMaxBatchDeletedIndexToPersist``.
    batches: int = 10_000
    #: ``managedLedgerPersistIndividualAckAsLongArray``: bit sets where they are smaller; else only ranges.
    may_be_words: bool = True


def pulsar_fields(limits: PulsarLimits, state: CursorState) -> PulsarFields:
    """The oldest holes and batches of what is in memory."""
    batches = _batches(state, limits.batches)
    if limits.may_be_words:
        bit_sets = _smaller_bit_sets(state, limits.ranges)
        if bit_sets:
            return PulsarFields([], batches, bit_sets)
    return PulsarFields(range_records(state, limits.ranges), batches, {})


def _smaller_bit_sets(state: CursorState, limit: int) -> dict[int, tuple[int, ...]]:
    """Whole parts, until they have ``limit`` ranges together; empty if ranges are smaller."""
    parts: dict[int, list[tuple[int, int]]] = {}
    ranges = words_bytes = 0
    for ledger_id, part in state.acked.parts():
        if ranges >= limit:
            break
        bits = bits_of_part(state.acked.part_bytes(ledger_id, part))
        of_ledger = parts.setdefault(ledger_id, [])
        ranges += range_count(bits)
        # The parts in front without a bit are words, too.
        skipped = part - (of_ledger[-1][0] + 1 if of_ledger else 0)
        words = -(-bits.bit_length() // 64)
        words_bytes += (skipped * PART_WORDS + words) * _WORD_BYTES + min(words, bits.bit_count()) * _WORD_BYTES_MORE
        if words_bytes >= limit * _RANGE_BYTES:
            return {}
        of_ledger.append((part, bits))
    if words_bytes >= min(ranges, limit) * _RANGE_BYTES:
        return {}
    return {ledger_id: words_of_parts(of_ledger) for ledger_id, of_ledger in parts.items()}


def _batches(state: CursorState, limit: int) -> list[BatchAckRecord]:
    """The oldest, as many as fit."""
    found = batch_records(state, limit)
    size_bytes = 0
    for count, batch in enumerate(found):
        size_bytes += _BATCH_BYTES + len(batch.words) * (_WORD_BYTES + _WORD_BYTES_MORE)
        if size_bytes > BATCH_BYTES_MAX:
            return found[:count]
    return found
