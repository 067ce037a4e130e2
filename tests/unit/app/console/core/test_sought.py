"""Which messages are looked for."""

from __future__ import annotations

import pytest

from geminga.app.console.core.entries import ViewedMessage
from geminga.app.console.core.moments import MomentError
from geminga.app.console.core.sought import PROPERTIES_MAX, Sought, SoughtError, sought_of

MESSAGE = ViewedMessage("3:7", b"", "k", properties={"a": "1", "b": "2"}, publish_time="1970-01-01T00:00:05Z")


@pytest.mark.parametrize(
    ("query", "is_wanted"),
    [
        ({}, True),
        ({"key": "k"}, True),
        ({"key": "K"}, False),
        ({"property": "a=1\n b=2 \n"}, True),
        ({"property": "a=2"}, False),
        ({"property": "c="}, False),
        ({"since": "5000", "until": "5001"}, True),
        ({"since": "5001"}, False),
        ({"until": "1970-01-01T00:00:05Z"}, False),
    ],
)
def test_all_that_is_given_must_hold(query: dict[str, str], is_wanted: bool) -> None:
    assert sought_of(query).may_be(MESSAGE) is is_wanted


def test_key_of_bytes_is_compared_as_it_is_shown() -> None:
    for typed in ("k\\xff", "6b ff", "6bff"):
        assert Sought(key=typed).may_be(MESSAGE._replace(key=b"k\xff"))
    assert not Sought(key="k").may_be(MESSAGE._replace(key=None))


def test_text_is_found_whatever_its_case() -> None:
    assert Sought(text="Straße").has_text("in der STRASSE")
    assert not Sought(text="x").has_text("y")
    assert Sought().has_text("")
    assert Sought().is_all
    assert not Sought(text="x").is_all


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"property": "a"}, "'a' is no property: expected name=value"),
        ({"property": "=a"}, "expected name=value"),
        ({"property": "a=1\n" * (PROPERTIES_MAX + 1)}, "at most 10"),
        ({"text": "x" * 501}, "text has more than 500 characters"),
        ({"since": "7000", "until": "6000"}, "since must be before until"),
    ],
)
def test_form_that_is_not_understood_says_what_was_expected(query: dict[str, str], words: str) -> None:
    with pytest.raises(SoughtError, match=words):
        sought_of(query)


def test_as_much_as_is_said_to_be_allowed_is_looked_for() -> None:
    assert sought_of({"text": "x" * 500}).text == "x" * 500
    assert (
        len(sought_of({"property": "\n".join(f"{name}=1" for name in range(PROPERTIES_MAX))}).properties)
        == PROPERTIES_MAX
    )


def test_time_that_is_none_says_so() -> None:
    with pytest.raises(MomentError):
        sought_of({"since": "soon"})
