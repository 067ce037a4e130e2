"""The delayed index beside an index of plain Roaring bitmaps, Pulsar's heap and Python's ``heapq``.

Memory is the growth of the resident set of a forked child that adds entries one by one, the median of three children.
Times are processor time of one thread, loop and arguments taken off: the best of five turns of heap and index, and the
median of the turns' ratios.
"""

from __future__ import annotations

import heapq
import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator

from bench.delayed_measure import in_child, rss_bytes
from bench.delayed_patterns import patterns
from bench.delayed_restart import restart
from bench.measure import Row
from bench.servers import Bench
from geminga.broker.core.delayed.delivery import TopicDelays
from geminga.broker.core.delayed.snapshot import encode
from geminga.broker.core.delayed.time_buckets import TimeBuckets, precision_bits
from geminga.model import Position

ENTRIES = 10_000_000
#: Entries of the runs that are timed: taking ten million from a heap needs minutes.
TIMED_ENTRIES = 1_000_000
ENTRIES_PER_LEDGER = 50_000
BASE_MS = 1_700_000_000_000
DAY_MS = 24 * 3600 * 1000
#: (messages per ms, bits trimmed) -> (MB in the source document, of 240 MB in its heap; our goal in MB).
CASES = {(1, 10): (25.0, 6.0), (4, 10): (20.48, 2.0), (8, 10): (11.0, 1.5), (8, 15): (2.25, 0.5)}
HEAP_MB = 240.0
HEAP_BYTES_PER_ENTRY = 24
#: Entries that many subscriptions share, each of which reads them all.
SHARED_ENTRIES = 250_000
SUBSCRIPTIONS = (2, 10, 100)
#: Taking what is due: at most so many times as long as ``heapq``.
TIME_GOALS = {"rising": 1.0, "bursts": 1.0, "random": 1.5}
#: An add at most, whatever the heap's takes.
ADD_NS_MAX = 1000.0
DAY_BITS = precision_bits(1000)
#: Indexes of which the mean is taken.
COPIES = 4
#: Children, and turns, of which the median counts; adds are short and told apart from other load by their number.
CHILDREN = 3
ROUNDS = 5
ROUNDS_OF_ADDS = 15


def delayed(bench: Bench) -> list[Row]:
    """All figures, one below the other."""
    return [*_memory(), *patterns(), *_subscriptions(), *_times(), *restart(bench)]


def _row(case: str, figure: str, source: str, heap: float | str, ours: float, goal: float) -> Row:
    met = "yes" if ours <= goal else "NO"
    return {"case": case, "figure": figure, "source": source, "heap": heap, "ours": ours, "goal <=": goal, "met": met}


def _memory() -> Iterator[Row]:
    for (per_ms, bits), (source_mb, goal_mb) in CASES.items():
        rss, serialized = in_children(lambda x=per_ms, y=bits: _fill(y, _rising(x)))
        case = f"x={per_ms}, y={bits}"
        yield _row(case, "RSS, MB", f"{source_mb:g}", HEAP_MB, rss / 1e6, goal_mb)
        yield _row(case, "serialized, MB", "-", HEAP_MB, serialized / 1e6, goal_mb)
    rss, serialized = in_children(lambda: _fill(DAY_BITS, _times_of("random", ENTRIES), copies=1))
    case = "random over a day"
    yield _row(case, "RSS, bytes/entry", "-", HEAP_BYTES_PER_ENTRY, rss / ENTRIES, HEAP_BYTES_PER_ENTRY)
    yield _row(case, "serialized, bytes/entry", "-", HEAP_BYTES_PER_ENTRY, serialized / ENTRIES, HEAP_BYTES_PER_ENTRY)


def _subscriptions() -> Iterator[Row]:
    """One index for all subscriptions of a topic: what more of them take, in per cent of one."""
    one = in_child(lambda: _fill_shared(1))[0]
    for count in SUBSCRIPTIONS:
        many = in_child(lambda n=count: _fill_shared(n))[0]
        heap = 100.0 * count
        yield _row(f"{count} subscriptions", "RSS, % of one", f"{heap:g}", heap, 100 * many / one, 105)


def _fill_shared(count: int) -> tuple[int, int]:
    """Bytes of resident set when ``count`` subscriptions have read every entry; and how many wait for the last one."""
    times = _times_of("random", SHARED_ENTRIES)
    _add(TimeBuckets(DAY_BITS, is_strict=False), times[:1000])
    before = rss_bytes()
    delays = TopicDelays(tick_ms=1000, is_strict=False)
    readers = [delays.attach(BASE_MS - 1000, 1000) for _ in range(count)]
    for reader in readers:
        for ledger_id, entry_id, deliver_at in _entries(times):
            if not reader.must_wait(Position(ledger_id, entry_id), deliver_at):
                raise AssertionError(f"{ledger_id}:{entry_id} does not wait")
    grown = rss_bytes() - before
    return grown, readers[-1].count(Position(-1, -1), Position(SHARED_ENTRIES, 0))


def _fill(bits: int, times: array[int], copies: int = COPIES) -> tuple[float, int]:
    """Bytes of resident set and of records after adding one by one; the first is a mean of a few indexes kept side by
    side, since an allocator takes memory by half a megabyte, more than some of them need."""
    _add(TimeBuckets(bits, is_strict=False), times[:1000])
    before = rss_bytes()
    indexes = [TimeBuckets(bits, is_strict=False) for _ in range(copies)]
    for index in indexes:
        _add(index, times)
    grown = rss_bytes() - before
    if any(len(index) != len(times) for index in indexes):
        raise AssertionError("an index does not have all entries")
    # The process has free memory from before, into which an index may grow unseen: at least what it counts itself.
    return max(grown / copies, indexes[0].memory_bytes), sum(map(len, encode(indexes[0])))


def _add(index: TimeBuckets, times: array[int]) -> None:
    add = index.add
    for ledger_id, entry_id, deliver_at in _entries(times):
        add(ledger_id, entry_id, deliver_at)


def in_children(measure: Callable[[], tuple[float, int]]) -> tuple[float, float]:
    """The medians of what ``measure`` gives in a few forked children."""
    results = [in_child(measure) for _ in range(CHILDREN)]
    return statistics.median(r[0] for r in results), statistics.median(r[1] for r in results)


def _times() -> Iterator[Row]:
    for kind, goal in TIME_GOALS.items():
        times = _times_of(kind, TIMED_ENTRIES)
        # In turn, and the median of the turns' ratios: what disturbs one of a pair disturbs the other.
        adds = [(_time_heap(times)[0], _time_index(times)[0]) for _ in range(ROUNDS_OF_ADDS)]
        dues = [(_time_heap(times, is_taken=True)[1], _time_index(times, is_taken=True)[1]) for _ in range(ROUNDS)]
        for figure, turns in (("add", adds), ("due", dues)):
            heap, ours = (1e9 / len(times) * min(turn[which] for turn in turns) for which in (0, 1))
            is_add = figure == "add"
            row = _row(kind, f"{figure}, ns", "-", heap, ours, ADD_NS_MAX if is_add else 0.0)
            yield row if is_add else row | {"met": "-", "goal <=": "-"}
            ratio = statistics.median(index_ / heap_ for heap_, index_ in turns)
            row = _row(kind, f"{figure}, of heapq's time", "-", 1, ratio, goal)
            # A heap only appends what is random, and sorts when it is taken; the index packs it.
            yield row | {"met": "-", "goal <=": "-"} if is_add else row


def _time_heap(times: array[int], *, is_taken: bool = False) -> tuple[float, float]:
    heap: list[tuple[int, int, int]] = []
    push, pop = heapq.heappush, heapq.heappop
    start = time.process_time()
    for ledger_id, entry_id, deliver_at in _entries(times):
        push(heap, (deliver_at, ledger_id, entry_id))
    added = time.process_time()
    taken = []
    while is_taken and heap:
        taken.append(pop(heap))
    return added - start - _loop_seconds(times), time.process_time() - added


def _time_index(times: array[int], *, is_taken: bool = False) -> tuple[float, float]:
    index = TimeBuckets(DAY_BITS, is_strict=False)
    start = time.process_time()
    _add(index, times)
    added = time.process_time()
    now = BASE_MS
    taken = []
    while is_taken and len(index):
        now += 1000
        while due := index.due(now, 1000):
            taken += due
    return added - start - _loop_seconds(times), time.process_time() - added


def _loop_seconds(times: array[int]) -> float:
    start = time.process_time()
    for _ in _entries(times):
        pass
    return time.process_time() - start


def _entries(times: array[int]) -> Iterator[tuple[int, int, int]]:
    ledger_id = entry_id = 0
    for deliver_at in times:
        yield ledger_id, entry_id, deliver_at
        entry_id += 1
        if entry_id == ENTRIES_PER_LEDGER:
            ledger_id += 1
            entry_id = 0


def _rising(per_ms: int) -> array[int]:
    # Not through a list: its memory would stay with the process, and the index would grow into it unseen.
    return array("Q", (BASE_MS + i // per_ms for i in range(ENTRIES)))


def _times_of(kind: str, count: int) -> array[int]:
    rng = random.Random(7)
    if kind == "rising":
        return array("Q", (BASE_MS + i for i in range(count)))
    if kind == "random":
        return array("Q", (BASE_MS + rng.randrange(DAY_MS) for _ in range(count)))
    times = array("Q")
    while len(times) < count:
        times.extend([BASE_MS + rng.randrange(DAY_MS)] * rng.randrange(1, 2000))
    return times[:count]
