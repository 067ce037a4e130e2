"""Definitions by which fastavro gives values whole; what comes of it is told by the tests of those who read by them."""

from __future__ import annotations

import io

import fastavro
import pytest

from geminga.wire.avro_exact import TIMES, DefaultError, parsed_exactly


def test_times_that_no_calendar_has_are_refused_and_cut_in_the_text() -> None:
    for name, number in (
        ("date", 1 << 31),
        ("time-millis", -1),
        ("time-micros", 1 << 63),
        ("timestamp-micros", 1 << 62),
    ):
        with pytest.raises(ValueError, match=str(number)):
            TIMES[name](number)
    with pytest.raises(ValueError, match=r"\(101 characters\)"):
        TIMES["time-millis"](10**100)


def test_the_definition_that_was_given_stays_as_it_is() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    definition = {"type": "record", "name": "R", "fields": [{"name": "p", "type": price, "default": "\u00ff"}]}
    before = repr(definition)
    parsed_exactly(fastavro, definition)
    assert repr(definition) == before


def test_a_decimal_as_a_default_that_is_too_large_is_an_error_of_its_field() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    fields = [{"name": "p", "type": price, "default": "\u007f" + "\u0000" * 1024}]
    with pytest.raises(DefaultError, match=r"^p: the default can not be: a decimal of 1025 bytes"):
        parsed_exactly(fastavro, {"type": "record", "name": "R", "fields": fields})


@pytest.mark.parametrize(("wrote", "reads", "number"), [("int", "float", 16_777_216), ("long", "double", -(1 << 62))])
def test_a_whole_number_that_floating_point_holds_is_read_as_that(wrote: str, reads: str, number: int) -> None:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, wrote, number)
    buffer.seek(0)
    found = fastavro.schemaless_reader(
        buffer, parsed_exactly(fastavro, wrote, f'"{reads}"'), parsed_exactly(fastavro, reads)
    )
    assert found == number
    assert type(found) is float
