"""What sockets did, by namespace, and how long publishing took: Pulsar's buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

#: Microseconds; one bucket more for what took longer.
LATENCY_BOUNDS_US: Final = (500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000)


class SocketCounts:
    """Since the start, of one namespace."""

    __slots__ = (
        "acknowledged",
        "bytes_in",
        "bytes_out",
        "latency_counts",
        "latency_sum_s",
        "messages_in",
        "messages_out",
        "messages_refused",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        #: Messages that were not stored, or nobody knows.
        self.messages_refused = 0
        self.messages_out = 0
        self.bytes_out = 0
        self.acknowledged = 0
        self.latency_counts = [0] * (len(LATENCY_BOUNDS_US) + 1)
        self.latency_sum_s = 0.0

    def stored(self, size_bytes: int, took_s: float) -> None:
        """A message has its receipt."""
        self.messages_in += 1
        self.bytes_in += size_bytes
        self.latency_counts[bisect_left(LATENCY_BOUNDS_US, took_s * 1e6)] += 1
        self.latency_sum_s += took_s

    def delivered(self, size_bytes: int) -> None:
        """A message was sent to a consumer or reader."""
        self.messages_out += 1
        self.bytes_out += size_bytes

    def add(self, other: SocketCounts) -> None:
        """All that ``other`` has."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.latency_counts = [one + more for one, more in zip(self.latency_counts, other.latency_counts, strict=True)]

    def values(self) -> Iterator[int]:
        """Every count, in one order."""
        yield from (self.messages_in, self.bytes_in, self.messages_refused)
        yield from (self.messages_out, self.bytes_out, self.acknowledged)
        yield from self.latency_counts


_SUMMED: Final = tuple(name for name in SocketCounts.__slots__ if name != "latency_counts")

#: Names of Pulsar's metrics of a namespace, in the order of :meth:`SocketCounts.values`.
RATE_NAMES: Final = (
    "ns_msg_publish_rate",
    "ns_byte_publish_rate",
    "ns_msg_failure_rate",
    "ns_msg_deliver_rate",
    "ns_byte_deliver_rate",
    "ns_msg_ack_rate",
    *(f"ns_msg_publish_latency_{bound}" for bound in LATENCY_BOUNDS_US),
    f"ns_msg_publish_latency_{LATENCY_BOUNDS_US[-1]}_higher",
)


class Interval:
    """What happened in the last whole interval, as Pulsar's ``proxy-stats/metrics`` tells it: counts, called rates."""

    __slots__ = ("_before", "last")

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, ...]] = {}
        #: Namespace -> name -> count.
        self.last: dict[str, dict[str, int]] = {}

    def forget(self, namespace: str) -> None:
        """Its counts begin anew."""
        del self._before[namespace]

    def turn(self, counts: Mapping[str, SocketCounts]) -> None:
        """One ended."""
        now = {namespace: tuple(found.values()) for namespace, found in counts.items()}
        nothing = (0,) * len(RATE_NAMES)
        self.last = {
            namespace: {
                name: value - was
                for name, value, was in zip(RATE_NAMES, values, self._before.get(namespace, nothing), strict=True)
            }
            for namespace, values in now.items()
        }
        self._before = now
