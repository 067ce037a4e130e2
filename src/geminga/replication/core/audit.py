"""When the auditor looks for ledgers of lost bookies. Pure; time is passed in.

One bookie that goes is waited for (``lostBookieRecoveryDelay``): it may only be restarting. If it is back by then
nothing is done. Two that are away are not waited for. Apart from that everything is looked at now and then.
"""

from __future__ import annotations

from collections.abc import Collection


class AuditSchedule:
    """Who is registered, who went, and when to look. Seconds on the monotonic clock."""

    __slots__ = ("_away", "_due_at", "_interval_s", "_known", "_periodic_at", "cancelled", "delayed")

    def __init__(self, now: float, *, delay_s: float, interval_s: float) -> None:
        """A first look is due after the delay, as if somebody had just gone; ``interval_s`` 0: no further ones."""
        self._known: set[str] = set()
        self._away: set[str] = set()
        self._interval_s = interval_s
        self._periodic_at: float | None = now + delay_s
        #: For somebody who is away.
        self._due_at: float | None = None
        #: Looks that were put off, and those that were not needed any more.
        self.delayed = 0
        self.cancelled = 0

    def registered(self, bookie_ids: Collection[str], now: float, *, delay_s: float) -> None:
        """These are registered now, writable or not."""
        there = set(bookie_ids)
        gone = self._known - there
        self._known = there
        self._away = (self._away - there) | gone
        if not self._away and self._due_at is not None:
            self._due_at = None
            self.cancelled += 1
        if not gone:
            return
        if delay_s <= 0 or len(self._away) > 1:
            self._due_at = now
        elif self._due_at is None:
            self._due_at = now + delay_s
            self.delayed += 1

    def delay_changed(self, now: float, *, delay_s: float) -> None:
        """Whoever is waited for is waited for so long from now."""
        if self._due_at is not None:
            self._due_at = now + delay_s

    def asked(self, now: float) -> None:
        """Somebody wants a look at once."""
        self._periodic_at = now

    def wait_s(self, now: float) -> float | None:
        """Until the next look; 0: it is due; None: nothing but a change brings one."""
        times = [at for at in (self._due_at, self._periodic_at) if at is not None]
        return max(0.0, min(times) - now) if times else None

    def looked(self, now: float) -> None:
        """Every ledger was looked at, with those who are registered now."""
        self._away.clear()
        self._due_at = None
        self._periodic_at = now + self._interval_s if self._interval_s else None
