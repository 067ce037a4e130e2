"""A cluster's metadata store beside a standalone's: 100,000 nodes, 10,000 watches, writes one by one and many at once.

ZooKeeper is one server on this machine (of PySpark's jars), which syncs its log before each answer as SQLite's does
its own; both are on the scratch disk. ``loop us`` is the processor time of the event loop's thread for a write, ``all
us`` that of the whole process: kazoo's, or SQLite's, threads are in it, the server is not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tools.zookeeper_server import ZooKeeperServer

from bench.servers import Bench, BenchError
from geminga.metadata import MUST_NOT_EXIST, MetadataStore, SqliteMetadataStore
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.runtime import Runtime, real_runtime

Row = dict[str, Any]

NODES = 100_000
WATCHES = 10_000
#: Writes one after another, and writes by so many at once.
SINGLE = 2_000
MANY = 20_000
AT_ONCE = 64
VALUE = b"x" * 200


def metadata(bench: Bench, nodes: int = NODES, watches: int = WATCHES) -> list[Row]:
    """All steps on SQLite, then on ZooKeeper."""
    rows: list[Row] = []
    for name, run in (("sqlite", _on_sqlite), ("zookeeper", _on_zookeeper)):
        directory = bench.scratch / name
        directory.mkdir()

        async def steps(store: MetadataStore, name: str = name) -> None:
            rows.extend({"store": name, **row} for row in await _steps(store, nodes, watches))

        run(directory, steps)
    return rows


def _on_sqlite(directory: Path, steps: Callable[[MetadataStore], Awaitable[None]]) -> None:
    async def opening(runtime: Runtime) -> SqliteMetadataStore:
        return await SqliteMetadataStore.open(runtime, str(directory / "metadata.sqlite"))

    asyncio.run(_with_store(opening, steps))


def _on_zookeeper(directory: Path, steps: Callable[[MetadataStore], Awaitable[None]]) -> None:
    from geminga.metadata.zookeeper import ZooKeeperMetadataStore

    server = ZooKeeperServer(directory, sync=True)
    try:
        server.start()
        address = ZooKeeperAddress((server.hosts,))
        asyncio.run(_with_store(lambda runtime: ZooKeeperMetadataStore.open(runtime, address), steps))
    finally:
        server.kill()


async def _with_store(
    opening: Callable[[Runtime], Awaitable[MetadataStore]], steps: Callable[[MetadataStore], Awaitable[None]]
) -> None:
    def fatal(part: str, error: BaseException) -> None:
        raise BenchError(f"{part}: {error}")

    runtime = real_runtime(fatal)
    store = await opening(runtime)
    try:
        await steps(store)
    finally:
        await store.close()
        await runtime.threads.close()
        await runtime.disk.close()


async def _steps(store: MetadataStore, nodes: int, watches: int) -> list[Row]:
    def path(number: int) -> str:
        return f"/bench/{number // 1000}/{number}"

    async def create(number: int) -> None:
        await store.put(path(number), VALUE, expected_version=MUST_NOT_EXIST)

    async def change(number: int) -> None:
        await store.put(path(number * 7919 % watches), VALUE, expected_version=None)

    rows = [await _measured(f"create {nodes:,} nodes, {AT_ONCE} at once", nodes, AT_ONCE, create)]
    rows.append(await _measured(f"change one, {SINGLE:,} times", SINGLE, 1, change))
    rows.append(await _measured(f"change, {AT_ONCE} at once", MANY, AT_ONCE, change))
    told: dict[str, asyncio.Event] = {}
    begin, cpu, cpu_all = time.perf_counter(), time.thread_time(), time.process_time()
    for number in range(watches):
        event = told[path(number)] = asyncio.Event()
        store.watch_node(path(number), lambda _, event=event: event.set())
    await store.get(path(0))  # answered after the watches stand
    rows.append(_row(f"watch {watches:,} nodes", begin, cpu, cpu_all, watches, []))

    async def change_and_hear(number: int) -> None:
        watched = path(number * 7919 % watches)
        told[watched].clear()
        await store.put(watched, VALUE, expected_version=None)
        await told[watched].wait()

    rows.append(await _measured("change one and be told", SINGLE, 1, change_and_hear))
    rows.append(await _measured(f"change watched ones, {AT_ONCE} at once", MANY, AT_ONCE, change))
    found = len(await store.children("/bench"))
    if found != (nodes + 999) // 1000:
        raise BenchError(f"{found} children of /bench")
    return rows


async def _measured(step: str, count: int, at_once: int, write: Callable[[int], Awaitable[None]]) -> Row:
    times: list[float] = []
    numbers = iter(range(count))

    async def writer() -> None:
        for number in numbers:
            begin = time.perf_counter()
            await write(number)
            times.append(time.perf_counter() - begin)

    begin, cpu, cpu_all = time.perf_counter(), time.thread_time(), time.process_time()
    await asyncio.gather(*(writer() for _ in range(at_once)))
    return _row(step, begin, cpu, cpu_all, count, sorted(times))


def _row(step: str, begin: float, cpu: float, cpu_all: float, count: int, times: list[float]) -> Row:
    seconds = time.perf_counter() - begin
    return {
        "step": step,
        "seconds": round(seconds, 2),
        "per s": round(count / seconds),
        "p50 ms": round(times[len(times) // 2] * 1000, 2) if times else "-",
        "p99 ms": round(times[len(times) * 99 // 100] * 1000, 2) if times else "-",
        "loop us": round((time.thread_time() - cpu) / count * 1e6, 1),
        "all us": round((time.process_time() - cpu_all) / count * 1e6, 1),
    }
