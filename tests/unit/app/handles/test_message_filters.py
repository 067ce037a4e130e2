"""Which messages an export or a look takes: each part of what is asked for, and payloads that are no such JSON."""

from __future__ import annotations

import pytest

from geminga.app.handles.core.filters import Filter, json_test
from geminga.app.handles.core.message_lines import MessageLine
from geminga.model.errors import ConfigurationError

LINE = MessageLine("1:2", b'{"order": {"lines": [{"id": 5}], "paid": true, "note": "x"}}', "k", publish_time_ms=1000)


@pytest.mark.parametrize(
    ("wanted", "is_wanted"),
    [
        (Filter(), True),
        (Filter(key="k"), True),
        (Filter(key="other"), False),
        (Filter(properties={"a": "b"}), False),
        (Filter(since_ms=1000, until_ms=1001), True),
        (Filter(since_ms=1001), False),
        (Filter(until_ms=1000), False),
    ],
)
def test_keys_properties_and_times_are_looked_at(wanted: Filter, is_wanted: bool) -> None:
    assert wanted.wants(LINE) == is_wanted


@pytest.mark.parametrize(
    ("test", "is_wanted"),
    [
        ("order.lines[0].id=5", True),
        ("$.order.note=x", True),
        ('order.note="x"', True),
        ("order.paid=true", True),
        ("order.paid=1", False),
        ("order.lines[1].id=5", False),
        ("order[0]=5", False),
        ("order.lines.id=5", False),
        ("order.missing=null", False),
    ],
)
def test_places_of_a_payload_are_compared_as_in_json(test: str, is_wanted: bool) -> None:
    assert Filter(tests=(json_test(test),)).wants(LINE) == is_wanted


@pytest.mark.parametrize("payload", [None, b"", b"{", b"\xff", b"5"])
def test_a_payload_that_has_no_such_place_is_not_wanted(payload: bytes | None) -> None:
    assert not Filter(tests=(json_test("a=5"),)).wants(LINE._replace(payload=payload))


@pytest.mark.parametrize("text", ["", "a", "=5", "a[x]=5", "a[0=5"])
def test_what_is_no_test_says_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected PATH=VALUE, as in order\.lines\[0\]\.id=5"):
        json_test(text)
