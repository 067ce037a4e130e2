"""Ids that are addresses, and lists of bookies."""

from __future__ import annotations

import pytest

from geminga.bookkeeper.core.addresses import BookieAddress, address_of_id, parse_bookie_list
from geminga.model.errors import ConfigurationError


def test_ids_that_are_addresses() -> None:
    assert address_of_id("10.0.0.7:3181") == BookieAddress("10.0.0.7", 3181)
    assert address_of_id("bookie-1.example:65535") == BookieAddress("bookie-1.example", 65535)


@pytest.mark.parametrize(
    "bookie_id", ["", "bookie-7", ":3181", "h:", "h:0", "h:65536", "h:x", "h:-1", "::1:3181", "h:²"]
)
def test_ids_that_are_none(bookie_id: str) -> None:
    assert address_of_id(bookie_id) is None


def test_lists() -> None:
    assert parse_bookie_list("a:1, b=c:2,,a:1") == {"a:1": ("a", 1), "b": ("c", 2)}
    assert parse_bookie_list("") == {}
    for text, says in (("b", "bookie b: expected"), ("b=", "expected"), ("=a:1", "expected"), ("b=a:1,b=a:2", "two")):
        with pytest.raises(ConfigurationError, match=says):
            parse_bookie_list(text)


def test_address_of_a_unix_socket_has_a_path_and_no_port() -> None:
    local, other = BookieAddress("unix:/d/bookie.socket", 0), BookieAddress("h", 3181)
    assert (local.local_path, str(local)) == ("/d/bookie.socket", "unix:/d/bookie.socket")
    assert (other.local_path, str(other)) == (None, "h:3181")
