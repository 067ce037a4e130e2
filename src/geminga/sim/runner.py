"""Runs a scenario in a world and takes it down again, with the seed in every failure."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from geminga.runtime import set_fatal_handler
from geminga.runtime.points import set_point_hook
from geminga.runtime.spawn import forget
from geminga.sim.world import SimWorld

T = TypeVar("T")

#: How often a lost coroutine that awaits in its ``finally`` blocks is closed again before it is given up.
CLOSE_ATTEMPTS_MAX = 20


def run(main: Callable[[SimWorld], Coroutine[Any, Any, T]], seed: int = 0, *, permute_ready_tasks: bool = False) -> T:
    """Run ``main(world)`` to its end in a world of its own and return its result.

    Any failure carries the seed as a note and on stderr. ``permute_ready_tasks``: tasks that are ready at the
    same time run in seeded order.
    """
    return run_in(SimWorld(seed, permute_ready_tasks=permute_ready_tasks), main)


def run_in(world: SimWorld, main: Callable[[SimWorld], Coroutine[Any, Any, T]]) -> T:
    """Like :func:`run` in a fresh ``world`` whose counters the caller wants to see afterwards."""
    loop = world.loop
    collecting = gc.isenabled()
    gc.disable()  # the loop collects at fixed steps
    set_point_hook(world.points)
    try:
        result = loop.run_until_complete(loop.create_task(main(world), name="scenario"))
        for error in loop.unheard_errors():
            raise error
        return result
    except BaseException as error:
        note = (
            f"simulation failed: seed={world.seed} virtual time={loop.time():.6f} s steps={loop.steps} "
            f"trace={world.trace.digest()}"
        )
        error.add_note(note)
        error.add_note("last events:\n" + world.trace.story())
        print(note, file=sys.stderr)
        raise
    finally:
        _take_down(world)
        set_point_hook(None)
        if collecting:
            gc.enable()


def _take_down(world: SimWorld) -> None:
    loop = world.loop
    tasks = [*loop.lost_tasks, *(task for task, _ in loop.pending_tasks())]
    for node in world.nodes.values():
        if node.boot is not None:  # from here on its disk and network ignore it
            node.boot.alive = False
    loop.set_exception_handler(lambda *_: None)
    loop.close()
    set_fatal_handler(None, loop)
    loop.lost_tasks = []
    # Asked for, it refuses; without one, ``finally`` blocks that begin something would make, and leave, a real one.
    asyncio.set_event_loop(loop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for task in dict.fromkeys(tasks):
            _dispose(task)
    asyncio.set_event_loop(None)
    for node in world.nodes.values():
        node.disk.discard()


def _dispose(task: asyncio.Task[Any]) -> None:
    # The run is over: only now may ``finally`` blocks of lost tasks run, where they can reach nothing. Their
    # errors (a closed loop, a dead disk) say nothing about the code under test.
    forget(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coro = task.get_coro()
    for _ in range(CLOSE_ATTEMPTS_MAX):
        try:
            coro.close()
            return
        except BaseException:
            continue
