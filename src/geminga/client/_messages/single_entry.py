"""Entries of one plain message, read without taking their metadata apart: what consumers of unbatched topics get most.

Most such entries have three fields of metadata, or four, in the order of their numbers: who sent it, its number, its
time, and a key. Whether an entry is of that shape is a look at its bytes; then nothing of its metadata is needed to
hand it out, and it is taken apart when somebody asks for it. What is of another shape (batches, compressed, encrypted,
chunked or null messages, properties, ...) goes the general way, and the two agree (held by a property test).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import Final

from geminga.client._messages.entry_batch import EntryBatch
from geminga.model.crc32c import crc32c
from geminga.wire.pulsar.batches.batch_layout import HAS_KEY
from geminga.wire.pulsar.metadata import MAGIC_CHECKSUM

EntryKey = tuple[int, int]

#: Magic, checksum, size of the metadata, and of its first field the tag and the size.
_HEAD: Final = Struct(">HIIBB")
_HEAD_BYTES: Final = _HEAD.size
_MAGIC: Final = int.from_bytes(MAGIC_CHECKSUM, "big")
#: Where the checksum's bytes, and the metadata, begin.
_CHECKED_AT: Final = 6
_METADATA_AT: Final = 10
#: ``producer_name`` and ``partition_key``, and a length of one byte.
_NAME_TAG: Final = 0x0A
_KEY_TAG: Final = 0x32
_LENGTH_MAX: Final = 127
#: Behind the name: ``sequence_id`` and ``publish_time``, numbers of up to 63 bits.
_NUMBERS: Final = re.compile(rb"\x10[\x80-\xff]{0,8}[\x00-\x7f]\x18[\x80-\xff]{0,8}[\x00-\x7f]")
#: Up to this size a copy is cheaper than a view.
_COPY_BYTES_MAX: Final = 4096

_FLAGS: Final = bytes(1)
_FLAGS_KEY: Final = bytes((HAS_KEY,))
_STARTS_NONE: Final[tuple[int, ...]] = ()
_ONLY: Final = range(1)
_new: Final[Callable[[type[EntryBatch]], EntryBatch]] = EntryBatch.__new__


def single_entry(
    data: bytes, key: EntryKey, partition: int, topic_name: str, redelivery_count: int
) -> EntryBatch | None:
    """The entry that ``data`` (all behind the command) holds; None: it is of another shape, or damaged."""
    if len(data) < _HEAD_BYTES:
        return None
    magic, checksum, size, tag, name_size = _HEAD.unpack_from(data)
    start = _METADATA_AT + size
    size = len(data)
    if start > size or magic != _MAGIC or tag != _NAME_TAG or name_size > _LENGTH_MAX:
        return None
    found = _NUMBERS.match(data, _HEAD_BYTES + name_size, start)
    if found is None:
        return None
    end = found.end()
    entry = _new(EntryBatch)
    if end == start:
        entry.flags = _FLAGS
        entry._key_starts = entry._key_ends = None
    elif start - end >= 2 and data[end] == _KEY_TAG and data[end + 1] == start - end - 2 <= _LENGTH_MAX:
        entry.flags = _FLAGS_KEY
        entry._key_starts = (end + 2,)
        entry._key_ends = (start,)
    else:
        return None
    if crc32c(data[_CHECKED_AT:] if size < _COPY_BYTES_MAX else memoryview(data)[_CHECKED_AT:]) != checksum:
        return None
    entry.data = data
    entry.payload_start = start
    entry._metadata = None
    entry._metadata_at = (_METADATA_AT, start)
    entry.key = key
    entry.partition = partition
    entry.topic_name = topic_name
    entry.redelivery_count = redelivery_count
    entry.size_bytes = size - start
    entry._payload_starts = (start,)
    entry._payload_ends = (size,)
    entry._metadata_starts = entry._metadata_ends = _STARTS_NONE
    entry.order = _ONLY
    entry.ack_set = _STARTS_NONE
    entry.batch_size = 0
    entry.is_batch = entry.is_undecrypted = False
    entry.acker = entry.source = entry.first_chunk = entry._id_base = entry.broker_entry_metadata = None
    return entry
