"""Statistics of one consumer: plain counters, and a recorder that turns them into rates per interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class ConsumerCounters:
    """What happened since the consumer was made; the hot path adds to them by the batch."""

    #: Messages handed to the application.
    messages_received: int = 0
    #: Entries that came, and their bytes, decompressed.
    entries_received: int = 0
    bytes_received: int = 0
    #: Acknowledgments the application gave.
    acks_sent: int = 0
    #: Acknowledgments the broker refused (known with receipts only).
    ack_failures: int = 0
    negative_acks: int = 0
    #: Entries the broker was asked to deliver again.
    redelivery_requests: int = 0
    #: Entries dropped: damaged, not decryptable, of an old epoch.
    entries_discarded: int = 0
    chunked_discarded: int = 0
    dead_lettered: int = 0
    batch_receives: int = 0
    receive_timeouts: int = 0

    def values(self) -> tuple[int, ...]:
        """All of them, in the order of the slots."""
        return tuple(getattr(self, name) for name in ConsumerCounters.__slots__)


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """One consumer at one moment. Rates are per second over the last whole interval, 0 before its end."""

    messages_received: int
    bytes_received: int
    entries_received: int
    acks_sent: int
    ack_failures: int
    negative_acks: int
    redelivery_requests: int
    entries_discarded: int
    chunked_discarded: int
    dead_lettered: int
    batch_receives: int
    receive_timeouts: int
    #: Messages prefetched and not received, now.
    prefetched_messages: int
    #: Acknowledgments that wait to be sent, now.
    pending_acks: int
    message_rate: float
    byte_rate: float
    ack_rate: float


def summary(stats: ConsumerStats) -> str:
    """One line of what an operator wants to see, in words like those of Pulsar's Java client."""
    return (
        f"prefetched {stats.prefetched_messages} messages, received {stats.message_rate:.1f} msg/s "
        f"{stats.byte_rate * 8 / 1e6:.3f} Mbit/s, acknowledged {stats.ack_rate:.1f}/s, {stats.pending_acks} waiting; "
        f"in all received {stats.messages_received}, acknowledged {stats.acks_sent}, failed {stats.ack_failures}, "
        f"negative {stats.negative_acks}, redelivery requests {stats.redelivery_requests}, "
        f"dead letters {stats.dead_lettered}, discarded entries {stats.entries_discarded}"
    )


class StatsRecorder:
    """Rates by interval. Times are milliseconds of a clock that does not go back."""

    __slots__ = (
        "_all_before",
        "_before",
        "_since_ms",
        "ack_rate",
        "byte_rate",
        "has_news",
        "interval_ms",
        "message_rate",
    )

    def __init__(self, interval_ms: int, now_ms: float) -> None:
        #: How long an interval is; 0: no rates.
        self.interval_ms = interval_ms
        self._since_ms = now_ms
        self._before = (0, 0, 0)
        self._all_before: tuple[int, ...] = ()
        #: Whether anything happened in the last interval.
        self.has_news = False
        self.message_rate = 0.0
        self.byte_rate = 0.0
        self.ack_rate = 0.0

    def tick(self, counters: ConsumerCounters, now_ms: float) -> bool:
        """An interval may be over; True if it is, and the rates are new."""
        elapsed_ms = now_ms - self._since_ms
        if self.interval_ms <= 0 or elapsed_ms < self.interval_ms:
            return False
        now = (counters.messages_received, counters.bytes_received, counters.acks_sent)
        rates = [(after - before) * 1000 / elapsed_ms for after, before in zip(now, self._before, strict=True)]
        self.message_rate, self.byte_rate, self.ack_rate = rates
        self._before = now
        self._since_ms = now_ms
        counts = counters.values()
        self.has_news = counts != self._all_before and any(counts)
        self._all_before = counts
        return True

    def stats(self, counters: ConsumerCounters, *, prefetched_messages: int, pending_acks: int) -> ConsumerStats:
        """The counters and the rates of the last interval."""
        return ConsumerStats(
            **{name: getattr(counters, name) for name in ConsumerCounters.__slots__},
            prefetched_messages=prefetched_messages,
            pending_acks=pending_acks,
            message_rate=self.message_rate,
            byte_rate=self.byte_rate,
            ack_rate=self.ack_rate,
        )
