"""Times as pages show them, and as visitors type them: ISO 8601, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from geminga.model.iso_time import parse_moment

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
#: The last millisecond of the calendar.
TIME_MS_MAX: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC) - _EPOCH) // _MILLISECOND


class MomentError(ValueError):
    """A text that is no time; it says what was expected."""


def iso_time(time_ms: int) -> str:
    """Milliseconds since the epoch as ``2026-11-28T12:00:00.5Z``; past the calendar, its end."""
    moment = _EPOCH + min(max(time_ms, 0), TIME_MS_MAX) * _MILLISECOND
    return f"{moment:%Y-%m-%dT%H:%M:%S}" + f".{moment.microsecond // 1000:03d}".rstrip("0").rstrip(".") + "Z"


def shown_time(iso: str) -> str:
    """What :func:`iso_time` made, for people: ``2026-11-28 12:00:00.500``, always as long."""
    seconds, _, fraction = iso.removesuffix("Z").partition(".")
    return f"{seconds.replace('T', ' ')}.{fraction:0<3}"


def milliseconds_of(text: str) -> int:
    """Since the epoch: of a number of them, or ISO 8601, UTC where it names no zone. Raises MomentError."""
    given = text.strip()
    if given.isascii() and given.isdecimal() and len(given) <= 15:
        return int(given)
    try:
        moment = parse_moment(given)
    except ValueError as error:
        expected = "a time such as 2026-11-28T12:00 (UTC), or milliseconds since 1970"
        raise MomentError(f"{given[:40]!r} is no time: expected {expected}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - _EPOCH) // _MILLISECOND, 0)


def age_text(age_ms: int) -> str:
    """``3 d 4 h``: the two largest units of a span; below a second in milliseconds."""
    if age_ms < 1000:
        return f"{max(age_ms, 0)} ms"
    found: list[str] = []
    left = age_ms // 1000
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count or found:
            found.append(f"{count} {unit}" if count else "")
        if len(found) == 2:
            break
    return " ".join(filter(None, found))
