"""What the compactions of one topic came to since it was loaded, and how fast they are. Made by the first one."""

from __future__ import annotations

from typing import Final

from geminga.broker.subscription.rates import Rates
from geminga.managed_ledger.rules.write_stats import LATENCY_BOUNDS_US
from geminga.model.histogram import Histogram, Spread

#: Counters under the names of Pulsar's metrics, and what of a record they are.
COUNTERS: Final = {
    "pulsar_compaction_removed_event_count": "removed_total",
    "pulsar_compaction_succeed_count": "succeeded_count",
    "pulsar_compaction_failed_count": "failed_count",
    "pulsar_compaction_duration_time_in_mills": "duration_ms",
}


class CompactionRecord:
    """See the module."""

    __slots__ = (
        "_latencies",
        "_rates",
        "duration_ms",
        "failed_count",
        "failed_ms",
        "failures_in_a_row",
        "read_bytes",
        "removed",
        "removed_total",
        "succeeded_count",
        "succeeded_ms",
        "written_bytes",
    )

    def __init__(self) -> None:
        #: Messages that the last run left out, and all of them.
        self.removed = self.removed_total = 0
        #: Wall time of the last run of each kind; how long the last one took that succeeded.
        self.succeeded_ms = self.failed_ms = self.duration_ms = 0
        self.succeeded_count = self.failed_count = 0
        #: Since the last one that succeeded.
        self.failures_in_a_row = 0
        #: In both passes, and to the new ledgers.
        self.read_bytes = self.written_bytes = 0
        self._rates = Rates()
        #: Microseconds of each write to a new ledger.
        self._latencies = Histogram(LATENCY_BOUNDS_US)

    def succeeded(self, now_ms: int, took_s: float) -> None:
        """A run came to its end."""
        self.succeeded_ms, self.duration_ms = now_ms, round(took_s * 1000)
        self.succeeded_count += 1
        self.failures_in_a_row = 0

    def failed(self, now_ms: int) -> None:
        """A run did not."""
        self.failed_ms = now_ms
        self.failed_count += 1
        self.failures_in_a_row += 1

    def left_out(self, messages: int) -> None:
        """So many messages are not in the ledger that is served now."""
        self.removed = messages
        self.removed_total += messages

    def wrote(self, size_bytes: int, entries: int, took_s: float) -> None:
        """Entries are stored."""
        self.written_bytes += size_bytes
        self._latencies.add(took_s * 1e6, entries)

    def metrics(self, now_s: float) -> tuple[dict[str, float], Spread]:
        """Counters and rates under the names of Pulsar's metrics, and microseconds that writes took lately."""
        values: dict[str, float] = {name: getattr(self, field) for name, field in COUNTERS.items()}
        read, written = self._rates.update(now_s, (self.read_bytes, self.written_bytes))
        values["pulsar_compaction_read_throughput"] = read
        values["pulsar_compaction_write_throughput"] = written
        return values, self._latencies.window(now_s)
