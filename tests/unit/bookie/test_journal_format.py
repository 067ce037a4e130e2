from __future__ import annotations

from geminga.bookie.core import journal_format as fmt
from support.house.format_docs import documented_bytes

INSTANCE = bytes(range(16))
SEED = fmt.group_seed(INSTANCE)


def group(sequence: int, previous: int, *records: bytes, journal_id: int = 1) -> bytes:
    return b"".join(
        fmt.encode_group(
            records,
            seed=SEED,
            journal_id=journal_id,
            sequence=sequence,
            previous=previous,
            record_count=len(records),
        )
    )


def add(ledger_id: int, first: int, *entries: bytes) -> bytes:
    size = sum(map(len, entries))
    return fmt.encode_add_header(ledger_id, first, entries, size) + b"".join(entries)


def scan(*parts: bytes, known: int = 0) -> fmt.JournalScan:
    data = fmt.encode_file_header(1, INSTANCE) + b"".join(parts)
    return fmt.scan_journal(data, seed=SEED, journal_id=1, known_sequence=known)


def test_group_is_as_documented():
    records = (fmt.encode_ledger(7, b"key"), add(7, 0, b"one", b"two!"), fmt.encode_fence(7))
    data = documented_bytes("journal")
    assert group(1, 0, *records) == data
    decoded = fmt.decode_group(memoryview(data), 0, seed=SEED, journal_id=1)
    assert decoded is not None
    assert list(fmt.decode_records(decoded.body)) == [
        fmt.NewLedgerRecord(7, b"key"),
        fmt.AddRecord(7, 0, [b"one", b"two!"]),
        fmt.Fence(7),
    ]


def test_add_of_one_entry_has_the_same_layout_as_any_other():
    [record] = fmt.decode_records(memoryview(add(3, 9, b"payload")))
    assert record == fmt.AddRecord(3, 9, [b"payload"])


def test_file_header_round_trip():
    header = fmt.encode_file_header(5, INSTANCE)
    assert len(header) == fmt.FILE_HEADER_BYTES
    assert fmt.decode_file_header(header) == (1, 5, INSTANCE)
    assert fmt.decode_file_header(header[:-1]) is None
    assert fmt.decode_file_header(header[:-1] + b"\1") is None


def test_zeros_behind_the_last_group_are_its_end():
    first, second = group(1, 0, add(1, 0, b"a")), group(2, 1, add(1, 1, b"b"))
    found = scan(first, second, bytes(500))
    assert [g.sequence for g in found.groups] == [1, 2]
    assert (found.end, found.damaged_at, found.is_torn) == (64 + len(first) + len(second), None, False)


def test_torn_last_group_is_told_from_damage():
    first, second = group(1, 0, add(1, 0, b"a")), group(2, 1, add(1, 1, b"b" * 50))
    found = scan(first, second[:-9], bytes(100))
    assert [g.sequence for g in found.groups] == [1]
    assert (found.end, found.damaged_at, found.is_torn) == (64 + len(first), None, True)


def test_damaged_group_with_a_later_one_is_named_by_offset():
    groups = [group(i, i - 1, add(1, i, b"x" * 30)) for i in (1, 2, 3)]
    damaged = bytearray(groups[1])
    damaged[-1] ^= 1
    found = scan(groups[0], bytes(damaged), groups[2])
    assert found.damaged_at == 64 + len(groups[0])


def test_damaged_group_behind_the_mark_is_not_needed():
    groups = [group(i, i - 1, add(1, i, b"x" * 30)) for i in (1, 2, 3)]
    found = scan(b"\xff" * len(groups[0]), groups[1], groups[2], known=1)
    assert found.damaged_at is None
    assert [g.sequence for g in found.groups] == [2, 3]


def test_sequence_that_was_given_up_is_no_damage():
    found = scan(group(1, 0, add(1, 0, b"a")), group(3, 1, add(1, 1, b"b")))
    assert found.damaged_at is None
    assert [g.sequence for g in found.groups] == [1, 3]


def test_groups_missing_before_the_file_are_noticed():
    assert scan(group(5, 4, add(1, 0, b"a")), known=3).damaged_at == fmt.FILE_HEADER_BYTES
    assert scan(group(5, 4, add(1, 0, b"a")), known=4).damaged_at is None


def test_group_of_another_journal_or_bookie_never_decodes():
    data = memoryview(group(1, 0, add(1, 0, b"a")))
    assert fmt.decode_group(data, 0, seed=SEED, journal_id=2) is None
    assert fmt.decode_group(data, 0, seed=fmt.group_seed(bytes(16)), journal_id=1) is None


def test_large_records_are_not_copied_and_have_the_layout_of_small_ones():
    entry = b"a" * (4 * fmt.APART_BYTES_MIN)
    buffers = fmt.encode_group(
        [fmt.encode_add_header(3, 9, [entry], len(entry)), entry],
        seed=SEED,
        journal_id=1,
        sequence=1,
        previous=0,
        record_count=1,
    )
    assert any(buffer is entry for buffer in buffers)
    data = b"".join(buffers)
    decoded = fmt.decode_group(memoryview(data), 0, seed=SEED, journal_id=1)
    assert decoded is not None
    assert list(fmt.decode_records(decoded.body)) == [fmt.AddRecord(3, 9, [entry])]
    assert fmt.decode_group(memoryview(data[:-1] + b"b"), 0, seed=SEED, journal_id=1) is None
