"""What of JSON the reader of Spark refuses however right it is, wherever in a payload it stands, be it a column or not.

Looked for in the bytes of many payloads at once; only where something looks like it, a payload is gone through.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: Arrays and objects in each other.
DEPTH_MAX: Final = 1000
#: Of a number.
DIGITS_MAX: Final = 1000
#: Of the name of a field, and of any other text, as UTF-16 has them.
NAME_CHARACTERS_MAX: Final = 50_000
TEXT_CHARACTERS_MAX: Final = 20_000_000

_QUOTE, _BACKSLASH = b'"\\'
#: Behind a name, which are looked at: with more of them it is gone through.
_BLANKS_SEEN: Final = 64
_IS_OF_NUMBER: Final = np.isin(np.arange(256), list(b"0123456789.eE+-"))
_IS_OPENING: Final = np.isin(np.arange(256), list(b"[{"))
_TOKEN: Final = re.compile(
    r'"(?P<text>(?:[^"\\]|\\.)*)"(?P<name>\s*:)?|(?P<number>[-+0-9.eE]+)|(?P<open>[\[{])|(?P<close>[\]}])', re.DOTALL
)
_ESCAPED: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)


def may_exceed(payloads: pa.Array) -> bool:
    """Whether any of the payloads, none of which is null, may be beyond the bounds; False is sure."""
    if not len(payloads):
        return False
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    if int(np.diff(offsets).max()) <= min(DEPTH_MAX, DIGITS_MAX):
        return False
    data = np.frombuffer(payloads.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    opened = np.concatenate(([0], np.cumsum(_IS_OPENING[data])))[offsets - offsets[0]]
    if np.diff(opened).max() > DEPTH_MAX or _gaps(np.flatnonzero(~_IS_OF_NUMBER[data]), len(data)).max() > DIGITS_MAX:
        return True
    return int(np.diff(offsets).max()) > NAME_CHARACTERS_MAX and _has_long_text(data)


def _gaps(ends: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Bytes in front of each of the ends, and behind the last."""
    gaps: NDArray[np.int64] = np.diff(np.concatenate(([-1], ends, [size]))) - 1
    return gaps


def _has_long_text(data: NDArray[np.uint8]) -> bool:
    quotes = np.flatnonzero(data == _QUOTE)
    others = np.where(data != _BACKSLASH, np.arange(len(data)), -1)
    before = np.where(quotes > 0, np.maximum.accumulate(others)[quotes - 1], -1)
    # Behind an odd number of backslashes a quote ends nothing.
    ends = quotes[(quotes - 1 - before) % 2 == 0]
    gaps = _gaps(ends, len(data))
    if gaps.max() > TEXT_CHARACTERS_MAX:
        return True
    return any(_is_name(data[end + 1 :]) for end in ends[gaps[:-1] > NAME_CHARACTERS_MAX].tolist())


def _is_name(rest: NDArray[np.uint8]) -> bool:
    """Whether what stands behind a text makes it a name, or may."""
    behind = bytes(rest[:_BLANKS_SEEN]).lstrip()
    return not behind or behind.startswith(b":")


def beyond(text: str) -> str:
    """Which bound a JSON text is beyond; empty: none."""
    depth = 0
    for token in _TOKEN.finditer(text):
        if token["open"]:
            depth += 1
            if depth > DEPTH_MAX:
                return f"arrays and objects lie more than {DEPTH_MAX} deep in each other"
        elif token["close"]:
            depth -= 1
        elif token["number"]:
            digits = sum(map(str.isdigit, token["number"]))
            if digits > DIGITS_MAX:
                return f"a number has {digits} digits: more than {DIGITS_MAX}"
        else:
            characters_max = NAME_CHARACTERS_MAX if token["name"] else TEXT_CHARACTERS_MAX
            characters = _characters(token["text"]) if len(token["text"]) > characters_max // 2 else 0
            if characters > characters_max:
                return (
                    f"a {'name' if token['name'] else 'text'} has {characters} characters: more than {characters_max}"
                )
    return ""


def _characters(text: str) -> int:
    return len(_ESCAPED.sub("x", text).encode("utf-16-le", "surrogatepass")) // 2
