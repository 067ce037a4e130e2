"""Addresses of the console: what is made can be read again, and nobody is sent anywhere else."""

from __future__ import annotations

import pytest

from geminga.app.console.core.addresses import (
    FIELDS_MAX,
    FORM_BYTES_MAX,
    TooMuchError,
    address,
    fields_of,
    is_inside,
    matched,
    with_fields,
)


@pytest.mark.parametrize("name", ["persistent://a/b/c", "..", "<script>&amp;", "a b+c%2F", "日本\n", "a=1&b=2#x"])
def test_a_name_goes_through_an_address_as_it_is(name: str) -> None:
    assert fields_of(address("/topic", topic=name).partition("?")[2].encode()) == {"topic": name}


def test_fields_that_are_empty_are_left_out() -> None:
    assert address("/topics", q="", page=None, namespace="a/b", number=0) == "/console/topics?namespace=a%2Fb&number=0"


def test_the_first_value_of_a_name_counts() -> None:
    assert fields_of(b"a=1&a=2&b=") == {"a": "1", "b": ""}


@pytest.mark.parametrize("text", [b"a=" + b"x" * FORM_BYTES_MAX, b"&".join(b"a%d=" % n for n in range(FIELDS_MAX + 1))])
def test_a_form_that_is_too_large_is_refused(text: bytes) -> None:
    with pytest.raises(TooMuchError, match="at most"):
        fields_of(text)


def test_paths_have_parameters() -> None:
    assert matched("/topics/{name}/x", "/topics/a%2Fb/x") == {"name": "a/b"}
    assert matched("/topics/{name}/x", "/topics//x") is None
    assert matched("/topics/{name}", "/topics/a/b") is None
    assert matched("/topics", "/topic") is None


@pytest.mark.parametrize("target", ["/console", "/console/", "/console/topics?q=a", "/console?x=1"])
def test_pages_of_the_console_may_be_gone_to(target: str) -> None:
    assert is_inside(target)


@pytest.mark.parametrize(
    "target",
    ["", "//evil", "/consoles", "https://evil/console/", "/console/\\evil", "/console/\nx", "console/", "/console/\r"],
)
def test_nobody_is_sent_elsewhere(target: str) -> None:
    assert not is_inside(target)


def test_fields_are_added_to_what_is_there() -> None:
    assert with_fields("/console/a", {"x": "1 2"}) == "/console/a?x=1%202"
    assert with_fields("/console/a?b=1", {"x": "ä"}) == "/console/a?b=1&x=%C3%A4"
