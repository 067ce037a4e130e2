"""What a balancer says of where a request came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.wire.forwarded import forwarded_for

NAME = b"x-forwarded-for"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"203.0.113.7", ("203.0.113.7", 0)),
        (b"203.0.113.7:4711", ("203.0.113.7", 4711)),
        (b" 203.0.113.7 , 10.0.0.1, 10.0.0.2", ("203.0.113.7", 0)),
        (b"2001:db8::1", ("2001:db8::1", 0)),
        (b"[2001:db8::1]", ("2001:db8::1", 0)),
        (b'"[2001:DB8::1]:4711"', ("2001:db8::1", 4711)),
        (b"", None),
        (b"unknown", None),
        (b"_hidden, 203.0.113.7", None),
        (b"host.example:80", None),
        (b"203.0.113.7:port", None),
        (b"203.0.113.7:65536", None),
        (b"203.0.113.7:" + b"1" * 5000, None),
        (b"[2001:db8::1]4711", None),
        (b"203.0.113.7\r\nx: y", None),
        (b"\xb2.0.0.1", None),
    ],
)
def test_the_first_address_is_the_clients(value: bytes, found: tuple[str, int] | None) -> None:
    assert forwarded_for([(b"host", b"h"), (NAME, value), (NAME, b"198.51.100.1")]) == found


def test_without_the_header_nothing_is_said() -> None:
    assert forwarded_for([(b"forwarded", b"for=203.0.113.7")]) is None


@given(st.binary(max_size=100))
def test_whatever_is_sent_is_an_address_or_nothing(value: bytes) -> None:
    found = forwarded_for([(NAME, value)])
    assert found is None or (len(found[0]) <= 80 and 0 <= found[1] <= 65_535)
