"""The delayed index for ids that are not in a row: beside a model of bytes, and beside an index of plain bitmaps.

The model counts a bucket's entries of a ledger, M: two bytes each below 4096, 8 KiB from there on (0.163 bytes an
entry where a bucket has whole ledgers). The plain index is a map from bucket to ledger to Roaring bitmap, of the
same bitmaps here. Memory is what the resident set of a forked child grows by that adds
entries one by one; times of adding and of taking what is due are processor time, less the loop's when adding.
"""

from __future__ import annotations

import random
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from pyroaring import BitMap

from bench.delayed_measure import in_child, rss_bytes
from bench.measure import Row
from geminga.broker.core.delayed.time_buckets import TimeBuckets

ENTRIES: Final = 10_000_000
#: Entries that are taken, a thousand at a time.
TAKEN_ENTRIES: Final = 1_000_000
ENTRIES_PER_LEDGER: Final = 50_000
BASE_MS: Final = 1_700_000_000_000
HOUR_MS: Final = 3_600_000
ZIPF_SECONDS: Final = 86_400
#: Of the model.
GOAL: Final = 1.1
ADD_US_MAX: Final = 1.0
SHORT: Final = ((1, 10), (8, 15))
ALL: Final = ((1, 10), (4, 10), (8, 10), (8, 15))
#: Pattern -> (messages per ms, bits) to measure.
CASES: Final = {
    "every second": ALL,
    "every third": SHORT,
    "1 of 10, random": SHORT,
    "two constants": SHORT,
    "Zipf, to a day": SHORT,
}

Positions = tuple["array[int]", "array[int]", "array[int]"]


def patterns(entries: int = ENTRIES) -> Iterator[Row]:
    """Rows for each pattern."""
    for name, cases in CASES.items():
        for per_ms, bits in cases:
            case = f"{name}, x={per_ms}, y={bits}"
            # Made before the fork: its memory is in no figure.
            positions = _positions(name, per_ms, entries)
            model = in_child(lambda p=positions, y=bits: (_model(p, y), 0))[0]
            source, source_us = in_child(lambda p=positions, y=bits: _fill_source(p, y))
            ours, us = in_child(lambda p=positions, y=bits: _fill(p, y))
            goal = GOAL * model
            yield _row(case, f"RSS, MB (model {model / 1e6:.3g})", source / 1e6, ours / 1e6, goal / 1e6)
            yield _row(case, "add, us", source_us, us, ADD_US_MAX)
        few = tuple(column[:TAKEN_ENTRIES] for column in positions)
        due_us = in_child(lambda p=few, y=bits: (_take(p, y), 0))[0]
        yield _row(case, "due, us", None, due_us, None)


def _row(case: str, figure: str, source: float | None, ours: float, goal: float | None) -> Row:
    met = "-" if goal is None else "yes" if ours <= goal else "NO"
    row: Row = {"case": case, "figure": figure, "source": "-" if source is None else f"{source:.3g}", "heap": "-"}
    return {**row, "ours": round(ours, 3), "goal <=": "-" if goal is None else round(goal, 3), "met": met}


def _positions(name: str, per_ms: int, count: int) -> Positions:
    rng = random.Random(7)
    ledgers, ids, times = array("Q"), array("Q"), array("Q")
    step: Callable[[], int] = {
        "every second": lambda: 2,
        "every third": lambda: 3,
        "1 of 10, random": lambda: rng.randrange(1, 20),
    }.get(name, lambda: 1)
    weights = list(accumulate(1 / seconds for seconds in range(1, ZIPF_SECONDS + 1)))
    delays = {"two constants": lambda i: i % 2 * HOUR_MS, "Zipf, to a day": lambda _: 1000 * zipf()}.get(
        name, lambda _: 0
    )

    def zipf() -> int:
        return rng.choices(range(1, ZIPF_SECONDS + 1), cum_weights=weights)[0]

    ledger_id = entry_id = 0
    for i in range(count):
        ledgers.append(ledger_id)
        ids.append(entry_id)
        times.append(BASE_MS + i // per_ms + delays(i))
        entry_id += step()
        if entry_id >= ENTRIES_PER_LEDGER:
            ledger_id, entry_id = ledger_id + 1, 0
    return ledgers, ids, times


def _model(positions: Positions, bits: int) -> float:
    ledgers, _, times = positions
    shares = Counter(zip(ledgers, (at >> bits for at in times), strict=True))
    return sum(min(2 * count, 8192) for count in shares.values())


def _loop_seconds(positions: Positions) -> float:
    start = time.process_time()
    for _ in zip(*positions, strict=True):
        pass
    return time.process_time() - start


def _fill(positions: Positions, bits: int) -> tuple[float, float]:
    loop = _loop_seconds(positions)
    before = rss_bytes()
    index = TimeBuckets(bits, is_strict=False)
    add = index.add
    start = time.process_time()
    for ledger_id, entry_id, deliver_at in zip(*positions, strict=True):
        add(ledger_id, entry_id, deliver_at)
    seconds = time.process_time() - start - loop
    grown = rss_bytes() - before
    if len(index) != len(positions[0]):
        raise AssertionError("the index does not have all entries")
    return max(grown, index.memory_bytes), 1e6 * seconds / len(index)


def _fill_source(positions: Positions, bits: int) -> tuple[float, float]:
    loop = _loop_seconds(positions)
    before = rss_bytes()
    index: dict[int, dict[int, BitMap]] = {}
    start = time.process_time()
    for ledger_id, entry_id, deliver_at in zip(*positions, strict=True):
        bucket = deliver_at >> bits
        ledgers = index.get(bucket)
        if ledgers is None:
            ledgers = index[bucket] = {}
        ids = ledgers.get(ledger_id)
        if ids is None:
            ids = ledgers[ledger_id] = BitMap()
        ids.add(entry_id)
    seconds = time.process_time() - start - loop
    return rss_bytes() - before, 1e6 * seconds / len(positions[0])


def _take(positions: Positions, bits: int) -> float:
    index = TimeBuckets(bits, is_strict=False)
    for ledger_id, entry_id, deliver_at in zip(*positions, strict=True):
        index.add(ledger_id, entry_id, deliver_at)
    count, now = len(index), BASE_MS
    start = time.process_time()
    while len(index):
        now += 1000
        while index.due(now, 1000):
            pass
    return 1e6 * (time.process_time() - start) / count
