"""A payload as a page shows it: decoded by its schema, else as text, else as bytes with their places; and cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from geminga.app.console.core.payloads import Decoder, decoder_of, info_of, json_text

#: Characters of a value in a list of messages, and on the page of one message.
LISTED_CHARACTERS: Final = 2_000
SHOWN_CHARACTERS: Final = 100_000
#: Bytes of a value that is shown as bytes, in a list and on its own page.
LISTED_BYTES: Final = 64
SHOWN_BYTES: Final = 4_096
#: Bytes above which a value is not read by its schema: on a page of its own, and in a list, where many are.
DECODED_BYTES_MAX: Final = 1 << 20
LISTED_DECODED_BYTES_MAX: Final = 64 << 10
_ROW: Final = 16


class HexRow(NamedTuple):
    """Sixteen bytes."""

    #: In hexadecimal, eight digits.
    offset: str
    digits: str
    text: str


class Value(NamedTuple):
    """What is shown of a payload."""

    #: ``null``, ``json``, ``text`` or ``bytes``.
    form: str
    #: Empty for bytes.
    text: str
    #: Of bytes.
    rows: tuple[HexRow, ...]
    size_bytes: int
    #: Characters, of bytes bytes, that are not shown.
    left: int
    #: What it was read by: ``AVRO version 2``; empty: by nothing.
    read_by: str
    #: Why it is not shown by its schema; empty: it is.
    problem: str


class Reading:
    """Reads the payloads of one page; a schema is taken apart once."""

    def __init__(self) -> None:
        self._decoders: dict[int | None, tuple[Decoder | None, str, str]] = {}

    def is_known(self, version: int | None) -> bool:
        """Whether :meth:`learn` was told of that version."""
        return version in self._decoders

    def learn(self, version: int | None, document: Mapping[str, Any] | None, why_not: str = "") -> None:
        """A schema as the administration tells it; None: it can not be had, ``why_not``. None as version: without."""
        decoder: Decoder | None = None
        name = ""
        if document is not None:
            name = str(document.get("type", ""))
            try:
                decoder = decoder_of(info_of(dict(document)))
            except (ValueError, RecursionError) as error:
                why_not = str(error)
        read_by = f"{name} version {version}" if name and version is not None else name
        self._decoders[version] = (decoder, read_by, why_not)

    def text_of(self, payload: bytes | None, key: str | bytes | None, version: int | None) -> str:
        """All of it as a text, to be searched."""
        whole = self._read(payload, key, version, LISTED_DECODED_BYTES_MAX)
        if whole.form != "bytes":
            return whole.text
        return (payload or b"").decode("utf-8", "replace")

    def value_of(
        self, payload: bytes | None, key: str | bytes | None, version: int | None, *, is_listed: bool
    ) -> Value:
        """As much of it as a list, or a page of its own, has room for."""
        most = LISTED_DECODED_BYTES_MAX if is_listed else DECODED_BYTES_MAX
        found = self._read(payload, key, version, most)
        if found.form == "bytes":
            data = payload or b""
            room = LISTED_BYTES if is_listed else SHOWN_BYTES
            return found._replace(rows=tuple(hex_rows(data[:room])), left=max(len(data) - room, 0))
        room = LISTED_CHARACTERS if is_listed else SHOWN_CHARACTERS
        return found._replace(text=found.text[:room], left=max(len(found.text) - room, 0))

    def _read(self, payload: bytes | None, key: str | bytes | None, version: int | None, most: int) -> Value:
        if payload is None:
            return Value("null", "null", (), 0, 0, "", "")
        size = len(payload)
        decoder, read_by, why_not = self._decoders.get(version, (None, "", ""))
        if decoder is not None and size > most:
            return _unread(payload, f"it has {size:,} bytes, and not more than {most:,} are read here")
        if decoder is not None:
            try:
                value = decoder(payload, key)
                text = value if isinstance(value, str) else json_text(value)
            except RecursionError:
                why_not = "it is nested too deep"
            except ValueError as error:
                why_not = str(error)
            else:
                return Value("text" if isinstance(value, str) else "json", text, (), size, 0, read_by, "")
            # By the wrong schema, bytes that happen to be a text would look like a value.
            return Value("bytes", "", (), size, 0, "", f"it is no {read_by}: {why_not}")
        return _unread(payload, why_not)


def _unread(payload: bytes, why_not: str) -> Value:
    """Text where it is one that can be printed."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = ""
    if payload and not _is_printable(text):
        return Value("bytes", "", (), len(payload), 0, "", why_not)
    return Value("text", text, (), len(payload), 0, "", why_not)


def _is_printable(text: str) -> bool:
    return bool(text) and all(each.isprintable() or each in "\n\r\t" for each in text)


def hex_rows(data: bytes, offset: int = 0) -> Iterator[HexRow]:
    """Rows of sixteen bytes; ``offset``: of the first."""
    for number in range(-(-len(data) // _ROW)):
        start = number * _ROW
        row = data[start : start + _ROW]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield HexRow(f"{offset + start:08x}", row.hex(" "), text)
