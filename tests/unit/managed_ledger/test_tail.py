"""What is kept of the newest entries and for whom, and who is told that there is more to read."""

from __future__ import annotations

from geminga import sim
from geminga.managed_ledger.log.tail import Tail
from geminga.managed_ledger.shared.entry_cache import EntryCache
from geminga.model.position import Position


class Reader:
    def __init__(self, ledger_id, entry_id):
        self.read_position = Position(ledger_id, entry_id)


def test_nothing_is_kept_while_nobody_reads():
    cache = EntryCache(1000)
    tail = Tail(cache, cache.add)
    tail.confirmed(7, 0, [b"aa", b"b"], 3)
    assert (tail.window, cache.size_bytes) == (None, 0)


def test_entries_are_kept_until_the_slowest_reader_has_passed():
    cache = EntryCache(1000)
    tail = Tail(cache, cache.add)
    slow, fast = Reader(7, 0), Reader(7, 0)
    tail.add_reader(slow)
    tail.add_reader(fast)
    tail.confirmed(7, 0, [b"aa", b"b"], 3)
    tail.confirmed(7, 2, [b"ccc"], 3)
    fast.read_position = Position(7, 3)
    tail.on_read()
    assert tail.window.get(0, 2) == [b"aa", b"b", b"ccc"]
    slow.read_position = Position(7, 2)
    tail.on_read()
    assert (tail.window.get(2, 2), cache.size_bytes) == ([b"ccc"], 3)
    slow.read_position = Position(8, 0)
    tail.remove_reader(fast)
    tail.on_read()
    assert cache.size_bytes == 0


def test_of_many_readers_whoever_went_back_still_finds_what_it_reads_again():
    cache = EntryCache(1000)
    tail = Tail(cache, cache.add)
    readers = [Reader(7, 0) for _ in range(20)]
    for reader in readers:
        tail.add_reader(reader)
    tail.confirmed(7, 0, [b"a"] * 10, 10)
    for reader in readers:
        reader.read_position = Position(7, 9)
        tail.on_read()
    assert (tail.window.first_entry_id, cache.size_bytes) == (9, 1)
    tail.confirmed(7, 10, [b"b"] * 10, 10)
    for reader in readers:
        reader.read_position = Position(7, 18)
        if reader is readers[3]:
            # It took less than it had read.
            reader.read_position = Position(7, 12)
            tail.went_back(reader)
        tail.on_read()
    assert tail.window.first_entry_id == 12
    readers[3].read_position = Position(7, 18)
    tail.on_read()
    assert tail.window.first_entry_id == 18
    for reader in readers:
        tail.remove_reader(reader)
    assert (tail.window, cache.size_bytes) == (None, 0)


def test_a_new_ledger_or_a_gap_begins_a_new_window():
    cache = EntryCache(1000)
    tail = Tail(cache, cache.add)
    tail.add_reader(Reader(7, 0))
    tail.confirmed(7, 0, [b"a"], 1)
    tail.confirmed(7, 5, [b"f"], 1)
    assert (tail.window.first_entry_id, cache.size_bytes) == (5, 1)
    tail.confirmed(9, 0, [b"g"], 1)
    assert (tail.window.ledger_id, cache.size_bytes) == (9, 1)


def test_the_last_reader_to_go_frees_the_cache():
    cache = EntryCache(1000)
    tail = Tail(cache, cache.add)
    reader = Reader(7, 0)
    tail.add_reader(reader)
    tail.confirmed(7, 0, [b"a"], 1)
    tail.remove_reader(reader)
    assert (tail.window, cache.size_bytes) == (None, 0)


def test_each_is_told_once_a_turn_until_it_is_removed():
    async def story(world):
        told = []
        cache = EntryCache(1000)
        tail = Tail(cache, cache.add)
        remove = tail.add_listener(lambda: told.append("a"))
        tail.add_listener(lambda: told.append("b"))
        for _ in range(3):
            tail.tell_later(None)
        assert told == []
        await world.sleep(0.01)
        assert told == ["a", "b"]
        remove()
        remove()
        assert tail.listener_count == 1
        tail.tell_later(None)
        await world.sleep(0.01)
        assert told == ["a", "b", "b"]

    sim.run(story)
