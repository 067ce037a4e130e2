"""What a cluster remembers of a path."""

from __future__ import annotations

import pytest

from geminga.broker.synchronization.core.records import NOTHING, Before, PathRecord, decode, encode
from geminga.broker.synchronization.core.stamps import Stamp


@pytest.mark.parametrize(
    "record",
    [
        PathRecord(Stamp(5, "east"), "ab"),
        PathRecord(Stamp(5, "é"), NOTHING, Stamp(4, "west"), held=""),
        PathRecord(Stamp(5, "east"), "ab", before=Before("", -1, 0), held="cd"),
        PathRecord(Stamp(5, "east"), "ab", is_untold=True),
        PathRecord(Stamp(5, "east"), "ab", is_untold=True, is_first=True),
        PathRecord(Stamp(5, "east"), "ab", Stamp(4, "west"), is_unseen=True),
    ],
)
def test_record_is_read_as_it_was_written(record: PathRecord) -> None:
    assert decode(encode(record)) == record
    assert record.settled() == PathRecord(
        record.stamp, record.digest, record.replaced, is_first=record.is_first, is_unseen=record.is_unseen
    )


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{}", b"\xff", b'{"stamp":"x","digest":""}', b'{"stamp":"5@e","digest":7}', b"[" * 100_000],
)
def test_what_is_no_record_is_none(value: bytes) -> None:
    assert decode(value) is None
    assert decode(b'{"stamp":"5@e","digest":"","held":7}') is None
    assert decode(b'{"stamp":"5@e","digest":"","before":["a"],"untold":1}') == PathRecord(Stamp(5, "e"), "")
