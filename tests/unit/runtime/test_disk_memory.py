"""What only the memory disk does: sharing by path, space accounting."""

from __future__ import annotations

import asyncio

import pytest

from geminga.runtime import MemoryDisk
from geminga.runtime.disk_memory import TOTAL_BYTES


def test_two_openings_share_bytes_and_space_is_counted():
    async def main():
        disk = MemoryDisk()
        await disk.make_dirs("/d")
        one = await disk.open_file("/d/f", lane="a", create=True)
        two = await disk.open_file("/d/../d/f", lane="b")
        errors = []
        disk.append(one, 0, [b"abc"], sync=True, done=errors.append)
        await disk.close_file(one)
        assert two.content == b"abc"
        assert errors == [None]
        assert await disk.free_bytes("/d") == TOTAL_BYTES - 3

    asyncio.run(main())


def test_directory_is_no_file():
    async def main():
        disk = MemoryDisk()
        await disk.make_dirs("relative/d")
        assert await disk.list_dir("relative") == ["d"]
        with pytest.raises(IsADirectoryError):
            await disk.read_file("relative/d")
        with pytest.raises(FileNotFoundError):
            await disk.sync_dir("/missing")

    asyncio.run(main())
