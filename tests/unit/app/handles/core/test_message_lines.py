"""Lines say what messages were, and come back equal; what is no line is told with its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.app.handles.core.message_lines import (
    Header,
    LineError,
    MessageLine,
    SchemaLine,
    header_line,
    message_line,
    parse_line,
    schema_line,
)

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_LINES = st.builds(
    MessageLine,
    st.just("5:3:1"),
    st.none() | st.binary(max_size=16),
    st.none() | _TEXT | st.binary(max_size=8),
    st.binary(max_size=4),
    st.dictionaries(_TEXT, _TEXT, max_size=3),
    st.integers(0, 1 << 63),
    st.integers(0, 1 << 63),
    st.binary(max_size=8),
    st.integers(-1, 9),
)


@given(_LINES)
def test_a_message_comes_back_equal(line: MessageLine) -> None:
    text = message_line(line)
    assert "\n" not in text
    assert parse_line(text.encode(), 1) == line


@given(st.builds(SchemaLine, st.binary(max_size=8), _TEXT, _TEXT, st.binary(), st.dictionaries(_TEXT, _TEXT)))
def test_a_schema_comes_back_equal(schema: SchemaLine) -> None:
    assert parse_line(schema_line(schema), 1) == schema


def test_a_header_comes_back_and_another_version_is_refused() -> None:
    text = header_line(Header("t"))
    assert parse_line(text, 1) == Header("t")
    with pytest.raises(LineError, match=r"line 1: the file is geminga-messages 2; expected geminga-messages 1"):
        parse_line(text.replace(":1", ":2"), 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 7 is no JSON"),
        ("[]", "expected an object"),
        ('{"id": "1:2"}', "there is no 'payload'"),
        ('{"payload": ""}', "there is no 'id'"),
        ('{"id": 5, "payload": ""}', "id is 5; expected a text"),
        ('{"id": "1:2", "payloadBase64": "_"}', "payloadBase64 is no base64"),
        ('{"id": "1:2", "payload": "", "eventTime": "1"}', "eventTime is '1'; expected a number"),
        ('{"id": "1:2", "payload": "", "properties": {"a": 1}}', "properties are texts by name"),
        ('{"schema": {"version": ""}}', "there is no 'name'"),
    ],
)
def test_what_is_no_line_is_told(text: str, told: str) -> None:
    with pytest.raises(LineError, match="line 7") as error:
        parse_line(text, 7)
    assert told in str(error.value)
