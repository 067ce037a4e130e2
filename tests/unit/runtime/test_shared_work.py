"""Work that all who ask share."""

from __future__ import annotations

import asyncio

import pytest

from geminga.runtime import next_turn, spawn
from geminga.runtime.shared_work import SharedWork


class Work:
    """Counts how often it was begun, and ends when it is told to."""

    def __init__(self) -> None:
        self.begun = self.under_way = self.most = 0
        self.go_on = asyncio.Event()
        self.error: Exception | None = None
        self.shared = SharedWork(self._run)

    async def _run(self) -> int:
        self.begun += 1
        number = self.begun
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.go_on.wait()
            if self.error is not None:
                raise self.error
            return number
        finally:
            self.under_way -= 1


async def turns() -> None:
    for _ in range(10):
        await next_turn()


def test_who_asks_while_it_is_under_way_shares_the_next_with_all_who_do() -> None:
    async def story() -> None:
        work = Work()
        first = spawn(work.shared.get(), name="first")
        await turns()
        others = [spawn(work.shared.get(), name="other") for _ in range(100)]
        await turns()
        assert work.begun == 1
        work.go_on.set()
        assert await first == 1
        # What they get was begun after they asked.
        assert await asyncio.gather(*others) == [2] * 100
        assert (work.begun, work.most) == (2, 1)
        # It is kept for nobody.
        assert await work.shared.get() == 3
        assert work.shared._result is None

    asyncio.run(story())


def test_who_is_called_off_and_an_error_leave_the_others_theirs() -> None:
    async def story() -> None:
        work = Work()
        tasks = [spawn(work.shared.get(), name="asks") for _ in range(4)]
        await turns()
        tasks[0].cancel()
        await turns()
        assert work.begun == 2
        tasks[1].cancel()
        await turns()
        work.error = ValueError("away")
        work.go_on.set()
        for task in tasks[2:]:
            with pytest.raises(ValueError, match="away"):
                await task
        assert (work.begun, work.most) == (4, 1)
        work.error = None
        assert await work.shared.get() == 5

    asyncio.run(story())
