"""Dates and times as Spark's ``from_json`` reads them from texts: which it does read, not only which look like one.

A text that is let pass and that Spark does not read ends the query, whoever sent it, and each start of it again. So the
calendar, the bounds of 64 bits of microseconds and of 32 bits of days, and zones are those of Spark.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import Final, NamedTuple

from geminga.spark.decoding.exact import shown

#: What Spark takes away at both ends.
_BLANK: Final = r"[\t-\r\x1c-\x20]*"
#: Parts may be left out from the end on.
_MOMENT: Final = re.compile(
    _BLANK + r"(?P<year>[+-]?\d{4,7})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})(?P<behind>[ T](?P<time>"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?)?)?"
    rf"{_BLANK}(?P<zone>Z|[+-]\d{{1,2}}(?::?\d{{1,2}}){{0,2}}|[A-Za-z][\w/:+-]*)?)?)?)?{_BLANK}",
    re.ASCII,
)
_LIMITS: Final = (("hour", 24), ("minute", 60), ("second", 60))
_OFFSETS: Final = (
    re.compile(r"[+-](\d\d?)(?::(\d\d?))?()", re.ASCII),
    re.compile(r"[+-](\d\d?):(\d\d):(\d\d)", re.ASCII),
    re.compile(r"[+-](\d\d)(\d\d)(\d\d)?", re.ASCII),
)
_OFFSET_MAX_S: Final = 18 * 3600
_DAY_S: Final = 86_400
_SECOND_US: Final = 1_000_000
#: The calendar repeats after so many years, and days.
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
#: What Java calls a zone and Python's database does not, and the other way round.
_JAVA_NAMES: Final = (
    "ACT AET AGT ART AST BET BST CAT CNT CST CTT EAT ECT EST HST IET IST JST MIT MST NET NST PLT PNT PRT PST SST VST "
    "SystemV/AST4 SystemV/AST4ADT SystemV/CST6 SystemV/CST6CDT SystemV/EST5 SystemV/EST5EDT SystemV/HST10 "
    "SystemV/MST7 SystemV/MST7MDT SystemV/PST8 SystemV/PST8PDT SystemV/YST9 SystemV/YST9YDT UTC GMT UT"
)
_OF_JAVA: Final = frozenset(_JAVA_NAMES.split())
_NOT_OF_JAVA: Final = frozenset(("Factory", "ROC", "localtime", "posixrules"))


class Moment(NamedTuple):
    """The parts of a text."""

    #: Since 1970, by the calendar that never changed.
    days: int
    #: The time as it stands there; empty: none.
    time: str
    fraction: str
    zone: str
    #: Whether the columns of these types hold it, as far as it is not cut.
    is_date: bool
    is_timestamp: bool

    @classmethod
    def parse(cls, value: object, name: str) -> Moment:
        """Raises ValueError: it is no ``name``."""
        match = _MOMENT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{shown(value)} is no {name}")
        try:
            days = _days(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
        except ValueError as error:
            raise ValueError(f"{shown(value)} is no {name}: {error}") from None
        if any(int(match[part] or 0) >= limit for part, limit in _LIMITS):
            raise ValueError(f"{shown(value)} is no {name}")
        parts = {part: text or "" for part, text in match.groupdict().items()}
        return cls(
            days,
            parts["time"],
            parts["fraction"],
            parts["zone"],
            -(1 << 31) <= days < 1 << 31,
            parts["behind"].rstrip() != "T" and _is_timestamp(days, parts),
        )


def _days(year: int, month: int, day: int) -> int:
    within = 2000 + year % _CYCLE_YEARS
    cycles = (year - within) // _CYCLE_YEARS
    return date(within, month, day).toordinal() - _EPOCH_DAY + cycles * _CYCLE_DAYS


def _is_timestamp(days: int, parts: Mapping[str, str]) -> bool:
    """Whether 64 bits hold its microseconds, and its zone is one."""
    zone = parts["zone"]
    offset_s: int | None = 0
    if zone:
        if not parts["second"]:
            return False
        offset_s = _offset_s(zone)
        if offset_s is None and not _is_name(zone):
            return False
    seconds = days * _DAY_S + int(parts["hour"] or 0) * 3600 + int(parts["minute"] or 0) * 60
    seconds += int(parts["second"] or 0)
    micros = seconds * _SECOND_US + int(parts["fraction"][:6].ljust(6, "0"))
    # Which offset a zone had at that time is not looked up: none of its days is let pass that it might move out.
    margins = (-_OFFSET_MAX_S, _OFFSET_MAX_S) if offset_s is None else (offset_s, offset_s)
    return all(-(1 << 63) <= micros - margin * _SECOND_US < 1 << 63 for margin in margins)


def _offset_s(zone: str) -> int | None:
    """Seconds ahead of UTC; None: it is no offset that Spark reads."""
    if zone == "Z":
        return 0
    for prefix in ("UTC", "GMT", "UT"):
        if zone.startswith((f"{prefix}+", f"{prefix}-")):
            zone = zone.removeprefix(prefix)
            break
    for pattern in _OFFSETS:
        match = pattern.fullmatch(zone)
        if match is not None:
            hours, minutes, seconds = (int(part or 0) for part in match.groups())
            total = hours * 3600 + minutes * 60 + seconds
            is_one = minutes < 60 and seconds < 60 and total <= _OFFSET_MAX_S
            return (-total if zone[0] == "-" else total) if is_one else None
    return None


def _is_name(zone: str) -> bool:
    if zone in _OF_JAVA:
        return True
    names = _names()
    # Without a database here it is Spark's alone to say.
    return zone not in _NOT_OF_JAVA and zone[0].isalpha() and (not names or zone in names)


@cache
def _names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())
