"""Payloads of every kind of schema as columns: protobuf, pairs, primitives, Avro."""

from __future__ import annotations

import io
import json
import struct
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from geminga.client.schema import (
    AvroSchema,
    InstantSchema,
    Int32Schema,
    KeyValue,
    KeyValueEncoding,
    KeyValueSchema,
    LocalDateTimeSchema,
    ProtobufNativeSchema,
    ProtobufSchema,
    SchemaInfo,
    SchemaType,
    StringSchema,
)
from geminga.spark.decoding.part_decoding import RowError, part_of
from geminga.spark.decoding.protobuf_types import PARSING_INFO
from geminga.spark.source.topic_schema import value_fields
from geminga.spark.source_rules.errors import SchemaError
from support.connector.avro_payloads import avro, columns, record, written

Field = descriptor_pb2.FieldDescriptorProto


def message_class():
    """A message with a field of every kind."""
    file = descriptor_pb2.FileDescriptorProto(
        name="every.proto", package="p", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    enum = file.enum_type.add(name="Color")
    enum.value.add(name="RED", number=0)
    enum.value.add(name="BLUE", number=5)
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="n", number=1, type=Field.TYPE_SINT32, label=Field.LABEL_OPTIONAL)
    every = file.message_type.add(name="Every")
    pair = every.nested_type.add(name="CountsEntry")
    pair.options.map_entry = True
    pair.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    pair.field.add(name="value", number=2, type=Field.TYPE_MESSAGE, type_name=".p.Inner", label=Field.LABEL_OPTIONAL)
    every.oneof_decl.add(name="either")
    every.oneof_decl.add(name="_maybe")
    kinds = [
        ("text", Field.TYPE_STRING, {}),
        ("small", Field.TYPE_UINT32, {}),
        ("large", Field.TYPE_UINT64, {}),
        ("color", Field.TYPE_ENUM, {"type_name": ".p.Color"}),
        ("raw", Field.TYPE_BYTES, {}),
        ("at", Field.TYPE_MESSAGE, {"type_name": ".google.protobuf.Timestamp"}),
        ("inner", Field.TYPE_MESSAGE, {"type_name": ".p.Inner"}),
        ("many", Field.TYPE_DOUBLE, {"label": Field.LABEL_REPEATED}),
        ("counts", Field.TYPE_MESSAGE, {"type_name": ".p.Every.CountsEntry", "label": Field.LABEL_REPEATED}),
        ("left", Field.TYPE_INT64, {"oneof_index": 0}),
        ("right", Field.TYPE_BOOL, {"oneof_index": 0}),
        ("maybe", Field.TYPE_INT32, {"oneof_index": 1, "proto3_optional": True}),
    ]
    for number, (name, kind, more) in enumerate(kinds, 1):
        every.field.add(**{"name": name, "number": number, "type": kind, "label": Field.LABEL_OPTIONAL, **more})
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Every"))


def test_protobuf_messages_have_the_columns_of_their_descriptors():
    every = message_class()
    full = every(text="a", small=1 << 31, large=(1 << 64) - 1, color=5, raw=b"\xff", right=True, maybe=0, many=[1, 2.5])
    full.at.FromDatetime(datetime(2020, 1, 2, 3, tzinfo=UTC))
    full.inner.n = -3
    full.counts["k"].n = 7
    unknown = every(color=9, left=-1)
    kinds, rows = columns(
        ProtobufNativeSchema(every).info, [full.SerializeToString(), unknown.SerializeToString(), b"", None]
    )
    assert kinds == (
        "struct<text:string,small:bigint,large:decimal(20,0),color:string,raw:binary,at:timestamp,inner:struct<n:int>,"
        "many:array<double>,counts:map<string,struct<n:int>>,left:bigint,right:boolean,maybe:int>"
    )
    assert rows[0] == {
        "text": "a",
        "small": 1 << 31,
        "large": Decimal((1 << 64) - 1),
        "color": "BLUE",
        "raw": b"\xff",
        "at": datetime(2020, 1, 2, 3, tzinfo=UTC),
        "inner": {"n": -3},
        "many": [1.0, 2.5],
        "counts": [("k", {"n": 7})],
        "left": None,
        "right": True,
        "maybe": 0,
    }
    assert (rows[1]["color"], rows[1]["left"], rows[1]["right"], rows[1]["inner"]) == ("9", -1, None, None)
    assert (rows[2]["text"], rows[2]["color"], rows[2]["many"], rows[2]["maybe"]) == ("", "RED", [], None)
    assert set(rows[3].values()) == {None}


def simple_class():
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="p", syntax="proto2")
    made = file.message_type.add(name="Simple")
    made.field.add(name="n", number=3, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL, default_value="42")
    made.field.add(name="text", number=7, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    made.field.add(name="many", number=2, type=Field.TYPE_INT32, label=Field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Simple"))


def test_schema_of_type_protobuf_has_the_columns_whose_numbers_it_names():
    simple = simple_class()
    info = ProtobufSchema(simple).info
    assert [field["number"] for field in json.loads(info.properties[PARSING_INFO])] == [3, 7, 2]
    kinds, rows = columns(info, [simple(n=1, text="a", many=[1, 2]).SerializeToString(), b"", None])
    assert kinds == "struct<n:bigint,text:string,many:array<int>>"
    assert rows == [
        {"n": 1, "text": "a", "many": [1, 2]},
        {"n": 42, "text": "", "many": []},
        {"n": None, "text": None, "many": None},
    ]
    with pytest.raises(SchemaError, match="t: the PROTOBUF schema does not name the numbers of its fields"):
        columns(SchemaInfo("s", SchemaType.PROTOBUF, info.schema), [])
    with pytest.raises(SchemaError, match="t: color: a PROTOBUF schema does not say what is in a field of type ENUM"):
        columns(ProtobufSchema(message_class()).info, [])


def test_protobuf_schema_that_can_not_be_is_refused():
    broken = SchemaInfo("b", SchemaType.PROTOBUF_NATIVE, b'{"fileDescriptorSet":"/w==","rootMessageTypeName":"p.X"}')
    with pytest.raises(SchemaError, match="t: the PROTOBUF_NATIVE schema has no message that can be built"):
        value_fields(broken, "t")
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="p")
    itself = file.message_type.add(name="Itself")
    itself.field.add(name="next", number=1, type=11, type_name=".p.Itself", label=Field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    recursive = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Itself"))
    with pytest.raises(SchemaError, match=r"t: next: p\.Itself holds itself"):
        value_fields(ProtobufNativeSchema(recursive).info, "t")


def test_payload_that_is_no_message_is_told_by_its_row():
    info = ProtobufNativeSchema(simple_class()).info
    with pytest.raises(RowError, match="does not fit its schema") as raised:
        columns(info, [b"", b"\xff\xff"])
    assert raised.value.row == 1


@dataclass
class Item:
    name: str
    count: int


@pytest.mark.parametrize("encoding", list(KeyValueEncoding))
def test_pairs_have_a_column_for_the_key_and_one_for_the_value(encoding):
    schema = KeyValueSchema(AvroSchema(Item), StringSchema(), encoding)
    pairs = [KeyValue(Item("a", 1), "x"), KeyValue(Item("b", 2), "")]
    keys = [schema.encode_key(pair) for pair in pairs]
    kinds, rows = columns(schema.info, [*map(schema.encode, pairs), None], [*keys, keys[0]])
    assert kinds == "struct<key:struct<name:string,count:bigint>,value:string>"
    assert [row["value"] for row in rows] == ["x", "", None]
    assert [row["key"] for row in rows[:2]] == [{"name": "a", "count": 1}, {"name": "b", "count": 2}]
    # A tombstone of SEPARATED pairs still has its key.
    assert rows[2]["key"] == (None if encoding is KeyValueEncoding.INLINE else {"name": "a", "count": 1})


def test_inline_pairs_may_have_null_on_either_side_and_broken_ones_are_told_by_row():
    schema = KeyValueSchema(Int32Schema(), StringSchema())
    payloads = [schema.encode(KeyValue(None, "v")), schema.encode(KeyValue(7, None)), schema.encode(KeyValue(1, "w"))]
    assert columns(schema.info, payloads)[1] == [
        {"key": None, "value": "v"},
        {"key": 7, "value": None},
        {"key": 1, "value": "w"},
    ]
    for broken in (b"", b"\0\0\0\1", payloads[0] + b"x", b"\x7f\xff\xff\xff" + bytes(8), b"\xff\xff\xff\xfe" * 2):
        with pytest.raises(RowError, match="is no pair") as raised:
            columns(schema.info, [payloads[0], broken])
        assert raised.value.row == 1


def test_moments_and_local_times_are_timestamps():
    at = datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert columns(InstantSchema().info, [InstantSchema().encode(at)]) == ("struct<value:timestamp>", [{"value": at}])
    local = at.replace(tzinfo=None)
    found = columns(LocalDateTimeSchema().info, [LocalDateTimeSchema().encode(local)])
    assert found == ("struct<value:timestamp_ntz>", [{"value": local}])
    with pytest.raises(SchemaError, match="t: LOCAL_TIME schemas have no columns"):
        value_fields(SchemaInfo("l", SchemaType.LOCAL_TIME), "t")


def test_avro_unions_uuids_and_records_of_a_union_become_columns():
    one = {"type": "record", "name": "One", "fields": [{"name": "a", "type": "int"}]}
    two = {"type": "record", "name": "Two", "fields": [{"name": "b", "type": "string"}]}
    definition = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "any", "type": ["null", "int", "string", one, two]},
            {"name": "again", "type": ["null", "One"]},
        ],
    }
    parsed = fastavro.parse_schema(definition)
    number = UUID(int=5)
    values = [1, "x", ("One", {"a": 2}), ("Two", {"b": "y"}), None]
    payloads = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, {"id": number, "any": value, "again": {"a": 9}})
        payloads.append(out.getvalue())
    info = SchemaInfo("r", SchemaType.AVRO, json.dumps(definition).encode())
    _, rows = columns(info, payloads)
    members = [{k: v for k, v in (row["any"] or {}).items() if v is not None} for row in rows]
    assert members == [{"member0": 1}, {"member1": "x"}, {"member2": {"a": 2}}, {"member3": {"b": "y"}}, {}]
    assert {row["id"] for row in rows} == {str(number)}
    assert rows[0]["again"] == {"a": 9}


@pytest.mark.parametrize("form", ["AVRO", "JSON"])
def test_named_logical_type_that_is_used_again_by_its_name_is_the_same_there(form):
    """As Avro's tools write the second of two fields of one type."""
    money = {"type": "fixed", "name": "Money", "size": 8, "logicalType": "decimal", "precision": 10, "scale": 2}
    id_kind = {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"}
    definition = record("r", a=money, b="Money", c=["null", "Money"], id=id_kind, other={"type": "map", "values": "Id"})
    given = {"a": Decimal("1.25"), "b": Decimal("-3.50"), "c": Decimal(7)}
    ids = {"id": UUID(int=5).bytes, "other": {"x": UUID(int=6).bytes}}
    if form == "AVRO":
        info, payload = avro(definition), written(definition, {**given, **ids})
    else:
        info = SchemaInfo("r", SchemaType.JSON, json.dumps(definition).encode())
        texts = {"id": b64encode(ids["id"]).decode(), "other": {"x": b64encode(ids["other"]["x"]).decode()}}
        payload = json.dumps({**{name: str(one) for name, one in given.items()}, **texts}).encode()
    kinds, rows = columns(info, [payload])
    assert kinds == "struct<a:decimal(10,2),b:decimal(10,2),c:decimal(10,2),id:string,other:map<string,string>>"
    assert rows == [{**given, "id": str(UUID(int=5)), "other": [("x", str(UUID(int=6)))]}]


def test_uuid_of_bytes_is_told_from_text_in_a_union_and_is_none_of_another_size():
    id_kind = {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"}
    short = {"type": "fixed", "name": "Short", "size": 4, "logicalType": "uuid"}
    definition = record("r", any=["null", "string", id_kind], other=["null", "int", "Id"], short=short)
    payloads = [
        written(definition, {"any": one, "other": two, "short": b"1234"})
        for one, two in ((UUID(int=5).bytes, UUID(int=6).bytes), ("x", 1), (None, None))
    ]
    kinds, rows = columns(avro(definition), payloads)
    assert (
        kinds
        == "struct<any:struct<member0:string,member1:string>,other:struct<member0:int,member1:string>,short:binary>"
    )
    assert [(row["any"], row["other"]) for row in rows] == [
        ({"member0": None, "member1": str(UUID(int=5))}, {"member0": None, "member1": str(UUID(int=6))}),
        ({"member0": "x", "member1": None}, {"member0": 1, "member1": None}),
        (None, None),
    ]
    assert rows[0]["short"] == b"1234"


def test_logical_type_on_a_type_that_it_can_not_be_of_says_nothing():
    definition = record(
        "r", a={"type": "string", "logicalType": "timestamp-millis"}, b={"type": "long", "logicalType": "date"}
    )
    kinds, rows = columns(avro(definition), [written(record("r", a="string", b="long"), {"a": "x", "b": 1 << 40})])
    assert (kinds, rows) == ("struct<a:string,b:bigint>", [{"a": "x", "b": 1 << 40}])


def test_times_of_day_are_those_of_a_day():
    """Java's Time has the milliseconds of its moment: before 1970 east of Greenwich, of today where it is now."""
    millis = (0, 86_399_999, -1_800_000, 1_700_000_000_000)
    payloads = pa.array([struct.pack(">q", one) for one in millis], pa.binary())
    info = SchemaInfo("", SchemaType.TIME)
    found = part_of(info, info).whole(payloads, pa.time64("ns"))
    found.validate(full=True)
    assert found.cast(pa.int64()).to_pylist() == [one % 86_400_000 * 1_000_000 for one in millis]
    far = part_of(info, info).whole(pa.array([struct.pack(">q", (1 << 63) - 1)], pa.binary()), pa.time64("ns"))
    assert far.cast(pa.int64()).to_pylist() == [((1 << 63) - 1) % 86_400_000 * 1_000_000]
    info = SchemaInfo("", SchemaType.LOCAL_TIME)
    for never in (-1, 86_400 * 10**9):
        payloads = pa.array([bytes(8), struct.pack(">q", never)], pa.binary())
        with pytest.raises(RowError, match="a LOCAL_TIME of") as raised:
            part_of(info, info).whole(payloads, pa.time64("ns"))
        assert raised.value.row == 1


@pytest.mark.parametrize(
    ("kind", "never"),
    [
        (SchemaType.TIMESTAMP, struct.pack(">q", (1 << 63) - 1)),
        (SchemaType.DATE, struct.pack(">q", (1 << 63) - 1)),
        (SchemaType.LOCAL_DATE, struct.pack(">q", 365_241_780_471)),
        (SchemaType.LOCAL_DATE, struct.pack(">q", 1 << 32)),
        (SchemaType.INSTANT, struct.pack(">qi", 31_556_889_864_403_199, 999_999_999)),
        (SchemaType.LOCAL_DATE_TIME, struct.pack(">qq", 365_241_780_471, 86_399_999_999_999)),
        (SchemaType.LOCAL_DATE_TIME, struct.pack(">qq", 0, (1 << 63) - 1)),
    ],
)
def test_a_time_that_no_column_holds_is_named_and_not_another_time(kind, never):
    # Java's Instant.MAX, LocalDate.MAX, new Date(Long.MAX_VALUE): programs mean "never".
    info = SchemaInfo("", kind)
    with pytest.raises(RowError, match=f"does not fit its schema: a {kind.name} of") as raised:
        columns(info, [None, bytes(len(never)), never])
    assert raised.value.row == 2
    assert columns(info, [None, bytes(len(never))])[1][0] == {"value": None}


@pytest.mark.parametrize(
    ("kind", "payloads", "wanted", "misfits"),
    [
        (SchemaType.DOUBLE, [struct.pack(">d", one) for one in (2.5, 3.0, float("nan"))], pa.int64(), {0, 2}),
        (SchemaType.DOUBLE, [struct.pack(">d", one) for one in (0.1, 0.5, 1e300, float("inf"))], pa.float32(), {0, 2}),
        (SchemaType.INT64, [struct.pack(">q", one) for one in ((1 << 53) + 1, 5)], pa.float64(), {0}),
        (SchemaType.INT64, [struct.pack(">q", 300), struct.pack(">q", -1)], pa.int8(), {0}),
        (SchemaType.INT64, [struct.pack(">q", 5), b"short", None], pa.int64(), {1}),
        (SchemaType.STRING, [b"ok", b"\xff", None], pa.string(), {1}),
        (SchemaType.TIMESTAMP, [struct.pack(">q", 86_400_001), struct.pack(">q", 86_400_000)], pa.date32(), {0}),
    ],
)
def test_primitive_that_a_column_of_another_type_does_not_hold_exactly_is_told_by_its_row(
    kind, payloads, wanted, misfits
):
    part = part_of(SchemaInfo("", kind), SchemaInfo("", kind))
    with pytest.raises(RowError, match="does not fit its schema") as raised:
        part.whole(pa.array(payloads, pa.binary()), wanted)
    assert set(raised.value.misfits) == misfits
    fitting = [one for row, one in enumerate(payloads) if row not in misfits]
    assert len(part.whole(pa.array(fitting, pa.binary()), wanted)) == len(fitting)


def test_avro_value_that_a_column_of_another_type_does_not_hold_exactly_is_told_by_its_row():
    definition = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "double"}]}
    info = SchemaInfo("r", SchemaType.AVRO, json.dumps(definition).encode())
    payloads = [struct.pack("<d", one) for one in (2.0, 2.5, 1e300)]
    with pytest.raises(RowError, match=r"does not fit its schema: x: 2\.5") as raised:
        part_of(info, info).fields(pa.array(payloads, pa.binary()), {"x": pa.int64()})
    assert set(raised.value.misfits) == {1, 2}
    found = part_of(info, info).fields(pa.array(payloads, pa.binary()), {"x": pa.float64()})["x"]
    assert found.to_pylist() == [2.0, 2.5, 1e300]


def test_bytes_behind_an_avro_value_are_told_by_its_row():
    definition = {"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}]}
    info = SchemaInfo("r", SchemaType.AVRO, json.dumps(definition).encode())
    part = part_of(info, info)
    assert part.fields(pa.array([b"\x02", None], pa.binary()), {"v": pa.int32()})["v"].to_pylist() == [1, None]
    with pytest.raises(RowError, match="2 bytes of 3 are left behind the value") as caught:
        part.fields(pa.array([b"\x02", b"\x02ab"], pa.binary()), {"v": pa.int32()})
    assert set(caught.value.misfits) == {1}
