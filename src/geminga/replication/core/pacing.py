"""How fast copies are made, and how long a ledger that could not be restored is left alone. Pure; time is passed in."""

from __future__ import annotations

from typing import Final

#: Doublings from the first wait to ``lockReleaseOfFailedLedgerGracePeriod``.
BACKOFF_DOUBLINGS: Final = 5
#: Failed ledgers that are counted; the oldest is forgotten first.
FAILED_LEDGERS_MAX: Final = 2000


class ByteRate:
    """At most so many bytes a second, whatever the sizes: who took too much waits until it is paid for."""

    __slots__ = ("_bytes_per_s", "_free_at")

    def __init__(self, bytes_per_s: int) -> None:
        """``bytes_per_s``: no limit if it is not positive."""
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def take(self, size_bytes: int, now: float) -> float:
        """Seconds to wait before the next bytes are copied, after ``size_bytes`` were."""
        if self._bytes_per_s <= 0:
            return 0.0
        self._free_at = max(self._free_at, now) + size_bytes / self._bytes_per_s
        return self._free_at - now


class FailedLedgers:
    """How often each ledger could not be restored, and how long its lock is kept for it."""

    __slots__ = ("_failures", "_longest_ms")

    def __init__(self, longest_ms: int) -> None:
        self._longest_ms = longest_ms
        self._failures: dict[int, int] = {}

    def failed(self, ledger_id: int) -> int:
        """Milliseconds to keep the lock after one more failure."""
        failures = self._failures.pop(ledger_id, 0)
        if len(self._failures) >= FAILED_LEDGERS_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[ledger_id] = failures + 1
        return self._longest_ms >> max(0, BACKOFF_DOUBLINGS - failures)

    def failures(self, ledger_id: int) -> int:
        """How often it could not be restored, one time after the other."""
        return self._failures.get(ledger_id, 0)

    def restored(self, ledger_id: int) -> None:
        """Begin anew."""
        self._failures.pop(ledger_id, None)
