"""The context variable that says whose code is running: through tasks, timers and callbacks of other nodes."""

from __future__ import annotations

import asyncio

from geminga import sim
from geminga.runtime import spawn
from geminga.sim.boot import CURRENT_BOOT


def here():
    boot = CURRENT_BOOT.get()
    return None if boot is None else (boot.node.name, boot.number)


def test_code_knows_its_node_through_tasks_timers_and_disk_completions():
    seen = {}

    async def child():
        seen["task"] = here()

    async def main(node):
        loop = asyncio.get_running_loop()
        seen["main"] = here()
        loop.call_later(1, lambda: seen.setdefault("timer", here()))
        await spawn(child(), name="child")
        file = await node.runtime.disk.open_file("/f", lane="w", create=True)
        node.runtime.disk.append(file, 0, [b"x"], sync=True, done=lambda _: seen.setdefault("append", here()))
        await node.world.sleep(2)

    async def scenario(world):
        node = world.node("a")
        await node.run(main)
        assert here() is None
        assert seen == dict.fromkeys(("main", "timer", "task", "append"), ("a", 1))
        seen.clear()
        world.crash(node)
        node.disk.root.entries.clear()
        await world.restart(node, main)
        assert set(seen.values()) == {("a", 2)}

    sim.run(scenario)


def test_protocols_run_in_the_node_that_owns_them():
    seen = set()

    class End(asyncio.Protocol):
        def __init__(self, side):
            self.side = side

        def connection_made(self, transport):
            seen.add((self.side, "made", here()))
            transport.write(b"x")

        def data_received(self, data):
            seen.add((self.side, "data", here()))

        def connection_lost(self, exc):
            seen.add((self.side, "lost", here()))

    async def scenario(world):
        await world.node("s").run(lambda n: n.runtime.network.listen(lambda: End("server"), "", 1))
        transport, _ = await world.node("c").run(lambda n: n.runtime.network.connect(lambda: End("client"), "s", 1))
        await world.sleep(1)
        transport.close()
        await world.sleep(1)
        for event in ("made", "data", "lost"):
            assert ("server", event, ("s", 1)) in seen
            assert ("client", event, ("c", 1)) in seen
        assert len(seen) == 6

    sim.run(scenario)
