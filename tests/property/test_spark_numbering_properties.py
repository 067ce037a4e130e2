"""Numbers of rows depend on the rows alone; what the broker remembers is read back as it was meant."""

from __future__ import annotations

import math
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.spark.sink.arrow_rows import RowReader, SinkRows
from geminga.spark.sink_rules import numbering
from geminga.spark.sink_rules.entries import encode_entries
from geminga.spark.sink_rules.errors import ReplayDiffersError, SupersededError
from geminga.spark.sink_rules.message_columns import MessageColumns, cut_entries
from geminga.spark.sink_rules.numbering import (
    PARTITIONS_TRIED_MAX,
    TaskIdentity,
    batch_of,
    columns_checksum,
    is_planned,
    plan_checksum,
    plan_record,
    plan_sequence_id,
    planned_partitions,
    row_sequence_id,
    sink_id_of,
    stored_rows,
    text_checksum,
)
from geminga.spark.sink_rules.routing import Router
from geminga.spark.sink_rules.row_order import sortable_double, sorted_rows
from geminga.spark.sink_rules.sink_columns import SinkColumns, ValueKind

FIELDS = [
    ("value", pa.binary(), st.one_of(st.none(), st.binary(max_size=3))),
    ("__key", pa.string(), st.one_of(st.none(), st.text("ab", max_size=2))),
    ("__eventTime", pa.int64(), st.one_of(st.none(), st.integers(0, 3))),
    (
        "__properties",
        pa.map_(pa.string(), pa.string()),
        st.lists(st.tuples(st.sampled_from("xy"), st.just("1")), max_size=1),
    ),
    ("__orderingKey", pa.binary(), st.one_of(st.none(), st.binary(max_size=1))),
    ("__deliverAt", pa.int64(), st.one_of(st.none(), st.integers(0, 2))),
    ("__partition", pa.int32(), st.one_of(st.none(), st.integers(0, 1))),
]
SCHEMA = pa.schema([(name, kind) for name, kind, _ in FIELDS])
COLUMNS = SinkColumns(
    ValueKind.BYTES,
    ("value",),
    None,
    key="__key",
    event_time="__eventTime",
    properties="__properties",
    partition="__partition",
    deliver_at="__deliverAt",
    ordering_key="__orderingKey",
)
ROWS = st.lists(st.tuples(*(strategy for _, _, strategy in FIELDS)), min_size=1, max_size=25)
TASK = TaskIdentity("s", 5, 2)


def read(rows: list[tuple[object, ...]], cuts: list[int], ordered_by: list[str]) -> SinkRows:
    """Rows as a task has them that gets them in batches which end at ``cuts``."""
    reader = RowReader(COLUMNS, None, ordered_by)
    whole: SinkRows | None = None
    bounds = [0, *sorted(cuts), len(rows)]
    for start, end in pairwise(bounds):
        if start == end:
            continue
        columns = list(zip(*rows[start:end], strict=True))
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        part = reader.read(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        if whole is None:
            whole = part
        else:
            whole.extend(part)
    assert whole is not None
    return whole


def numbered(rows: SinkRows) -> tuple[list[object], int, list[int | None]]:
    """Everything that is sent, the checksum, and the partitions."""
    ordered = rows.take(sorted_rows(rows.messages, rows.ordered_by, rows.partitions))
    cuts = cut_entries(ordered.messages, 4, 30)
    entries = encode_entries(ordered.messages, cuts, row_sequence_id(TASK.batch_id, 0))
    sent = [[getattr(entry, name) for name in entry.__slots__] for entry in entries]
    return sent, columns_checksum(ordered.messages, 0), ordered.partitions or []


@given(ROWS, st.data(), st.lists(st.sampled_from(["__eventTime", "__key", "value", "__partition"]), unique=True))
def test_same_rows_in_any_order_and_any_batches_get_the_same_numbers(rows, data, ordered_by: list[str]) -> None:
    again = data.draw(st.permutations(rows))
    cuts = [data.draw(st.lists(st.integers(0, len(rows)), max_size=4)) for _ in range(2)]
    assert numbered(read(rows, cuts[0], ordered_by)) == numbered(read(again, cuts[1], ordered_by))


@given(ROWS, ROWS)
def test_checksum_tells_other_rows_apart(rows, others) -> None:
    one, two = (numbered(read(given_rows, [], [])) for given_rows in (rows, others))
    assert (one[1] == two[1]) == (one[0] == two[0])


@given(ROWS)
def test_order_is_that_of_the_named_columns_then_key_and_payload(rows) -> None:
    whole = read(rows, [], ["__eventTime"])
    messages = whole.messages.take(sorted_rows(whole.messages, whole.ordered_by))
    assert messages.event_times_ms is not None
    assert messages.keys is not None
    order = [
        tuple((value is not None, value or type(value)()) if value is not None else (False, b"") for value in row)
        for row in zip(messages.event_times_ms, messages.keys, messages.payloads, strict=True)
    ]
    assert order == sorted(order, key=lambda row: [(there, value if there else 0) for there, value in row])


@given(st.lists(st.floats()))
def test_doubles_order_as_spark_orders_them(values: list[float]) -> None:
    ordered = sorted(values, key=lambda value: sortable_double(value) or 0)
    numbers = [value for value in ordered if not math.isnan(value)]
    assert numbers == sorted(numbers)
    assert all(math.isnan(value) for value in ordered[len(numbers) :])
    assert sortable_double(None) is None


@given(st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_sequence_ids_grow_with_batch_and_row(batch: int, row: int, checksum: int) -> None:
    assert batch_of(row_sequence_id(batch, row)) == batch_of(plan_sequence_id(batch, checksum)) == batch
    assert row_sequence_id(batch, row) < row_sequence_id(batch + 1, 0) <= 1 << 63
    assert batch_of(-1) == -1


def test_plan_is_new_known_or_an_error() -> None:
    assert not is_planned(TASK, -1, 7)
    assert not is_planned(TASK, plan_sequence_id(4, 7), 7)
    assert is_planned(TASK, plan_sequence_id(5, 7), 7)
    with pytest.raises(ReplayDiffersError):
        is_planned(TASK, plan_sequence_id(5, 8), 7)
    with pytest.raises(SupersededError):
        is_planned(TASK, plan_sequence_id(6, 7), 7)


def test_stored_rows_are_what_the_plan_can_have_left() -> None:
    def stored(last: int, rows: int = 10, *, was_planned: bool = True) -> int:
        return stored_rows(TASK, "t", last, rows, was_planned=was_planned)

    assert [stored(-1), stored(row_sequence_id(4, 99)), stored(row_sequence_id(5, 0))] == [0, 0, 1]
    assert stored(row_sequence_id(5, 9)) == 10
    assert stored(-1, was_planned=False) == 0
    with pytest.raises(ReplayDiffersError, match="holds 11 rows, and the replay has 10"):
        stored(row_sequence_id(5, 10))
    with pytest.raises(ReplayDiffersError, match="a plan that is not recorded"):
        stored(row_sequence_id(5, 0), was_planned=False)
    with pytest.raises(SupersededError):
        stored(row_sequence_id(6, 0))


def test_names_of_sinks_and_tasks_do_not_collide() -> None:
    assert sink_id_of("app", "") == "app"
    assert sink_id_of("app", "x") == "app:x"
    assert TaskIdentity("a-1", 0, 2).producer_name != TaskIdentity("a", 0, 12).producer_name
    assert text_checksum("a", text_checksum("b", 0)) != text_checksum("b", text_checksum("a", 0))


def test_plan_record_is_readable() -> None:
    assert plan_record(TASK, 255, {"b": 2, "a": 1}) == (
        b'{"v":1,"sink":"s","batch":5,"partition":2,"attempt":0,"checksum":"000000ff","rows":{"a":1,"b":2}}'
    )


def test_checksum_tells_null_from_empty_and_text_keys_from_bytes() -> None:
    variants = [
        MessageColumns([b""]),
        MessageColumns([None]),
        MessageColumns([b"", b""]),
        MessageColumns([b""], [b""]),
        MessageColumns([b""], [None]),
        MessageColumns([b""], [b""], [True]),
        MessageColumns([b"", b""], [b"", b""], [True, False]),
        MessageColumns([b"", b""], [b"", b""], [False, True]),
        MessageColumns([b""], event_times_ms=[None]),
        MessageColumns([b""], event_times_ms=[0]),
    ]
    assert len({columns_checksum(one, 0) for one in variants}) == len(variants)
    # Which Arrow batch a key without base64 came in says nothing.
    assert columns_checksum(MessageColumns([b""], [b""], [False]), 0) == columns_checksum(variants[3], 0)


@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)), st.data())
def test_former_partitions_of_one_topic_are_found(now: dict[str, int], data: st.DataObject) -> None:
    former = dict(now)
    grown = [topic for topic, count in now.items() if count > 1]
    if grown:
        topic = data.draw(st.sampled_from(grown))
        former[topic] = data.draw(st.integers(1, now[topic]))
    last = plan_sequence_id(TASK.batch_id, plan_checksum(7, former))
    assert planned_partitions(TASK, last, 7, now) == former
    assert planned_partitions(TASK, last, 8, now) == now
    assert planned_partitions(TASK, plan_sequence_id(4, plan_checksum(7, former)), 7, now) == now


def test_former_partitions_are_not_looked_for_without_end() -> None:
    now = {"t": PARTITIONS_TRIED_MAX + 2}
    for former, found in ((2, {"t": 2}), (1, now)):
        last = plan_sequence_id(TASK.batch_id, plan_checksum(7, {"t": former}))
        assert planned_partitions(TASK, last, 7, now) == found


def test_rows_without_key_go_to_all_partitions_in_turn():
    router = Router(3, is_murmur3=True, keyless_rows=500)
    routed = router.route(None, None, 1000) + router.route(None, None, 1500)
    assert [routed.count(partition) for partition in range(3)] == [500, 1000, 1000]
    assert router.keyless_rows == 3000


def test_checksum_tells_rows_apart_wherever_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "_CHECKSUM_ROWS", 2)
    payloads = [b"%d" % row for row in range(7)]
    changed = [[*payloads[:row], b"x", *payloads[row + 1 :]] for row in range(7)]
    sums = [columns_checksum(MessageColumns(column), 0) for column in (payloads, *changed)]
    assert len(set(sums)) == 8
    monkeypatch.setattr(numbering, "_CHECKSUM_ROWS", 3)
    assert columns_checksum(MessageColumns(payloads), 0) != columns_checksum(MessageColumns(payloads[:6]), 0)
