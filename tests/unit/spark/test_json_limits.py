"""What Spark's reader of JSON refuses wherever it stands does not pass, however the payloads are read."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from geminga.spark.decoding.json_gate import JsonGate, check_of
from geminga.spark.decoding.json_limits import DEPTH_MAX, DIGITS_MAX, NAME_CHARACTERS_MAX, beyond, may_exceed
from geminga.spark.source_rules.ddl import parse_columns


def arrays(depth: int) -> str:
    return "[" * depth + "]" * depth


def field(name: str) -> str:
    return f'1,"{name}" :1'


HALF = "n" * (NAME_CHARACTERS_MAX // 2)
BEYOND = {
    "arrays": arrays(DEPTH_MAX),
    "objects": '{"a":' * DEPTH_MAX + "1" + "}" * DEPTH_MAX,
    "a whole number": "1" * (DIGITS_MAX + 1),
    "a fraction": "-0." + "1" * DIGITS_MAX,
    "a name": field(f"{HALF}{HALF}n"),
    "a name with a quote": field(f'{HALF}\\"{HALF}'),
    "a name that ends with a backslash": field(f"{HALF}{HALF}\\\\"),
    "a name behind blanks": field(f"{HALF}{HALF}n").replace('" :', '"' + " " * 99 + ":"),
}
WITHIN = {
    "arrays": arrays(DEPTH_MAX // 2),
    "many brackets": ",".join(["[[1]]"] * DEPTH_MAX).join("[]"),
    "a whole number": "-" + "1" * DIGITS_MAX,
    "a fraction": "0." + "1" * (DIGITS_MAX - 1),
    "digits in a text": '"' + "1" * 5000 + '"',
    "a name": field(f"{HALF}{HALF}"),
    "a long text": f'"{HALF}{HALF}nn: \\" \\\\"',
    "escapes": field("\\u00e9" * (NAME_CHARACTERS_MAX // 2)),
}
#: Read by Arrow all at once, and one by one.
KINDS = ("int", "decimal(5,1)")


def misfits(kind: str, *values: str) -> dict[int, str]:
    payloads = pa.array([f'{{"v":1,"x":{value}}}'.encode() for value in values])
    return JsonGate(parse_columns(f"v {kind}")).misfits(payloads)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", BEYOND)
def test_payload_beyond_a_bound_of_spark_does_not_pass_and_says_why(kind, what):
    found = misfits(kind, "1", BEYOND[what], "2")
    assert list(found) == [1]
    assert "is no JSON" in found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_payloads_within_the_bounds_pass(kind):
    assert misfits(kind, *WITHIN.values()) == {}


def test_payload_of_a_long_text_is_read_with_the_others():
    assert not may_exceed(pa.array([f'{{"v":{WITHIN["a long text"]}}}'.encode(), b'{"v":1}']))
    assert not may_exceed(pa.array([b"x"] * 3, pa.binary()).slice(1))


def test_name_may_be_as_long_as_spark_takes_it_and_no_longer():
    longest, longer = (b'{"%b": 1}' % (b"x" * size) for size in (NAME_CHARACTERS_MAX, NAME_CHARACTERS_MAX + 1))
    assert [may_exceed(pa.array([one])) for one in (longest, longer)] == [False, True]
    assert beyond(longest.decode()) == ""
    assert beyond(longer.decode()) == "a name has 50001 characters: more than 50000"
    assert JsonGate(parse_columns("v int")).misfits(pa.array([longest, longer])).keys() == {1}


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_seconds_that_a_timestamp_has_passes_and_the_next_does_not(sign):
    last = ((1 << 63) - 1) // 1_000_000
    payloads = pa.array([f'{{"v": {sign}{seconds}}}'.encode() for seconds in (0, last, last + 1)])
    found = JsonGate(parse_columns("v timestamp")).misfits(payloads)
    assert list(found) == [2]
    assert "seconds are beyond a timestamp" in found[2]


@pytest.mark.parametrize("sign", ["", "-"])
def test_zero_has_an_exponent_that_javas_numbers_have(sign):
    check = check_of(parse_columns("v decimal(5,2)")["v"])
    for largest in (f"0e{sign}{(1 << 31) - 1}", Decimal(f"0e{sign}{(1 << 31) - 1}")):
        assert not check(largest)
    for larger in (f"0e{sign}{1 << 31}", Decimal(f"0e{sign}{1 << 31}")):
        with pytest.raises(ValueError, match="is no decimal"):
            check(larger)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_numbers_that_are_none_have_the_names_that_spark_knows(kind):
    gate = JsonGate(parse_columns(f"v {kind}"))
    for name in ("NaN", "+INF", "-INF", "Infinity", "+Infinity", "-Infinity"):
        assert gate.misfits(pa.array([b'{"v": "%b"}' % name.encode()])) == {}
    for name in ("nan", "INF", "inf", "infinity", "+NaN", ""):
        assert gate.misfits(pa.array([b'{"v": "%b"}' % name.encode()])).keys() == {0}


def test_text_of_a_misfit_names_the_column_where_there_is_one_and_nothing_where_there_is_none():
    gate = JsonGate(parse_columns("v int, w int"))
    given = [b'{"v": 1}', b'{"w": 1.5}', b"[1]", b"", b" ", b"{", b"\xff"]
    found = gate.misfits(pa.array(given))
    assert 0 not in found
    assert found[1] == (
        "does not fit its columns: w: 1.5 is written with a fraction or an exponent: expected a whole number"
    )
    assert found[2] == "is no JSON object: [1]"
    assert all(found[row].startswith("is no JSON: nothing: ") for row in (3, 4))
    assert found[5].startswith("is no JSON: b'{': ")
    assert found[6].startswith("is no text: ")
    assert JsonGate(parse_columns("v int"), takes_empty=True).misfits(pa.array([b"", b" "])).keys() == {1}


@pytest.mark.parametrize("kind", ["struct<a:int,b:decimal(5,1)>", "struct<a:int,b:struct<c:date>>"])
def test_struct_with_a_field_that_arrow_may_not_judge_is_judged_whole(kind):
    values = ['{"a":1}', '{"a":1,"b":"text"}', '{"a":2}']
    payloads = pa.array([f'{{"v":{value}}}'.encode() for value in values])
    assert list(JsonGate(parse_columns(f"v {kind}")).misfits(payloads)) == [1]
