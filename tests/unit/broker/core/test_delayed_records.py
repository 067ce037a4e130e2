"""Records of the delayed index that are damaged: each field that can not be is told, and the index takes nothing."""

from __future__ import annotations

import struct

import pytest
from pyroaring import BitMap

from geminga.broker.core.delayed import snapshot
from geminga.broker.core.delayed.packed_positions import ENTRY_MASK
from geminga.broker.core.delayed.time_buckets import BITS_MAX, TimeBuckets
from geminga.model.errors import CorruptionError

BITS = 4
BITMAP = BitMap([1, 5, 9]).serialize()


def record(
    *,
    version: int = 1,
    coarse_bits: int = BITS,
    slot: int = 7,
    singles: tuple[int, ...] = (3,),
    runs: tuple[int, ...] = (10, 4),
    bitmap_bytes: int = len(BITMAP),
    tail: bytes = b"",
) -> bytes:
    """Of one slot with entries of one ledger, as docs/formats/delayed-index.md has it."""
    head = struct.pack("<3sBBBHII", b"GDI", version, BITS, 0, coarse_bits, 1, 1)
    table = struct.pack("<IQ", 0, 77)
    body = struct.pack("<qIII", slot, len(singles), len(runs) // 2, 1)
    body += struct.pack(f"<{len(singles) + len(runs)}Q", *singles, *runs)
    return head + table + body + struct.pack("<II", 0, bitmap_bytes) + BITMAP + tail


def test_a_whole_record_is_read() -> None:
    index = TimeBuckets(BITS, is_strict=False)
    assert snapshot.load(record(), index, now=0)
    again = TimeBuckets(BITS, is_strict=False)
    (encoded,) = snapshot.encode(index)
    assert snapshot.load(encoded, again, now=0)
    assert list(snapshot.encode(again)) == [encoded]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (record(coarse_bits=BITS_MAX), f"buckets of {BITS_MAX} bits"),
        (record(slot=-1), "slot -1 of the delayed index"),
        (record(runs=(10, 0)), "a run of the delayed index is empty or too long"),
        (record(runs=(ENTRY_MASK, 2)), "a run of the delayed index is empty or too long"),
        (record(bitmap_bytes=len(BITMAP) + 1), "a bitmap of the delayed index ends early"),
        (record(tail=b"xy"), "2 bytes too many"),
        (record(singles=(5 << 32,)), "names a ledger that its table has not"),
        (record(version=2), "another checksum"),
        (b"XYZ" + record()[3:], "begins with b'XYZ'"),
        (record()[:10], "is damaged"),
        (record()[: -len(BITMAP)], "ends early"),
    ],
)
def test_a_damaged_record_is_told_and_taken_nothing_of(data: bytes, told: str) -> None:
    index = TimeBuckets(BITS, is_strict=False)
    with pytest.raises(CorruptionError) as raised:
        snapshot.load(data, index, now=0)
    assert told in str(raised.value)
    assert list(snapshot.encode(index)) == []


def test_a_record_of_another_mode_or_with_larger_buckets_is_left_out() -> None:
    for index in (TimeBuckets(BITS, is_strict=True), TimeBuckets(BITS - 1, is_strict=False)):
        assert not snapshot.load(record(), index, now=0)
        assert list(snapshot.encode(index)) == []
    finer = TimeBuckets(BITS - 1, is_strict=False)
    assert snapshot.load(record(), finer, now=0, refines=True)
    assert list(snapshot.encode(finer)) != []
