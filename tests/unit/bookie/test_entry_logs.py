from __future__ import annotations

import asyncio
import errno

import pytest

from geminga.bookie.disk_io import read
from geminga.bookie.entry_logs import EntryLogs
from geminga.runtime import ReadRequest, next_turn
from support.clusters.bookie_node import BookieNode, run_bookie


async def make_logs(case: BookieNode, open_file_limit: int = 2) -> EntryLogs:
    await case.node.runtime.disk.make_dirs("/l")
    return EntryLogs(case.node.runtime, "/l", bytes(16), open_file_limit)


def test_log_is_cut_to_its_durable_size_when_reopened():
    async def main(case: BookieNode) -> None:
        logs = await make_logs(case)
        writer = await logs.create()
        writer.put((b"durable",))
        await writer.sync()
        logs.sizes[1] = writer.offset
        writer.put((b"not",))
        await writer.drain()
        await logs.close_writer(writer)
        again = await logs.reopen(1)
        assert again.offset == 64 + 7
        assert again.put((b"next",)) == 71
        await again.sync()
        assert case.disk.synced_contents(logs.path(1))[64:] == b"durablenext"
        await logs.close_writer(again)

    run_bookie(main, is_open=False)


def test_open_files_are_bounded_and_pinned_ones_stay():
    async def main(case: BookieNode) -> None:
        logs = await make_logs(case)
        for _ in range(4):
            await logs.close_writer(await logs.create())
        pinned = await logs.pin(1)
        for log_id in (2, 3, 4):
            await logs.pin(log_id)
            logs.unpin(log_id)
        assert await logs.pin(1) is pinned
        assert set(logs._handles) == {1, 4}
        logs.unpin(1)
        logs.unpin(1)
        await logs.remove(1)
        assert case.files("0000000001.log") == []
        with pytest.raises(FileNotFoundError):
            await logs.pin(1)
        await logs.close()

    run_bookie(main, is_open=False)


def test_several_that_are_closed_at_once_are_not_those_that_are_read_or_removed_meanwhile():
    """A read of many logs keeps all of them open; the next one closes what is too much, which takes its time."""

    async def main(case: BookieNode) -> None:
        logs = await make_logs(case)
        for _ in range(6):
            await logs.close_writer(await logs.create())
        for log_id in range(1, 6):
            await logs.pin(log_id)
        for log_id in range(1, 6):
            logs.unpin(log_id)
        opening = asyncio.ensure_future(logs.pin(6))
        while 1 in logs._handles:
            await case.world.sleep(0.00001)
        # The first is being closed: others come.
        file = await logs.pin(2)
        await logs.remove(3)
        await opening
        request = ReadRequest(file, 0, 4)
        assert await read(case.node.runtime.disk, [request], lane="bookie-read") == [b"GMEL"]
        for log_id in (2, 6):
            logs.unpin(log_id)
        assert len(logs._handles) <= 3
        await logs.close()

    run_bookie(main, is_open=False)


def test_who_is_cut_off_while_a_log_is_opened_leaves_the_others_waiting():
    async def main(case: BookieNode) -> None:
        logs = await make_logs(case)
        await logs.close_writer(await logs.create())
        first, second, third = (asyncio.ensure_future(logs.pin(1)) for _ in range(3))
        await next_turn()
        second.cancel()
        assert await first is await third
        assert second.cancelled()
        logs.unpin(1)
        logs.unpin(1)
        assert logs._pins == {}
        await logs.close()

    run_bookie(main, is_open=False)


def test_removed_log_is_not_held_open_by_who_read_it_meanwhile():
    """An open file keeps its space on the disk."""

    async def main(case: BookieNode) -> None:
        logs = await make_logs(case)
        await logs.close_writer(await logs.create())
        await logs.pin(1)
        logs.unpin(1)
        case.disk.slow("unlink", "*.log", 0.1)
        removing = asyncio.ensure_future(logs.remove(1))
        await case.world.sleep(0.05)
        await logs.pin(1)
        await removing
        logs.unpin(1)
        assert case.files("0000000001.log") == []
        assert list(logs._handles) == []
        await logs.close()

    run_bookie(main, is_open=False)


def test_log_that_could_not_be_made_leaves_nothing():
    async def main(case: BookieNode) -> None:
        logs = await make_logs(case)
        case.disk.inject("write", "*.log", error=errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            await logs.create()
        assert case.files(".log") == []
        assert (await logs.create()).log_id == 2

    run_bookie(main, is_open=False)
