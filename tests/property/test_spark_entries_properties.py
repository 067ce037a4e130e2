"""Entries made column by column are those that message by message gives; cuts cover every row; routes are stable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.encoded_batch import EncodedBatch
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.router import partition_of_key
from geminga.spark.sink_rules.entries import encode_entries, encode_properties
from geminga.spark.sink_rules.message_columns import MESSAGE_OVERHEAD_BYTES, MessageColumns, cut_entries
from geminga.spark.sink_rules.routing import KEYLESS_RUN_ROWS, Router, rows_by_destination

TEXT = st.text("abcé", max_size=6)
PROPERTIES = st.dictionaries(TEXT, TEXT, max_size=3)
TIMES = st.one_of(st.none(), st.integers(0, 1 << 45))
ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=40)),
        st.one_of(st.none(), TEXT.map(str.encode)),
        TIMES,
        PROPERTIES,
        st.one_of(st.none(), st.binary(max_size=5)),
        st.one_of(st.none(), st.none(), st.integers(0, 1 << 45)),
    ),
    min_size=1,
    max_size=30,
)


@st.composite
def columns_and_properties(draw: st.DrawFn) -> tuple[MessageColumns, list[dict[str, str]]]:
    """Columns, some of them missing, and the properties as dicts."""
    rows = draw(ROWS)
    base64_keys = draw(st.one_of(st.none(), st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    present = draw(st.lists(st.booleans(), min_size=5, max_size=5))
    payloads, keys, times, properties, ordering, delays = (list(column) for column in zip(*rows, strict=True))
    if draw(st.booleans()):
        payloads = [payload or b"" for payload in payloads]
    dicts = properties if present[2] else [{} for _ in rows]
    made = MessageColumns(
        payloads,
        keys if present[0] else None,
        [flag and row[1] is not None for flag, row in zip(base64_keys, rows, strict=True)]
        if present[0] and base64_keys
        else None,
        times if present[1] else None,
        [encode_properties([(n.encode(), v.encode()) for n, v in one.items()]) for one in properties]
        if present[2]
        else None,
        ordering if present[3] else None,
        delays if present[4] else None,
    )
    return made, dicts


def message_of(columns: MessageColumns, row: int, properties: dict[str, str], sequence_id: int) -> EncodedMessage:
    """One row as the client itself would have it."""
    key = columns.keys[row] if columns.keys is not None else None
    payload = columns.payloads[row]
    return EncodedMessage(
        payload or b"",
        properties=dict(sorted(properties.items())),
        partition_key=None if key is None else key.decode(),
        is_key_base64=columns.base64_keys is not None and columns.base64_keys[row],
        ordering_key=columns.ordering_keys[row] if columns.ordering_keys is not None else None,
        sequence_id=sequence_id,
        event_time_ms=columns.event_times_ms[row] if columns.event_times_ms is not None else None,
        deliver_at_ms=columns.deliver_at_ms[row] if columns.deliver_at_ms is not None else None,
        is_null=payload is None,
    )


@given(columns_and_properties(), st.integers(0, 1 << 62), st.integers(1, 9), st.integers(1, 200))
def test_entries_are_those_of_the_client(given_columns, first: int, messages_max: int, bytes_max: int) -> None:
    columns, properties = given_columns
    cuts = cut_entries(columns, messages_max, bytes_max)
    for (start, end), entry in zip(cuts, encode_entries(columns, cuts, first), strict=True):
        messages = [message_of(columns, row, properties[row], first + row) for row in range(start, end)]
        if isinstance(entry, EncodedMessage):
            names = [name for name in EncodedMessage.__slots__ if name != "properties"]
            assert [getattr(entry, name) for name in names] == [getattr(messages[0], name) for name in names]
            assert (entry.properties or {}) == messages[0].properties
            assert not messages[0].is_batchable
            continue
        assert isinstance(entry, EncodedBatch)
        batch = Batch(0.0, is_custom=True)
        for message in messages:
            batch.add(message, None)
        assert entry.payload == batch.encode(first + start)
        assert (entry.first_sequence_id, entry.highest_sequence_id) == (first + start, first + end - 1)
        for name in ("partition_key", "is_key_base64", "ordering_key"):
            assert getattr(entry, name) == getattr(messages[0], name)


@given(columns_and_properties(), st.integers(1, 9), st.integers(1, 200))
def test_cuts_cover_every_row_within_both_limits(given_columns, messages_max: int, bytes_max: int) -> None:
    columns, _ = given_columns
    cuts = cut_entries(columns, messages_max, bytes_max)
    assert [row for start, end in cuts for row in range(start, end)] == list(range(len(columns)))
    sizes = columns.sizes()
    delays = columns.deliver_at_ms or [None] * len(columns)
    for start, end in cuts:
        assert end - start <= messages_max
        assert end - start == 1 or sum(sizes[start:end]) <= bytes_max
        assert end - start == 1 or all(delay is None for delay in delays[start:end])
    assert min(sizes) >= MESSAGE_OVERHEAD_BYTES


@given(columns_and_properties(), st.data())
def test_columns_taken_and_joined_are_those_rows(given_columns, data: st.DataObject) -> None:
    columns, _ = given_columns
    indices = data.draw(st.lists(st.integers(0, len(columns) - 1), min_size=1, max_size=20))
    taken = columns.take(indices)
    joined = columns.part(0, 0)
    for index in indices:
        joined.extend(columns.part(index, index + 1))
    assert joined == taken
    assert taken.payloads == [columns.payloads[index] for index in indices]


@given(st.lists(st.one_of(st.none(), TEXT.map(str.encode))), st.integers(1, 5), st.booleans(), st.data())
def test_rows_with_keys_go_where_every_client_sends_them(keys, partitions: int, murmur3: bool, data) -> None:
    given_partitions = data.draw(
        st.lists(st.one_of(st.none(), st.integers(-1, partitions - 1)), min_size=len(keys), max_size=len(keys))
    )
    router = Router(partitions, is_murmur3=murmur3)
    routed = router.route(keys, given_partitions, len(keys))
    keyless = 0
    for key, wanted, partition in zip(keys, given_partitions, routed, strict=True):
        if wanted is not None and wanted >= 0:
            assert partition == wanted
        elif key is not None:
            assert partition == partition_of_key(key.decode(), partitions, murmur3=murmur3)
        else:
            assert partition == keyless // KEYLESS_RUN_ROWS % partitions
            keyless += 1
    grouped = rows_by_destination(routed)
    assert sorted(row for rows in grouped.values() for row in rows) == list(range(len(keys)))
    assert all(routed[row] == partition for partition, rows in grouped.items() for row in rows)


def test_a_partition_of_many_entries_is_encoded_to_its_end() -> None:
    payloads = [b"row %d" % row for row in range(50)]
    columns = MessageColumns(payloads)
    entries = list(encode_entries(columns, cut_entries(columns, 1, 1 << 20), 7))
    assert len(entries) == 50
    first = [entry.first_sequence_id if isinstance(entry, EncodedBatch) else entry.sequence_id for entry in entries]
    assert first == list(range(7, 57))
