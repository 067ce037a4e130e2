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
