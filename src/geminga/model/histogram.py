"""How values are spread: counts between fixed bounds, and quantiles of latencies. Pure.

Values come with a weight, so that a batch is one call. Both tell of the *window* between two questions (a second apart
at least) and start the next one; counts and sums since the beginning are kept beside it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import ceil, nan
from typing import Final, NamedTuple

#: A window is told until it is at least this old, seconds.
WINDOW_MIN_S: Final = 1.0
#: From 1 us to an hour, eight to a doubling: what is in the middle of a bucket is at most a sixteenth off.
_LATENCY_BOUNDS_MS: Final = tuple((8 + part) * 2.0**doubling / 8000 for doubling in range(32) for part in range(8))


class Spread(NamedTuple):
    """A window: values up to each bound and above the bound before, then those above all; and their sum."""

    counts: tuple[int, ...]
    total: float

    def plus(self, other: Spread) -> Spread:
        """Both together; of the same bounds."""
        counts = tuple(left + right for left, right in zip(self.counts, other.counts, strict=True))
        return Spread(counts, self.total + other.total)


_NOTHING: Final = Spread((), 0.0)


class Histogram:
    """Counts values between bounds."""

    __slots__ = ("_bounds", "_counts", "_reported", "_reported_total", "_since", "_window", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """``bounds``: ascending; each belongs to the values below it."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        #: Sum since the beginning.
        self.total = 0.0
        self._since: float | None = None
        #: What windows have told already.
        self._reported: tuple[int, ...] = ()
        self._reported_total = 0.0
        self._window = _NOTHING

    @property
    def count(self) -> int:
        """Values since the beginning."""
        return sum(self._counts)

    def up_to(self, bound: int) -> int:
        """Values since the beginning that are in the bucket of this number, or in one before it."""
        return sum(self._counts[: bound + 1])

    def add(self, value: float, weight: int = 1) -> None:
        """``weight`` values."""
        self._counts[bisect_left(self._bounds, value)] += weight
        self.total += value * weight

    def are_together(self, least: float, greatest: float) -> bool:
        """Whether these, and so all between them, are between the same bounds."""
        return bisect_left(self._bounds, least) == bisect_left(self._bounds, greatest)

    def add_all(self, values: Sequence[float], total: float) -> None:
        """Several values, whose sum is known."""
        before, ordered = 0, sorted(values)
        for index, bound in enumerate(self._bounds):
            up_to = bisect_right(ordered, bound, before)
            self._counts[index] += up_to - before
            before = up_to
        self._counts[-1] += len(values) - before
        self.total += total

    def window(self, now_s: float) -> Spread:
        """What came between the last question and the one before it, or since then if that is a second ago."""
        if self._since is None or now_s - self._since >= WINDOW_MIN_S:
            counts, known = tuple(self._counts), self._reported
            spread = tuple(new - old for new, old in zip(counts, known, strict=True)) if known else counts
            self._window = Spread(spread, self.total - self._reported_total)
            self._since, self._reported, self._reported_total = now_s, counts, self.total
        return self._window


class Quantiles(NamedTuple):
    """Quantiles of a window, and what there was since the beginning."""

    #: (Quantile, value); NaN in a window without values.
    values: tuple[tuple[float, float], ...]
    seen: int
    total: float


class Latencies(Histogram):
    """Quantiles of latencies, in milliseconds and to within a sixteenth."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_LATENCY_BOUNDS_MS)

    def quantiles(self, now_s: float, wanted: Iterable[float]) -> Quantiles:
        """Of what came between the last question and the one before it, or since then if that is a second ago."""
        counts, _ = self.window(now_s)
        values = tuple((quantile, _quantile(counts, quantile)) for quantile in wanted)
        return Quantiles(values, self.count, self.total)


def _quantile(counts: Sequence[int], quantile: float) -> float:
    """The middle of the bucket in which the value of that rank is; NaN without values."""
    rank = max(1, ceil(quantile * sum(counts)))
    seen = 0
    for index, count in enumerate(counts):
        seen += count
        if seen >= rank:
            if index == 0 or index == len(_LATENCY_BOUNDS_MS):
                return _LATENCY_BOUNDS_MS[min(index, len(_LATENCY_BOUNDS_MS) - 1)]
            return (_LATENCY_BOUNDS_MS[index - 1] + _LATENCY_BOUNDS_MS[index]) / 2
    return nan
