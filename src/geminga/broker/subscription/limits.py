"""What a topic may have: producers, consumers, subscriptions; and how much its consumers may leave unacknowledged."""

from __future__ import annotations

from typing import NamedTuple


class TopicLimits(NamedTuple):
    """Of the namespace, else of the broker. 0: no limit."""

    producers: int = 0
    consumers: int = 0
    consumers_per_subscription: int = 0
    subscriptions: int = 0


class UnackedLimits(NamedTuple):
    """Messages sent and not acknowledged, on Shared and Key_Shared subscriptions; defaults of Pulsar. 0: no limit.

    At the limit dispatch stops until half of it is acknowledged or given back. An entry (a batch) is never cut, so
    the last one may go over it.
    """

    per_consumer: int = 50_000
    per_subscription: int = 200_000


#: What a topic has until its policies are known.
NO_LIMITS = TopicLimits()


def is_reached(limit: int, count: int) -> bool:
    """Whether one more than ``count`` would be too many."""
    return 0 < limit <= count


def host_of(peer: str) -> str:
    """Of a client's address as ``/127.0.0.1:1234``: its connections differ in the port."""
    return peer.rpartition(":")[0]
