"""The PROXY header: what it says, what is none, and that nothing behind it is read."""

from __future__ import annotations

import socket

import pytest

from geminga.model.errors import ProtocolError
from geminga.runtime.core.source_header import BODY_BYTES_MAX, SIGNATURE, HeaderReader, Origin, header_text
from support.house.source_tree import ROOT


def version_2(
    command: int = 0x21, family: int = 0x11, body: bytes | None = None, *, size: int | None = None, more: bytes = b""
) -> bytes:
    if body is None:
        body = socket.inet_aton("192.0.2.7") + socket.inet_aton("10.0.0.1") + b"\xc8\x22\x19\xfa" + more
    return SIGNATURE + bytes([command, family]) + (len(body) if size is None else size).to_bytes(2, "big") + body


SIX = socket.inet_pton(socket.AF_INET6, "2001:db8::7") * 2 + b"\0\7\0\1"
GOOD = [
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 6650\r\n", Origin("192.0.2.7", 51234)),
    (b"PROXY TCP6 2001:DB8:0::7 ::1 0 65535\r\n", Origin("2001:db8::7", 0)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:f...f:ffff ffff 65535 65535\r\n", None),
    (version_2(), Origin("192.0.2.7", 51234)),
    (version_2(more=b"\x03\0\4\1\2\3\4"), Origin("192.0.2.7", 51234)),
    (version_2(family=0x21, body=SIX), Origin("2001:db8::7", 7)),
    (version_2(0x20), None),
    (version_2(0x20, 0, b""), None),
    (version_2(0x21, 0, b""), None),
    (version_2(0x21, 0x31, b"\0" * 216), None),
]


def read(data: bytes, step: int = 1 << 20) -> tuple[HeaderReader, bytes]:
    """As a socket is read: no more than is wanted, and no more than ``step``; and what is left."""
    reader = HeaderReader()
    while reader.wanted:
        size = min(reader.wanted, step)
        part, data = data[:size], data[size:]
        assert part, "more is wanted than a header has"
        reader.feed(part)
    return reader, data


@pytest.mark.parametrize(("header", "origin"), GOOD)
def test_a_header_says_where_from_and_what_is_behind_it_is_left(header: bytes, origin: Origin | None) -> None:
    for step in (1, 2, 7, 1000):
        reader, left = read(header + b"\0\0\0\x10behind", step)
        assert reader.source == origin
        assert left == b"\0\0\0\x10behind"


def test_the_example_of_the_formats_page_reads_as_it_says() -> None:
    text = "0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A 21 11 00 0C C0 00 02 07 0A 00 00 01 C8 22 19 FA"
    assert read(bytes.fromhex(text))[0].source == Origin("192.0.2.7", 51234)
    assert text in (ROOT / "docs" / "formats" / "proxy-header.md").read_text()


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 192.0.2.7 10.0.0.1 51234\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 6650 1\r\n",
        b"PROXY TCP4 192.0.2.7  10.0.0.1 51234 6650\r\n",
        b"PROXY TCP4 192.0.2.256 10.0.0.1 51234 6650\r\n",
        b"PROXY TCP4 ::1 ::1 51234 6650\r\n",
        b"PROXY TCP6 192.0.2.7 10.0.0.1 51234 6650\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 6650\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 +1 6650\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 1 \xb2\r\n",
        b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
        b"PROXY  UNKNOWN\r\n",
        b"PROXY TCP4 " + b"1" * 200,
        b"PROXYTCP4 192.0.2.7 10.0.0.1 1 2\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIX\n\x21\x11\0\x0c" + b"\0" * 12,
        version_2(0x11),
        version_2(0x22),
        version_2(family=0x12),
        version_2(family=0x41),
        version_2(body=b"\0" * 11),
        version_2(family=0x21),
        version_2(size=BODY_BYTES_MAX + 1),
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    for step in (1, 1000):
        with pytest.raises(ProtocolError):
            read(data + b"\0" * 300, step)


def test_a_line_that_does_not_end_is_refused_at_its_limit() -> None:
    reader = HeaderReader()
    with pytest.raises(ProtocolError, match="more than 107 bytes"):
        for _ in range(200):
            reader.feed(b"PROXY UNKNOWN x" if not reader._data else b"y" * min(reader.wanted, 2))
    assert len(reader._data) <= 108


def test_what_the_proxy_sends_is_read_again() -> None:
    four, six = Origin("192.0.2.7", 51234), Origin("2001:db8::7%eth0", 6650)
    assert read(header_text(four, Origin("10.0.0.1", 6650)))[0].source == four
    assert read(header_text(six, Origin("::1", 1)))[0].source == Origin("2001:db8::7", 6650)
    for source in (six, Origin("", 0), Origin("node", 1)):
        assert header_text(source, four) == b"PROXY UNKNOWN\r\n"
