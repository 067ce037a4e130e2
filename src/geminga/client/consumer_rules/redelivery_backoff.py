"""How long a message waits before it is redelivered, by how often it was: Pulsar's ``RedeliveryBackoff``."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from geminga.client.rules.option_kinds import TIME_MS_MAX, Number, problem
from geminga.model.errors import ConfigurationError

_DELAY: Final = Number(-TIME_MS_MAX, TIME_MS_MAX)


class RedeliveryBackoff(Protocol):
    """The delay for a message."""

    def next(self, redelivery_count: int) -> int:
        """Milliseconds to wait; ``redelivery_count`` is 0 for a message delivered for the first time."""
        ...


@dataclass(frozen=True, slots=True)
class MultiplierRedeliveryBackoff:
    """``min_delay_ms * multiplier ** redelivery_count``, at most ``max_delay_ms`` (Pulsar's defaults)."""

    min_delay_ms: int = 1000
    max_delay_ms: int = 60_000
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        for name, value in (("min_delay_ms", self.min_delay_ms), ("max_delay_ms", self.max_delay_ms)):
            wrong = problem(name, value, _DELAY)
            if wrong is not None:
                raise ConfigurationError(wrong)
        if not isinstance(self.multiplier, int | float) or not self.multiplier < inf:
            raise ConfigurationError(f"multiplier={self.multiplier!r:.100}: expected a number of 1 or more")
        if not 0 < self.min_delay_ms <= self.max_delay_ms or self.multiplier < 1:
            raise ConfigurationError(
                f"redelivery backoff from {self.min_delay_ms} to {self.max_delay_ms} ms, times {self.multiplier}: "
                "expected 0 < min_delay_ms <= max_delay_ms and a multiplier of 1 or more"
            )

    def next(self, redelivery_count: int) -> int:
        """Milliseconds to wait."""
        if redelivery_count <= 0 or self.min_delay_ms == self.max_delay_ms:
            return self.min_delay_ms
        try:
            return int(min(self.max_delay_ms, self.min_delay_ms * self.multiplier**redelivery_count))
        except OverflowError:
            return self.max_delay_ms
