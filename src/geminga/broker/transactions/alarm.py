"""Tells of transactions that hold topics and subscriptions back for long: a line of the log for each, and metrics.

Asks those only that say they hold something, and runs no timer while there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from geminga.model.txn_id import TxnId
from geminga.runtime import Clock, Part, Turns, get_logger, spawn
from geminga.transaction.core.held_back import Alarm, HeldBack, Hold
from geminga.transaction.ports import HoldsBack

_log = get_logger(__name__)

#: How often it is looked at whether something is held for too long: so many times within the threshold, and between
#: these.
LOOKS_PER_THRESHOLD: Final = 4
LOOK_MS_MIN: Final = 100
LOOK_MS_MAX: Final = 10_000
#: The configuration key of the threshold.
THRESHOLD_KEY: Final = "gemingaTransactionAlarmMillis"

#: What is known of a transaction beside what it holds, in words; empty: nothing.
Described = Callable[[TxnId], str]


class HeldNow(NamedTuple):
    """What is held back now."""

    #: For longer than the threshold.
    topics: int
    subscriptions: int
    #: How long what is held longest is, ms; of anything that is held.
    longest_ms: int


class HeldBackAlarm:
    """See the module."""

    __slots__ = ("_clock", "_described", "_held_back", "_holding", "_is_closed", "_look", "_part", "_timer")

    def __init__(self, clock: Clock, threshold_ms: int, described: Described, part: Part) -> None:
        """``threshold_ms`` 0: nothing is told."""
        self._clock = clock
        self._described = described
        self._part = part
        self._held_back = HeldBack(threshold_ms)
        #: Those that held something when they were asked last.
        self._holding: dict[HoldsBack, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None
        self._is_closed = False

    def watch(self, holding: HoldsBack) -> None:
        """It holds something now."""
        if self._is_closed or not self._held_back.threshold_ms:
            return
        self._holding[holding] = None
        if self._timer is None and self._look is None:
            look_ms = min(max(self._held_back.threshold_ms // LOOKS_PER_THRESHOLD, LOOK_MS_MIN), LOOK_MS_MAX)
            self._timer = asyncio.get_running_loop().call_later(look_ms / 1000, self._look_soon)

    def close(self) -> None:
        """Nothing is told any more."""
        self._is_closed = True
        self._holding.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_soon(self) -> None:
        self._timer = None
        self._look = spawn(self._look_at_all(), name="the alarm of transactions", part=self._part)

    async def _look_at_all(self) -> None:
        try:
            turns, now_ms = Turns(self._clock), self._clock.wall_ms()
            holds, late = [], set()
            for holding in list(self._holding):
                if turns.is_over():
                    await turns.next()
                hold = self._hold_of(holding)
                if hold is not None:
                    holds.append(hold)
                    if self._held_back.is_late(hold.since_ms, now_ms):
                        late.add(hold.txn_id)
            report = self._held_back.look((hold for hold in holds if hold.txn_id in late), now_ms)
            for alarm in report.alarms:
                self._tell(alarm)
            if report.alarms and report.waiting:
                _log.warning("%d more transactions hold back topics or subscriptions for as long", report.waiting)
        finally:
            self._look = None
            if self._holding:
                self.watch(next(iter(self._holding)))

    def _tell(self, alarm: Alarm) -> None:
        _log.warning(
            "transaction %s holds back %s for %.1f s (%s=%d)%s",
            alarm.txn_id,
            alarm.what,
            alarm.held_ms / 1000,
            THRESHOLD_KEY,
            self._held_back.threshold_ms,
            self._described(alarm.txn_id),
        )

    def _hold_of(self, holding: HoldsBack) -> Hold | None:
        hold = holding.hold()
        if hold is None:
            self._holding.pop(holding, None)
        return hold

    @property
    def is_looking(self) -> bool:
        """Whether it looks from time to time: something is held, or was when it looked last."""
        return self._timer is not None or self._look is not None

    @property
    def alarm_count(self) -> int:
        """Transactions that were told of."""
        return self._held_back.alarm_count

    def now(self) -> HeldNow:
        """What is held back now."""
        now_ms = self._clock.wall_ms()
        topics = subscriptions = longest_ms = 0
        for holding in list(self._holding):
            hold = self._hold_of(holding)
            if hold is None:
                continue
            longest_ms = max(longest_ms, now_ms - hold.since_ms)
            if self._held_back.is_late(hold.since_ms, now_ms):
                topics += not hold.subscription
                subscriptions += bool(hold.subscription)
        return HeldNow(topics, subscriptions, longest_ms)
