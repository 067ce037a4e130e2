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
        found: object = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_each_once,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_number,
        )
    except (ValueError, RecursionError) as error:
        wrong = str(error) if isinstance(error, _TwiceError) else "is not JSON"
        raise ValueError(f"{what} {wrong}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} is not a JSON object")
    return found


class _TwiceError(ValueError):
    pass


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError("has a key twice")
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
