"""Values that Pulsar compressed, of both kinds: read whole, or refused by name."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire._generated import managed_ledger_pb2 as pb
from geminga.wire.managed_ledger import (
    CursorInfoRecord,
    LedgerRecord,
    ManagedLedgerRecord,
    RangeRecord,
    decode_cursor_info,
    decode_managed_ledger_info,
    encode_cursor_info,
    encode_managed_ledger_info,
)
from geminga.wire.managed_ledger.compressed_info import UNCOMPRESSED_BYTES_MAX
from geminga.wire.managed_ledger.ledger_info import COMPRESSED_MAGIC, uncompressed
from geminga.wire.pulsar.compression import compress

KINDS = pb.InfoCompressionType.values()


def compressed(kind: int, value: bytes, *, size: int | None = None) -> bytes:
    """As Pulsar writes it."""
    size = len(value) if size is None else size
    header = pb.CompressedInfoHeader(compressionType=kind, uncompressedSize=size).SerializeToString()  # type: ignore[arg-type]
    return b"\x47\x78" + len(header).to_bytes(4, "big") + header + compress(kind, value)


LEDGERS = ManagedLedgerRecord(tuple(LedgerRecord(number, 10 * number, 7, 1) for number in range(1, 2000)))
CURSOR = CursorInfoRecord(
    -1, Position(3, 4), tuple(RangeRecord(Position(3, n), Position(3, n + 1)) for n in range(6, 9000, 2))
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_compressed_value_is_read_as_what_it_was(kind):
    assert decode_managed_ledger_info(compressed(kind, encode_managed_ledger_info(LEDGERS))) == LEDGERS
    assert decode_cursor_info(compressed(kind, encode_cursor_info(CURSOR))) == CURSOR


def test_a_long_list_is_compressed_and_a_short_one_is_not():
    many = ManagedLedgerRecord(
        tuple(LedgerRecord(20 * number, 50_000, 10_000_000 + 77 * number, 1_700_000_000_000 + 9000 * number)
              for number in range(1, 40_000))
    )  # fmt: skip
    value = encode_managed_ledger_info(many)
    assert value.startswith(COMPRESSED_MAGIC)
    assert len(value) < 512 * 1024
    assert decode_managed_ledger_info(value) == many
    assert encode_managed_ledger_info(many) == value
    assert not encode_managed_ledger_info(LEDGERS).startswith(COMPRESSED_MAGIC)
    plain = pb.ManagedLedgerInfo.FromString(uncompressed(value, "it"))
    assert compressed(pb.ZSTD, plain.SerializeToString(deterministic=True)) == value


@given(st.sampled_from(KINDS), st.binary(max_size=300), st.data())
def test_a_damaged_value_is_refused_and_nothing_else(kind, value, data):
    whole = bytearray(compressed(kind, value))
    assert uncompressed(bytes(whole), "x") == value
    at = data.draw(st.integers(2, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(2, len(whole)))
    for damaged in (bytes(whole), bytes(whole[:cut])):
        with suppress(CorruptionError):
            uncompressed(damaged, "x")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\x47\x78\x00", "ends at byte 6 of 3"),
        (b"\x47\x78\x00\x00\x00\x09\x08\x01", "ends at byte 15 of 8"),
        (b"\x47\x78\x00\x00\x00\x04\x08\x09\x10\x01x", "does not parse"),
        (compressed(pb.ZSTD, b"abc", size=2), "can not be read"),
        (compressed(pb.ZSTD, b"abc", size=4), "expected 4"),
        (compressed(pb.NONE, b"abc", size=4), "expected 4"),
        (compressed(pb.LZ4, b"abc", size=UNCOMPRESSED_BYTES_MAX + 1), f"expected 0 to {UNCOMPRESSED_BYTES_MAX}"),
        (compressed(pb.LZ4, b"abc", size=-1), "-1 bytes"),
    ],
)
def test_a_value_that_is_not_what_its_header_says_is_refused(value, said):
    with pytest.raises(CorruptionError, match=said):
        decode_managed_ledger_info(value)
    with pytest.raises(CorruptionError, match=said):
        decode_cursor_info(value)
