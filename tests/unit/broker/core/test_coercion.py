"""JSON values read leniently: what an error says. The rules are in ``tests/property/test_coercion_properties.py``."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import BodyError, number_of, object_of, shown


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "nothing"),
        (True, "true"),
        (0, "0"),
        (2.5, "2.5"),
        ("x" * 100, repr("x" * 40)),
        ([1], "a list"),
        ({}, "an object"),
        (10**60, str(10**60)[:40]),
    ],
)
def test_an_error_names_the_value_and_is_never_long(value, words: str) -> None:
    assert shown(value) == words


def test_what_is_no_object_is_refused() -> None:
    assert object_of({"a": 1}, "the body") == {"a": 1}
    with pytest.raises(BodyError, match="the body must be a JSON object, not a list"):
        object_of([], "the body")
    with pytest.raises(BodyError, match="limitSize must be from -6 to 5"):
        number_of("6", "limitSize", 5)
