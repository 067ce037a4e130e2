"""A payload as a page shows it."""

from __future__ import annotations

from geminga.app.console.core.values import (
    LISTED_BYTES,
    LISTED_CHARACTERS,
    LISTED_DECODED_BYTES_MAX,
    SHOWN_BYTES,
    HexRow,
    Reading,
    hex_rows,
)

AVRO = {"type": "AVRO", "data": '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'}


def test_value_is_read_by_the_version_it_was_written_with() -> None:
    reading = Reading()
    reading.learn(2, AVRO)
    assert reading.is_known(2)
    assert not reading.is_known(3)
    found = reading.value_of(b"\x04hi", None, 2, is_listed=True)
    assert (found.form, found.text, found.read_by) == ("json", '{\n  "a": "hi"\n}', "AVRO version 2")
    assert reading.text_of(b"\x04hi", None, 2) == found.text


def test_value_that_does_not_fit_its_schema_is_bytes_and_says_why() -> None:
    reading = Reading()
    reading.learn(2, AVRO)
    found = reading.value_of(b"hello", None, 2, is_listed=True)
    assert (found.form, found.text) == ("bytes", "")
    assert found.problem == "it is no AVRO version 2: the value.a needs 52 bytes and 4 are left"
    assert found.rows == (HexRow("00000000", "68 65 6c 6c 6f", "hello"),)
    assert reading.text_of(b"hello", None, 2) == "hello"


def test_schema_that_can_not_be_had_is_said() -> None:
    reading = Reading()
    reading.learn(2, None, "version 2 was deleted")
    found = reading.value_of(b"hello", None, 2, is_listed=True)
    assert (found.form, found.text, found.problem) == ("text", "hello", "version 2 was deleted")
    reading.learn(3, {"type": "AVRO", "data": "{"})
    assert "not JSON" in reading.value_of(b"hello", None, 3, is_listed=True).problem


def test_without_a_schema_it_is_text_or_bytes() -> None:
    reading = Reading()
    assert reading.value_of(b"a\nb", None, None, is_listed=True).form == "text"
    assert reading.value_of(b"", None, None, is_listed=True).form == "text"
    assert reading.value_of(b"a\x00", None, None, is_listed=True).form == "bytes"
    assert reading.value_of(None, None, None, is_listed=True).form == "null"


def test_large_value_is_cut_and_says_how_much_is_left() -> None:
    reading = Reading()
    text = reading.value_of(b"x" * (LISTED_CHARACTERS + 3), None, None, is_listed=True)
    assert (len(text.text), text.left) == (LISTED_CHARACTERS, 3)
    data = b"\xff" * (SHOWN_BYTES + 5)
    listed = reading.value_of(data, None, None, is_listed=True)
    assert (len(listed.rows) * 16, listed.left) == (LISTED_BYTES, SHOWN_BYTES + 5 - LISTED_BYTES)
    shown = reading.value_of(data, None, None, is_listed=False)
    assert (len(shown.rows) * 16, shown.left, shown.size_bytes) == (SHOWN_BYTES, 5, SHOWN_BYTES + 5)


def test_value_too_large_to_be_read_is_shown_as_it_is_and_says_why() -> None:
    reading = Reading()
    reading.learn(0, {"type": "JSON", "data": ""})
    data = b"[" + b"1," * LISTED_DECODED_BYTES_MAX + b"1]"
    listed = reading.value_of(data, None, 0, is_listed=True)
    assert (listed.form, listed.text[:3]) == ("text", "[1,")
    assert listed.problem == "it has 131,075 bytes, and not more than 65,536 are read here"
    shown = reading.value_of(data, None, 0, is_listed=False)
    assert (shown.form, shown.problem) == ("json", "")
    assert reading.value_of(data * 9, None, 0, is_listed=False).problem.endswith(
        "not more than 1,048,576 are read here"
    )
    assert reading.text_of(data, None, 0) == data.decode()


def test_json_nested_too_deep_is_bytes() -> None:
    reading = Reading()
    reading.learn(0, {"type": "JSON", "data": ""})
    found = reading.value_of(b"[" * 50_000, None, 0, is_listed=True)
    assert found.form == "bytes"
    assert "nested too deep" in found.problem


def test_rows_say_where_they_are() -> None:
    rows = list(hex_rows(bytes(range(0x41, 0x53)), offset=16))
    assert rows[1] == HexRow("00000020", "51 52", "QR")
    assert rows[0].text == "ABCDEFGHIJKLMNOP"
