"""Persisting cursors that nobody waits for, each at most once in the interval that its managed ledger gives.

Cursors with the same interval share one timer, which runs only while one of them has something to write: with a
hundred thousand topics of one policy that is one timer.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from geminga.managed_ledger.rules.persistence import flush_due_s
from geminga.runtime.ports import Clock


class Flushable(Protocol):
    """A cursor, as far as it concerns this."""

    def start_flush(self) -> None:
        """Persist what changed, in the background."""
        ...


class _Beat:
    """The cursors of one interval."""

    __slots__ = ("dirty", "flushed_s", "timer")

    def __init__(self) -> None:
        self.dirty: dict[Flushable, None] = {}
        self.flushed_s = float("-inf")
        self.timer: asyncio.TimerHandle | None = None


class FlushTimers:
    """See the module."""

    __slots__ = ("_beats", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By interval, seconds.
        self._beats: dict[float, _Beat] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no timer runs."""
        return all(beat.timer is None for beat in self._beats.values())

    def flush_later(self, cursor: Flushable, interval_s: float, *, is_retry: bool = False) -> None:
        """Persist it when ``rules.persistence.flush_due_s`` says; once, however often this is called until then."""
        beat = self._beats.get(interval_s)
        if beat is None:
            beat = self._new_beat(interval_s)
        beat.dirty[cursor] = None
        if beat.timer is None:
            now_s = self._clock.monotonic()
            due_s = flush_due_s(now_s, beat.flushed_s, interval_s, is_retry=is_retry)
            beat.timer = asyncio.get_running_loop().call_later(due_s - now_s, self._flush, beat)

    def close(self) -> None:
        """Stop the timers."""
        for beat in self._beats.values():
            if beat.timer is not None:
                beat.timer.cancel()
        self._beats.clear()

    def _new_beat(self, interval_s: float) -> _Beat:
        now_s = self._clock.monotonic()
        # One that waits for nothing and whose interval is over knows nothing that a new one would not.
        over = [s for s, beat in self._beats.items() if beat.timer is None and beat.flushed_s + s <= now_s]
        for interval in over:
            del self._beats[interval]
        beat = self._beats[interval_s] = _Beat()
        return beat

    def _flush(self, beat: _Beat) -> None:
        beat.timer = None
        beat.flushed_s = self._clock.monotonic()
        dirty, beat.dirty = beat.dirty, {}
        for cursor in dirty:
            cursor.start_flush()
