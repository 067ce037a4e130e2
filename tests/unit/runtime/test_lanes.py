"""Lanes: order, errors, the end."""

from __future__ import annotations

import asyncio

from geminga.runtime.lanes import Lanes


def test_jobs_of_a_lane_run_in_order_on_one_thread_of_its_own():
    async def main():
        lanes = Lanes("test")
        seen = []
        futures = [lanes.call("a", seen.append, number) for number in range(100)]
        for future in futures:
            await future
        assert seen == list(range(100))
        await lanes.close()

    asyncio.run(main())


def test_cancelled_call_leaves_the_lane_working():
    async def main():
        lanes = Lanes("test")
        lanes.call("a", int, "7").cancel()
        assert await lanes.call("a", int, "8") == 8
        await lanes.close()

    asyncio.run(main())


def test_closed_lanes_start_again_on_another_loop():
    lanes = Lanes("test")

    async def main():
        assert await lanes.call("a", int, "8") == 8
        await lanes.close()

    asyncio.run(main())
    asyncio.run(main())


def test_loop_closed_under_a_job_ends_its_thread_quietly():
    lanes = Lanes("test")
    gate = Lanes("gate")

    async def main():
        future = asyncio.get_running_loop().create_future()
        lanes.call("a", future.get_loop)
        await gate.call("g", int)
        threads.extend(lanes._threads.values())
        release.append(lanes._queues["a"])
        await gate.close()

    threads, release = [], []
    asyncio.run(main())
    release[0].put((int, (), lambda *_: None))
    release[0].put(None)
    threads[0].join(5)
    assert not threads[0].is_alive()
