"""Which transactions that hold topics back are told of, and when: each once, and few at a time.

A hold is what a topic, or a subscription, says now of the transaction that it waits for longest. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from geminga.model.txn_id import TxnId

#: Transactions that are told of in one period; the others wait for the next.
ALARMS_PER_PERIOD: Final = 10
#: That period, milliseconds.
PERIOD_MS: Final = 60_000
#: Topics and subscriptions that an alarm names.
NAMED_MAX: Final = 3


class Hold(NamedTuple):
    """A topic whose readers, or a subscription that, waits for a transaction."""

    txn_id: TxnId
    #: Ms since the epoch.
    since_ms: int
    topic: str
    #: Empty: it is the topic's readers who wait.
    subscription: str = ""
    #: Who published the first message that nobody may read yet; empty: nobody knows.
    producer: str = ""

    @property
    def where(self) -> str:
        """In words."""
        if self.subscription:
            return f"{self.subscription} of {self.topic}"
        return f"{self.topic} (producer {self.producer})" if self.producer else self.topic


class Alarm(NamedTuple):
    """A transaction to be told of."""

    txn_id: TxnId
    #: Milliseconds since it held the first of them.
    held_ms: int
    #: The oldest first, at most :data:`NAMED_MAX`.
    holds: tuple[Hold, ...]
    #: How many there are.
    total: int

    @property
    def what(self) -> str:
        """What it holds back, in words."""
        named = ", ".join(hold.where for hold in self.holds)
        return named if self.total == len(self.holds) else f"{named} and {self.total - len(self.holds)} more"


class HeldBackReport(NamedTuple):
    """What one look found."""

    alarms: tuple[Alarm, ...]
    #: Transactions that had no alarm before, and have none now: too many at a time.
    waiting: int


class HeldBack:
    """See the module. ``threshold_ms``: what is held for less is as it should be."""

    __slots__ = ("_alarmed", "_alarms_in_period", "_period_ms", "alarm_count", "threshold_ms")

    def __init__(self, threshold_ms: int) -> None:
        self.threshold_ms = threshold_ms
        #: Transactions that an alarm was raised for and hold something still.
        self._alarmed: set[TxnId] = set()
        #: When the period began, and how many an alarm was raised for in it.
        self._period_ms = 0
        self._alarms_in_period = 0
        #: Transactions that an alarm was raised for since the start.
        self.alarm_count = 0

    def look(self, holds: Iterable[Hold], now_ms: int) -> HeldBackReport:
        """``holds``: all there are now."""
        by_transaction: dict[TxnId, list[Hold]] = {}
        for hold in holds:
            by_transaction.setdefault(hold.txn_id, []).append(hold)
        self._alarmed &= by_transaction.keys()
        late = [
            sorted(found, key=lambda hold: hold.since_ms)
            for txn_id, found in by_transaction.items()
            if txn_id not in self._alarmed and self.is_late(min(hold.since_ms for hold in found), now_ms)
        ]
        late.sort(key=lambda found: found[0].since_ms)
        if not 0 <= now_ms - self._period_ms < PERIOD_MS:
            self._period_ms, self._alarms_in_period = now_ms, 0
        taken = late[: ALARMS_PER_PERIOD - self._alarms_in_period]
        self._alarms_in_period += len(taken)
        self.alarm_count += len(taken)
        self._alarmed.update(found[0].txn_id for found in taken)
        alarms = tuple(
            Alarm(found[0].txn_id, now_ms - found[0].since_ms, tuple(found[:NAMED_MAX]), len(found)) for found in taken
        )
        return HeldBackReport(alarms, len(late) - len(taken))

    def is_late(self, since_ms: int, now_ms: int) -> bool:
        """Whether something that is held since then is held for too long."""
        return bool(self.threshold_ms) and now_ms - since_ms >= self.threshold_ms
