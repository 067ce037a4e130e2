"""The delayed index: how little it takes, and the traps that rounding has."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from time import thread_time

import pytest

from geminga.broker.core.delayed import snapshot as delayed_snapshot
from geminga.broker.core.delayed import time_buckets
from geminga.broker.core.delayed.chunks import ChunkSizes
from geminga.broker.core.delayed.column import COLUMN_MAX
from geminga.broker.core.delayed.marks import FIRST_MARK
from geminga.broker.core.delayed.packed_positions import LEDGERS_MAX, PackedPositions
from geminga.broker.core.delayed.snapshot import encode, load
from geminga.broker.core.delayed.time_buckets import TimeBuckets, precision_bits
from geminga.model import Position
from geminga.runtime import SystemRng
from support.house.weekly_sample import sampled

BASE = 1_700_000_000_000


def serialized_bytes(index: TimeBuckets) -> int:
    return sum(map(len, encode(index)))


@pytest.mark.parametrize(("tick_ms", "bits"), [(1, 0), (2, 1), (1000, 9), (1024, 10), (60_000, 15)])
def test_precision_bits_are_the_floor_of_the_tick(tick_ms, bits):
    """A tick of 1000 ms gives buckets of 512 ms."""
    assert precision_bits(tick_ms) == bits


def test_strict_bucket_is_never_due_before_its_time_and_does_not_come_back():
    """Rounded down in the strict mode, a message is added and returned in a loop until its time."""
    index = TimeBuckets(9, is_strict=True)
    deliver_at = BASE + 700
    index.add(1, 0, index.due_time(deliver_at))
    for now in range(BASE, BASE + 1300, 10):
        if index.due(now, 10):
            assert deliver_at <= now < deliver_at + 512 + 10
            break
    else:
        pytest.fail("never due")


@pytest.mark.parametrize(("per_ms", "bits", "bytes_max"), [(1, 10, 20_000), (8, 15, 2_000)])
def test_rising_times_take_a_run_per_bucket(per_ms, bits, bytes_max):
    index = TimeBuckets(bits, is_strict=False)
    for i in range(1_000_000):
        index.add(i // 50_000, i % 50_000, BASE + i // per_ms)
    assert len(index) == 1_000_000
    assert serialized_bytes(index) < bytes_max


def test_messages_that_take_turns_take_bitmaps():
    index = TimeBuckets(10, is_strict=False)
    for i in range(100_000):
        index.add(1, i, BASE + i // 8 + 600_000 * (i & 3))
    assert serialized_bytes(index) < 300_000


def test_the_same_entry_twice_waits_once():
    index = TimeBuckets(9, is_strict=False)
    assert index.add(1, 5, BASE)
    assert not index.add(1, 5, BASE)
    assert index.add(1, 2, BASE)
    assert not index.add(1, 2, BASE)
    assert index.due(BASE + 1000, 10) == [Position(1, 2), Position(1, 5)]


def test_ledgers_that_are_gone_are_not_numbered_for_ever():
    index = TimeBuckets(9, is_strict=False)
    index.add(0, 0, BASE + 10_000_000)
    for ledger_id in range(1, 20_000):
        index.add(ledger_id, 0, BASE + ledger_id)
        index.due(BASE + ledger_id, 10)
        index.check_invariants()
    assert len(index.slots.ledger_ids) < 3000 < LEDGERS_MAX
    assert Position(0, 0) in index.due(BASE + 20_000_000, 100_000)


def test_far_message_is_not_guessed_late_and_wakes_seldom():
    index = TimeBuckets(9, is_strict=False)
    deliver_at = BASE + 3_600_000
    index.add(1, 1, deliver_at)
    now, wakes = BASE, 0
    while len(index):
        now = index.next_due(FIRST_MARK, now)
        wakes += 1
        index.due(now, 1)
    assert deliver_at - 512 < now <= deliver_at
    assert wakes <= 2


def at_random(index: TimeBuckets, ledger_id: int, first: int, count: int) -> dict[Position, int]:
    """Add entries in a row, due over an hour in no order; when each is."""
    draw = SystemRng(ledger_id)
    times = {Position(ledger_id, first + n): BASE + draw.below(3_600_000) for n in range(count)}
    for position, time in times.items():
        index.add(*position, time)
    return times


def test_random_times_take_few_bytes():
    index = TimeBuckets(9, is_strict=False)
    for ledger_id in range(4):
        at_random(index, ledger_id, 0, 50_000)
    index.due(BASE, 1)
    assert index.memory_bytes < 200_000 * 3.2


def test_what_is_discarded_of_a_chunk_never_comes():
    index = TimeBuckets(9, is_strict=False)
    times = at_random(index, 1, 0, 20_000) | at_random(index, 2, 0, 100)
    assert index.discard_through(Position(1, 15_000)) == 15_001
    index.check_invariants()
    left = {position: time for position, time in times.items() if position > Position(1, 15_000)}
    early = {position for position, time in left.items() if time >> 9 <= (BASE + 1_800_000) >> 9}
    assert set(index.due(BASE + 1_800_000, 100_000)) == early
    assert set(index.due(BASE + 4_000_000, 100_000)) == set(left) - early


@pytest.mark.parametrize("first", [0, (1 << 16) - 700, (1 << 16) - 1, 3 << 16, (1 << 32) - 3000])
def test_column_ends_with_its_block(first):
    index = TimeBuckets(9, is_strict=False)
    times = at_random(index, 1, first, 3000)
    index.check_invariants()
    due = index.due(BASE + 4_000_000, 10_000)
    assert due == sorted(times, key=lambda position: (times[position] >> 9, position))


def test_next_due_knows_what_is_in_the_column_still():
    index = TimeBuckets(9, is_strict=False)
    at_random(index, 1, 0, 3000)
    index.add(2, 0, BASE + 3_700_000)
    index.due(BASE + 3_600_000, 10_000)
    index.add(4, 0, BASE + 7_200_000)
    assert index.next_due(FIRST_MARK, BASE + 3_600_000) <= BASE + 3_700_000
    index.add(5, 0, BASE + 5_400_000)
    index.due(BASE + 3_700_000, 10)
    assert index.next_due(FIRST_MARK, BASE + 3_700_000) <= BASE + 5_400_000


def test_discarding_very_many_is_over_at_once_and_gives_memory_back():
    index = TimeBuckets(9, is_strict=False)
    for ledger_id in range(20):
        at_random(index, ledger_id, 0, 20_000)
    index.due(BASE, 1)
    before = index.memory_bytes
    began = thread_time()
    index.discard_through(Position(13, 19_999))
    assert thread_time() - began < 0.05
    assert index.memory_bytes < before / 2
    late = at_random(index, 32, 0, 1000)
    index.discard_through(Position(14, 9))
    while index.slots.purge_step():
        index.check_invariants()
    index.check_invariants()
    assert len(index) == 6 * 20_000 - 10 + len(late)
    assert len(index.due(BASE + 4_000_000, 1_000_000)) == 6 * 20_000 - 10 + len(late)


ENTRIES_PER_LEDGER = 50_000


def of_every(every: int, count: int) -> list[Position]:
    per_ledger = ENTRIES_PER_LEDGER // every
    return [Position(i // per_ledger, i % per_ledger * every) for i in range(count)]


def one_of_ten(count: int) -> list[Position]:
    draw, position, found = SystemRng(3), 0, []
    for _ in range(count):
        position += 1 + draw.below(19)
        found.append(Position(position // ENTRIES_PER_LEDGER, position % ENTRIES_PER_LEDGER))
    return found


def zipf(count: int) -> list[int]:
    """Delays in seconds, up to a day, each as likely as it is short."""
    draw = SystemRng(5)
    return [int(86_400 ** (draw.below(1 << 30) / (1 << 30))) for _ in range(count)]


#: Positions, and delays in milliseconds that are taken in turns; made when a test asks.
PATTERNS = {
    "every second": lambda: (of_every(2, 100_000), [0]),
    "every third": lambda: (of_every(3, 100_000), [0]),
    "one of ten": lambda: (one_of_ten(100_000), [0]),
    "two constants": lambda: (of_every(1, 100_000), [0, 3_600_000]),
    "every second, two constants": lambda: (of_every(2, 100_000), [0, 3_600_000]),
    "zipf": lambda: (of_every(1, 100_000), [1000 * seconds for seconds in zipf(100_000)]),
    "one of ten, zipf": lambda: (one_of_ten(100_000), [1000 * seconds for seconds in zipf(100_000)]),
}
#: Both at random have more to say than the model allows for: 0.6 bytes for the id, 1.8 for the time.
BOTH_RANDOM = "one of ten, zipf"


@pytest.mark.parametrize("pattern", sampled("patterns of delays", PATTERNS, 3))
@pytest.mark.parametrize(("per_ms", "bits"), [(1, 10), (8, 10), (8, 15)])
def test_any_pattern_takes_little_more_than_the_source_s_model(pattern, per_ms, bits):
    """S1's model counts a bucket's entries of a ledger: two bytes each, 8 KiB from 4096 on."""
    positions, delays = PATTERNS[pattern]()
    index = TimeBuckets(bits, is_strict=False)
    shares: Counter[tuple[int, int]] = Counter()
    for i, position in enumerate(positions):
        time = BASE + i // per_ms + delays[i % len(delays)]
        index.add(*position, time)
        shares[time >> bits, position.ledger_id] += 1
    model = sum(min(2 * count, 8192) for count in shares.values())
    index.chunks()
    assert index.memory_bytes <= (1.4 if pattern == BOTH_RANDOM else 1.1) * model
    assert len(index) == len(positions)


def test_buffer_of_what_was_added_last_is_bounded_and_counted():
    index = TimeBuckets(9, is_strict=False)
    most = 0
    for i in range(3 * COLUMN_MAX):
        index.add(1, 2 * i, BASE + i)
        if i % 1000 == 0:
            most = max(most, index.memory_bytes)
    assert 12 * (COLUMN_MAX - 1000) < most < 13 * COLUMN_MAX


def test_many_due_at_once_are_brought_near_a_few_at_a_time():
    """Everything for midnight: taking a thousand does not touch the other hundreds of thousands."""
    index = TimeBuckets(9, is_strict=False)
    for i in range(200_000):
        index.add(i // 20_000, 2 * (i % 20_000), BASE + 3_600_000)
    before = index.memory_bytes
    taken = index.due(BASE + 3_600_000, 1000)
    assert taken == [Position(0, 2 * i) for i in range(1000)]
    assert index.memory_bytes < before + 100_000
    while some := index.due(BASE + 3_600_000, 1000):
        taken += some
    assert taken == [Position(i // 20_000, 2 * (i % 20_000)) for i in range(200_000)]


def test_records_of_both_versions_are_those_of_the_format_page():
    """Also how an index of before is read: docs/formats/delayed-index.md."""
    page = Path(__file__).parents[4] / "docs/formats/delayed-index.md"
    old, new = (
        bytes.fromhex("".join(line[6:] for line in block.splitlines()))
        for block in re.findall(r"```\n(0000 .*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
    time = 3320312500 << 9
    index = TimeBuckets(9, is_strict=False)
    assert load(old, index, time - 1)
    assert index.due(time, 10) == [Position(5, 0), Position(5, 1), Position(5, 2)]
    assert index.due(time + 512, 10) == [Position(5, 3)]
    index = TimeBuckets(9, is_strict=True, sizes=ChunkSizes(least=2))
    assert load(new, index, time - 1)
    assert list(encode(index)) == [new]
    assert index.due(time, 10) == [Position(5, 0), Position(5, 2), Position(5, 4)]
    assert index.due(time + 512, 10) == [Position(5, 6)]


def test_a_stretch_that_waits_is_passed_over_however_long_it_is(monkeypatch):
    monkeypatch.setattr(time_buckets, "_WINDOW", 8)
    index = TimeBuckets(9, is_strict=False)
    for entry_id in range(30):
        index.add(1, entry_id, BASE)
    assert [index.first_absent(1, entry_id) for entry_id in (0, 7, 8, 29, 30)] == [30, 30, 30, 30, 30]
    index.add(1, 31, BASE)
    assert index.first_absent(1, 31) == 32


def test_what_fills_several_records_is_saved_in_pieces(monkeypatch):
    monkeypatch.setattr(delayed_snapshot, "_ITEMS_MAX", 3)
    packed = PackedPositions()
    packed.singles.extend(range(10))
    packed.runs.extend(range(20))
    pieces = list(delayed_snapshot._pieces(packed))
    assert [single for piece in pieces for single in piece.singles] == list(range(10))
    assert [bound for piece in pieces for bound in piece.runs] == list(range(20))
    assert max(max(len(piece.singles), len(piece.runs) // 2) for piece in pieces) == 3
