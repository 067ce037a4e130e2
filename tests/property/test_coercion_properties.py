"""JSON values read as Pulsar's administration reads them, against rules written once more as simply as possible."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from geminga.broker.core.coercion import INT_MAX, LONG_MAX, BodyError, boolean_of, number_of, text_of, texts_of

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=30),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.integers(-100, 100).map(lambda number: f" {number}\t"),
    st.sampled_from(["true", "True", "TRUE", " false", "yes", "", "1e3", "0x10", "1_000", "\u0661", "2.0", "-", "+"]),
)
VALUES = st.one_of(LEAVES, st.lists(LEAVES, max_size=3), st.dictionaries(st.text(max_size=5), LEAVES, max_size=2))


def expected_number(value: object, most: int) -> int | None:
    """None: refused."""
    if isinstance(value, str):
        digits = value.strip().removeprefix("-") if value.strip().startswith("-") else value.strip().removeprefix("+")
        if not digits or not all(character in "0123456789" for character in digits) or len(digits) > 20:
            return None
        number = int(value)
    elif isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        return None
    else:
        number = int(value)
    return number if -most - 1 <= number <= most else None


def read(reader, *arguments):
    try:
        return reader(*arguments)
    except BodyError:
        return None


@given(VALUES, st.sampled_from([INT_MAX, LONG_MAX]))
@example("2147483648", INT_MAX)
@example("-2147483648", INT_MAX)
@example(True, INT_MAX)
@example(2.5, INT_MAX)
@example("", INT_MAX)
def test_numbers_are_taken_as_such_as_texts_and_as_whole_floats(value, most: int) -> None:
    assert read(number_of, value, "what", most) == expected_number(value, most)


@given(VALUES)
def test_booleans_are_taken_as_such_as_texts_and_as_whole_numbers(value) -> None:
    expected = None
    if isinstance(value, int):
        expected = bool(value)
    elif isinstance(value, str) and value.strip() in ("true", "True", "TRUE", "false", "False", "FALSE"):
        expected = value.strip().lower() == "true"
    assert read(boolean_of, value, "what") is expected


@given(VALUES)
def test_texts_are_taken_with_numbers_and_booleans_as_json_writes_them(value) -> None:
    expected = None
    if isinstance(value, str):
        expected = value
    elif isinstance(value, bool | int | float):
        expected = json.dumps(value)
    assert read(text_of, value, "what") == expected


@given(VALUES)
def test_lists_of_texts_keep_the_first_of_each(value) -> None:
    expected = None
    if isinstance(value, list):
        texts = [read(text_of, item, "what") for item in value]
        expected = None if None in texts else [text for at, text in enumerate(texts) if text not in texts[:at]]
    assert read(texts_of, value, "what") == expected
