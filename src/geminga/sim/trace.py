"""The trace of a run: a running hash over everything that happened, and the last events as a story.

Two runs with the same seed must end with the same hash; a failure prints the story.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

#: Events kept for the story in a failure.
STORY_EVENTS_MAX: Final = 60
#: Events that wait to be written as text: most runs end before anybody asks for their hash.
EVENTS_HELD_MAX: Final = 100_000


class Trace:
    """Events are tuples of numbers and strings; never objects whose text has an address in it."""

    __slots__ = ("_hash", "_held", "_story", "_written")

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._story: deque[str] = deque(maxlen=STORY_EVENTS_MAX)
        #: Events that are in neither yet, at most :data:`EVENTS_HELD_MAX`.
        self._held: list[tuple[float, tuple[object, ...]]] = []
        #: Events that are in both.
        self._written = 0

    @property
    def events(self) -> int:
        """Number of events so far."""
        return self._written + len(self._held)

    def add(self, time_s: float, *fields: object) -> None:
        """Record an event at virtual ``time_s``."""
        self._held.append((time_s, fields))
        if len(self._held) >= EVENTS_HELD_MAX:
            self._write()

    def digest(self) -> str:
        """The hash so far, hexadecimal."""
        self._write()
        return self._hash.hexdigest()

    def story(self) -> str:
        """The last events, one a line."""
        self._write()
        return "\n".join(self._story)

    def _write(self) -> None:
        lines = [f"{time_s:.6f} {' '.join(map(str, fields))}" for time_s, fields in self._held]
        self._hash.update("".join(lines).encode())
        self._story.extend(lines[-STORY_EVENTS_MAX:])
        self._written += len(lines)
        self._held.clear()
