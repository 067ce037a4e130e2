"""Option values as Spark passes them: text under names whose case does not count."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from typing import Final
from zoneinfo import ZoneInfo

from geminga.model.errors import LocalError
from geminga.model.iso_time import DAY, parse_moment

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES: Final = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([01]?\d)(?::?([0-5]\d))?", re.IGNORECASE)
#: Of any number: no time, size or count needs more, and it fits the 64 bits that brokers have for it.
_DIGITS_MAX: Final = 18
#: Seconds from 1973 to 5138; as milliseconds they are January 2nd, 1970, to March 1973, when there were no messages.
_SECONDS: Final = range(100_000_000, 100_000_000_000)
_NUMBER: Final = re.compile(rf"-?\d{{1,{_DIGITS_MAX}}}")
_DURATION: Final = re.compile(rf"\s*(\d{{1,{_DIGITS_MAX}}})\s*([a-z]*)\s*", re.IGNORECASE)


#: Spark 4.3 hands a Python data source the options of a view, and those behind WITH, but none of a table.
OF_TABLES: Final = (
    "Spark does not hand the options of CREATE TABLE ... USING pulsar over when the table is used: write CREATE "
    "TEMPORARY VIEW name USING pulsar OPTIONS ('service.url' '...', topic '...'), or give them where it is used, "
    "FROM name WITH ('service.url' = '...', topic = '...')"
)


class OptionError(LocalError, ValueError):
    """An option that is missing, or whose value can not be; the text names it, the value and what was expected."""


def unknown_option(name: str, known: Mapping[str, str], of: str) -> OptionError:
    """``known``: the options of a ``source`` or a ``sink``, by their names in lower case."""
    near = [known[one] for one in get_close_matches(name.lower(), known, n=3, cutoff=0.7)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"see the table of options in docs/spark-{of}.md"
    return OptionError(f"{name}: not an option of this {of}; {hint}")


def _checked_ms(name: str, value: int) -> int:
    """Milliseconds; raises OptionError for a number that is a time of our years in seconds."""
    if value in _SECONDS:
        raise OptionError(
            f"{name}={value}: as milliseconds that is {datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%d}, and "
            f"these look like seconds: expected milliseconds since the epoch, such as {value}000"
        )
    return value


class OptionValues:
    """The options of one use of the data source."""

    __slots__ = ("_values",)

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}

    def text(self, *names: str, default: str = "") -> str:
        """The value under the first of ``names`` that is given."""
        for name in names:
            value = self._values.get(name.lower())
            if value is not None:
                return value
        return default

    def is_given(self, name: str) -> bool:
        """Whether there is such an option, be it empty."""
        return name.lower() in self._values

    def boolean(self, name: str, default: bool) -> bool:
        """true or false. Raises OptionError."""
        value = self.text(name).strip().lower()
        if not value:
            return default
        if value not in ("true", "false"):
            raise OptionError(f"{name}={value!r}: expected true or false")
        return value == "true"

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One of ``allowed``, in any case. Raises OptionError."""
        value = self.text(name, default=default).strip().lower()
        if value not in allowed:
            raise OptionError(f"{name}={value!r}: expected one of {', '.join(allowed)}")
        return value

    def number(self, name: str, default: int, minimum: int = 0) -> int:
        """A whole number of at least ``minimum``. Raises OptionError."""
        value = self.text(name).strip()
        if not value:
            return default
        if not _NUMBER.fullmatch(value) or int(value) < minimum:
            raise OptionError(f"{name}={value!r}: expected a whole number, {minimum} or above")
        return int(value)

    def size(self, name: str, default: int, minimum: int = 0) -> int:
        """Bytes: a number, with ``k``, ``m`` or ``g`` (powers of 1,024) if need be."""
        value = self.text(name)
        if not value.strip():
            return default
        return self._scaled(name, value, _SIZES, "a number of bytes, such as 4194304 or 4m", minimum)

    def duration_ms(self, name: str, default: int) -> int:
        """Milliseconds: a number, or with ``ms``, ``s``, ``m``, ``h`` or ``d``."""
        value = self.text(name)
        if not value.strip():
            return default
        return self._scaled(name, value, {"": 1, **_UNITS}, "milliseconds, or a duration such as 15m", 0)

    def time_ms(self, name: str) -> int | None:
        """Milliseconds since the epoch: a number, or an ISO 8601 time; ``timeZone`` is the zone of one without.

        Raises OptionError.
        """
        value = self.text(name).strip()
        if not value:
            return None
        if _NUMBER.fullmatch(value) and value[0] != "-":
            return _checked_ms(name, int(value))
        try:
            moment = parse_moment(value)
        except ValueError:
            raise OptionError(f"{name}={value!r}: expected milliseconds since the epoch or an ISO 8601 time") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=self._time_zone(name, value))
        return round(moment.timestamp() * 1000)

    def _time_zone(self, name: str, value: str) -> tzinfo:
        zone = self.text("timeZone").strip()
        if not zone:
            full = f"{value}T00:00:00" if DAY.fullmatch(value) else value
            raise OptionError(
                f"{name}={value!r}: of which time zone? Spark does not tell a source the session's: write {full}Z, "
                f"{full}+02:00 or milliseconds, or set timeZone, as in "
                "option('timeZone', spark.conf.get('spark.sql.session.timeZone'))"
            )
        offset = _OFFSET.fullmatch(zone)
        if offset is not None:
            since_utc = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
            return timezone(-since_utc if offset[1] == "-" else since_utc)
        try:
            return ZoneInfo(zone)
        except (ValueError, OSError, KeyError):
            raise OptionError(f"timeZone={zone!r}: expected a zone such as Europe/Paris, UTC or +02:00") from None

    def names(self, name: str) -> list[str]:
        """A list, separated by commas."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def prefixed(self, prefix: str) -> dict[str, str]:
        """What follows ``prefix`` -> value, in lower case."""
        start = prefix.lower()
        return {name[len(start) :]: value for name, value in self._values.items() if name.startswith(start)}

    @staticmethod
    def _scaled(name: str, value: str, units: Mapping[str, int], expected: str, minimum: int) -> int:
        match = _DURATION.fullmatch(value)
        if match is None or match[2].lower() not in units or int(match[1]) < minimum:
            raise OptionError(f"{name}={value!r}: expected {expected}")
        return int(match[1]) * units[match[2].lower()]
