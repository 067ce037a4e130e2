"""How long a message waits before it is redelivered, by how often it was: Pulsar's ``RedeliveryBackoff``."""

from __future__ import annotations

from typing import Protocol


class RedeliveryBackoff(Protocol):
    """The delay for a message."""

    def next(self, redelivery_count: int) -> int:
        """Milliseconds to wait; ``redelivery_count`` is 0 for a message delivered for the first time."""
        ...


def growing_delay_ms(redelivery_count: int, min_delay_ms: int, max_delay_ms: int, multiplier: float) -> int:
    """The smallest delay, times ``multiplier`` for each redelivery, at most the largest."""
    try:
        # A broker says the count: to its power a whole number would be of any size.
        return int(min(max_delay_ms, min_delay_ms * float(multiplier) ** max(redelivery_count, 0)))
    except OverflowError:
        return max_delay_ms
