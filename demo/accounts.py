"""What must come out of the windows, computed plainly from what went in, and held against what came out. Pure.

Every row is in one place: in its window, among the late ones, dropped because its event was in a window already, or, if
it is no event that a window can take, refused::

    rows in = rows in windows + late rows + duplicates + refused rows

**Late** is a row whose event time is not after the watermark of the batch that reads it: the latest event time of all
batches before, less the delay. Where batches are cut is not known here, and may differ from run to run. But a row is in
the batch of one of its neighbours in the order of publishing, and a batch has so many rows at most: what is so far back
that every such watermark is past it is late, what is so near that none is, is not, and rows between the two are an
error of whoever made them.

**Duplicate** is a row whose event (by its id) came before, both on time. Who is late is not looked at any further: a
second copy of an event that was late, or is by now, is another late row.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from demo.troubled import DAY_MS, Row
from demo.weekly import Sums, WindowKey, differences, weekly

#: How far apart rows may be read that were published side by side, in batches: partitions take turns by entries.
SKEW_BATCHES = 1


class Unclear(ValueError):
    """Rows of which nobody can say beforehand whether they will be late."""


class SideRow(NamedTuple):
    """A row of the topic of late rows; the value by its digest, as it may have 5 MB."""

    key: str | None
    digest: str
    at_ms: int | None


@dataclass(slots=True)
class Expected:
    """What must come out."""

    rows: int
    windows: dict[WindowKey, Sums]
    late: Counter[SideRow]
    refused: Counter[SideRow]
    duplicates: int


@dataclass(slots=True)
class Found:
    """What came out."""

    #: Messages of topic B, in order.
    messages: list[tuple[WindowKey, Sums]]
    #: Rows of the Parquet table, in order of their batches.
    table: list[tuple[WindowKey, Sums]]
    late: Counter[SideRow] = field(default_factory=Counter)
    refused: Counter[SideRow] = field(default_factory=Counter)


def side_row(key: str | None, value: bytes, at_ms: int | None) -> SideRow:
    """The row, without its bytes."""
    return SideRow(key, hashlib.sha256(value).hexdigest(), at_ms)


def delay_for(rows: Sequence[Row], batch: int) -> int:
    """The delay of a watermark, in whole days, with which none of the rows is late."""
    ahead = batch * SKEW_BATCHES
    highest = _highest(rows)
    lags = [highest[min(n + ahead, len(rows) - 1)] - row.at_ms for n, row in enumerate(rows) if row.at_ms is not None]
    return (max(lags, default=0) // DAY_MS + 1) * DAY_MS


def expect(rows: Sequence[Row], *, batch: int, delay_ms: int) -> Expected:
    """Raises Unclear."""
    ahead, behind = batch * SKEW_BATCHES, batch * (1 + SKEW_BATCHES)
    highest = _highest(rows)
    in_windows: dict[str, bytes] = {}
    expected = Expected(len(rows), {}, Counter(), Counter(), 0)
    for number, row in enumerate(rows):
        if row.at_ms is None or not row.id:
            expected.refused[side_row(row.key, row.value, row.at_ms)] += 1
        elif number >= behind and row.at_ms <= highest[number - behind] - delay_ms:
            expected.late[side_row(row.key, row.value, row.at_ms)] += 1
        elif row.at_ms <= highest[min(number + ahead, len(rows) - 1)] - delay_ms:
            raise Unclear(f"row {number:,} of {row.at_ms} is late or not, as batches of {batch:,} fall")
        elif row.id in in_windows:
            expected.duplicates += 1
            if in_windows[row.id] != row.value:
                raise Unclear(f"row {number:,} has the id {row.id} of another event")
        else:
            in_windows[row.id] = row.value
    expected.windows = weekly(in_windows.values())
    return expected


def _highest(rows: Sequence[Row]) -> list[int]:
    """The latest time of all rows up to each."""
    return list(accumulate((0 if row.at_ms is None else row.at_ms for row in rows), max))


def audit(found: Found, expected: Expected, *, is_once: bool = True) -> list[str]:
    """Every reason why what was found is not what was expected, as sentences.

    ``is_once``: each window has one message and one row; else its last one counts.
    """
    reasons: list[str] = []
    for place, pairs in (("topic B", found.messages), ("the table", found.table)):
        if is_once:
            twice = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
            if twice:
                reasons.append(f"{place}: {len(twice):,} windows are there more than once, the first is {min(twice)}")
        reasons += [f"{place}: {reason}" for reason in differences(dict(pairs), expected.windows)]
    kinds = (("late", found.late, expected.late), ("refused", found.refused, expected.refused))
    for name, there, wanted in kinds:
        for word, rows in (("missing", wanted - there), ("too many", there - wanted)):
            if rows:
                first = next(iter(rows))
                reasons.append(f"{rows.total():,} {name} rows are {word}, the first is {first}")
    counted = balance(found, expected)
    if counted.sum != expected.rows:
        reasons.append(f"{expected.rows:,} rows went in, but {counted.told()}")
    return reasons


class Balance(NamedTuple):
    """Where the rows are."""

    in_windows: int
    late: int
    duplicates: int
    refused: int

    @property
    def sum(self) -> int:
        """All of them."""
        return sum(self)

    def told(self) -> str:
        """As a sum."""
        parts = zip(("in windows", "late", "duplicates", "refused"), self, strict=True)
        return " + ".join(f"{count:,} {name}" for name, count in parts) + f" = {self.sum:,}"


def balance(found: Found, expected: Expected) -> Balance:
    """What topic B and the topic of late rows say; the duplicates are those that were sent."""
    last: Mapping[WindowKey, Sums] = dict(found.messages)
    in_windows = sum(sums.commits for sums in last.values())
    return Balance(in_windows, found.late.total(), expected.duplicates, found.refused.total())
