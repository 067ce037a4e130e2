"""JSON payloads read by Arrow together: the columns that reading them one by one gives, or the caller reads them so."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.spark.source.avro_values import json_converter
from geminga.spark.source.errors import SchemaError
from geminga.spark.source.json_columns import JsonColumns
from geminga.spark.source.part_decoding import part_of

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
        "e": st.floats(allow_nan=False, allow_infinity=False),
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
    convert = json_converter(DEFINITION)
    nothing = dict.fromkeys(TYPES)
    decoded = [nothing if one is None else convert(json.loads(one)) for one in found]
    return {name: pa.array([one.get(name) for one in decoded], kind) for name, kind in TYPES.items()}


@given(payloads)
def test_payloads_read_together_are_what_they_are_one_by_one(found):
    values = pa.array([one for one in found if one is not None], pa.binary())
    together = JsonColumns(DEFINITION).read(values, TYPES)
    if together is not None:
        expected = one_by_one([one for one in found if one is not None])
        for name in TYPES:
            together[name].validate(full=True)
            assert together[name].equals(expected[name]), name


@given(st.lists(st.one_of(proper.map(json.dumps).map(str.encode), st.none()), min_size=1, max_size=6))
def test_proper_payloads_with_tombstones_among_them_keep_their_rows(found):
    columns = part_of(INFO, INFO).fields(pa.array(found, pa.binary()), TYPES)
    expected = one_by_one(found)
    for name in TYPES:
        assert columns[name].equals(expected[name]), name


def test_proper_payloads_are_read_together():
    values = [b'{"a":1,"b":2,"c":"x","d":3,"e":0.1,"f":true,"g":[1],"h":{"x":"y"},"i":1700000000000,"j":"A"}', b"{}"]
    assert JsonColumns(DEFINITION).read(pa.array(values, pa.binary()), TYPES) is not None


def test_time_that_python_has_no_year_for_fails_in_company_as_it_does_alone():
    for found in ([b'{"i":1e15}'], [b'{"i":999999999999999}'], [b'{"i":999999999999999}', b'{"i":1}']):
        with pytest.raises(SchemaError):
            part_of(INFO, INFO).fields(pa.array(found, pa.binary()), TYPES)
