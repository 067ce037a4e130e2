"""Cookies of bookies: BookKeeper's text, whatever layout, whole or not at all."""

from __future__ import annotations

import pytest

from geminga.model.errors import CorruptionError
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie, decode_bookie_cookie, encode_bookie_cookie
from support.house.source_tree import ROOT

CLUSTER = "6a9d2ed3-9f3c-4be2-a0be-b0ea2a7fd3fd"
COOKIE = BookieCookie("10.0.0.7:3181", ("/journal",), ("/ledgers",), CLUSTER)
#: As documented.
TEXT = (
    b'5\nbookieHost: "10.0.0.7:3181"\njournalDir: "/journal"\nledgerDirs: "1\\t/ledgers"\n'
    b'instanceId: "6a9d2ed3-9f3c-4be2-a0be-b0ea2a7fd3fd"\n'
)


def test_bytes_are_those_of_the_page() -> None:
    assert encode_bookie_cookie(COOKIE) == TEXT
    page = (ROOT / "docs" / "formats" / "bookie-registration.md").read_text(encoding="utf-8")
    assert f"```\n{TEXT.decode()}```" in page


@pytest.mark.parametrize(
    "cookie",
    [
        COOKIE,
        COOKIE._replace(instance_id=""),
        COOKIE._replace(journal_directories=("/a", "/b"), ledger_directories=("/c d", '/e"f', "/ß\\x")),
        COOKIE._replace(index_directories=("/i", "/k")),
    ],
)
def test_comes_back_as_it_was(cookie: BookieCookie) -> None:
    data = encode_bookie_cookie(cookie)
    assert data.isascii()
    assert decode_bookie_cookie(data, "VERSION") == cookie


def test_older_layouts_are_read() -> None:
    plain = COOKIE._replace(instance_id="")
    assert decode_bookie_cookie(b"3\n10.0.0.7:3181\n/journal\n1\t/ledgers\n", "VERSION") == plain
    assert decode_bookie_cookie(b"4" + TEXT[1:], "VERSION") == COOKIE
    # A field of a program that knows more.
    assert decode_bookie_cookie(TEXT + b'colour: "red"\n', "VERSION") == COOKIE


def test_what_is_cut_short_is_damage_or_lacks_the_cluster() -> None:
    decoded = []
    for end in range(len(TEXT) - 1):
        try:
            decoded.append(decode_bookie_cookie(TEXT[:end], "VERSION"))
        except CorruptionError:
            continue
    assert set(decoded) == {COOKIE._replace(instance_id="")}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "layout version"),
        (b"five\n", "layout version"),
        (b"\xff\xfe", "not text"),
        (b"6" + TEXT[1:], "layout 6; this program reads 3 to 5"),
        (b"2\nhost\n", "layout 2"),
        (b"5\nbookieHost 7", "VERSION is no whole"),
        (TEXT.replace(b'"10.0.0.7:3181"', b'""'), "bookieHost"),
        (TEXT.replace(b"1\\t", b"2\\t"), "directories"),
        (TEXT + b"#" * 70_000, "bytes"),
        (b"3\nhost\n\n", "a line each"),
    ],
)
def test_damage_is_named(data: bytes, says: str) -> None:
    with pytest.raises(CorruptionError, match=says):
        decode_bookie_cookie(data, "VERSION")
