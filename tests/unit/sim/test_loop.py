"""The simulated loop: virtual time, order, limits, no way out, and each private part of asyncio it relies on."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial

import pytest

from geminga import sim
from geminga.runtime import spawn
from geminga.sim.loop import SimLoop, _is_task_step


def run(main):
    """Run ``main()`` on a bare simulated loop and return (result, loop)."""
    loop = SimLoop()
    try:
        return loop.run_until_complete(main()), loop
    finally:
        loop.close()


def test_virtual_hour_passes_at_once():
    async def scenario(world):
        await world.sleep(3600)
        return world.now

    assert sim.run(scenario) == 3600


def test_timers_fire_in_order_of_time_and_cancelled_ones_never():
    async def main():
        loop = asyncio.get_running_loop()
        seen = []
        end = loop.create_future()
        for delay in (3, 1, 2):
            loop.call_later(delay, lambda delay=delay: seen.append((loop.time(), delay)))
        loop.call_later(1.5, seen.append, "cancelled").cancel()
        loop.call_later(4, end.set_result, None)
        await end
        return seen

    assert run(main)[0] == [(1, 1), (2, 2), (3, 3)]


def test_call_soon_is_first_in_first_out():
    async def main():
        loop = asyncio.get_running_loop()
        seen, end = [], loop.create_future()
        for number in range(50):
            loop.call_soon(seen.append, number)
        loop.call_soon(end.set_result, None)
        await end
        return seen

    assert run(main)[0] == list(range(50))


def test_asyncio_timeout_semaphore_and_task_group_work():
    async def scenario(world):
        limit = asyncio.Semaphore(2)
        active = peak = 0

        async def work():
            nonlocal active, peak
            async with limit:
                active += 1
                peak = max(peak, active)
                await world.sleep(1)
                active -= 1

        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(work())
        assert (peak, world.now) == (2, 3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await world.sleep(60)
        assert world.now == 8
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.loop.create_future(), 1)

    sim.run(scenario)


def test_waiting_for_nothing_is_a_deadlock_that_names_who_waits(capsys):
    async def forever(world):
        await world.loop.create_future()

    async def scenario(world):
        spawn(forever(world), name="the stuck one")
        await forever(world)

    with pytest.raises(sim.SimDeadlockError, match=r"task scenario at .*; task the stuck one at .*forever") as failure:
        sim.run(scenario, 42)
    assert "seed=42" in "".join(failure.value.__notes__)
    assert "seed=42" in capsys.readouterr().err


def test_steps_without_time_are_a_livelock():
    async def scenario(world):
        world.loop.steps_per_instant_max = 1000

        def again():
            world.loop.call_soon(again)

        again()
        await world.sleep(1)

    with pytest.raises(sim.SimLivelockError, match="1000 steps"):
        sim.run(scenario)


def test_time_without_end_is_a_livelock():
    async def scenario(world):
        world.loop.virtual_seconds_max = 100

        def again():
            world.loop.call_later(1, again)

        again()
        await world.loop.create_future()

    with pytest.raises(sim.SimLivelockError, match="passed 100 s"):
        sim.run(scenario)


@pytest.mark.parametrize(
    "escape",
    [
        lambda loop: loop.run_in_executor(None, print),
        lambda loop: loop.add_reader(0, print),
        lambda loop: loop.add_writer(0, print),
        lambda loop: loop.add_signal_handler(1, print),
        lambda loop: loop.create_server(asyncio.Protocol, "127.0.0.1", 0),
        lambda loop: loop.create_connection(asyncio.Protocol, "127.0.0.1", 1),
        lambda loop: loop.getaddrinfo("localhost", 1),
        lambda loop: loop.sock_connect(None, None),
        lambda loop: asyncio.to_thread(print),
    ],
)
def test_escape_from_the_simulation_is_refused(escape):
    async def scenario(world):
        with pytest.raises(sim.SimEscapeError):
            await escape(world.loop)

    sim.run(scenario)


def test_exception_in_a_callback_fails_the_run():
    async def scenario(world):
        world.loop.call_later(1, lambda: [].pop())
        await world.sleep(10)

    with pytest.raises(IndexError, match="pop from empty list"):
        sim.run(scenario)


def test_unexpected_exception_of_a_spawned_task_fails_the_run():
    async def fail():
        raise ValueError("boom")

    async def scenario(world):
        spawn(fail(), name="doomed")
        await world.sleep(10)

    with pytest.raises(ValueError, match="boom"):
        sim.run(scenario)


def test_exception_of_a_task_nobody_awaits_fails_the_run():
    async def fail():
        raise ValueError("boom")

    async def scenario(world):
        world.loop.create_task(fail())
        await world.sleep(10)

    with pytest.raises(ValueError, match="boom"):
        sim.run(scenario)


def test_permuted_tasks_change_order_by_seed_and_callbacks_do_not():
    async def scenario(world):
        seen = []
        gate = world.loop.create_future()

        async def wait(number):
            await gate
            seen.append(number)

        tasks = [spawn(wait(number), name=f"w{number}") for number in range(8)]
        await world.sleep(1)
        gate.set_result(None)
        callbacks = []
        for number in range(8):
            world.loop.call_soon(callbacks.append, number)
        await asyncio.wait(tasks)
        assert callbacks == list(range(8))
        return tuple(seen)

    assert sim.run(scenario, 1) == tuple(range(8))
    orders = {seed: sim.run(scenario, seed, permute_ready_tasks=True) for seed in range(5)}
    assert len(set(orders.values())) > 1
    assert all(sorted(order) == list(range(8)) for order in orders.values())
    assert orders == {seed: sim.run(scenario, seed, permute_ready_tasks=True) for seed in range(5)}


# One test for each private part of asyncio that the loop relies on, so that a new Python that changes one says so.


def test_hook_run_once_and_ready_are_used_by_run_forever():
    async def main():
        loop = asyncio.get_running_loop()
        assert len(loop._ready) == 0
        handle = loop.call_soon(int)
        assert list(loop._ready) == [handle]

    _, loop = run(main)
    assert loop.steps == 3  # the coroutine, the callback, and the stop that the coroutine's end asks for


def test_hook_scheduled_is_a_heap_of_timers_with_a_flag():
    async def main():
        loop = asyncio.get_running_loop()
        late, early = loop.call_later(2, int), loop.call_later(1, int)
        assert loop._scheduled[0].timer is early
        assert {due.timer for due in loop._scheduled} == {early, late}
        assert early._scheduled is True
        assert (early.when(), early.cancelled()) == (1, False)

    run(main)


def test_hook_timer_cancelled_count_counts_cancelled_timers_in_the_heap():
    async def main():
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(1, int) for _ in range(3)]
        timers[0].cancel()
        assert loop._timer_cancelled_count == 1
        end = loop.create_future()
        loop.call_later(2, end.set_result, None)
        await end
        assert loop._timer_cancelled_count == 0
        timers[1].cancel()
        assert loop._timer_cancelled_count == 0

    run(main)


def test_hook_check_closed_refuses_to_schedule():
    loop = SimLoop()
    loop.close()
    for schedule in (partial(loop.call_soon, int), partial(loop.call_later, 1, int), partial(loop.call_at, 1, int)):
        with pytest.raises(RuntimeError, match="closed"):
            schedule()


def test_hook_stopping_ends_run_forever():
    loop = SimLoop()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert loop._stopping is False
    loop.close()


def test_hook_write_to_self_is_called_by_call_soon_threadsafe():
    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_soon_threadsafe(future.set_result, 7)
        return await future

    assert run(main)[0] == 7


def test_hook_handle_context_is_that_of_the_caller_or_the_one_given():
    import contextvars

    variable = contextvars.ContextVar("variable", default=0)

    async def main():
        loop = asyncio.get_running_loop()
        variable.set(1)
        assert loop.call_soon(int)._context.get(variable) == 1
        assert loop.call_later(1, int, context=contextvars.Context())._context.get(variable, 0) == 0

    run(main)


def test_hook_steps_of_tasks_are_told_from_callbacks():
    async def main():
        loop = asyncio.get_running_loop()
        gate = loop.create_future()

        async def wait():
            await gate

        task = loop.create_task(wait())
        assert [_is_task_step(handle) for handle in loop._ready] == [True]
        await asyncio.wait([loop.create_task(asyncio.wait([task], timeout=1))])
        gate.set_result(None)
        loop.call_soon(int)
        assert [_is_task_step(handle) for handle in loop._ready] == [True, False]
        await task

    run(main)


def test_hook_log_traceback_tells_whether_an_exception_was_fetched():
    async def fail():
        raise ValueError("boom")

    async def main():
        task = asyncio.get_running_loop().create_task(fail())
        assert task._log_traceback is False
        await asyncio.wait([task])
        assert task._log_traceback is True
        assert asyncio.get_running_loop().unheard_errors() == [task.exception()]
        assert task._log_traceback is False
        assert asyncio.get_running_loop().unheard_errors() == []

    run(main)


def test_hook_log_destroy_pending_silences_a_collected_task():
    loop = SimLoop()
    reported = []
    loop.set_exception_handler(lambda _, details: reported.append(details["message"]))

    async def wait():
        await loop.create_future()

    def pending_task():
        task = loop.create_task(wait())
        loop.call_soon(loop.stop)
        loop.run_forever()
        return task

    loud = pending_task()
    loud.get_coro().close()
    del loud
    gc.collect()
    assert reported == ["Task was destroyed but it is pending!"]
    quiet = pending_task()
    quiet._log_destroy_pending = False
    quiet.get_coro().close()
    reference = weakref.ref(quiet)
    del quiet
    gc.collect()
    assert reference() is None
    assert len(reported) == 1
    loop.close()
