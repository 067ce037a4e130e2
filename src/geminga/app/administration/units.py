"""What a word of the command line means, by the kind of its option: amounts as ``pulsar-admin`` takes them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

#: Seconds of a unit; a number alone is seconds.
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIME: Final = "time such as 10s, 5m, 2h, 1d, 1w; a number alone is seconds"
_SIZE: Final = "size such as 4096, 10K, 10M, 16G, 2T"
_POSITION: Final = "LEDGER:ENTRY, latest or earliest"
_LAST: Final = (1 << 63) - 1


class WrongWordError(ValueError):
    """A word that is no value of its option: what it is, and what was expected."""


def seconds(text: str) -> int:
    """Of ``10m``; a number alone is seconds, less than 0 where it has no unit. Raises WrongWordError."""
    return _amount(text, _SECONDS, _TIME)


def bytes_of(text: str) -> int:
    """Of ``10M``; a number alone is bytes. Raises WrongWordError."""
    return _amount(text, _BYTES, _SIZE)


def _amount(text: str, units: dict[str, int], expected: str) -> int:
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].isalpha() else (text, "")
    digits = number.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or unit not in units:
        raise WrongWordError(f"{text!r} is no {expected}")
    return int(number) * units[unit]


def minutes(text: str) -> int:
    """Minutes of a time: a number alone is seconds, -1 has no end; less than one is told apart from none.

    Raises WrongWordError.
    """
    found = seconds(text)
    if 0 < found < 60:
        raise WrongWordError(f"{text!r} is less than a minute: this is kept in minutes")
    return found if found < 0 else found // 60


def megabytes(text: str) -> int:
    """MiB of a size; less than one is told apart from none. Raises WrongWordError."""
    found = bytes_of(text)
    if 0 < found < 1 << 20:
        raise WrongWordError(f"{text!r} is less than 1M: this is kept in MiB")
    return found if found < 0 else found >> 20


def integer(text: str) -> int:
    """Raises WrongWordError."""
    try:
        return int(text)
    except ValueError:
        raise WrongWordError(f"{text!r} is no whole number") from None


def _real(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise WrongWordError(f"{text!r} is no number")
    return found


def texts(text: str) -> list[str]:
    """``a,b`` without empty ones."""
    return [word.strip() for word in text.split(",") if word.strip()]


def pair(text: str) -> dict[str, str]:
    """``a=b``; raises WrongWordError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise WrongWordError(f"{text!r} is no KEY=VALUE")
    return {key: value}


def pairs(text: str) -> dict[str, str]:
    """``a=b,c=d``; raises WrongWordError."""
    found: dict[str, str] = {}
    for word in texts(text):
        found |= pair(word)
    return found


def position(text: str) -> dict[str, Any]:
    """A message's place as a body; raises WrongWordError."""
    words = {"latest": (_LAST, _LAST), "earliest": (-1, -1)}
    if text in words:
        ledger_id, entry_id = words[text]
    else:
        first, _, second = text.partition(":")
        try:
            ledger_id, entry_id = int(first), int(second)
        except ValueError:
            raise WrongWordError(f"{text!r} is no place of a message: {_POSITION}") from None
    return {"ledgerId": ledger_id, "entryId": entry_id, "partitionIndex": -1}


def _instant(text: str) -> int:
    from datetime import datetime

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise WrongWordError(f"{text!r} is no time with its zone, such as 2026-11-28T10:30:00.000Z")
    return round(found.timestamp() * 1000)


def document(path: str) -> Any:  # noqa: ANN401  (what the file has)
    """The JSON in a file; raises WrongWordError, OSError."""
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise WrongWordError(f"{path} has no JSON: {error}") from None


class Plain(str):
    """A text that is a body as it is, without quotes."""

    __slots__ = ()


#: By kind: what makes the value, and what is told of it. Values of ``pairs``, ``map`` and ``list`` that are said
#: several times are put together.
KINDS: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "text": (str, "TEXT"),
    "plain": (Plain, "TEXT"),
    "int": (integer, "NUMBER"),
    "float": (_real, "NUMBER"),
    "flag": (lambda text: text == "true", ""),
    "off": (lambda text: text == "true", ""),
    "disabled": (lambda _: "AutoUpdateDisabled", ""),
    "list": (texts, "A,B"),
    "ints": (lambda text: [integer(word) for word in texts(text)], "NUMBER,NUMBER"),
    "commas": (str, "A,B"),
    "map": (pair, "KEY=VALUE"),
    "pairs": (pair, "KEY=VALUE"),
    "commaMap": (pairs, "KEY=VALUE,KEY=VALUE"),
    "seconds": (seconds, "TIME"),
    "millis": (lambda text: seconds(text) * 1000, "TIME"),
    "ago": (seconds, "TIME"),
    "minutes": (minutes, "TIME"),
    "bytes": (bytes_of, "SIZE"),
    "megabytes": (megabytes, "SIZE"),
    "position": (position, "LEDGER:ENTRY"),
    "datetime": (_instant, "TIMESTAMP"),
    "file": (document, "FILE"),
}
#: What is told of a kind beside its name.
TOLD: Final = {
    "list": "with commas between, or several times",
    "map": "one each time",
    "pairs": "one each time",
    "seconds": _TIME,
    "millis": _TIME,
    "ago": f"how long ago: {_TIME}",
    "minutes": f"{_TIME}; -1: without end",
    "bytes": _SIZE,
    "megabytes": f"{_SIZE}; -1: without end",
    "position": _POSITION,
    "datetime": "2026-11-28T10:30:00.000Z",
    "file": "a file with JSON",
}


def value_of(kind: str, text: str) -> Any:  # noqa: ANN401  (by its kind)
    """The value of a word; raises WrongWordError."""
    if "/" in kind or kind == "SNI":
        if text in kind.split("/"):
            return text
        raise WrongWordError(f"{text!r} is none of {', '.join(kind.split('/'))}")
    return KINDS[kind][0](text)


def joined(former: Any, value: Any) -> Any:  # noqa: ANN401
    """What an option is that was said again: lists and pairs grow, of others the last counts."""
    if isinstance(former, list) and isinstance(value, list):
        return [*former, *value]
    if isinstance(former, dict) and isinstance(value, dict) and "ledgerId" not in value:
        return former | value
    return value
