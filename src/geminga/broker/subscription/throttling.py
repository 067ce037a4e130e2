"""Dispatch rates: of the broker, of a topic, of a subscription, each shared by the dispatches that are below it.

Before a dispatch reads, it asks for room under all its rates and reserves what the read is expected to bring; what was
sent is then paid exactly. Without room it stands in the line of the first rate that has none, and is woken in its turn:
each rate has one timer, however many wait, and whoever takes what there is stands behind the others next time. Entries
that wait are not read, so nothing is held in memory and nobody else is kept waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from geminga.broker.core.rate_limit import NS_PER_S, Rate, Throttle
from geminga.broker.subscription.rates import Rates
from geminga.runtime import Contained, Part

#: A subscription with a smaller backlog has caught up (Pulsar's default of ``managedLedgerCursorBackloggedThreshold``),
#: for brokers that slow down only those that have not (``dispatchThrottlingOnNonBacklogConsumerEnabled=false``).
BACKLOGGED_ENTRIES: Final = 1000


class DispatchThrottle:
    """A rate, who waits for it, and its timer. ``level`` as Pulsar's statistics say it: Broker, Topic, Subscription."""

    __slots__ = (
        "_core",
        "_is_serving",
        "_monotonic",
        "_part",
        "_published",
        "_rates",
        "_timer",
        "bytes_out",
        "level",
        "messages_out",
        "times",
    )

    def __init__(
        self,
        level: str,
        rate: Rate,
        monotonic: Callable[[], float],
        part: Part,
        published: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        """``part``: whose failure it is if its timer breaks. ``published``: messages and bytes that were published so
        far, for a rate relative to them."""
        self.level = level
        self._monotonic = monotonic
        self._part = part
        self._core: Throttle[DispatchTurns] = Throttle(rate, self.now_ns())
        self._published = published if rate.is_relative else None
        self._rates = Rates()
        self._timer: asyncio.TimerHandle | None = None
        self._is_serving = False
        #: What it counted, and how often somebody began to wait.
        self.messages_out = self.bytes_out = self.times = 0

    @property
    def rate(self) -> Rate:
        """What it allows, as it was set."""
        return self._core.rate

    @property
    def waiting_count(self) -> int:
        """Dispatches that wait."""
        return self._core.waiting_count

    def holds(self, turns: DispatchTurns) -> bool:
        """Whether ``turns`` waits here."""
        return self._core.has(turns)

    def now_ns(self) -> int:
        """The monotonic clock."""
        return int(self._monotonic() * NS_PER_S)

    def left(self, now_ns: int) -> tuple[int, int, int]:
        """Room now: entries, messages, bytes."""
        if self._published is not None:
            rate = self._core.rate
            messages, size = self._rates.update(now_ns / NS_PER_S, self._published())
            period_s = rate.period_s
            self._core.change(rate.messages + int(messages * period_s), rate.size_bytes + int(size * period_s), now_ns)
        return self._core.entries_left(now_ns), *self._core.left(now_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Nanoseconds until there is room again; 0: now."""
        return self._core.wait_ns(now_ns)

    def reserve(self, entries: int, now_ns: int) -> tuple[int, int]:
        """Take the room of so many entries; what to give back later."""
        return self._core.reserve(entries, now_ns)

    def give_back(self, cost: tuple[int, int], now_ns: int) -> None:
        """What was reserved is known by now."""
        self._core.give_back(*cost, now_ns)

    def take(self, entries: int, messages: int, size_bytes: int, now_ns: int) -> None:
        """So much was sent."""
        self.messages_out += messages
        self.bytes_out += size_bytes
        self._core.take(entries, messages, size_bytes, now_ns)

    def wait(self, turns: DispatchTurns, now_ns: int) -> None:
        """Wake ``turns`` when there is room and its turn has come."""
        self.times += 1
        self._core.wait(turns)
        if self._timer is None and not self._is_serving:
            self._arm(now_ns)

    def change(self, rate: Rate) -> None:
        """Go on at another rate, of the same kinds: what is there, or owed, stays."""
        now_ns = self.now_ns()
        self._core.rate = rate
        self._core.change(rate.messages, rate.size_bytes, now_ns)
        if self._timer is not None:
            # Who waits may go on sooner.
            self._timer.cancel()
            self._timer = None
            self._arm(now_ns)

    def leave(self, turns: DispatchTurns) -> None:
        """It wants nothing any more."""
        self._core.leave(turns)

    def close(self) -> None:
        """The rate holds no more. Who waits is woken by whoever changed it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._core.everybody()

    def _arm(self, now_ns: int) -> None:
        if self._core.waiting_count:
            delay_s = (self._core.wait_ns(now_ns) + 1000) / NS_PER_S
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        self._is_serving = True
        with Contained(self._part, "a dispatch rate", is_last=True):
            # At most once each: who wants more stands in line again.
            for _ in range(self._core.waiting_count):
                turns = self._core.next(self.now_ns())
                if turns is None:
                    break
                turns.go()
        self._is_serving = False
        self._arm(self.now_ns())


class DispatchTurns:
    """One dispatch under its rates. Hashes by identity."""

    __slots__ = ("_events", "_has_turn", "_is_spared", "_reserved", "_wake", "throttles")

    def __init__(
        self,
        throttles: tuple[DispatchThrottle, ...],
        wake: Callable[[], None],
        events: dict[str, int],
        is_spared: Callable[[], bool] | None = None,
    ) -> None:
        """``wake`` is called when it may go on. ``events``: what it was held by, under the names of Pulsar's
        statistics. ``is_spared``: whether the rates do not hold now; None: they always do."""
        self.throttles = throttles
        self._wake = wake
        self._events = events
        self._is_spared = is_spared
        self._has_turn = False
        self._reserved: list[tuple[DispatchThrottle, tuple[int, int]]] = []

    @property
    def held_by(self) -> DispatchThrottle | None:
        """The rate that it waits for now; None: it waits for none."""
        return next((throttle for throttle in self.throttles if throttle.holds(self)), None)

    def room(self, entries_max: int, bytes_max: int) -> tuple[int, int]:
        """Entries and bytes that may be read now, at most those wanted; (0, 0): none, and it is woken later."""
        if self._is_spared is not None and self._is_spared():
            return entries_max, bytes_max
        self.called_off()
        for throttle in self.throttles:
            now_ns = throttle.now_ns()
            entries, messages, size_bytes = throttle.left(now_ns)
            if not entries or (throttle.waiting_count and not self._has_turn):
                self._count(throttle.level, messages, size_bytes)
                throttle.wait(self, now_ns)
                return 0, 0
            entries_max, bytes_max = min(entries_max, entries), min(bytes_max, size_bytes)
        return entries_max, bytes_max

    def reserve(self, entries: int) -> None:
        """So many entries are read now."""
        if self._is_spared is None or not self._is_spared():
            self._reserved = [(throttle, throttle.reserve(entries, throttle.now_ns())) for throttle in self.throttles]

    def called_off(self) -> None:
        """The read brought nothing, or what it brought is known."""
        if self._reserved:
            reserved, self._reserved = self._reserved, []
            for throttle, cost in reserved:
                throttle.give_back(cost, throttle.now_ns())

    def sent(self, entries: int, messages: int, size_bytes: int) -> None:
        """So much of what was read was sent."""
        is_counted = bool(self._reserved)
        self.called_off()
        if is_counted:
            for throttle in self.throttles:
                throttle.take(entries, messages, size_bytes, throttle.now_ns())

    def go(self) -> None:
        """Its turn has come."""
        self._has_turn = True
        try:
            self._wake()
        finally:
            self._has_turn = False

    def close(self) -> None:
        """It wants nothing any more."""
        self.called_off()
        for throttle in self.throttles:
            throttle.leave(self)

    def _count(self, level: str, messages: int, size_bytes: int) -> None:
        for kind, left in (("Msg", messages), ("Bytes", size_bytes)):
            if left <= 0:
                key = f"dispatchThrottled{kind}EventsBy{level}Limit"
                self._events[key] = self._events.get(key, 0) + 1
