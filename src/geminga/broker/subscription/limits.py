"""How many producers, consumers and subscriptions a topic may have: the namespace's policy, else the broker's."""

from __future__ import annotations

from typing import NamedTuple


class TopicLimits(NamedTuple):
    """0: no limit."""

    producers: int = 0
    consumers: int = 0
    consumers_per_subscription: int = 0
    subscriptions: int = 0


#: What a topic has until its policies are known.
NO_LIMITS = TopicLimits()


def is_reached(limit: int, count: int) -> bool:
    """Whether one more than ``count`` would be too many."""
    return 0 < limit <= count
