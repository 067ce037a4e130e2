"""Where a configuration key says that bytes are, in the forms that Pulsar reads.

====================================  =================================================================
``file:///path`` ``file:/path``       the file
``data:;base64,AAEC`` ``data:,text``  in the text itself, with or without a media type
``/path/to/file``                     the file, if there is one of this name
``AAEC``                              else base64
====================================  =================================================================
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from geminga.security.base64_text import decode

#: A key in base64 has as many characters at least, and may begin with a slash.
_MAY_BE_KEY: Final = re.compile(r"[A-Za-z0-9+/=]{40,}")
#: Characters of a path.
PATH_LENGTH_MAX: Final = 1024
#: Characters of a text that holds bytes itself.
TEXT_LENGTH_MAX: Final = 1 << 20


class KeyMaterial(NamedTuple):
    """A file, bytes, or a text that is one or the other."""

    #: Empty: there is no file.
    path: str = ""
    #: Bytes in the text itself; None: it holds none.
    data: bytes | None = None


def place_of(text: str) -> KeyMaterial:
    """Where ``text`` says that bytes are; both where a path could be base64. Raises ValueError."""
    if len(text) > TEXT_LENGTH_MAX:
        raise ValueError(f"longer than {TEXT_LENGTH_MAX} characters")
    if text.startswith("file:"):
        path = unquote(text.removeprefix("file:"))
        if path.startswith("//"):
            host, _, rest = path[2:].partition("/")
            if host not in ("", "localhost"):
                raise ValueError(f"a file of the host {host!r}; expected file:///path")
            path = "/" + rest
        if path in ("", "/"):
            raise ValueError("file: without a path")
        return KeyMaterial(path)
    if text.startswith("data:"):
        return KeyMaterial(data=_data_url(text.removeprefix("data:")))
    try:
        return KeyMaterial(text, decode(text))
    except ValueError:
        return KeyMaterial(text)


def shown(text: str) -> str:
    """The file that ``text`` names, for sentences. What could be the secret itself is not repeated: "its value"."""
    if text.startswith("file:"):
        return place_of(text).path
    is_path = text.startswith(("/", "./", "../")) and len(text) <= PATH_LENGTH_MAX
    return text if is_path and _MAY_BE_KEY.fullmatch(text) is None else "its value"


def _data_url(text: str) -> bytes:
    """What follows ``data:`` (RFC 2397)."""
    kind, comma, data = text.partition(",")
    if not comma or not data:
        raise ValueError("data: without data; expected data:;base64,... ")
    if kind.split(";")[-1] != "base64":
        return unquote_to_bytes(data)
    try:
        return decode(unquote(data))
    except ValueError:
        raise ValueError("data: whose data are not base64") from None
