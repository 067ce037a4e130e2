"""No truncation and no flipped bit makes the bookie's bytes decode as something else."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from geminga.bookie.core import entry_log_format, journal_format
from geminga.bookie.core.checkpoint_format import (
    Checkpoint,
    Cookie,
    decode_checkpoint,
    decode_cookie,
    encode_checkpoint,
    encode_cookie,
)
from geminga.bookie.core.index import IndexRun, Row, make_location
from geminga.bookie.core.index_format import decode_run, encode_run
from geminga.bookie.core.ledger_states import LedgerStateRow, decode_states, encode_states

INSTANCE = bytes(range(16))
ids = st.integers(0, (1 << 62) - 1)
entries = st.lists(st.binary(max_size=30), min_size=1, max_size=5)
records = st.lists(
    st.one_of(
        st.builds(journal_format.AddRecord, ids, ids, entries),
        st.builds(journal_format.Fence, ids),
        st.builds(journal_format.NewLedgerRecord, ids, st.binary(max_size=20)),
    ),
    min_size=1,
    max_size=6,
)


def encode_record(record: journal_format.Record) -> bytes:
    match record:
        case journal_format.AddRecord(ledger_id, first, values):
            size = sum(map(len, values))
            return journal_format.encode_add_header(ledger_id, first, values, size) + b"".join(values)
        case journal_format.Fence(ledger_id):
            return journal_format.encode_fence(ledger_id)
        case journal_format.NewLedgerRecord(ledger_id, key):
            return journal_format.encode_ledger(ledger_id, key)


def encode_journal(groups: list[list[journal_format.Record]]) -> tuple[bytes, list[int]]:
    data = journal_format.encode_file_header(1, INSTANCE)
    ends = []
    for i, group in enumerate(groups, 1):
        buffers = [encode_record(record) for record in group]
        data += b"".join(
            journal_format.encode_group(
                buffers,
                seed=journal_format.group_seed(INSTANCE),
                journal_id=1,
                sequence=i,
                previous=i - 1,
                record_count=len(buffers),
            )
        )
        ends.append(len(data))
    return data, ends


def scan(data: bytes) -> journal_format.JournalScan:
    return journal_format.scan_journal(data, seed=journal_format.group_seed(INSTANCE), journal_id=1, known_sequence=0)


def decoded(scanned: journal_format.JournalScan) -> list[list[journal_format.Record]]:
    return [list(journal_format.decode_records(group.body)) for group in scanned.groups]


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_truncated_journal_decodes_to_a_prefix(groups, data):
    encoded, ends = encode_journal(groups)
    cut = data.draw(st.integers(journal_format.FILE_HEADER_BYTES, len(encoded)))
    scanned = scan(encoded[:cut] + bytes(data.draw(st.integers(0, 40))))
    whole = sum(end <= cut for end in ends)
    assert scanned.damaged_at is None
    assert decoded(scanned)[:whole] == groups[:whole]
    assert decoded(scanned) == groups[: len(scanned.groups)]


@given(st.lists(records, min_size=2, max_size=4), st.data())
def test_flipped_bit_in_a_journal_is_torn_at_the_end_and_damage_elsewhere(groups, data):
    encoded, ends = encode_journal(groups)
    at = data.draw(st.integers(journal_format.FILE_HEADER_BYTES, len(encoded) - 1))
    wrong = bytearray(encoded)
    wrong[at] ^= 1 << data.draw(st.integers(0, 7))
    scanned = scan(bytes(wrong))
    hit = sum(end <= at for end in ends)
    if hit == len(groups) - 1:
        assert scanned.damaged_at is None
        assert decoded(scanned) == groups[:-1]
    else:
        assert scanned.damaged_at == (ends[hit - 1] if hit else journal_format.FILE_HEADER_BYTES)
        assert decoded(scanned) == groups[:hit] + groups[hit + 1 :]


def harmed(data: bytes, draw: st.DataObject) -> bytes:
    """``data`` shorter, or with a flipped bit."""
    if draw.draw(st.booleans()):
        return data[: draw.draw(st.integers(0, len(data) - 1))]
    wrong = bytearray(data)
    wrong[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    return bytes(wrong)


@given(ids, ids, entries, st.data())
def test_harmed_chunk_never_decodes(ledger_id, first, values, data):
    seed = entry_log_format.log_seed(INSTANCE, 3)
    encoded = b"".join(entry_log_format.encode_entries(ledger_id, first, values, seed))
    assert entry_log_format.decode_chunk(memoryview(encoded), 0, seed) is not None
    assert entry_log_format.decode_chunk(memoryview(harmed(encoded, data)), 0, seed) is None


@given(st.dictionaries(st.integers(0, 50), st.binary(max_size=40)), st.integers(1, 100))
def test_chunks_of_a_ledger_hold_its_entries_in_order(entry_map, chunk_bytes_max):
    found = {}
    previous_end = -1
    for first, stretch in entry_log_format.split_into_chunks(entry_map, chunk_bytes_max):
        assert first >= previous_end
        assert len(stretch) == 1 or sum(map(len, stretch)) <= chunk_bytes_max
        found.update(enumerate(stretch, first))
        previous_end = first + len(stretch)
    assert found == entry_map


states = st.lists(
    st.builds(LedgerStateRow, ids, st.binary(max_size=20), st.booleans()),
    max_size=8,
    unique_by=lambda row: row.ledger_id,
)


@given(states)
def test_states_round_trip(rows):
    assert list(decode_states(encode_states(rows))) == rows


@given(states, st.lists(st.integers(1, 9), max_size=6), st.data())
def test_harmed_index_run_never_decodes(rows, counts, data):
    run = IndexRun()
    row_list = [Row(10 * i, count, 50, make_location(1, 64 * i)) for i, count in enumerate(counts)]
    run.add_ledger(4, row_list)
    encoded = encode_run(run, 6, rows, INSTANCE)
    result = decode_run(encoded, 6, INSTANCE)
    assert result is not None
    assert (result[0].rows(4), result[1]) == (row_list, rows)
    assert decode_run(harmed(encoded, data), 6, INSTANCE) is None


@given(
    st.lists(ids, max_size=4), st.lists(st.tuples(ids, ids), max_size=4), st.binary(max_size=20), ids, ids, st.data()
)
def test_harmed_checkpoint_never_decodes(run_ids, logs, deleted, sequence, journal_id, data):
    checkpoint = Checkpoint(
        serial=5,
        mark_sequence=sequence,
        mark_journal_id=journal_id,
        run_ids=tuple(run_ids),
        logs=tuple(logs),
        deleted=deleted,
    )
    encoded = encode_checkpoint(checkpoint, INSTANCE)
    assert decode_checkpoint(encoded, INSTANCE) == checkpoint
    assert decode_checkpoint(harmed(encoded, data), INSTANCE) is None


@given(st.binary(min_size=16, max_size=16), st.sampled_from(["journal", "ledgers"]), st.data())
def test_harmed_cookie_never_decodes(instance_id, role, data):
    encoded = encode_cookie(Cookie(instance_id, role))
    assert decode_cookie(encoded) == Cookie(instance_id, role)
    assert decode_cookie(harmed(encoded, data)) is None


@given(st.integers(0, 9), st.lists(st.tuples(st.integers(0, 30), st.binary(max_size=9)), min_size=1, max_size=12))
def test_adds_with_gaps_are_the_same_entries_in_the_same_order(ledger_id, pairs):
    entry_ids, values = [entry_id for entry_id, _ in pairs], [value for _, value in pairs]
    buffers, count, header_bytes = journal_format.encode_adds(ledger_id, entry_ids, values)
    assert sum(map(len, buffers)) == header_bytes + sum(map(len, values))
    records = list(journal_format.decode_records(memoryview(b"".join(buffers))))
    assert len(records) == count
    found = []
    for record in records:
        assert isinstance(record, journal_format.AddRecord)
        assert record.ledger_id == ledger_id
        found += [(record.first_entry_id + i, value) for i, value in enumerate(record.entries)]
    assert found == pairs
    assert count <= 1 + sum(after != before + 1 for before, after in pairwise(entry_ids))
