"""Clocks on which work takes time: in a simulation none passes within a turn of the loop."""

from __future__ import annotations

import asyncio
import dataclasses

from geminga.broker.composition.service import Broker
from geminga.runtime import Clock, Rng


class SteppingClock:
    """Each look at the monotonic clock takes ``step_s`` seconds."""

    def __init__(self, clock: Clock, step_s: float) -> None:
        self._clock = clock
        self._step_s = step_s
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return self._clock.monotonic() + self._looks * self._step_s

    def worked(self) -> float:
        return self.monotonic()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


def let_time_pass(broker: Broker, step_s: float) -> None:
    """Connections made from now on see time pass."""
    clock = SteppingClock(broker.runtime.clock, step_s)
    broker.runtime = dataclasses.replace(broker.runtime, clock=clock)
    broker.connection_services = dataclasses.replace(broker.connection_services, monotonic=clock.monotonic)


class WorkClock:
    """Virtual time, in which work takes as long as somebody says."""

    def __init__(self) -> None:
        self.worked_s = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.worked_s

    def worked(self) -> float:
        return self.worked_s

    def wall_ms(self) -> int:
        return int(self.monotonic() * 1000)


class EarlyTimersClock:
    """The wall clock of a loop whose timers fire up to a millisecond early: that millisecond passes at any look."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def worked(self) -> float:
        return self.monotonic()

    def wall_ms(self) -> int:
        return self._clock.wall_ms() - self._rng.below(2)


def let_timers_be_early(broker: Broker, rng: Rng) -> None:
    """From now on what asks for the time when its timer fires may be told the millisecond before."""
    broker.runtime = dataclasses.replace(broker.runtime, clock=EarlyTimersClock(broker.runtime.clock, rng))
