"""When a bookie's write cache is flushed, and what follows."""

from __future__ import annotations

import asyncio
import errno

import pytest

from geminga.model.errors import DiskFullError, DiskIOError
from support.clusters.bookie_node import BookieNode, entries_of, run_bookie


def test_flushes_asked_for_together_are_one_and_all_of_it_is_checkpointed() -> None:
    async def main(case: BookieNode) -> None:
        checkpoints, storage = case.bookie._checkpoints, case.bookie.storage
        before = storage.checkpoint.mark_sequence
        assert await case.add(1, 0, entries_of(1, 0, 5)) is None
        await asyncio.gather(*(checkpoints.flush() for _ in range(3)))
        assert not storage.has_unflushed
        assert storage.checkpoint.mark_sequence > before
        written = storage.checkpoint
        await checkpoints.flush()
        assert storage.checkpoint is written, "nothing was added: nothing is written"

    run_bookie(main)


def test_mark_is_passed_although_nothing_was_added() -> None:
    async def main(case: BookieNode) -> None:
        checkpoints, storage = case.bookie._checkpoints, case.bookie.storage
        written = storage.checkpoint
        await checkpoints.pass_mark()
        assert storage.checkpoint is not written

    run_bookie(main)


@pytest.mark.parametrize(
    ("number", "error", "is_over"), [(errno.ENOSPC, DiskFullError, False), (errno.EIO, DiskIOError, True)]
)
def test_failed_flush_is_told_to_who_waits_and_keeps_what_was_added(
    number: int, error: type[Exception], is_over: bool
) -> None:
    async def main(case: BookieNode) -> None:
        assert await case.add(1, 0, entries_of(1, 0, 5)) is None
        case.disk.inject("write", "*.log", error=number)
        with pytest.raises(error):
            await case.bookie._checkpoints.flush()
        assert not case.bookie.room.is_writable
        assert bool(case.fatal) == is_over
        assert await case.read(1, 0, 1, 2, 3, 4) == entries_of(1, 0, 5)

    run_bookie(main)


def test_failure_of_a_flush_does_not_keep_the_frames_of_those_who_were_told() -> None:
    async def main(case: BookieNode) -> None:
        checkpoints = case.bookie._checkpoints
        assert await case.add(1, 0, entries_of(1, 0, 5)) is None
        case.disk.inject("write", "*.log", error=errno.ENOSPC)
        told = await asyncio.gather(*(checkpoints.flush() for _ in range(3)), return_exceptions=True)
        assert {type(each) for each in told} == {DiskFullError}
        kept = checkpoints._failed
        assert kept is not None
        assert kept.__traceback__ is None

    run_bookie(main)
