"""Arrow columns read in bulk: what lies in a slice, behind an offset, under a null."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from geminga.spark.decoding.avro_values import json_converter, load_json
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink.arrow_rows import RowReader, order_values, slices
from geminga.spark.sink.records import RecordEncoder
from geminga.spark.sink_rules.sink_columns import SinkColumns, ValueKind
from geminga.spark.sink_rules.sink_options import ValueSchema

BYTES = SinkColumns(ValueKind.BYTES, ("value",), None)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view()])
@pytest.mark.parametrize("cut", [(0, 5), (1, 5), (2, 4), (3, 3), (0, 1)])
def test_slices_are_the_values_of_any_part_of_a_column(kind: pa.DataType, cut: tuple[int, int]) -> None:
    values = [b"a", b"", None, b"bcd", b"e" * 100]
    column = pa.array(values).cast(kind)
    assert slices(column.slice(cut[0], cut[1] - cut[0])) == values[cut[0] : cut[1]]


def test_slices_of_nothing_but_nulls_and_of_nothing() -> None:
    assert slices(pa.nulls(3, pa.binary())) == [None] * 3
    assert slices(pa.array([], pa.string())) == []


def reader_of(**roles: object) -> RowReader:
    return RowReader(SinkColumns(ValueKind.BYTES, ("value",), None, **roles), None)


def test_times_before_1970_are_an_error() -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), "t": pa.array([-1], pa.timestamp("us", "UTC"))})
    with pytest.raises(OptionError, match="t is before 1970"):
        reader_of(event_time="t", is_event_time_micros=True).read(batch)


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_times_are_milliseconds_whatever_the_unit(unit: str, per_second: int) -> None:
    times = pa.array([5 * per_second, None], pa.int64()).cast(pa.timestamp(unit, "UTC"))
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v", b"w"]), "t": times}).slice(0, 2)
    assert reader_of(event_time="t", is_event_time_micros=True).read(batch).messages.event_times_ms == [5000, None]


def test_numbers_as_times_are_milliseconds_already() -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v", b"w"]), "t": pa.array([7, 8], pa.int64())}).slice(1)
    assert reader_of(deliver_at="t").read(batch).messages.deliver_at_ms == [8]


def test_null_in_properties_is_an_error() -> None:
    kind = pa.map_(pa.string(), pa.string())
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), "p": pa.array([[("a", None)]], kind)})
    with pytest.raises(OptionError, match="p holds a null value"):
        reader_of(properties="p").read(batch)


def test_row_that_does_not_fit_the_record_is_an_error() -> None:
    definition = '{"type":"record","name":"row","fields":[{"name":"a","type":"double"}]}'
    batch = pa.RecordBatch.from_pydict({"a": pa.array([float("nan")])})
    reader = RowReader(
        SinkColumns(ValueKind.COLUMNS, ("a",), ValueSchema.JSON), RecordEncoder(ValueSchema.JSON, definition)
    )
    with pytest.raises(OptionError, match=r"^column a of a row can not be encoded: Out of range"):
        reader.read(batch)


def test_bytes_in_json_are_base64_as_the_source_reads_them() -> None:
    definition = '{"type":"record","name":"row","fields":[{"name":"a","type":"bytes"}]}'
    batch = pa.RecordBatch.from_pydict({"a": pa.array([b"abcd", b"\xff\x00"])})
    columns = SinkColumns(ValueKind.COLUMNS, ("a",), ValueSchema.JSON)
    found = RowReader(columns, RecordEncoder(ValueSchema.JSON, definition)).read(batch).messages.payloads
    assert found == [b'{"a":"YWJjZA=="}', b'{"a":"/wA="}']
    read = json_converter(json.loads(definition))
    assert [read(load_json(payload or b""))["a"] for payload in found] == [b"abcd", b"\xff\x00"]


def text_of(*values: bytes) -> pa.Array:
    """A column of text that Spark's casts made of any bytes."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize(
    ("kind", "column", "said"),
    [
        (
            "date",
            pa.array([0, 2932897], pa.int32()).view(pa.date32()),
            "a date or time in a row that is not in the years",
        ),
        ("time", pa.array([0, 1 << 62], pa.int64()).view(pa.timestamp("us", "UTC")), "a date or time in a row that is"),
        ("text", text_of(b"a", b"\xff"), "text that is no UTF-8 in a row: .* byte 0xff"),
        (
            "map",
            pa.array([[], [("x", 1), ("x", 2)]], pa.map_(pa.string(), pa.int64())),
            "a value that no record has .*'x'",
        ),
    ],
)
@pytest.mark.parametrize("schema", list(ValueSchema))
def test_value_that_no_record_has_is_an_error_with_its_column(schema, kind, column, said) -> None:
    definition = '{"type":"record","name":"row","fields":[]}'
    columns = SinkColumns(ValueKind.COLUMNS, ("fine", kind), schema)
    batch = pa.RecordBatch.from_pydict({"fine": pa.array([1, 2]), kind: column})
    with pytest.raises(OptionError, match=f"^column {kind} holds {said}"):
        RowReader(columns, RecordEncoder(schema, definition)).read(batch)


def test_texts_of_a_message_are_utf8_and_properties_have_each_key_once() -> None:
    wrong, kind = text_of(b"a", b"\xff"), pa.map_(pa.string(), pa.string())
    values = pa.array([b"v", b"w"])
    for role in ("key", "topic"):
        with pytest.raises(OptionError, match=r"^column c holds text that is no UTF-8 in a row: b'\\xff'"):
            reader_of(**{role: "c"}).read(pa.RecordBatch.from_pydict({"value": values, "c": wrong}))
    offsets = pa.array([0, 1, 2], pa.int32())
    for maps in (
        pa.MapArray.from_arrays(offsets, wrong, wrong),
        pa.MapArray.from_arrays(offsets, text_of(b"a", b"b"), wrong),
    ):
        with pytest.raises(OptionError, match=r"^column p holds text that is no UTF-8"):
            reader_of(properties="p").read(pa.RecordBatch.from_pydict({"value": values, "p": maps}))
    twice = pa.array([[("a", "1")], [("a", "1"), ("a", "2")]], kind)
    with pytest.raises(OptionError, match=r"^p holds a key twice in a row: a, a"):
        reader_of(properties="p").read(pa.RecordBatch.from_pydict({"value": values, "p": twice}))


def test_null_struct_is_a_null_value() -> None:
    definition = '{"type":"record","name":"row","fields":[{"name":"a","type":"long"}]}'
    batch = pa.RecordBatch.from_pydict({"value": pa.array([{"a": 1}, None])})
    for kind, payload in ((ValueSchema.JSON, b'{"a":1}'), (ValueSchema.AVRO, b"\x02")):
        reader = RowReader(SinkColumns(ValueKind.STRUCT, ("value",), kind), RecordEncoder(kind, definition))
        assert reader.read(batch).messages.payloads == [payload, None]


def test_properties_of_a_part_of_a_column() -> None:
    kind = pa.map_(pa.string(), pa.string())
    rows = [[("z", "0")], [("b", "2"), ("a", "1")], None, [], [("a", "1"), ("b", "2")]]
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"] * 5), "p": pa.array(rows, kind)}).slice(1)
    found = reader_of(properties="p").read(batch).messages.properties
    both = b"\x0a\x06\x0a\x01a\x12\x011" + b"\x0a\x06\x0a\x01b\x12\x012"
    assert found == [both, b"", b"", both]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.date32(), [2932897, -719163, 2**31 - 1, -(2**31), 0]),  # 10000-01-01 is the first of them
        (pa.time64("ns"), [86_399_999_999_999, 1, 0]),
        (pa.duration("us"), [2**62, -(2**62), 0]),
        (pa.timestamp("us", "UTC"), [2**62, -(2**62), 0]),
    ],
    ids=str,
)
def test_rows_are_ordered_by_dates_and_times_that_python_has_not(kind: pa.DataType, given: list[int]) -> None:
    width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    found = order_values(pa.array([*given, None], width).cast(kind))
    assert found[-1] is None
    assert sorted(range(len(given)), key=found.__getitem__) == sorted(range(len(given)), key=given.__getitem__)
