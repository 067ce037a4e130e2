"""Payload compression as Pulsar's clients do it; the numbers are those of ``CompressionType``.

====== ====== ====================================================================
number name   format
====== ====== ====================================================================
1      LZ4    a raw LZ4 block, no frame, no size in front
2      ZLIB   a zlib stream (RFC 1950)
3      ZSTD   a Zstandard frame
4      SNAPPY raw Snappy, not the framed form
====== ====== ====================================================================

What a batch holds is compressed as a whole; the size before is ``MessageMetadata.uncompressed_size``, and nothing
ever inflates past it. Nor is room made for more than so many bytes can become in their format.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from typing import Final

import cramjam

from geminga.model.errors import RemoteError

NONE: Final = 0
LZ4: Final = 1
ZLIB: Final = 2
ZSTD: Final = 3
SNAPPY: Final = 4

#: What is compressed at once by who shares a thread with others.
ZLIB_STEP_BYTES: Final = 16 * 1024
#: Levels of the official clients.
_ZSTD_LEVEL: Final = 3
#: Bytes that one byte becomes at most: another 255 of a match (LZ4), a copy of 64 bytes in three (Snappy), a block of
#: 128 KiB that repeats one byte in four (Zstandard). zlib makes its room as it goes.
_GROWTH_MAX: Final = {LZ4: 255, SNAPPY: 22, ZSTD: 32 << 10}


class DecompressionError(RemoteError):
    """A payload does not become what its metadata says."""


def compress(kind: int, payload: bytes) -> bytes:
    """``payload`` compressed; ValueError for a number that is no compression."""
    if kind == LZ4:
        return bytes(cramjam.lz4.compress_block(payload, store_size=False))
    if kind == ZLIB:
        return zlib.compress(payload)
    if kind == ZSTD:
        return bytes(cramjam.zstd.compress(payload, level=_ZSTD_LEVEL))
    if kind == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(payload))
    if kind == NONE:
        return payload
    raise ValueError(f"{kind} is no compression")


def compress_in_steps(kind: int, payload: bytes) -> Generator[None, None, bytes]:
    """As :func:`compress`, in steps of a bounded time where that takes long: zlib, whose step is 0.5 ms."""
    if kind != ZLIB:
        return compress(kind, payload)
    compressor = zlib.compressobj()
    parts: list[bytes] = []
    for start in range(0, len(payload), ZLIB_STEP_BYTES):
        parts.append(compressor.compress(payload[start : start + ZLIB_STEP_BYTES]))
        yield
    parts.append(compressor.flush())
    return b"".join(parts)


def decompress(kind: int, data: bytes | memoryview, uncompressed_bytes: int) -> bytes:
    """The payload, which must have ``uncompressed_bytes``; DecompressionError otherwise. The caller limits the size."""
    if kind == NONE:
        return bytes(data)
    growth = _GROWTH_MAX.get(kind)
    if growth is not None and uncompressed_bytes > growth * len(data):
        raise DecompressionError(f"{len(data)} bytes of compression {kind} never become {uncompressed_bytes}")
    try:
        if kind == ZLIB:
            # One byte more than expected, so that a longer payload is told from one that just fits.
            payload = zlib.decompressobj().decompress(data, uncompressed_bytes + 1)
        else:
            payload = _decompress_into(kind, data, uncompressed_bytes)
    except (zlib.error, cramjam.DecompressionError, ValueError) as error:
        raise DecompressionError(f"{len(data)} bytes of compression {kind}: {error}") from error
    if len(payload) != uncompressed_bytes:
        raise DecompressionError(f"{len(payload)} bytes behind compression {kind}, expected {uncompressed_bytes}")
    return payload


def _decompress_into(kind: int, data: bytes | memoryview, uncompressed_bytes: int) -> bytes:
    buffer = bytearray(uncompressed_bytes + 1)
    if kind == LZ4:
        size = cramjam.lz4.decompress_block_into(data, buffer, output_len=len(buffer))
    elif kind == ZSTD:
        size = cramjam.zstd.decompress_into(data, buffer)
    elif kind == SNAPPY:
        if cramjam.snappy.decompress_raw_len(data) > uncompressed_bytes:
            raise DecompressionError(f"more than {uncompressed_bytes} bytes behind snappy")
        size = cramjam.snappy.decompress_raw_into(data, buffer)
    else:
        raise DecompressionError(f"compression {kind} is not known")
    return bytes(memoryview(buffer)[:size])
