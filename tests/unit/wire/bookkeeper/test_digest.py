"""Entry digests: bytes as BookKeeper makes them, and no flipped bit goes unnoticed."""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import CorruptionError
from geminga.wire.bookkeeper.digest import (
    CRC32C_PREFIX_BYTES,
    HEADER_BYTES,
    DigestType,
    EntryHeader,
    digest_for,
    encode_entries,
    master_key,
    read_header,
)

DIGESTS = list(DigestType)
INT64 = st.integers(0, (1 << 63) - 1)


def crc32c_bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_crc32c_entry_is_header_checksum_payload():
    [entry] = encode_entries(7, 3, 2, 100, [b"payload"])
    header = struct.pack(">qqqq", 7, 3, 2, 107)
    assert entry == header + struct.pack(">I", crc32c_bit_by_bit(header + b"payload")) + b"payload"
    assert len(entry) == CRC32C_PREFIX_BYTES + 7


def test_worked_example_of_the_format_page():
    [entry] = encode_entries(1, 0, -1, 0, [b"hello"])
    assert entry.hex() == (
        "0000000000000001" "0000000000000000" "ffffffffffffffff" "0000000000000005"
        + f"{crc32c_bit_by_bit(entry[:32] + b'hello'):08x}"
        + "68656c6c6f"
    )  # fmt: skip


def test_mac_entry_has_hmac_sha1_keyed_by_the_password():
    [entry] = digest_for(DigestType.HMAC, b"secret").encode(7, 3, 2, 0, [b"payload"])
    header = struct.pack(">qqqq", 7, 3, 2, 7)
    key = hashlib.sha1(b"macsecret").digest()
    assert entry == header + hmac.new(key, header + b"payload", "sha1").digest() + b"payload"


def test_crc32_entry_has_eight_bytes():
    [entry] = digest_for(DigestType.CRC32, b"").encode(7, 3, 2, 0, [b"payload"])
    header = struct.pack(">qqqq", 7, 3, 2, 7)
    assert entry == header + struct.pack(">q", zlib.crc32(header + b"payload")) + b"payload"


def test_dummy_entry_has_no_digest():
    [entry] = digest_for(DigestType.DUMMY, b"").encode(7, 3, 2, 0, [b"payload"])
    assert entry == struct.pack(">qqqq", 7, 3, 2, 7) + b"payload"


def test_master_key_is_sha1_of_ledger_and_password():
    assert master_key(b"") == hashlib.sha1(b"ledger").digest()
    assert master_key(b"pw") == hashlib.sha1(b"ledgerpw").digest()


def test_mac_of_another_password_is_refused():
    [entry] = digest_for(DigestType.HMAC, b"one").encode(1, 0, -1, 0, [b"x"])
    assert isinstance(digest_for(DigestType.HMAC, b"two").payload(1, 0, entry), CorruptionError)


@given(
    kind=st.sampled_from(DIGESTS),
    ledger_id=INT64,
    first=st.integers(0, 1 << 40),
    length=st.integers(0, 1 << 40),
    payloads=st.lists(st.binary(max_size=40), min_size=1, max_size=5),
)
def test_decode_of_encode_is_the_payload(kind, ledger_id, first, length, payloads):
    digest = digest_for(kind, b"pw")
    entries = digest.encode(ledger_id, first, first - 1, length, payloads)
    for entry_id, (entry, payload) in enumerate(zip(entries, payloads, strict=True), first):
        length += len(payload)
        assert digest.payload(ledger_id, entry_id, entry) == payload
        assert read_header(entry) == EntryHeader(ledger_id, entry_id, first - 1, length)
        assert read_header(memoryview(entry)) == EntryHeader(ledger_id, entry_id, first - 1, length)
        assert len(entry) == digest.overhead_bytes + len(payload)


@pytest.mark.parametrize("kind", [kind for kind in DIGESTS if kind is not DigestType.DUMMY])
def test_every_flipped_bit_is_found(kind):
    digest = digest_for(kind, b"pw")
    [entry] = digest.encode(9, 4, 3, 50, [b"some payload"])
    for bit in range(len(entry) * 8):
        damaged = bytearray(entry)
        damaged[bit // 8] ^= 1 << (bit % 8)
        assert isinstance(digest.payload(9, 4, bytes(damaged)), CorruptionError)


@pytest.mark.parametrize("kind", DIGESTS)
def test_truncated_entry_is_refused_at_every_length(kind):
    digest = digest_for(kind, b"pw")
    [entry] = digest.encode(9, 4, 3, 50, [b"x"])
    shortest = digest.overhead_bytes if kind is DigestType.DUMMY else len(entry)
    for size in range(shortest):
        assert isinstance(digest.payload(9, 4, entry[:size]), CorruptionError)


@pytest.mark.parametrize("kind", DIGESTS)
def test_entry_of_another_place_is_refused(kind):
    digest = digest_for(kind, b"")
    [entry] = digest.encode(9, 4, 3, 50, [b"x"])
    for ledger_id, entry_id in ((9, 5), (8, 4)):
        error = digest.payload(ledger_id, entry_id, entry)
        assert isinstance(error, CorruptionError)
        assert "ledger 9 entry 4" in str(error)


def test_header_of_a_short_entry_is_an_error():
    with pytest.raises(CorruptionError):
        read_header(bytes(HEADER_BYTES - 1))
