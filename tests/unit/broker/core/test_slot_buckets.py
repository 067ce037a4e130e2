"""What is too little for a chunk, and long runs: slots and buckets."""

from __future__ import annotations

from tests.unit.broker.core.test_time_buckets import BASE, at_random

from geminga.broker.core.delayed.chunks import ChunkSizes
from geminga.broker.core.delayed.marks import FIRST_MARK, LAST
from geminga.broker.core.delayed.packed_positions import SLOT_BITS
from geminga.broker.core.delayed.slot_buckets import SlotBuckets
from geminga.broker.core.delayed.time_buckets import TimeBuckets
from geminga.model import Position


def test_lone_entries_that_are_discarded_give_memory_back_in_steps():
    index = TimeBuckets(9, is_strict=False, sizes=ChunkSizes(least=1 << 20))
    for ledger_id in range(4):
        at_random(index, ledger_id, 0, 10_000)
        assert not index.chunks()
    before, steps = index.memory_bytes, 1
    index.discard_through(Position(2, 4999))
    while index.slots.purge_step():
        steps += 1
        index.check_invariants()
    assert steps >= 2
    assert index.memory_bytes < before / 2
    assert len(index.due(BASE + 4_000_000, 1_000_000)) == 15_000


def test_long_runs_take_a_few_bytes_each_and_come_in_order():
    index = TimeBuckets(9, is_strict=False)
    for i in range(50_000):
        index.add(1, i, BASE + 512 * (i // 1000 * 37 % 50))
    assert index.slots.memory_bytes <= index.memory_bytes < 5000
    due = index.due(BASE + 512 * 60, 100_000)
    assert due == sorted(due, key=lambda position: (position.entry_id // 1000 * 37 % 50, position))
    assert len(due) == 50_000


def test_slots_alone_give_what_is_opened_in_order_of_bucket_ledger_and_entry():
    """Against a sorted list: what was taken, what is left behind a mark, and what a discarded prefix leaves."""
    slots = SlotBuckets()
    wanted = [
        (entry_id * 7919 * ledger_id % 1000, ledger_id, entry_id) for ledger_id in (5, 3) for entry_id in range(400)
    ]
    slots.add_singles(iter(wanted))
    slots.add_run(70, 9, 100, 200)
    wanted += [(70, 9, entry_id) for entry_id in range(100, 300)]
    wanted.sort()
    assert slots.next_after(FIRST_MARK) is None, "nothing is near before it is opened"
    assert slots.first_far is not None
    slots.open_far(500 >> SLOT_BITS)
    slots.discard_through(Position(3, 99))
    wanted = [each for each in wanted if each[1:] > (3, 99)]
    found, mark = [], FIRST_MARK
    while True:
        groups, mark = slots.take(mark, (500, LAST, LAST), 33)
        if not groups:
            break
        found += [(ledger_id, entry_id) for ledger_id, ids in groups for entry_id in ids]
        behind = [each for each in wanted if each > mark and each[0] <= 500]
        assert slots.count_between(mark, (500, LAST, LAST)) == len(behind)
        assert slots.next_after(mark) in (min(each[0] for each in wanted if each > mark), None)
    assert found == [each[1:] for each in wanted if each[0] <= 500]
    assert slots.bucket_of(Position(9, 150), 0, 500) == 70
    slots.release((70, 9, 150))
    assert slots.bucket_of(Position(9, 150), 0, 500) is None
    left = [each for each in wanted if each > (70, 9, 150)]
    assert slots.waiting.count == len(left)
    slots.check_invariants()
    slots.open_far(1000 >> SLOT_BITS)
    slots.release((1000, LAST, LAST))
    assert slots.is_empty
