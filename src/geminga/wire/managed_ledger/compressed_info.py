"""Values of managed ledgers and cursors that Pulsar compressed (docs/formats/managed-ledger.md)."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError
from geminga.wire._generated import managed_ledger_pb2 as pb

#: First bytes of such a value.
MAGIC: Final = b"\x47\x78"
#: Bytes of the length of the header, behind those.
_LENGTH_BYTES: Final = 4
#: Bytes of a value that is no longer compressed: a node of ZooKeeper's 1 MiB holds more of nothing that is meant.
UNCOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024


def uncompressed(value: bytes, what: str) -> bytes:
    """``value`` as it was before Pulsar compressed it, or as it is. Raises :class:`CorruptionError` with ``what``."""
    return _inflated(value, what) if value.startswith(MAGIC) else value


def _inflated(value: bytes, what: str) -> bytes:
    # Loaded by the first value that needs it: Pulsar compresses none unless it is told to.
    from geminga.wire.pulsar.compression import DecompressionError, decompress

    begin = len(MAGIC) + _LENGTH_BYTES
    end = begin + int.from_bytes(value[len(MAGIC) : begin], "big")
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
