"""Text of others as it may be shown: names and payloads are chosen by whoever may publish, and a terminal obeys what
control characters say."""

from __future__ import annotations

import re
from typing import Final, TextIO

#: Control characters of ASCII and of Latin-1, what turns the direction of writing, and halves of pairs, which no
#: stream takes. Line ends and tabs are told apart.
_OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKING: Final = re.compile("[\t\n\u2028\u2029]")


def visible(text: str, *, is_name: bool = False) -> str:
    """``text`` with what a terminal would obey as ``\\u001b``, as JSON writes it; line ends and tabs stay.

    ``is_name``: those do not stay either: a name is on one line.
    """
    if text.isprintable():
        return text
    shown = _OBEYED.sub(_escape, text)
    return _BREAKING.sub(_escape, shown) if is_name else shown


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def shown_on(stream: TextIO, text: str) -> str:
    """``text`` as it is for who reads a pipe or a file; :func:`visible` at a terminal."""
    return visible(text) if stream.isatty() else text
