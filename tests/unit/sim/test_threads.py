"""Threads under simulation: refused, or inline."""

from __future__ import annotations

import pytest

from geminga import sim


def test_threads_are_refused_or_run_inline():
    async def main(node):
        threads = node.runtime.threads
        answer = await threads.call("lane", lambda: 42)
        with pytest.raises(ZeroDivisionError):
            await threads.call("lane", lambda: 1 // 0)
        results = []
        threads.submit("lane", lambda: results.append("ran"), results.append)
        assert results == ["ran"]
        await node.world.sleep(0)
        assert results == ["ran", None]
        await threads.close()
        return answer

    async def scenario(world):
        node = world.node("a")
        with pytest.raises(sim.SimEscapeError, match="lane"):
            await node.run(main)
        world.crash(node)
        node.inline_threads = True
        assert await world.restart(node, main) == 42

    sim.run(scenario)
