"""Ledger metadata version 3: BookKeeper's bytes, and nothing damaged is taken for a ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import CorruptionError, InvariantError
from geminga.wire.bookkeeper.digest import DigestType
from geminga.wire.bookkeeper.ledger_metadata import (
    LedgerFragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)

OPEN = LedgerMetadata(1, 1, 1, (LedgerFragment(0, ("b:1",)),))
PREAMBLE = b"BookieMetadataFormatVersion\t3\n"


def test_bytes_are_preamble_size_and_message():
    # The worked example of docs/formats/ledger-metadata.md.
    message = bytes.fromhex("08011001180020ffffffffffffffffff01280132070a03623a311000380342004801")
    assert encode_ledger_metadata(OPEN) == PREAMBLE + bytes([len(message)]) + message


@st.composite
def ledgers(draw):
    size = draw(st.integers(1, 4))
    write = draw(st.integers(1, size))
    firsts = sorted(draw(st.sets(st.integers(1, 1 << 40), max_size=3)))
    bookies = st.lists(st.text("ab:0123", min_size=1, max_size=5), min_size=size, max_size=size).map(tuple)
    metadata = LedgerMetadata(
        size,
        write,
        draw(st.integers(1, write)),
        tuple(LedgerFragment(first, draw(bookies)) for first in (0, *firsts)),
        digest_type=draw(st.sampled_from(list(DigestType))),
        password=draw(st.binary(max_size=4)),
        created_ms=draw(st.none() | st.integers(0, 1 << 50)),
        custom_metadata=draw(st.dictionaries(st.text(max_size=3), st.binary(max_size=200), max_size=2)),
        creation_token=draw(st.none() | st.integers(0, (1 << 62))),
    )
    state = draw(st.sampled_from(list(LedgerState)))
    if state is LedgerState.CLOSED:
        return metadata.closed(last_entry_id=draw(st.integers(-1, 1 << 40)), length_bytes=draw(st.integers(0, 1 << 40)))
    return metadata.with_state(state)


@given(ledgers())
def test_decode_of_encode_is_the_same(metadata):
    assert decode_ledger_metadata(encode_ledger_metadata(metadata), 5) == metadata


def test_every_truncation_is_refused():
    value = encode_ledger_metadata(OPEN.closed(last_entry_id=7, length_bytes=300))
    for size in range(len(value)):
        with pytest.raises(CorruptionError):
            decode_ledger_metadata(value[:size], 5)


@pytest.mark.parametrize("version", [b"1", b"2", b"4", b"33333333333", b""])
def test_other_versions_are_refused_by_name(version):
    with pytest.raises(CorruptionError, match="ledger 5"):
        decode_ledger_metadata(PREAMBLE.replace(b"3", version) + b"\x00", 5)


def test_contradicting_quorums_are_refused():
    value = bytearray(encode_ledger_metadata(OPEN))
    value[value.index(b"\x08\x01") + 1] = 2
    with pytest.raises(CorruptionError, match="contradict"):
        decode_ledger_metadata(bytes(value), 5)


@pytest.mark.parametrize(
    "metadata",
    [
        LedgerMetadata(1, 2, 1, (LedgerFragment(0, ("a",)),)),
        LedgerMetadata(2, 2, 2, (LedgerFragment(0, ("a",)),)),
        LedgerMetadata(1, 1, 1, ()),
        LedgerMetadata(1, 1, 1, (LedgerFragment(3, ("a",)),)),
    ],
)
def test_impossible_metadata_is_not_written(metadata):
    with pytest.raises(InvariantError):
        encode_ledger_metadata(metadata)


def with_segments(*segments: tuple[int, bytes]) -> bytes:
    """An open ledger of one copy, as another program may write it."""
    parts = [bytes.fromhex("08011001180020ffffffffffffffffff012801")]
    parts += [bytes([0x32, len(name) + 4, 0x0A, len(name)]) + name + bytes([0x10, first]) for first, name in segments]
    message = b"".join((*parts, bytes.fromhex("380342004801")))
    return PREAMBLE + bytes([len(message)]) + message


def test_fragments_are_read_in_any_order():
    metadata = decode_ledger_metadata(with_segments((7, b"c"), (0, b"b"), (3, b"a")), 5)
    assert metadata.fragments == tuple(LedgerFragment(first, (name,)) for first, name in ((0, "b"), (3, "a"), (7, "c")))
    assert decode_ledger_metadata(encode_ledger_metadata(metadata), 5) == metadata


@pytest.mark.parametrize("segments", [((0, b"a"), (3, b"b"), (3, b"c")), ((0, b"a"), (0, b"a")), ((0, b"\xff"),)])
def test_fragments_that_can_not_be_are_refused_when_they_are_read(segments):
    with pytest.raises(CorruptionError, match="contradict"):
        decode_ledger_metadata(with_segments(*segments), 5)


def test_metadata_without_ack_quorum_has_the_write_quorum():
    value = encode_ledger_metadata(OPEN)
    without = value[: len(PREAMBLE)] + bytes([value[len(PREAMBLE)] - 2]) + value[len(PREAMBLE) + 1 : -2]
    assert decode_ledger_metadata(without, 5).ack_quorum == 1
