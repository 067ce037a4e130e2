from __future__ import annotations

import pytest

from geminga.bookie.core.write_cache import WriteCache
from geminga.model.errors import InvariantError


def test_entries_stay_readable_until_the_flush_ends():
    cache = WriteCache(100, 10)
    cache.put(1, 0, [b"a", b""], 1)
    assert cache.begin_flush() == {1: {0: b"a", 1: b""}}
    cache.put(1, 1, [b"newer"], 5)
    assert [cache.get(1, i) for i in range(3)] == [b"a", b"newer", None]
    assert cache.last_entry_id(1) == 1
    cache.end_flush()
    assert [cache.get(1, i) for i in range(2)] == [None, b"newer"]
    assert cache.get(2, 0) is None
    assert cache.last_entry_id(2) == -1


def test_full_counts_bytes_and_what_an_entry_costs():
    cache = WriteCache(100, 10)
    cache.put(1, 0, [b"12345"] * 6, 30)
    assert (cache.filling_bytes, cache.is_full) == (90, False)
    cache.put(1, 6, [b"1"], 1)
    assert cache.is_full


def test_half_is_to_be_flushed_before_it_is_full():
    cache = WriteCache(100, 10, 50)
    cache.put(1, 0, [b"12345"] * 3, 15)
    assert (cache.is_flush_due, cache.is_full) == (False, False)
    cache.put(1, 3, [b"12345"], 5)
    assert (cache.is_flush_due, cache.is_full) == (True, False)
    cache.begin_flush()
    # What comes while it is flushed may be more than that.
    cache.put(1, 4, [b"12345"] * 6, 30)
    assert (cache.filling_bytes, cache.is_full) == (90, False)
    assert WriteCache(100, 10, 500).flush_bytes == WriteCache(100, 10).flush_bytes == 100


def test_one_flush_at_a_time():
    cache = WriteCache(100, 10)
    with pytest.raises(InvariantError):
        cache.end_flush()
    cache.begin_flush()
    with pytest.raises(InvariantError):
        cache.begin_flush()


def test_dropped_ledger_gives_its_bytes_back():
    cache = WriteCache(100, 10)
    cache.put(1, 0, [b"12"], 2)
    cache.put(2, 0, [b"12"], 2)
    cache.drop_ledger(1)
    cache.drop_ledger(7)
    assert (cache.filling_bytes, cache.get(1, 0), cache.get(2, 0)) == (12, None, b"12")


def test_last_entry_of_any_order_is_found_by_what_came_since_it_was_asked_for():
    class Counted(int):
        compared = 0

        def __gt__(self, other: int) -> bool:
            Counted.compared += 1
            return int(self) > int(other)

    cache = WriteCache(1 << 30, 10)
    highest = -1
    for round_ in range(50):
        for i in (7, 3, 9, 1):
            entry_id = round_ * 10 + i if round_ % 2 else 1000 - round_ * 10 - i
            cache.put_each(5, [Counted(entry_id)], [b"x"], 1)
            cache.put(5, 3, [b"again"], 5)
            highest = max(highest, entry_id)
        assert cache.last_entry_id(5) == highest
    # With all looked at each time it is 5,000 and more.
    assert Counted.compared < 1000
    cache.begin_flush()
    cache.put(5, 2000, [b"x"], 1)
    assert cache.last_entry_id(5) == 2000
    cache.drop_ledger(5)
    assert cache.last_entry_id(5) == highest
    cache.put(5, 1, [b"x"], 1)
    cache.end_flush()
    assert cache.last_entry_id(5) == 1


def test_the_last_entry_is_the_highest_whatever_the_order_and_whenever_it_is_asked_for():
    cache = WriteCache(1000, 10)
    for entry_ids, last in (([5, 9, 7], 9), ([6, 12, 8, 11], 12), ([1, 2], 12)):
        for entry_id in entry_ids:
            cache.put(1, entry_id, [b"x"], 1)
        assert cache.last_entry_id(1) == last
