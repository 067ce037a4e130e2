"""Compressed values of managed ledgers and cursors, as Pulsar has them (docs/formats/managed-ledger.md)."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError
from geminga.wire._generated import managed_ledger_pb2 as pb
from geminga.wire.managed_ledger.ledger_info import COMPRESSED_MAGIC
from geminga.wire.pulsar.compression import ZSTD, DecompressionError, compress, decompress

#: Bytes of the length of the header, behind those.
_LENGTH_BYTES: Final = 4
#: Bytes of a value that is no longer compressed: a node of ZooKeeper's 1 MiB holds more of nothing that is meant.
UNCOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024


def deflated(value: bytes) -> bytes:
    """The inverse of :func:`inflated`."""
    header = pb.CompressedInfoHeader(compressionType=pb.ZSTD, uncompressedSize=len(value)).SerializeToString()
    return COMPRESSED_MAGIC + len(header).to_bytes(_LENGTH_BYTES, "big") + header + compress(ZSTD, value)


def inflated(value: bytes, what: str) -> bytes:
    """``value``, which begins with the magic, before it was compressed. Raises CorruptionError with ``what``."""
    begin = len(COMPRESSED_MAGIC) + _LENGTH_BYTES
    end = begin + int.from_bytes(value[len(COMPRESSED_MAGIC) : begin], "big")
    if end > len(value):
        raise CorruptionError(f"{what}: its compression's header ends at byte {end} of {len(value)}")
    header = pb.CompressedInfoHeader()
    try:
        header.ParseFromString(value[begin:end])
    except DecodeError as error:
        raise CorruptionError(f"{what}: its compression's header does not parse: {error}") from error
    if not 0 <= header.uncompressedSize <= UNCOMPRESSED_BYTES_MAX:
        raise CorruptionError(
            f"{what}: {header.uncompressedSize} bytes uncompressed, expected 0 to {UNCOMPRESSED_BYTES_MAX}"
        )
    try:
        plain = decompress(header.compressionType, value[end:], header.uncompressedSize)
    except DecompressionError as error:
        raise CorruptionError(f"{what} is compressed and can not be read: {error}") from error
    if len(plain) != header.uncompressedSize:
        raise CorruptionError(f"{what}: {len(plain)} bytes uncompressed, expected {header.uncompressedSize}")
    return plain
