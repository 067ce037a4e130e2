"""spawn: names, references, unexpected exceptions."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref

from geminga.bookkeeper.core.placement import Placement
from geminga.model.errors import InvariantError
from geminga.runtime import set_fatal_handler, spawn
from geminga.runtime.spawn import forget, on_loop_error


def test_spawned_task_has_its_name_and_result():
    async def answer():
        return 42

    async def main():
        task = spawn(answer(), name="the answer")
        assert task.get_name() == "the answer"
        assert await task == 42

    asyncio.run(main())


def test_spawned_task_without_a_reference_survives_collection():
    done = []

    async def wait(event):
        await event.wait()
        done.append(1)

    async def main():
        event = asyncio.Event()
        spawn(wait(event), name="held")
        await asyncio.wait([spawn(turn(), name="turn")])
        gc.collect()
        event.set()
        await asyncio.wait([spawn(turn(), name="turn")])

    asyncio.run(main())
    assert done == [1]


def test_unexpected_exception_is_logged_and_handed_to_the_handler(caplog):
    fatal = []

    async def main():
        set_fatal_handler(lambda part, error: fatal.append((part, repr(error))))
        task = spawn(fail(), name="doomed")
        await asyncio.wait([task])
        await turn()
        set_fatal_handler(None)
        await asyncio.wait([spawn(fail(), name="unheard")])
        await turn()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert fatal == [("doomed", "ValueError('boom')")]
    assert [record.getMessage() for record in caplog.records] == [
        "task doomed failed: boom",
        "task unheard failed: boom",
    ]


def test_cancelled_task_is_no_failure():
    fatal = []

    async def main():
        set_fatal_handler(lambda part, error: fatal.append(part))
        task = spawn(asyncio.Event().wait(), name="cancelled")
        await turn()
        task.cancel()
        await asyncio.wait([task])
        await turn()

    asyncio.run(main())
    assert fatal == []


def test_forgotten_task_is_not_held():
    async def main():
        task = spawn(turn(), name="forgotten")
        forget(task)
        forget(task)
        await task

    asyncio.run(main())


def test_handler_of_a_closed_loop_is_not_kept():
    class Component:
        def fatal(self, part, error):
            raise AssertionError(part)

    references = []

    async def main(component):
        component.loop = asyncio.get_running_loop()
        set_fatal_handler(component.fatal)
        references.append(weakref.ref(component))

    asyncio.run(main(Component()))
    asyncio.run(main(Component()))
    gc.collect()
    assert references[0]() is None


async def fail():
    raise ValueError("boom")


async def turn():
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    await event.wait()


def test_only_what_comes_out_of_storage_is_fatal_in_a_plain_callback(caplog):
    fatal = []

    def raise_(error):
        raise error

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(on_loop_error)
        set_fatal_handler(lambda part, error: fatal.append(repr(error)))
        loop.call_soon(raise_, ValueError("nobody's"))
        loop.call_soon(raise_, InvariantError("a topic's"))
        loop.call_soon(Placement().set_racks, None)
        await turn()
        await turn()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert len(fatal) == 1
    assert fatal[0].startswith("TypeError")
    assert len(caplog.records) == 3
