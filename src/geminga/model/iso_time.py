"""Times in ISO 8601, as people write them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


def parse_moment(text: str) -> datetime:
    """A time, with or without its zone, or a day, which begins at midnight; raises ValueError.

    Python's reader takes any character between day and time, so that the zone of a day, as in ``2026-01-01+02:00``,
    would be the time of that day.
    """
    day = DAY.match(text)
    rest = text[day.end() :] if day is not None else ""
    if day is None or not rest or rest[0] in "Tt ":
        return datetime.fromisoformat(text)
    return datetime.fromisoformat(f"{day[0]}T00:00:00{rest}")
