"""What is too little for a chunk, and long runs: slots and buckets."""

from __future__ import annotations

from tests.unit.broker.core.test_time_buckets import BASE, at_random

from geminga.broker.core.delayed.chunks import ChunkSizes
from geminga.broker.core.delayed.time_buckets import TimeBuckets
from geminga.model import Position


def test_lone_entries_that_are_discarded_give_memory_back_in_steps():
    index = TimeBuckets(9, is_strict=False, sizes=ChunkSizes(least=1 << 20))
    for ledger_id in range(4):
        at_random(index, ledger_id, 0, 10_000)
        assert not index.chunks()
    before, steps = index.memory_bytes, 1
    index.discard_through(Position(2, 4999))
    while index.purge_step():
        steps += 1
        index.check_invariants()
    assert steps >= 2
    assert index.memory_bytes < before / 2
    assert len(index.due(BASE + 4_000_000, 1_000_000)) == 15_000


def test_long_runs_take_a_few_bytes_each_and_come_in_order():
    index = TimeBuckets(9, is_strict=False)
    for i in range(50_000):
        index.add(1, i, BASE + 512 * (i // 1000 * 37 % 50))
    assert index.slots_bytes <= index.memory_bytes < 5000
    due = index.due(BASE + 512 * 60, 100_000)
    assert due == sorted(due, key=lambda position: (position.entry_id // 1000 * 37 % 50, position))
    assert len(due) == 50_000
