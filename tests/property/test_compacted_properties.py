"""Entries of compacted topics: what is written is read again, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire.pulsar.compacted import CompactedEntry, decode_compacted, encode_compacted

_IDS = st.integers(0, (1 << 63) - 1)
_ENTRIES = st.builds(CompactedEntry, st.builds(Position, _IDS, _IDS), st.binary(max_size=200))


@given(_ENTRIES)
def test_entry_is_read_as_it_was_written(entry: CompactedEntry) -> None:
    assert decode_compacted(encode_compacted(entry)) == entry


@given(_ENTRIES, st.data())
def test_entry_that_is_cut_off_is_refused(entry: CompactedEntry, data: st.DataObject) -> None:
    encoded = encode_compacted(entry)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(CorruptionError):
        decode_compacted(encoded[:cut])


@given(st.binary(max_size=100))
def test_any_bytes_are_an_entry_or_refused(data: bytes) -> None:
    try:
        decode_compacted(data)
    except CorruptionError:
        return
