"""Literals of JSON that may or may not fit a column, and by the shortest reasoning whether they do."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from random import Random
from typing import Final

WHOLE: Final = [0, 1, -1, 127, 128, -129, 1 << 15, 1 << 24, (1 << 24) + 1, (1 << 31) - 1, 1 << 31, (1 << 53) + 1]
WHOLE_LARGE: Final = [
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63),
    -(1 << 63) - 1,
    1 << 64,
    123456789012345680000,
    10**30,
    10**400,
]
FIXED: Final = [
    *("true", "false", "null", '"5"', '"x"', '""', "[]", "{}", "[1]", '{"a":1}', '[{"a":1}]', "NaN", "Infinity"),
    *("-Infinity", "-0", "-0.0", "2.0", "2.5", "1e3", "1e300", "1e400", "-1e400", "1e-400", "9007199254740993.0"),
    *("0.1", "16777217.0", "1e39", "1.25", "1.2", "12345.6", "1e99999999999999999999", '"QQ=="', '"Q?=="', '"QQ"'),
    *('"2024-01-02"', '"2024-01-02T03:04:05.123456Z"', '"2024-01-02T03:04:05.1234567Z"', '"2024-13-02"', '"NaN"'),
    *('"\\ud800"', '"\\u00e9"', '"é"', "[1,2.5]", "[null]", '[1,"x"]', '{"a":"x"}', '{"a":null}', '{"b":2}', "01", ""),
]

#: Texts of which Spark reads some as times or dates, and others that look like them not.
MOMENTS: Final = [
    *("2024", "2024-1", "2024-1-1", " 2024-01-01 ", "\t2024-01-01\n", "2024-01-01T", "2024-01-01 1", "2024-01-01 1:2"),
    *("2024-01-01 1:2:3.", "2024-01-01 1:2:3.1234560", "2024-01-01\u00a0", "\u20032024-01-01", "\u0662024-01-01"),
    *("2024-01-01Z", "2024-01-01TZ", "2024-01-01 12Z", "2024-01-01T12:30Z", "2024-01-01T12:30+01:00", "2024-02-30"),
    *("12345-13-45", "10000-02-30", "10001-02-29", "12000-02-29", "0000-02-29", "0000-02-30", "-0004-02-29"),
    *("294247-01-10T04:00:54.775807Z", "294247-01-10T04:00:54.775808Z", "-290308-12-21T19:59:05.224192Z"),
    *("-290308-12-21T19:59:05.224191Z", "-290308-12-22", "294248-01-01", "1234567-01-01", "5881580-07-11"),
    *("5881580-07-12", "-5877641-06-23", "-5877641-06-22", "9999999-01-01"),
    *(f"2024-01-01 00:00:00{zone}" for zone in ("Z", " Z", "z", "  UTC", "+1", "+1:2", "+01:2", "+1:02", "+01:02:03")),
    *(f"2024-01-01 00:00:00{zone}" for zone in ("+1:02:03", "+01:2:3", "+01:02:3", "+010203", "+0102", "+01:0203")),
    *(f"2024-01-01 00:00:00{zone}" for zone in ("+123", "+12345", "+18", "-18:00", "-18:00:01", "+18:01", "+17:60")),
    *(f"2024-01-01 00:00:00{zone}" for zone in ("+99:99", "GMT+1", "UTC+18:00", "UTC+19", "UT+1:2", "UTC+", "GMT0")),
    *(f"2024-01-01 00:00:00 {zone}" for zone in ("Europe/Berlin", "europe/berlin", "Mars/Phobos", "PST", "xyz", "A")),
    *(f"2024-01-01 00:00:00 {zone}" for zone in ("PST8PDT", "SystemV/PST8", "ROC", "ROK", "Factory", "CST", "EST")),
]
#: Texts of which Spark reads some as decimals.
NUMBERS: Final = [
    *("1", "+1", "-01", "1.", ".5", "1e", "1e1", "1E-1", "1,0.0", "1,000", "1_000", " 1", "1 ", "", ".", "--1", "e1"),
    *("0x1", "1d", "NaN", "\u0661", "\U0001d7cf", "0e999999999", "0e99999999999", "0e-99999999999", ","),
]


def seeded(seed: str) -> Random:
    """The same ones each time."""
    return Random(seed)


def literal(random: Random) -> str:
    """One of them, as it stands in a message."""
    kind = random.randrange(6)
    if kind == 0:
        return str(random.choice([*WHOLE, *WHOLE_LARGE]) * random.choice([1, -1]) + random.randrange(-1, 2))
    if kind == 1:
        return str(random.getrandbits(random.randrange(1, 80)))
    if kind == 2:
        return f"{random.getrandbits(40)}.{random.choice(['0', '00', '5', '25', '000000001'])}"
    if kind == 3:
        return f"{random.randrange(-999, 999)}e{random.randrange(-3, 22)}"
    if kind == 4:
        return json.dumps("".join(random.choices("abé\u20ac 05-:TZ", k=random.randrange(8))), ensure_ascii=False)
    return random.choice(FIXED)


def whole_number(text: str, bits: int) -> int | None:
    """What a whole-number column of so many bits holds of a literal; None: it does not, or it is null."""
    match = re.fullmatch(r"(-?(?:0|[1-9]\d*))(?:\.(\d+))?(?:[eE]([+-]?\d{1,3}))?", text)
    if match is None:
        return None
    digits, places = match[1] + (match[2] or ""), int(match[3] or 0) - len(match[2] or "")
    number = int(digits) * Fraction(10) ** places
    return int(number) if number.denominator == 1 and -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None
