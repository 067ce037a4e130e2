"""What ``geminga perf`` measures: counts, rates and latencies, shown while it runs and at the end."""

from __future__ import annotations

import json
import math
import sys
import time
from array import array
from typing import Final

#: Latencies are kept in buckets whose bounds grow by this factor: percentiles are right to 2 %.
_GROWTH: Final = 1.02
_LOG_GROWTH: Final = math.log(_GROWTH)
#: Bounds of what is told apart, milliseconds.
_LOWEST_MS: Final = 0.001
_BUCKETS: Final = 1200
PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)


class PerfLatencies:
    """A histogram of milliseconds, in constant memory."""

    __slots__ = ("_buckets", "count", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self._buckets = array("Q", bytes(8 * _BUCKETS))
        self.count = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0

    def add(self, milliseconds: float, count: int = 1) -> None:
        """Note a latency of ``count`` messages."""
        index = int(math.log(milliseconds / _LOWEST_MS) / _LOG_GROWTH) if milliseconds > _LOWEST_MS else 0
        self._buckets[min(index, _BUCKETS - 1)] += count
        self.count += count
        self.sum_ms += milliseconds * count
        self.max_ms = max(self.max_ms, milliseconds)

    def percentile(self, percent: float) -> float:
        """Milliseconds that ``percent`` of the messages did not exceed; 0 if there are none."""
        wanted = math.ceil(self.count * percent / 100)
        seen = 0
        for index, count in enumerate(self._buckets):
            seen += count
            if count and seen >= wanted:
                return min(_LOWEST_MS * _GROWTH ** (index + 1), self.max_ms)
        return 0.0

    def as_json(self) -> dict[str, float]:
        """Mean, percentiles and maximum, milliseconds."""
        found = {"mean": round(self.sum_ms / self.count, 3) if self.count else 0.0}
        found |= {f"p{percent:g}": round(self.percentile(percent), 3) for percent in PERCENTILES}
        return found | {"max": round(self.max_ms, 3)}


class PerfProgress:
    """Counts of one run; a live line on a terminal, a line per interval elsewhere, a summary at the end."""

    def __init__(self, verb: str, *, is_json: bool, interval_s: float) -> None:
        self._verb = verb
        self._is_json = is_json
        self.interval_s = interval_s
        self.messages = 0
        self.bytes = 0
        self.failed = 0
        self.total = PerfLatencies()
        self._recent = PerfLatencies()
        self._started = self._interval_began = time.perf_counter()
        self._messages_before = self._bytes_before = 0
        self._is_live = not is_json and sys.stderr.isatty()

    def add(self, size_bytes: int, latency_ms: float) -> None:
        """One message is done."""
        self.messages += 1
        self.bytes += size_bytes
        self.total.add(latency_ms)
        self._recent.add(latency_ms)

    def tick(self) -> None:
        """An interval is over: show it."""
        now = time.perf_counter()
        seconds = max(now - self._interval_began, 1e-9)
        figures = self._figures(
            self.messages - self._messages_before, self.bytes - self._bytes_before, seconds, self._recent
        )
        self._interval_began, self._recent = now, PerfLatencies()
        self._messages_before, self._bytes_before = self.messages, self.bytes
        self._print(figures, is_last=False)

    def finish(self) -> None:
        """The run is over: show all of it."""
        seconds = max(time.perf_counter() - self._started, 1e-9)
        self._print({"total": True, **self._figures(self.messages, self.bytes, seconds, self.total)}, is_last=True)

    def _figures(self, messages: int, size_bytes: int, seconds: float, latencies: PerfLatencies) -> dict[str, object]:
        return {
            "messages": messages,
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "rate": round(messages / seconds, 1),
            "mbitPerSecond": round(size_bytes * 8 / 1e6 / seconds, 2),
            "latencyMs": latencies.as_json(),
        }

    def _print(self, figures: dict[str, object], *, is_last: bool) -> None:
        if self._is_json:
            print(json.dumps(figures), flush=True)
            return
        text = self._sentence(figures)
        if is_last:
            if self._is_live:
                print(file=sys.stderr)
            print(f"total: {text}", flush=True)
        elif self._is_live:
            from rich.console import Console
            from rich.control import Control

            console = Console(stderr=True)
            console.control(Control.move_to_column(0))
            console.print(self._short(figures), end="\x1b[K", style="bold", highlight=False, no_wrap=True, crop=True)
        else:
            print(text, flush=True)

    def _short(self, figures: dict[str, object]) -> str:
        latency = figures["latencyMs"]
        assert isinstance(latency, dict)
        numbers = " ".join(f"{name} {latency[name]:.1f}" for name in ("p50", "p99", "max"))
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.messages:,} {self._verb}{failed}, {figures['rate']:,} msg/s, ms: {numbers}"

    def _sentence(self, figures: dict[str, object]) -> str:
        latency = figures["latencyMs"]
        assert isinstance(latency, dict)
        numbers = ", ".join(f"{name} {value:.3f}" for name, value in latency.items())
        failed = f", {self.failed} failed" if self.failed else ""
        return (
            f"{figures['messages']:,} {self._verb} in {figures['seconds']} s{failed}: {figures['rate']:,} msg/s, "
            f"{figures['mbitPerSecond']:,} Mbit/s, latency ms: {numbers}"
        )
