"""The trace of a run: a running hash over everything that happened, and the last events as a story.

Two runs with the same seed must end with the same hash; a failure prints the story.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

#: Events kept for the story in a failure.
STORY_EVENTS_MAX: Final = 60


class Trace:
    """Events are tuples of numbers and strings; never objects whose text has an address in it."""

    __slots__ = ("_hash", "_story", "events")

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._story: deque[str] = deque(maxlen=STORY_EVENTS_MAX)
        #: Number of events so far.
        self.events = 0

    def add(self, time_s: float, *fields: object) -> None:
        """Record an event at virtual ``time_s``."""
        line = f"{time_s:.6f} {' '.join(map(str, fields))}"
        self._hash.update(line.encode())
        self._story.append(line)
        self.events += 1

    def digest(self) -> str:
        """The hash so far, hexadecimal."""
        return self._hash.hexdigest()

    def story(self) -> str:
        """The last events, one a line."""
        return "\n".join(self._story)
