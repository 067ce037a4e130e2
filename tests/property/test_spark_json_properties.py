"""JSON payloads read by Arrow together: the columns that reading them one by one gives, or the caller reads them so."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.spark.decoding.avro_types import StructField, StructType, spark_type
from geminga.spark.decoding.avro_values import json_converter, load_json
from geminga.spark.decoding.exact import exact_array
from geminga.spark.decoding.json_columns import JsonColumns
from geminga.spark.decoding.json_gate import JsonGate
from geminga.spark.decoding.part_decoding import RowError, part_of
from geminga.spark.rules.columns import arrow_schema
from geminga.spark.source_rules.ddl import parse_columns
from geminga.spark.source_rules.errors import SchemaError
from support.connector.dirty_json import literal, seeded, whole_number

DEFINITION = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": ["null", "int"]},
        {"name": "b", "type": "long"},
        {"name": "c", "type": "string"},
        {"name": "d", "type": ["null", "double"]},
        {"name": "e", "type": "float"},
        {"name": "f", "type": "boolean"},
        {"name": "g", "type": {"type": "array", "items": "int"}},
        {"name": "h", "type": ["null", {"type": "record", "name": "I", "fields": [{"name": "x", "type": "string"}]}]},
        {"name": "i", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "j", "type": ["null", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]},
    ],
}
TYPES = {
    "a": pa.int32(),
    "b": pa.int64(),
    "c": pa.string(),
    "d": pa.float64(),
    "e": pa.float32(),
    "f": pa.bool_(),
    "g": pa.list_(pa.int32()),
    "h": pa.struct([("x", pa.string())]),
    "i": pa.timestamp("us", tz="UTC"),
    "j": pa.string(),
}
INFO = SchemaInfo("r", SchemaType.JSON, json.dumps(DEFINITION).encode())
numbers = st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 64), 1 << 64), st.floats(width=32))
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["x", "y"]), inner)),
    max_leaves=4,
)
proper = st.fixed_dictionaries(
    {},
    optional={
        "a": st.one_of(st.none(), st.integers(-(1 << 31), (1 << 31) - 1)),
        "b": st.integers(-(1 << 63), (1 << 63) - 1),
        "c": st.text(max_size=6),
        "d": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-9, 9)),
        "e": st.floats(allow_nan=False, allow_infinity=False, width=32),
        "f": st.booleans(),
        "g": st.lists(st.integers(-5, 5), max_size=3),
        "h": st.one_of(st.none(), st.fixed_dictionaries({}, optional={"x": st.text(max_size=3), "z": st.integers()})),
        "i": st.integers(-(1 << 45), 1 << 45),
        "j": st.one_of(st.none(), st.sampled_from(["A", "B"])),
        "unknown": anything,
    },
)
strange = st.dictionaries(st.sampled_from([*TYPES, "unknown"]), anything, max_size=4)
texts = st.one_of(
    proper.map(json.dumps),
    proper.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))),
    strange.map(json.dumps),
    st.sampled_from(
        ["{}", "{}{}", "{", "null", "[]", "", '{"a":1,"a":2}', '{"a":\n1}', ' {"a":1} ', '{"c":"\\ud800"}']
    ),
).map(lambda text: text.encode("utf-8", "surrogatepass"))
payloads = st.lists(st.one_of(texts, st.none(), st.just(b'{"c":"\xff"}')), min_size=1, max_size=6)


def one_by_one(found):
    """Columns, and the rows that do not fit."""
    convert = json_converter(DEFINITION)
    decoded, misfits = [], set()
    for row, one in enumerate(found):
        try:
            decoded.append({} if one is None else convert(load_json(one)))
        except (ValueError, OverflowError):
            decoded.append({})
            misfits.add(row)
    columns = {}
    for name, kind in TYPES.items():
        columns[name], those = exact_array([one.get(name) for one in decoded], kind)
        misfits |= set(those)
    return columns, misfits


@given(payloads)
def test_payloads_read_together_are_what_they_are_one_by_one(found):
    values = pa.array([one for one in found if one is not None], pa.binary())
    together = JsonColumns(DEFINITION).read(values, TYPES)
    if together is not None:
        expected, misfits = one_by_one([one for one in found if one is not None])
        assert not misfits
        for name in TYPES:
            together[name].validate(full=True)
            assert together[name].equals(expected[name]), name


@given(st.lists(st.one_of(proper.map(json.dumps).map(str.encode), st.none()), min_size=1, max_size=6))
def test_proper_payloads_with_tombstones_among_them_keep_their_rows(found):
    columns = part_of(INFO, INFO).fields(pa.array(found, pa.binary()), TYPES)
    expected, _ = one_by_one(found)
    for name in TYPES:
        assert columns[name].equals(expected[name]), name


def test_proper_payloads_are_read_together():
    values = [b'{"a":1,"b":2,"c":"x","d":3,"e":0.1,"f":true,"g":[1],"h":{"x":"y"},"i":1700000000000,"j":"A"}', b"{}"]
    assert JsonColumns(DEFINITION).read(pa.array(values, pa.binary()), TYPES) is not None


def test_time_that_python_has_no_year_for_fails_in_company_as_it_does_alone():
    for found in ([b'{"i":1e15}'], [b'{"i":999999999999999}'], [b'{"i":999999999999999}', b'{"i":1}']):
        with pytest.raises(SchemaError):
            part_of(INFO, INFO).fields(pa.array(found, pa.binary()), TYPES)


SEED = 733
#: Dirty values of each type.
VALUES = [
    pytest.param(40, id="some"),
    pytest.param(10_000, id="all", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
]
#: Values among which some fit.
FITTING_FROM = 1000
KINDS = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
    "array": {"type": "array", "items": "float"},
    "record": {"type": "record", "name": "I", "fields": [{"name": "a", "type": "int"}]},
    "map": {"type": "map", "values": "int"},
}


def same(one, other):
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize("count", VALUES)
@pytest.mark.parametrize("kind", KINDS)
def test_dirty_values_are_the_same_in_company_and_alone_and_exact_or_refused(kind, count):
    """All of a batch at once, with Arrow where it dares, and each by itself through the plain decoder."""
    definition = {"type": "record", "name": "R", "fields": [{"name": "v", "type": ["null", KINDS[kind]]}]}
    info = SchemaInfo("r", SchemaType.JSON, json.dumps(definition).encode())
    arrow = arrow_schema(StructType([StructField("v", spark_type(KINDS[kind]))])).field("v").type
    part, convert = part_of(info, info), json_converter(definition)
    random, fitting = seeded(f"{SEED} {kind}"), []
    for _ in range(count):
        text = literal(random)
        payload = f'{{"v":{text}}}'.encode()
        try:
            alone, misfits = exact_array([convert(load_json(payload)).get("v")], arrow)
            alone = None if misfits else alone
        except (ValueError, OverflowError):
            alone = None
        try:
            together = part.fields(pa.array([payload], pa.binary()), {"v": arrow})["v"]
        except RowError:
            together = None
        assert (alone is None) == (together is None), text
        if alone is None or together is None:
            assert kind not in ("int", "long") or whole_number(text, 32 if kind == "int" else 64) is None, text
            continue
        fitting.append((payload, alone))
        (found,) = together.to_pylist()
        assert same(found, alone.to_pylist()[0]), text
        if text != "null" and kind in ("int", "long"):
            assert found == whole_number(text, 32 if kind == "int" else 64), text
        if text != "null" and kind == "double":
            assert same(found, float(text)), text
        if kind == "string" and text != "null":
            assert found == json.loads(text)
    _tell(kind, count, len(fitting))
    if fitting:
        company = part.fields(pa.array([payload for payload, _ in fitting], pa.binary()), {"v": arrow})["v"]
        expected = pa.concat_arrays([alone for _, alone in fitting])
        assert all(map(same, company.to_pylist(), expected.to_pylist()))


def _tell(kind, count, fitting):
    print(f"{kind}: {count} dirty values, {fitting} of them fit")
    assert fitting < count
    assert fitting or count < FITTING_FROM


DDL = ["boolean", "tinyint", "smallint", "int", "long", "float", "double", "string"]
MORE_DDL = ["binary", "date", "timestamp", "timestamp_ntz"]


@pytest.mark.parametrize("count", VALUES)
@pytest.mark.parametrize("kind", [*DDL, *MORE_DDL, "decimal(5,1)", "array<int>", "struct<a:int>", "map<string,int>"])
def test_columns_of_a_pipeline_take_in_company_what_they_take_alone(kind, count):
    gate, random, fitting = JsonGate(parse_columns(f"v {kind}")), seeded(f"{SEED} {kind}"), []
    for _ in range(count):
        payload = f'{{"v":{literal(random)}}}'.encode()
        misfits = gate.misfits(pa.array([None, payload], pa.binary()))
        assert set(misfits) == ({1} if gate.of_payload(payload) else set()), payload
        if not misfits:
            fitting.append(payload)
    _tell(kind, count, len(fitting))
    assert gate.misfits(pa.array(fitting, pa.binary())) == {}
