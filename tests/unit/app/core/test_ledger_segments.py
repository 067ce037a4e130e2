"""Segments of ledgers in a backup: which make a ledger whole, and their bytes."""

from __future__ import annotations

import pytest

from geminga.app.storage.core.backup_format import BackupFile
from geminga.app.storage.core.ledger_segments import (
    by_ledger,
    consumed,
    encode_header,
    encode_records,
    fault,
    header_fault,
    needed,
    segment_name,
    segment_of,
    split_records,
    usable,
)
from geminga.model.errors import DataDirectoryError


def files(*runs: tuple[int, int]) -> list[BackupFile]:
    return [BackupFile(segment_name(7, first, last), f"s-{first}", 10, 0) for first, last in runs]


@pytest.mark.parametrize(
    ("runs", "last", "kept", "is_whole"),
    [
        ([], -1, [], True),
        ([(0, 4)], 4, [(0, 4)], True),
        ([(5, 9), (0, 4)], 9, [(0, 4), (5, 9)], True),
        # Ids of ten digits and more come in their order, not in that of their texts.
        ([(0, 8), (9, 9), (10, 11)], 11, [(0, 8), (9, 9), (10, 11)], True),
        ([(0, 4), (6, 9)], 9, [(0, 4)], False),
        ([(1, 4)], 4, [], False),
        ([(0, 4)], 5, [(0, 4)], False),
        # Longer than the ledger came to be: an entry that was under way, and was never acknowledged.
        ([(0, 4), (5, 9)], 8, [(0, 4)], False),
    ],
)
def test_segments_that_follow_each_other_are_used(
    runs: list[tuple[int, int]], last: int, kept: list[tuple[int, int]], is_whole: bool
) -> None:
    segments = by_ledger([*files(*runs), BackupFile("metadata.sqlite", "m", 1, 0)]).get(7, [])
    assert [(one.first_entry_id, one.last_entry_id) for one in usable(segments, last)] == kept
    assert (fault(7, segments, last) is None) is is_whole


def test_largest_ids_are_those_of_signed_numbers() -> None:
    most = (1 << 63) - 1
    segment = segment_of(BackupFile(f"ledgers/{most}/{most}-{most}", "s", 1, 0))
    assert segment is not None
    assert (segment.ledger_id, segment.first_entry_id, segment.last_entry_id) == (most, most, most)


@pytest.mark.parametrize(
    "name", ["ledgers/7/5-4", "ledgers/7", "ledgers/x/0-1", f"ledgers/{1 << 63}/0-1", f"ledgers/7/0-{1 << 63}"]
)
def test_name_that_is_no_segments_is_refused(name: str) -> None:
    with pytest.raises(DataDirectoryError, match="is no segment of a ledger"):
        segment_of(BackupFile(name, "s", 1, 0))


def test_records_are_split_where_they_are_whole() -> None:
    payloads = [b"", b"a", b"bc" * 300, b""]
    data = b"".join(encode_records(payloads))
    assert list(split_records(data)) == payloads
    assert consumed(payloads) == len(data)
    assert list(split_records(data[:-1])) == payloads[:3]
    assert list(split_records(data[:-5])) == payloads[:2]
    assert list(split_records(data[:3])) == []
    assert (needed(data), needed(data[4:]), needed(data[4:8]), needed(data[4:7]), needed(b"")) == (4, 5, 5, 4, 4)


def test_header_of_another_segment_is_told() -> None:
    segment = segment_of(files((5, 9))[0])
    assert segment is not None
    assert segment.entries == 5
    assert header_fault(encode_header(7, 5) + b"behind", segment) is None
    for data in (encode_header(7, 4), encode_header(8, 5), b""):
        assert "s-5 (ledgers/7/5-9) does not begin as a segment of ledger 7" in str(header_fault(data, segment))
