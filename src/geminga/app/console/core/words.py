"""Numbers as people read them: for templates, which do no arithmetic."""

from __future__ import annotations

from typing import Final

#: What is not known.
UNKNOWN: Final = "\N{EN DASH}"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def count(value: float | None) -> str:
    """``1,234``; a dash for what is not known."""
    return UNKNOWN if value is None else f"{int(value):,}"


def rate(value: float | None) -> str:
    """Of something a second: ``0``, ``0.25``, ``12.5``, ``1,234``."""
    if value is None:
        return UNKNOWN
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(value: float | None) -> str:
    """Bytes with a unit: ``512 B``, ``1.5 MiB``."""
    if value is None or value < 0:
        return UNKNOWN
    number = float(value)
    for unit in _UNITS[:-1]:
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} {_UNITS[-1]}"


def span(seconds: float | None) -> str:
    """A time that passes in its two largest units: ``3 d 4 h``, ``12 s``."""
    if seconds is None or seconds < 0:
        return UNKNOWN
    left, found = int(seconds), list[str]()
    for length, unit in _SPANS:
        number, left = divmod(left, length)
        if number or (unit == "s" and not found):
            found.append(f"{number} {unit}")
    return " ".join(found[:2])


def plural(number: float, one: str, several: str = "") -> str:
    """``1 message``, ``1,234 messages``."""
    return f"{count(number)} {one if number == 1 else several or one + 's'}"


def waiting(entries: int, messages: int | None) -> str:
    """Of a backlog: ``100 messages``, those of ``entries``; None: nobody counted the messages of batches."""
    if messages is not None:
        return plural(messages, "message")
    return plural(entries, "message or batch", "messages and batches")
