"""Child processes that are talked to."""

from __future__ import annotations

import asyncio
import signal

import pytest

from geminga.runtime.child import launch


async def started(*command):
    """The child, what it wrote, the future of its end, and an event that is set with each of its lines."""
    received, line, ended = bytearray(), asyncio.Event(), asyncio.get_running_loop().create_future()

    def take(data):
        received.extend(data)
        if data.endswith(b"\n"):
            line.set()

    child = await launch(command, take, ended.set_result)
    return child, received, ended, line


def test_what_is_written_comes_back_and_the_end_is_told_after_it():
    async def main():
        child, received, ended, _ = await started("head", "-c", "4")
        child.write(b"ab")
        child.write(b"cdef")
        assert await ended == "ended with 0"
        assert received == b"abcd"
        child.write(b"nobody reads it")
        child.kill()

    asyncio.run(main())


def test_how_a_child_ended_is_told_however_fast_it_dies():
    async def main():
        for _ in range(20):
            child, _, ended, line = await started("sh", "-c", "echo begun; exec sleep 1000")
            await line.wait()
            child.kill()
            assert await ended == f"was ended by {signal.SIGKILL.name}"

    asyncio.run(main())


def test_a_child_is_ended_with_what_it_started():
    async def main():
        child, _, ended, line = await started("sh", "-c", "sleep 1000 & echo begun; wait")
        await line.wait()
        child.kill()
        # What it started has its standard output, too: the end is told when both are gone.
        assert await ended == f"was ended by {signal.SIGKILL.name}"

    asyncio.run(main())


def test_what_is_not_there_can_not_be_started():
    async def main():
        with pytest.raises(FileNotFoundError):
            await started("/nowhere/to/be/found")

    asyncio.run(main())
