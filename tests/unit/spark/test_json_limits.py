"""What Spark's reader of JSON refuses wherever it stands does not pass, however the payloads are read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from geminga.spark.decoding.json_gate import JsonGate
from geminga.spark.decoding.json_limits import DEPTH_MAX, DIGITS_MAX, NAME_CHARACTERS_MAX, may_exceed
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
