"""Addresses of ZooKeepers as Pulsar's and BookKeeper's keys write them; what a server takes as a path and at once."""

from __future__ import annotations

import pytest

from geminga.metadata.core.zookeeper_address import (
    REQUEST_BYTES_MAX,
    check_request,
    check_zookeeper_path,
    parse_zookeeper_address,
)
from geminga.model.errors import ConfigurationError, MetadataError, RefusedPathError, ServerError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zk:a:1", "zk:a:1"),
        ("zk:a", "zk:a:2181"),
        ("a:2181,b.example:2182", "zk:a:2181,b.example:2182"),
        ("zk:a:1,b:2/my/chroot", "zk:a:1,b:2/my/chroot"),
        ("zk:a:1/", "zk:a:1"),
        ("zk:[::1]:2181,[fe80::1]", "zk:[::1]:2181,[fe80::1]:2181"),
        ("metadata-store:zk:a:1/c", "zk:a:1/c"),
        ("zk+hierarchical://a:1;b:2/ledgers", "zk:a:1,b:2"),
        ("zk+hierarchical://a:1,b:2/c/d/ledgers/", "zk:a:1,b:2/c/d"),
        ("zk+null://a/ledgers", "zk:a:2181"),
        ("zk://a:1", "zk:a:1"),
    ],
)
def test_address_is_read_in_each_of_its_forms(text: str, expected: str) -> None:
    assert str(parse_zookeeper_address(text)) == expected
    assert str(parse_zookeeper_address(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "zk:",
        "zk:a:0",
        "zk:a:65536",
        "zk:a:1,,b:1",
        "zk:a b:1",
        "zk:a:1//b",
        "zk:a:1/b/",
        "zk:a:1/../b",
        "zk:a:٣",
        "etcd:http://a:1",
        "oxia://a:1/b",
        "rocksdb:///a",
        "zk+flat://a:1/ledgers",
        "zk+longhierarchical://a:1/ledgers",
        "zk+hierarchical://a:1/other",
    ],
)
def test_other_text_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        parse_zookeeper_address(text)


@pytest.mark.parametrize(
    "path", ["a", "/a/../b", "/a/.", "/./a", "/a\x01", "/a\x85", "/\ue000", "/a\U0001f600", "/\ud800"]
)
def test_path_that_a_server_would_refuse_is_refused(path: str) -> None:
    with pytest.raises(MetadataError, match="not a metadata path"):
        check_zookeeper_path(path)


@pytest.mark.parametrize("path", ["/a/..", "/./a", "/a\ue000", "/a\x01", "/a\ud800"])
def test_name_that_a_server_never_takes_is_no_reason_to_ask_again(path):
    """A topic "." was "Metadata can not be read or written now", whereupon clients try for ever."""
    with pytest.raises(RefusedPathError) as refused:
        check_zookeeper_path(path)
    assert (refused.value.server_error, refused.value.http_status) == (ServerError.NOT_ALLOWED_ERROR, 412)
    assert refused.value.told == "The metadata store takes no such name"


@pytest.mark.parametrize("path", ["/", "/a", "/a.b/..c/d..", "/persistent%3A%2F%2Fa", "/näme/名"])
def test_other_paths_are_taken(path: str) -> None:
    check_zookeeper_path(path)


def test_request_that_a_server_would_hang_up_on_is_refused() -> None:
    check_request("/é", bytes(REQUEST_BYTES_MAX - 128 - 3))
    with pytest.raises(MetadataError, match=f"at most {REQUEST_BYTES_MAX - 128 - 3} there"):
        check_request("/é", bytes(REQUEST_BYTES_MAX - 128 - 2))
