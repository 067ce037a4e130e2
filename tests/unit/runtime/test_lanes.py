"""Lanes: order, errors, the end."""

from __future__ import annotations

import asyncio
import threading  # noqa: TID251 - a gate between the loop and a lane

from geminga.runtime.lanes import Lanes
from geminga.runtime.spawn import set_fatal_handler
from support.house.python_programs import run_python


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


def test_completion_that_raises_is_fatal_and_holds_up_no_other():
    async def main():
        fatal = []
        set_fatal_handler(lambda part, error: fatal.append((part, error)))
        lanes = Lanes("test")
        error = ValueError("a bug")
        gate = threading.Event()

        def fail(_result, _error):
            raise error

        lanes.submit("a", gate.wait, (), fail)
        after = lanes.call("b", int, "7")
        other = lanes.call("a", int, "8")
        gate.set()
        assert await after == 7
        assert await other == 8
        assert fatal == [("test completion", error)]
        await lanes.close()

    asyncio.run(main())


def test_completions_gathered_behind_one_that_raises_are_delivered():
    async def main():
        set_fatal_handler(lambda part, error: None)
        lanes = Lanes("test")
        gate = asyncio.get_running_loop().create_future()

        def fail(_result, _error):
            raise ValueError("a bug")

        lanes.submit("a", int, (), fail)
        lanes.submit("a", int, (), lambda result, _: gate.set_result(result))
        # Both completions wait in the deque before the loop looks at it.
        while len(lanes._completions) < 2:
            pass
        assert await asyncio.wait_for(gate, 5) == 0
        await lanes.close()

    asyncio.run(main())


def test_thread_that_the_system_does_not_give_is_an_error_of_the_job_and_asked_for_again():
    # A stack as large as the address space leaves room for no thread; a small one does.
    code = (
        "import asyncio, threading\n"
        "from geminga.runtime.lanes import Lanes\n"
        "async def main():\n"
        "    lanes = Lanes('test')\n"
        "    threading.stack_size(1 << 46)\n"
        "    try:\n"
        "        await lanes.call('a', int, '7')\n"
        "    except OSError as error:\n"
        "        print('refused', error.errno)\n"
        "    threading.stack_size(1 << 20)\n"
        "    print(await lanes.call('a', int, '8'))\n"
        "    await lanes.close()\n"
        "asyncio.run(main())\n"
    )
    result = run_python(code, check=False)
    assert result.stdout == "refused 11\n8\n", result.stderr


def test_jobs_of_a_taken_lane_wait_until_it_is_given_back():
    async def main():
        lanes = Lanes("test")
        seen = []
        assert lanes.take("a")
        assert not lanes.take("a")
        job = lanes.call("a", seen.append, 1)
        assert await lanes.call("b", int, "7") == 7
        assert (seen, job.done()) == ([], False)
        lanes.give_back("a")
        assert not lanes.take("a"), "a job is under way"
        await job
        assert seen == [1]
        assert lanes.take("a"), "nothing is under way any more"
        lanes.give_back("a")
        await lanes.close()

    asyncio.run(main())


def test_close_waits_for_a_taken_lane_and_its_jobs():
    async def main():
        lanes = Lanes("test")
        seen = []
        assert lanes.take("a")
        lanes.call("a", seen.append, 1)
        asyncio.get_running_loop().call_soon(lanes.give_back, "a")
        await lanes.close()
        assert seen == [1]

    asyncio.run(main())
