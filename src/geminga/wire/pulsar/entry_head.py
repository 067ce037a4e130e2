"""Entries without their payloads, for readers that only count: docs/formats/entry-heads.md."""

from __future__ import annotations

from typing import Final

from geminga.wire.pulsar.metadata import MAGIC_BROKER_ENTRY_METADATA, MAGIC_CHECKSUM

#: The property of a subscription that asks for heads, and its value.
HEADS_PROPERTY: Final = "geminga.entry-heads"
HEADS_WANTED: Final = "true"
_MAGIC_BYTES: Final = 2
_SIZE_BYTES: Final = 4
_PAYLOAD_SIZE_BYTES: Final = 8


def metadata_bounds(entry: bytes) -> tuple[int, int]:
    """Where the message metadata lie in a stored entry; raises ValueError if it ends before they do."""
    start = 0
    if entry[:_MAGIC_BYTES] == MAGIC_BROKER_ENTRY_METADATA:
        start = _MAGIC_BYTES + _SIZE_BYTES + int.from_bytes(entry[_MAGIC_BYTES : _MAGIC_BYTES + _SIZE_BYTES], "big")
    if entry[start : start + _MAGIC_BYTES] == MAGIC_CHECKSUM:
        start += _MAGIC_BYTES + _SIZE_BYTES
    begin = start + _SIZE_BYTES
    end = begin + int.from_bytes(entry[start:begin], "big")
    if end > len(entry):
        raise ValueError(f"{len(entry)} bytes, and the metadata end at {end}")
    return begin, end


def entry_head(entry: bytes) -> bytes:
    """The head of a stored entry; the entry itself if its metadata can not be found."""
    try:
        begin, end = metadata_bounds(entry)
    except ValueError:
        return entry
    return entry[begin - _SIZE_BYTES : end] + (len(entry) - end).to_bytes(_PAYLOAD_SIZE_BYTES, "big")


def split_head(head: bytes) -> tuple[bytes, int]:
    """The message metadata and the payload's size; raises ValueError for what is no head."""
    end = _SIZE_BYTES + int.from_bytes(head[:_SIZE_BYTES], "big")
    if len(head) != end + _PAYLOAD_SIZE_BYTES:
        raise ValueError(f"{len(head)} bytes are no head of an entry with {end - _SIZE_BYTES} bytes of metadata")
    return head[_SIZE_BYTES:end], int.from_bytes(head[end:], "big")
