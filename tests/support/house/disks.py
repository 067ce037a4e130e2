"""Awaitable forms of the ``Disk`` port's callback operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from geminga import sim
from geminga.runtime import Buffer, Disk, DiskFile, ReadRequest
from geminga.sim import SimDisk, SimNode, SimWorld


async def append(disk: Disk, file: DiskFile, offset: int, *buffers: Buffer, sync: bool = True) -> None:
    """Append and wait; raises the error."""
    future: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    disk.append(file, offset, buffers, sync=sync, done=future.set_result)
    error = await future
    if error is not None:
        raise error


async def read(disk: Disk, *requests: tuple[DiskFile, int, int], lane: str = "reads") -> list[bytes | OSError]:
    """Read (file, offset, size) requests as one group and wait."""
    future: asyncio.Future[list[bytes | OSError]] = asyncio.get_running_loop().create_future()
    disk.read(
        [ReadRequest(*request) for request in requests],
        lane=lane,
        done=lambda results: future.set_result(list(results)),
    )
    return await future


async def new_file(disk: Disk, path: str, *, durable: bool = True) -> DiskFile:
    """Create a file in the root directory, its name durable if asked."""
    file = await disk.open_file(path, lane="w", create=True)
    if durable:
        await disk.sync_dir("/")
    return file


async def idle() -> None:
    """For ever."""
    await asyncio.get_running_loop().create_future()


def states_after(
    main: Callable[[SimNode], Coroutine[Any, Any, object]],
    path: str,
    seeds: int = 60,
    *,
    power_loss: bool = True,
    prepare: Callable[[SimDisk], None] | None = None,
) -> set[bytes | None]:
    """What is found in ``path`` after ``main`` stood still and the node crashed, over many seeds."""

    async def scenario(world: SimWorld) -> bytes | None:
        node = world.node("a")
        if prepare:
            prepare(node.disk)
        node.run(main)
        await world.sleep(10)
        world.crash(node, power_loss=power_loss)
        node.start()
        return node.disk.contents(path) if path in node.disk.paths() else None

    return {sim.run(scenario, seed) for seed in range(seeds)}
