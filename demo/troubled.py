"""Events that make trouble, from a seed: late ones, some sent twice, without key, of 5 MB, and some that are no events.

The time of the events goes on by ``WEEKS`` weeks, from the first to the last. A tenth of the rows is so far back that
the watermark has passed them wherever batches are cut, and the others so near that it has not: what is late is a
property of the rows and of how many a batch has at most. ``demo.accounts`` finds that out for itself, and refuses rows
for which it is not so.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

WEEK_MS = 7 * 24 * 3600 * 1000
DAY_MS = 24 * 3600 * 1000
#: The first event, 2020-01-02, and how far the events reach.
START_MS = 1_577_923_200_000
WEEKS = 104
REPOS = 24
#: What a message of 5 MB has, its other fields included: near the 5 MiB that a broker takes.
LARGE_BYTES = 5_000_000
LATE_SHARE = 0.1
TWICE_SHARE = 0.03
#: A row on time is at most so old when it is sent.
JITTER_MS = 2 * DAY_MS
#: How far apart the copies of an event are, in rows, if both are on time.
COPIES_APART_MAX = 50


class Row(NamedTuple):
    """One message, as it is published."""

    #: None: without.
    key: str | None
    value: bytes
    #: None: without.
    at_ms: int | None
    #: Of the event: two rows with one id are the same event. Empty for what is no event.
    id: str
    #: Topic A1, else A2.
    is_first: bool


class Troubled(NamedTuple):
    """The rows in the order in which they are published."""

    rows: list[Row]
    #: Rows that a batch may have.
    batch: int
    #: Delay of the watermark.
    delay_ms: int


def troubled(seed: int, count: int, batch: int, *, large: int = 6, broken: int = 5) -> Troubled:
    """``count`` rows, to be read ``batch`` at a time, ``large`` of them of 5 MB and ``broken`` no events."""
    rng = random.Random(seed)
    step_ms = WEEKS * WEEK_MS // count
    batch_ms = batch * step_ms
    delay_ms = _whole_days(2 * batch_ms + JITTER_MS)
    # Behind the watermark of the batch before the one that has it, and of one more.
    lag_ms = _whole_days(delay_ms + 3 * batch_ms + JITTER_MS)
    lag_max_ms = lag_ms + 20 * WEEK_MS
    first_late = lag_max_ms // step_ms
    if first_late > count * 0.8:
        raise ValueError(f"{count:,} rows in batches of {batch:,} leave no room for late ones: take smaller batches")
    late_share = LATE_SHARE * count / (count - first_late)
    special = rng.sample(range(count // 4, count), large + broken)
    larges, brokens = set(special[:large]), set(special[large:])
    rows: list[Row] = []
    for number in range(count):
        now = START_MS + number * step_ms
        draw = rng.random()
        if number in brokens:
            rows.append(_broken(rng, number, now))
        elif number not in larges and draw < TWICE_SHARE and (row := _again(rng, rows, now, delay_ms)):
            rows.append(row)
        else:
            is_late = number > first_late and rng.random() < late_share / (1 - TWICE_SHARE)
            age = rng.randrange(lag_ms, lag_max_ms) if is_late else rng.randrange(JITTER_MS)
            rows.append(_event(rng, number, now - age, is_large=number in larges))
    return Troubled(rows, batch, delay_ms)


def sent_again(rows: list[Row], seed: int, batch: int, delay_ms: int, *, apart: int = 50) -> list[Row]:
    """The rows, each ``apart``-th of them sent twice: at once, or, in half of the cases, long after the watermark."""
    rng = random.Random(seed)
    highest = list(accumulate((row.at_ms or 0 for row in rows), max))
    after: dict[int, list[Row]] = {}
    for number in range(rng.randrange(apart), len(rows), apart):
        row = rows[number]
        # From there on every batch that may have it is behind a watermark that is past it.
        first_late = bisect_left(highest, (row.at_ms or 0) + delay_ms) + 3 * batch
        if rng.random() < 0.5 and first_late < len(rows):
            after.setdefault(rng.randrange(first_late, len(rows)), []).append(row)
        else:
            after.setdefault(min(number + rng.randrange(20), len(rows) - 1), []).append(row)
    return [one for number, row in enumerate(rows) for one in (row, *after.get(number, ()))]


def _event(rng: random.Random, number: int, at_ms: int, *, is_large: bool) -> Row:
    # Some are many, some are few; a thirtieth has no key.
    repo = None if rng.random() < 1 / 30 else f"seeded/repo-{int(REPOS * rng.random() ** 2):02}"
    event: dict[str, object] = {
        "id": f"{number:08x}",
        "repo": repo,
        "event_time": at_ms,
        "files": rng.randrange(1, 20),
        "insertions": rng.randrange(500),
        "deletions": rng.randrange(200),
    }
    if is_large:
        missing = LARGE_BYTES - len(json.dumps(event, separators=(",", ":"))) - len(',"padding":""')
        event["padding"] = rng.randbytes(missing // 2 + 1).hex()[:missing]
    value = json.dumps(event, separators=(",", ":")).encode()
    # Both topics have repositories of their own, and rows without key.
    is_first = rng.random() < 0.5 if repo is None else int(repo[-2:]) % 3 > 0
    return Row(repo, value, at_ms, f"{number:08x}", is_first)


def _again(rng: random.Random, rows: list[Row], now: int, delay_ms: int) -> Row | None:
    """An event that was sent before: in half of the cases any, which is late by now, else one of the last."""
    if not rows:
        return None
    if rng.random() < 0.5:
        row = rows[rng.randrange(len(rows))]
        # Neither for sure on time nor for sure late.
        is_unclear = row.at_ms is None or now - row.at_ms < 3 * delay_ms
    else:
        row = rows[-rng.randrange(1, min(len(rows), COPIES_APART_MAX) + 1)]
        is_unclear = row.at_ms is None or now - row.at_ms > delay_ms // 2
    return None if is_unclear or not row.id or len(row.value) > LARGE_BYTES // 2 else row


def _broken(rng: random.Random, number: int, now: int) -> Row:
    """Not JSON, without a time, without an id."""
    kind = number % 3
    if kind == 0:
        return Row("broken", f"no event {number}".encode(), now, "", is_first=True)
    if kind == 1:
        return Row(None, f'{{"id":"{number:08x}","repo":"broken","files":1}}'.encode(), None, "", is_first=False)
    return Row("broken", f'{{"repo":"broken","files":{rng.randrange(9)}}}'.encode(), now, "", is_first=False)


def _whole_days(milliseconds: int) -> int:
    return -(-milliseconds // DAY_MS) * DAY_MS
