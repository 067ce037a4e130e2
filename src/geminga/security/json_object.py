"""A JSON object that a stranger sent: bounded, of plain JSON, each key once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

#: Digits of a number; more say nothing, and cost time that grows with their square.
_DIGITS_MAX: Final = 40


def parse_object(data: bytes, what: str, bytes_max: int) -> Mapping[str, object]:
    """The object in ``data``. Raises ValueError, which names ``what``."""
    if len(data) > bytes_max:
        raise ValueError(f"{what} has {len(data)} bytes; at most {bytes_max} are taken")
    try:
        text = data.decode("utf-8")
        found: object = json.loads(
            text,
            object_pairs_hook=_each_once,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_number,
        )
        if "\\ud" in text or "\\uD" in text:
            _check_characters(found)
    except (ValueError, RecursionError) as error:
        wrong = str(error) if isinstance(error, _WrongObjectError) else "is not JSON"
        raise ValueError(f"{what} {wrong}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} is not a JSON object")
    return found


class _WrongObjectError(ValueError):
    """JSON, and no object that is taken."""


def _check_characters(found: object) -> None:
    """JSON can write half of a character, which no log, path or answer can hold afterwards (RFC 8259, section 8.2)."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _WrongObjectError("has half of a character (an escaped surrogate)") from None


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _WrongObjectError("has a key twice")
    return found


def _no_constant(text: str) -> object:
    raise ValueError(text)


def _integer(text: str) -> int:
    if len(text) > _DIGITS_MAX:
        raise ValueError("too many digits")
    return int(text)


def _number(text: str) -> float:
    if len(text) > _DIGITS_MAX:
        raise ValueError("too many digits")
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("too large")
    return value
