"""A bookie's cookie as BookKeeper writes it: ``VERSION`` in each directory and ``/ledgers/cookies/ID``.

::

    5
    bookieHost: "10.0.0.7:3181"
    journalDir: "/journal"
    ledgerDirs: "1\\t/ledgers"
    instanceId: "6a9d2ed3-9f3c-4be2-a0be-b0ea2a7fd3fd"

The first line is the layout version, the rest protobuf's text format of ``CookieFormat``; version 3 has the bare values
of its first three fields, a line each. docs/formats/bookie-registration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from google.protobuf import text_format

from geminga.model.errors import CorruptionError
from geminga.wire._generated import bookkeeper_metadata_pb2 as pb

#: The layout that is written, and the newest that is read.
LAYOUT_VERSION: Final = 5
#: The oldest that is read (BookKeeper 4.0); its values are lines.
LAYOUT_VERSION_LINES: Final = 3
#: A longer one is damaged.
COOKIE_BYTES_MAX: Final = 64 * 1024


class BookieCookie(NamedTuple):
    """What a bookie was when its directories were new."""

    bookie_id: str
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    #: The cluster's, as text; empty: it had no metadata store.
    instance_id: str = ""
    #: Empty: the ledger directories.
    index_directories: tuple[str, ...] = ()


def encode_bookie_cookie(cookie: BookieCookie) -> bytes:
    """The bytes of ``VERSION``."""
    message = pb.CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=",".join(cookie.journal_directories),
        ledgerDirs=_encode_paths(cookie.ledger_directories),
    )
    if cookie.instance_id:
        message.instanceId = cookie.instance_id
    if cookie.index_directories:
        message.indexDirs = _encode_paths(cookie.index_directories)
    # What is not ASCII is escaped: every reader of the text format understands that.
    return f"{LAYOUT_VERSION}\n{text_format.MessageToString(message, as_utf8=False)}".encode("ascii")


def decode_bookie_cookie(data: bytes, place: str) -> BookieCookie:
    """The cookie in ``data``; raises CorruptionError that names ``place`` and what is wrong."""
    if len(data) > COOKIE_BYTES_MAX:
        raise CorruptionError(f"{place} is no bookie's cookie: {len(data)} bytes")
    try:
        first, _, rest = data.decode("utf-8").partition("\n")
    except UnicodeDecodeError as error:
        raise CorruptionError(f"{place} is no bookie's cookie: it is not text") from error
    number = first.strip()
    if not number.isascii() or not number.isdigit():
        raise CorruptionError(
            f"{place} is no bookie's cookie: expected a layout version in the first line, found {first[:40]!r}"
        )
    version = int(number[:9])
    if not LAYOUT_VERSION_LINES <= version <= LAYOUT_VERSION:
        raise CorruptionError(
            f"{place} has cookie layout {version}; this program reads {LAYOUT_VERSION_LINES} to {LAYOUT_VERSION}"
        )
    if version == LAYOUT_VERSION_LINES:
        return _from_lines(rest, place)
    message = pb.CookieFormat()
    try:
        text_format.Parse(rest, message, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise CorruptionError(f"{place} is no whole bookie's cookie: {error}") from error
    missing = [name for name in ("bookieHost", "journalDir", "ledgerDirs") if not getattr(message, name)]
    if missing:
        raise CorruptionError(f"{place} is no whole bookie's cookie: it lacks {', '.join(missing)}")
    return BookieCookie(
        message.bookieHost,
        tuple(message.journalDir.split(",")),
        _decode_paths(message.ledgerDirs, place),
        message.instanceId,
        _decode_paths(message.indexDirs, place) if message.indexDirs else (),
    )


def _from_lines(text: str, place: str) -> BookieCookie:
    lines = text.split("\n")
    if len(lines) < LAYOUT_VERSION_LINES or not all(lines[:LAYOUT_VERSION_LINES]):
        raise CorruptionError(f"{place} is no whole bookie's cookie: expected a line each for host and directories")
    return BookieCookie(lines[0], tuple(lines[1].split(",")), _decode_paths(lines[2], place))


def _encode_paths(paths: Sequence[str]) -> str:
    return "\t".join([str(len(paths)), *paths])


def _decode_paths(text: str, place: str) -> tuple[str, ...]:
    count, *paths = text.split("\t")
    if count != str(len(paths)):
        raise CorruptionError(f"{place} is no whole bookie's cookie: {count!r} directories, {len(paths)} of them named")
    return tuple(paths)
