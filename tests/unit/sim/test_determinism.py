"""The same seed gives the same run: twice in a process, and in processes with other string hashes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from geminga import sim
from geminga.runtime import crash_point, sometimes, spawn


async def server(node):
    """Appends what it receives to a file and answers once it is durable."""
    disk, loop = node.runtime.disk, asyncio.get_running_loop()
    if "/log" in node.disk.paths():
        file = await disk.open_file("/log", lane="log")
    else:
        file = await disk.open_file("/log", lane="log", create=True)
        await disk.sync_dir("/")
    end = await disk.file_size("/log")

    class Session(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            nonlocal end
            start, end = end, end + len(data)
            crash_point("server.received")
            disk.append(file, start, [data], sync=True, done=lambda error: self.answer(len(data)))

        def answer(self, count):
            crash_point("server.synced")
            self.transport.write(b"." * count)

    await node.runtime.network.listen(Session, "", 6650)
    await loop.create_future()


async def client(node):
    world = node.world
    answered = 0

    class Session(asyncio.Protocol):
        def __init__(self):
            self.lost = asyncio.Event()

        def data_received(self, data):
            nonlocal answered
            answered += len(data)

        def connection_lost(self, exc):
            self.lost.set()

    async def session():
        transport, protocol = await node.runtime.network.connect(Session, "server", 6650)
        for _ in range(node.runtime.rng.below(20)):
            transport.write(node.runtime.rng.token(20).encode())
            if sometimes("client.rests", 30):
                await world.sleep(node.runtime.rng.random() / 100)
        await world.sleep(0.1)
        transport.close()
        await protocol.lost.wait()

    for _ in range(5):
        tasks = {spawn(session(), name=name) for name in ("one", "two", "three")}
        done, _ = await asyncio.wait(tasks)
        for task in sorted(done, key=lambda task: task.get_name()):
            task.exception()
    return answered


async def scenario(world):
    node = world.node("server")
    node.on_fatal = lambda part, error: None
    world.node("client").on_fatal = lambda part, error: None
    node.run(server)
    await world.sleep(0.01)
    world.points.crash_percent = 3
    ended = world.node("client").run(client)
    while not ended.done():
        await world.sleep(0.05)
        if not node.is_up:
            world.restart(node, server)
    return await ended


def digest(seed, **options):
    world = sim.SimWorld(seed, **options)
    answered = sim.run_in(world, scenario)
    assert answered
    return f"{world.trace.digest()} {answered} {world.trace.events} {world.loop.steps} {world.crashes}"


def test_same_seed_gives_the_same_trace():
    digests = [digest(seed) for seed in range(5)]
    assert digests == [digest(seed) for seed in range(5)]
    assert len(set(digests)) == 5
    assert digest(1, permute_ready_tasks=True) == digest(1, permute_ready_tasks=True)


def test_other_string_hashes_give_the_same_trace():
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_determinism as t; "
    program += "print(t.digest(3))"
    outputs = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        made = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        outputs.add(made.stdout.strip())
    assert outputs == {digest(3)}
