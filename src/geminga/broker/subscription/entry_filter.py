"""From entries that were read to candidates for dispatch: what is not for consumers is left out.

Left out and acknowledged at once: markers (``marker_type``; the broker's own messages), entries whose metadata can not
be parsed (as Pulsar), and what a part of the topic hides. Left out until later: messages whose delivery time has not
come, on Shared and Key_Shared subscriptions.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.core.delayed.delivery import DelayReader
from geminga.broker.core.dispatch.recent_candidates import RecentCandidates
from geminga.broker.core.dispatch.shared import Candidate
from geminga.model import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.keys import murmur3_32
from geminga.wire.pulsar.metadata import peek_metadata, text_of
from geminga.wire.pulsar.numbers import batch_size

if TYPE_CHECKING:
    from geminga.managed_ledger import Entry, ManagedCursor

#: Key of messages that have nothing to hash (Pulsar's ``Commands.NONE_KEY``).
NONE_KEY: Final = b"NONE_KEY"
_WORD: Final = (1 << 64) - 1
_WORD_BITS: Final = 64


def sticky_key(metadata: pb.MessageMetadata) -> bytes:
    """What Key_Shared goes by: ordering key, else partition key, else producer and sequence id (as Pulsar)."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        found: str | bytes = metadata.partition_key
        # What is no UTF-8 comes as the bytes that were sent.
        key = found if isinstance(found, bytes) else found.encode()
        if metadata.partition_key_b64_encoded:
            try:
                return b64decode(key, validate=True)
            except Base64Error:
                return key
        return key
    if metadata.HasField("producer_name") and metadata.HasField("sequence_id"):
        return f"{text_of(metadata.producer_name)}-{metadata.sequence_id}".encode()
    return NONE_KEY


def key_hash(entry: bytes) -> int:
    """The hash of an entry's key; of one that can not be read that of no key."""
    metadata = peek_metadata(entry)
    return murmur3_32(NONE_KEY if metadata is None else sticky_key(metadata))


def count_bits(words: Sequence[int]) -> int:
    """Set bits in the int64 words of an ack set: messages not acknowledged."""
    return sum((word & _WORD).bit_count() for word in words)


def bits_of_words(words: Sequence[int]) -> int:
    """The int64 words of an ack set as one number, lowest word first."""
    bits = 0
    for index, word in enumerate(words):
        bits |= (word & _WORD) << _WORD_BITS * index
    return bits


def words_of_bits(bits: int) -> tuple[int, ...]:
    """The inverse of :func:`bits_of_words`, without trailing zero words."""
    count = -(-bits.bit_length() // _WORD_BITS)
    return struct.unpack(f"<{count}q", bits.to_bytes(8 * count, "little"))


def filter_entries(
    entries: Sequence[Entry],
    cursor: ManagedCursor,
    *,
    sticky_hash_of: Callable[[int], int] | None,
    delayed: DelayReader | None,
    unwanted: list[Position],
    recent: RecentCandidates | None = None,
    hides: Sequence[Callable[[Position, pb.MessageMetadata], bool]] = (),
    held: Callable[[Position], int] | None = None,
) -> list[Candidate]:
    """Candidates in the given order; positions to acknowledge internally are appended to ``unwanted``.

    ``sticky_hash_of``: hashes of keys to sticky ones, None where keys do not matter.
    ``delayed``: where messages wait whose time has not come; None sends them now.
    ``recent``: what other subscriptions found out of the same entries, None where there are none.
    ``hides``: of the topic's parts; an entry that one of them hides is none for consumers.
    ``held``: which messages of an entry transactions hold, as bits; they are nobody's now. None: there are none.
    """
    candidates: list[Candidate] = []
    ack_set_of = cursor.state.ack_set
    if sticky_hash_of is not None or held is not None:
        recent = None
    for entry in entries:
        data = entry.data
        if recent is not None:
            known = recent.find(entry.ledger_id, entry.entry_id, data)
            if known is not None and ack_set_of(known.position) is None:
                candidates.append(known)
                continue
        position = entry.position
        metadata = peek_metadata(data)
        if metadata is None or metadata.marker_type or (hides and any(hide(position, metadata) for hide in hides)):
            unwanted.append(position)
            continue
        if delayed is not None:
            deliver_at = metadata.deliver_at_time
            if deliver_at and delayed.must_wait(position, deliver_at):
                continue
        message_count = metadata.num_messages_in_batch
        if message_count != 1:
            message_count = batch_size(metadata, len(data))
        ack_set = ack_set_of(position)
        if held is not None and (bits := held(position)):
            left = (bits_of_words(ack_set) if ack_set is not None else (1 << message_count) - 1) & ~bits
            if not left:
                continue
            ack_set = words_of_bits(left)
        if ack_set is not None:
            message_count = count_bits(ack_set) or 1
        sticky_hash = sticky_hash_of(murmur3_32(sticky_key(metadata))) if sticky_hash_of else 0
        is_chunk = metadata.num_chunks_from_msg > 1
        candidate = Candidate(position, data, message_count, sticky_hash, ack_set, is_chunk)
        candidates.append(candidate)
        if recent is not None and ack_set is None and not metadata.deliver_at_time:
            recent.keep(candidate)
    return candidates


def without_left_out(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Of a compacted batch what was left out counts as acknowledged, too: clients that do not know of compaction (the
    C++ and Python ones) pass nothing empty on. One of which all that was kept is acknowledged is not sent."""
    return [left for candidate in candidates if (left := _without(candidate)) is not None]


def _without(candidate: Candidate) -> Candidate | None:
    if candidate.message_count == 1 and candidate.ack_set is None:
        return candidate  # one message, which is there
    metadata = peek_metadata(candidate.data)
    if metadata is None or not metadata.compacted_batch_indexes:
        return candidate
    size, bits = batch_size(metadata, len(candidate.data)), 0
    for index in metadata.compacted_batch_indexes:  # of those that were kept
        bits |= 1 << index if 0 <= index < size else 0
    if candidate.ack_set is not None:
        bits &= bits_of_words(candidate.ack_set)
    if not bits:
        return None
    position, data, is_chunk = candidate.position, candidate.data, candidate.is_chunk
    return Candidate(position, data, bits.bit_count(), candidate.sticky_hash, words_of_bits(bits), is_chunk)
