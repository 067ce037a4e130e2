"""JSON values read leniently: what an error says. The rules are in ``tests/property/test_coercion_properties.py``."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import VALUES_MAX, BodyError, has_too_many_values, number_of, object_of, shown


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


@pytest.mark.parametrize("one", ["[]", "{}", "1", '"a"', '"\\\\"', '"\\""', "null"])
def test_values_of_a_json_text_are_counted_before_it_is_read(one: str) -> None:
    assert not has_too_many_values(f"[{','.join([one] * (VALUES_MAX // 2))}]")
    many = f"[{','.join([one] * (VALUES_MAX + 1))}]"
    assert has_too_many_values(many)
    assert has_too_many_values(many.encode())


@pytest.mark.parametrize("text", [",[{" * VALUES_MAX, '\\",' * VALUES_MAX, "\\\\," * VALUES_MAX, "ä," * VALUES_MAX])
def test_what_texts_in_a_json_text_hold_are_no_values(text: str) -> None:
    whole = f'{{"a": ["{text}", "{text}"], "b": 1}}'
    assert not has_too_many_values(whole)
    assert not has_too_many_values(whole.encode())
