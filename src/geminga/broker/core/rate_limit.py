"""So many messages, so many bytes per period: a token bucket for each, and a line for who must wait.

Tokens come evenly and never more than those of one period are kept, as in Pulsar's ``AsyncTokenBucket``; so in any
stretch of time no more passes than it is worth, one period's burst, and what the last one took beyond it. That last one
is never cut: an entry (a batch) passes whole as soon as there is one token, and what it took too much is owed. A limit
below the size of one entry therefore slows entries down and stops none. All arithmetic is on integers, so that nothing
is lost or won over the years; time is passed in, in nanoseconds, and may jump.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

from geminga.model.errors import invariant

W = TypeVar("W")

NS_PER_S: Final = 1_000_000_000
#: Who waits, waits for what comes in this time, so that a fast rate is not handed out token by token.
GRAIN_NS: Final = 16_000_000
#: Who has to wait for longer looks again after this time.
WAIT_MAX_NS: Final = 86_400 * NS_PER_S
#: Of what has no limit there is so much left; no rate is higher.
UNLIMITED: Final = 1 << 62
#: The longest period, seconds: what a Java int holds.
PERIOD_MAX_S: Final = (1 << 31) - 1


class Rate(NamedTuple):
    """Messages and bytes per period. 0: no limit of that kind."""

    messages: int = 0
    size_bytes: int = 0
    period_s: int = 1
    #: Is added to the rate at which the topic is published to.
    is_relative: bool = False


def rate_of(messages: int, size_bytes: int, period_s: int = 1, *, is_relative: bool = False) -> Rate | None:
    """A rate from what is stored, where numbers below 1 say "no limit"; None: nothing is limited."""
    if messages <= 0 and size_bytes <= 0:
        return None
    period_s = min(max(1, period_s), PERIOD_MAX_S)
    return Rate(min(max(0, messages), UNLIMITED), min(max(0, size_bytes), UNLIMITED), period_s, is_relative)


class TokenBucket:
    """Tokens of one kind; begins full."""

    __slots__ = ("_last_ns", "_level", "_period_ns", "_rate")

    def __init__(self, rate: int, period_ns: int, now_ns: int) -> None:
        """``rate`` tokens, at least 1, per ``period_ns``."""
        self._rate = rate
        self._period_ns = period_ns
        self._last_ns = now_ns
        #: Tokens times the period: each nanosecond adds ``rate``, exactly.
        self._level = rate * period_ns

    @property
    def rate(self) -> int:
        """Tokens per period."""
        return self._rate

    def left(self, now_ns: int) -> int:
        """Whole tokens there are; below zero what is owed."""
        self._refill(now_ns)
        return self._level // self._period_ns

    def take(self, count: int, now_ns: int) -> None:
        """Take ``count`` tokens, whether there are so many or not; below zero: give some back."""
        self._refill(now_ns)
        self._level = min(self._level - count * self._period_ns, self._rate * self._period_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Nanoseconds until somebody should go on; 0: there is a token."""
        if self.left(now_ns) > 0:
            return 0
        wanted = min(self._rate, max(1, self._rate * GRAIN_NS // self._period_ns))
        return -((self._level - wanted * self._period_ns) // self._rate)

    def change(self, rate: int, now_ns: int) -> None:
        """Go on at another rate; what is there, or owed, stays."""
        self._refill(now_ns)
        self._rate = rate
        self._level = min(self._level, rate * self._period_ns)

    def _refill(self, now_ns: int) -> None:
        elapsed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        if elapsed_ns > 0:  # a clock that was set back brings nothing, and takes nothing
            self._level = min(self._level + elapsed_ns * self._rate, self._rate * self._period_ns)

    def check_invariants(self) -> None:
        """Never more than one period's tokens."""
        invariant(self._level <= self._rate * self._period_ns, "more tokens than one period brings")


class Throttle(Generic[W]):
    """A rate, and who waits for it: first come, first served."""

    __slots__ = ("_bytes", "_bytes_per_entry", "_line", "_messages", "_messages_per_entry", "rate")

    def __init__(self, rate: Rate, now_ns: int) -> None:
        self.rate = rate
        period_ns = rate.period_s * NS_PER_S
        self._messages = TokenBucket(rate.messages, period_ns, now_ns) if rate.messages else None
        self._bytes = TokenBucket(rate.size_bytes, period_ns, now_ns) if rate.size_bytes else None
        #: What an entry is expected to take; 0: none was seen yet.
        self._messages_per_entry = self._bytes_per_entry = 0
        self._line: dict[W, None] = {}

    @property
    def waiting_count(self) -> int:
        """How many wait."""
        return len(self._line)

    def has(self, who: W) -> bool:
        """Whether ``who`` stands in line."""
        return who in self._line

    def left(self, now_ns: int) -> tuple[int, int]:
        """Messages and bytes there are; below one of either: nothing may pass."""
        messages, size = self._messages, self._bytes
        return (
            UNLIMITED if messages is None else messages.left(now_ns),
            UNLIMITED if size is None else size.left(now_ns),
        )

    def entries_left(self, now_ns: int) -> int:
        """How many entries may pass, as large as entries were lately; 0: none. One until one was seen."""
        messages, size_bytes = self.left(now_ns)
        if messages <= 0 or size_bytes <= 0:
            return 0
        if not self._messages_per_entry:
            return 1
        return max(1, min(messages // self._messages_per_entry, size_bytes // self._bytes_per_entry))

    def take(self, entries: int, messages: int, size_bytes: int, now_ns: int) -> None:
        """So much passed."""
        if entries > 0:
            # Up at once, down slowly: one large batch among many small ones must not be followed by a thousand.
            self._messages_per_entry = _expected(self._messages_per_entry, -(-messages // entries))
            self._bytes_per_entry = _expected(self._bytes_per_entry, -(-size_bytes // entries))
        self._charge(messages, size_bytes, now_ns)

    def reserve(self, entries: int, now_ns: int) -> tuple[int, int]:
        """Take what so many entries are expected to take; the same, for :meth:`give_back` when that is known."""
        cost = entries * max(1, self._messages_per_entry), entries * self._bytes_per_entry
        self._charge(*cost, now_ns)
        return cost

    def give_back(self, messages: int, size_bytes: int, now_ns: int) -> None:
        """So much of what was taken did not pass."""
        self._charge(-messages, -size_bytes, now_ns)

    def change(self, messages: int, size_bytes: int, now_ns: int) -> None:
        """The rate is relative and its base moved. What is not limited stays so."""
        if self._messages is not None and self._messages.rate != messages > 0:
            self._messages.change(messages, now_ns)
        if self._bytes is not None and self._bytes.rate != size_bytes > 0:
            self._bytes.change(size_bytes, now_ns)

    def wait(self, who: W) -> None:
        """``who`` stands at the end of the line, unless it stands there already."""
        self._line.setdefault(who, None)

    def leave(self, who: W) -> None:
        """``who`` does not wait any more."""
        self._line.pop(who, None)

    def next(self, now_ns: int) -> W | None:
        """The first in line, out of it, if anything may pass."""
        if not self._line or not self.entries_left(now_ns):
            return None
        who = next(iter(self._line))
        del self._line[who]
        return who

    def several(self, now_ns: int) -> list[W]:
        """Out of the line: as many as can pass one entry each."""
        found = list(self._line)[: self.entries_left(now_ns)]
        for who in found:
            del self._line[who]
        return found

    def everybody(self) -> list[W]:
        """Out of the line: all; the rate holds no more."""
        found, self._line = list(self._line), {}
        return found

    def wait_ns(self, now_ns: int) -> int:
        """Nanoseconds until the next in line should go, or look again; 0: now."""
        messages = 0 if self._messages is None else self._messages.wait_ns(now_ns)
        size = 0 if self._bytes is None else self._bytes.wait_ns(now_ns)
        return min(max(messages, size), WAIT_MAX_NS)

    def _charge(self, messages: int, size_bytes: int, now_ns: int) -> None:
        if self._messages is not None:
            self._messages.take(messages, now_ns)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now_ns)

    def check_invariants(self) -> None:
        """See the buckets."""
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                bucket.check_invariants()


def _expected(before: int, now: int) -> int:
    return max(1, now, (7 * before + now) // 8)
