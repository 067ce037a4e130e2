"""Row groups in memory: bounded, read once for all who wait."""

from __future__ import annotations

import asyncio
import sys

import pytest

from geminga.lake.group_cache import ENTRY_BYTES, GroupCache
from geminga.model.errors import LedgerClosedError, StorageError


def test_the_one_used_longest_ago_goes_first():
    async def story():
        cache = GroupCache(10 + 2 * ENTRY_BYTES)

        async def read():
            return [b"1234"]

        for group in (0, 1):
            await cache.load("u", group, read)
        assert cache.get("u", 0) == [b"1234"]
        await cache.load("u", 2, read)
        assert cache.get("u", 1) is None
        assert cache.size_bytes == 8 + 2 * ENTRY_BYTES
        cache.forget("u")
        assert cache.size_bytes == 0

    asyncio.run(story())


def test_a_large_group_takes_the_place_of_several():
    async def story():
        cache = GroupCache(10 + 3 * ENTRY_BYTES)
        large = b"x" * (8 + 2 * ENTRY_BYTES)

        async def read(data: bytes):
            return [data]

        for group in range(3):
            await cache.load("u", group, lambda: read(b"123"))
        await cache.load("u", 3, lambda: read(large))
        assert [cache.get("u", group) for group in range(4)] == [None, None, None, [large]]
        assert cache.size_bytes == 8 + 3 * ENTRY_BYTES

    asyncio.run(story())


def test_many_small_entries_count_with_what_python_takes_for_them():
    """Entries of 10 bytes took five times what the setting said."""

    async def story():
        entries = [bytes([number]) * 10 for number in range(100)]
        held = sum(map(sys.getsizeof, entries)) + sys.getsizeof(entries) - sys.getsizeof([])
        cache = GroupCache(10_000)

        async def read():
            return entries

        await cache.load("u", 0, read)
        assert 0.9 * held <= cache.size_bytes <= 1.1 * held

    asyncio.run(story())


def test_a_group_is_read_once_for_all_who_wait_and_an_error_is_everybodys():
    async def story():
        cache, reads, go = GroupCache(100), [], asyncio.Event()

        async def read():
            reads.append(1)
            await go.wait()
            raise StorageError("no")

        waiting = [asyncio.ensure_future(cache.load("u", 0, read)) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0.01)
        go.set()
        for one in waiting:
            with pytest.raises(StorageError):
                await one
        assert len(reads) == 1
        assert cache.size_bytes == 0

    asyncio.run(story())


def test_what_is_larger_than_all_the_room_is_not_kept():
    async def story():
        cache = GroupCache(3 + ENTRY_BYTES)

        async def read():
            return [b"1234"]

        assert await cache.load("u", 0, read) == [b"1234"]
        assert cache.size_bytes == 0

    asyncio.run(story())


@pytest.mark.parametrize("is_stopped", [False, True], ids=["called off", "stopped"])
def test_a_read_that_was_given_up_is_made_by_who_still_waits(is_stopped: bool):
    async def story():
        cache, reads, goes = GroupCache(100), [], [asyncio.Event() for _ in range(3)]

        async def read():
            number = len(reads)
            reads.append(number)
            await goes[number].wait()
            if is_stopped and not number:
                raise LedgerClosedError("its topic is being closed")
            return [b"1234"]

        first, *others = [asyncio.ensure_future(cache.load("u", 0, read)) for _ in range(4)]
        await asyncio.wait([first], timeout=0.01)
        if is_stopped:
            goes[0].set()
        else:
            first.cancel()
        goes[1].set()
        with pytest.raises(LedgerClosedError if is_stopped else asyncio.CancelledError):
            await first
        assert await asyncio.gather(*others) == [[b"1234"]] * 3
        assert reads == [0, 1]
        assert cache.size_bytes == 4 + ENTRY_BYTES

    asyncio.run(story())
