"""Headers in front of a message's payload: checksum, message metadata, broker entry metadata.

What a producer sends behind its SEND command, what is stored as an entry and what a consumer gets
("headers and payload"), all integers big endian:

==== ====================================================== ===============================================
size what                                                   present
==== ====================================================== ===============================================
2    0x0e02                                                 only if the broker adds entry metadata
4    size of the broker entry metadata                      "
..   ``BrokerEntryMetadata``                                "
2    0x0e01                                                 only with a checksum (every client since v6)
4    CRC32C of everything behind it                         "
4    size of the message metadata                           always
..   ``MessageMetadata``                                    always
..   payload                                                may be empty
==== ====================================================== ===============================================

The generated class parses a whole ``MessageMetadata`` in half the time a hand-written scan for single fields
takes, so there is none here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, cast

from google.protobuf.message import DecodeError

from geminga.model.crc32c import crc32c
from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb

MAGIC_CHECKSUM: Final = b"\x0e\x01"
MAGIC_BROKER_ENTRY_METADATA: Final = b"\x0e\x02"
#: The property of what a replicator sends that says where it was stored in its own cluster, ``ledger:entry``.
SOURCE_POSITION: Final = "__MSG_PROP_REPL_SOURCE_POSITION"
_CHECKSUM_HEADER_BYTES: Final = 6
_BROKER_HEADER_BYTES: Final = 6
#: Where the message metadata begin in an entry that starts with a checksum.
METADATA_OFFSET: Final = _CHECKSUM_HEADER_BYTES + 4
_UINT32: Final = Struct(">I")


def checksum_matches(headers_and_payload: bytes) -> bool:
    """Whether the CRC32C is right; True if there is none (Pulsar accepts clients older than v6)."""
    if headers_and_payload[:2] != MAGIC_CHECKSUM:
        return True
    if len(headers_and_payload) < _CHECKSUM_HEADER_BYTES:
        return False
    stored = int.from_bytes(headers_and_payload[2:6], "big")
    return bool(crc32c(memoryview(headers_and_payload)[6:]) == stored)


def broker_entry_metadata(entry: bytes) -> pb.BrokerEntryMetadata | None:
    """The broker entry metadata in front of an entry; None if it has none or it is damaged."""
    if entry[:2] != MAGIC_BROKER_ENTRY_METADATA or len(entry) < _BROKER_HEADER_BYTES:
        return None
    size = int.from_bytes(entry[2:6], "big")
    try:
        return pb.BrokerEntryMetadata.FromString(bytes(entry[6 : 6 + size]))
    except DecodeError:
        return None


def message_offset(entry: bytes) -> int:
    """Where the message (checksum or metadata size) starts: behind the broker entry metadata, if any."""
    if entry[:2] == MAGIC_BROKER_ENTRY_METADATA:
        return _BROKER_HEADER_BYTES + int.from_bytes(entry[2:6], "big")
    return 0


def peek_metadata(entry: bytes) -> pb.MessageMetadata | None:
    """The message metadata of an entry; None if it is damaged."""
    metadata, _ = split_entry(entry)
    return metadata


def split_entry(entry: bytes) -> tuple[pb.MessageMetadata | None, int]:
    """The message metadata of an entry and the offset of its payload; (None, 0) if it is damaged."""
    start = 0
    magic = entry[:2]
    if magic == MAGIC_BROKER_ENTRY_METADATA:
        start = _BROKER_HEADER_BYTES + int.from_bytes(entry[2:6], "big")
        magic = entry[start : start + 2]
    if magic == MAGIC_CHECKSUM:
        start += _CHECKSUM_HEADER_BYTES
    end = start + 4 + int.from_bytes(entry[start : start + 4], "big")
    if end > len(entry) or len(entry) < start + 4:
        return None, 0
    try:
        return pb.MessageMetadata.FromString(entry[start + 4 : end]), end
    except DecodeError:
        return None, 0


def metadata_bytes(entry: bytes) -> bytes:
    """The message metadata of an entry as they are stored; of a damaged one whatever is there."""
    start = message_offset(entry)
    if entry[start : start + 2] == MAGIC_CHECKSUM:
        start += _CHECKSUM_HEADER_BYTES
    size = int.from_bytes(entry[start : start + 4], "big")
    return bytes(entry[start + 4 : start + 4 + size])


def text_of(field: str | bytes) -> str:
    """A text of metadata as a text: U+FFFD stands for what is no UTF-8, as Java's decoder has it.

    The generated class gives the bytes that a client sent where they are no UTF-8, and says so
    (``tools/generate_protos.py``). Texts of commands need not ask: who sends others is refused
    (:func:`~geminga.wire.pulsar.commands.decode_command`). What must stay as it was sent is bytes (keys).
    """
    return field if isinstance(field, str) else field.decode("utf-8", "replace")


def texts_of(pairs: Iterable[pb.KeyValue]) -> dict[str, str]:
    """Properties, by :func:`text_of`; of several with one name the last."""
    found = {pair.key: pair.value for pair in pairs}
    for key, value in found.items():
        if key.__class__ is not str or value.__class__ is not str:
            return {text_of(key): text_of(value) for key, value in found.items()}
    return cast("dict[str, str]", found)


def encode_entry(metadata: pb.MessageMetadata, payload: bytes) -> bytes:
    """Headers and payload of a message, with checksum: what a producer puts behind SEND.

    Metadata that a client sent without a field that they need are parsed, and are written again as they are.
    """
    encoded: bytes = metadata.SerializePartialToString()
    rest = _UINT32.pack(len(encoded)) + encoded + payload
    return MAGIC_CHECKSUM + _UINT32.pack(crc32c(rest)) + rest


def in_transaction(entries: Sequence[bytes], txn_id: TxnId) -> list[bytes] | None:
    """What a producer sent in a transaction, with the transaction's id in all metadata; None if one names another.

    Clients name the transaction in their command; the Go client does so nowhere else. But the metadata are what is
    stored: they say after a restart, and to whoever reads, whose a message is. Damaged ones are left as they are.
    """
    coordinator, number = txn_id
    fields: bytes = pb.MessageMetadata(txnid_most_bits=coordinator, txnid_least_bits=number).SerializePartialToString()
    named: list[bytes] = []
    for entry in entries:
        # As nearly all are: with a checksum, and the fields within what the last byte of the metadata's size says.
        if (
            len(entry) > METADATA_OFFSET
            and entry[:2] == MAGIC_CHECKSUM
            and entry.find(fields, METADATA_OFFSET, METADATA_OFFSET + entry[METADATA_OFFSET - 1]) > 0
        ):
            named.append(entry)
            continue
        start = _CHECKSUM_HEADER_BYTES if entry[:2] == MAGIC_CHECKSUM else 0
        end = start + 4 + int.from_bytes(entry[start : start + 4], "big")
        # (Who writes these bytes into another field says nothing with it but whose the message is.)
        metadata = peek_metadata(entry) if entry.find(fields, start + 4, end) < 0 else None
        if metadata is not None:
            if metadata.HasField("txnid_most_bits") or metadata.HasField("txnid_least_bits"):
                if (metadata.txnid_most_bits, metadata.txnid_least_bits) != txn_id:
                    return None
            else:
                before = entry[start + 4 : end]
                rest = _UINT32.pack(len(before) + len(fields)) + before + fields + entry[end:]
                entry = MAGIC_CHECKSUM + _UINT32.pack(crc32c(rest)) + rest if start else rest
        named.append(entry)
    return named


def encode_broker_entry_metadata(*, broker_timestamp_ms: int | None, index: int | None) -> bytes:
    """The bytes to put in front of an entry; ``index`` is that of the entry's last message."""
    metadata = pb.BrokerEntryMetadata()
    if broker_timestamp_ms is not None:
        metadata.broker_timestamp = broker_timestamp_ms
    if index is not None:
        metadata.index = index
    encoded: bytes = metadata.SerializeToString()
    return MAGIC_BROKER_ENTRY_METADATA + _UINT32.pack(len(encoded)) + encoded


def strip_broker_entry_metadata(entry: bytes) -> bytes:
    """The entry as the producer sent it: for consumers that do not know broker entry metadata."""
    offset = message_offset(entry)
    return entry[offset:] if offset else entry
