"""Blocking calls on named threads."""

from __future__ import annotations

import asyncio

import pytest

from geminga.runtime import LaneThreads


def test_error_of_a_job_is_that_of_its_future():
    async def main():
        threads = LaneThreads()
        with pytest.raises(ZeroDivisionError):
            await threads.call("a", lambda: 1 // 0)
        assert await threads.call("a", lambda: 42) == 42
        await threads.close()

    asyncio.run(main())


def test_submit_tells_the_error_or_none():
    async def main():
        threads = LaneThreads()
        results = []
        threads.submit("a", lambda: None, results.append)
        threads.submit("a", lambda: [].pop(), results.append)
        await threads.close()
        assert results[0] is None
        assert isinstance(results[1], IndexError)

    asyncio.run(main())
