"""The entry cache: budget, order of eviction, time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.managed_ledger.shared.entry_cache import EntryCache, TailWindow


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 12)), max_size=40))
def test_window_gives_what_was_added_and_not_evicted(steps):
    window, kept, first = TailWindow(1, 100), [], 100
    for count, evicted in steps:
        payloads = [b"x" * ((first + len(kept) + i) % 7) for i in range(count)]
        window.extend(payloads, sum(map(len, payloads)))
        kept += payloads
        gone = min(max(evicted, 0), len(kept))
        assert window.evict_through(first + evicted - 1) == sum(map(len, kept[:gone]))
        kept, first = kept[gone:], first + gone
        assert (window.first_entry_id, window.end_entry_id) == (first, first + len(kept))
        assert window.size_bytes == sum(map(len, kept))
        assert window.get(first, first + 3) == kept[:4]
        assert window.get(first + 1, first + 1000) == kept[1:]
        assert window.get(first - 1, first + 5) == []


def test_window_is_compacted_while_it_grows():
    window = TailWindow(1, 0)
    for i in range(10_000):
        window.extend([b"x"], 1)
        window.evict_through(i - 10)
    assert len(window._payloads) < 5_000
    assert window.get(9_995, 9_999) == [b"x"] * 5


def test_cache_over_its_budget_evicts_the_oldest_append_of_all_windows():
    cache = EntryCache(10)
    a, b = TailWindow(1, 0), TailWindow(2, 0)
    cache.add(a, [b"aaaa"], 4)
    cache.add(b, [b"bbbb"], 4)
    cache.add(a, [b"cc"], 2)
    assert cache.size_bytes == 10
    cache.add(b, [b"d"], 1)
    assert (a.get(0, 9), a.get(1, 9), b.get(0, 9)) == ([], [b"cc"], [b"bbbb", b"d"])
    cache.add(a, [b"e" * 20], 20)
    assert cache.size_bytes == 0


def test_cache_evicts_what_was_there_at_the_previous_tick():
    cache = EntryCache(100)
    window = TailWindow(1, 0)
    cache.add(window, [b"old"], 3)
    cache.evict_old()
    assert cache.size_bytes == 3
    cache.add(window, [b"a"], 1)
    cache.evict_old()
    assert (cache.size_bytes, window.get(1, 5)) == (1, [b"a"])
    cache.evict_old()
    assert (cache.size_bytes, cache.is_empty) == (0, True)


def test_cache_that_everybody_has_read_is_empty_at_once():
    cache = EntryCache(100)
    window = TailWindow(1, 0)
    cache.add(window, [b"a", b"b", b"c"], 3)
    cache.evict_through(window, 1)
    assert (cache.size_bytes, window.get(2, 5)) == (1, [b"c"])
    cache.drop(window)
    assert cache.size_bytes == 0


def test_cache_lends_bytes_for_read_ahead():
    cache = EntryCache(10)
    assert cache.reserve(8)
    assert not cache.reserve(3)
    cache.give_back(8)
    assert cache.reserve(10)
