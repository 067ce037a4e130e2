"""One row, measured in a process of its own: ``python -m bench.guard.worker MODE ROW``; prints one line of JSON.

``counted``: under callgrind, whose output file has the figures. ``plain``: calls of functions (C ones too), blocks of
memory that stay, bytes that cross the simulated network, and CPU time, each a message; of a cluster the median over
several seeds, since who meets whom in its network moves calls by a twentieth. The product is the one that PYTHONPATH
names first.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from types import FrameType
from typing import Any, Final

import geminga
from bench.guard.callgrind import Requests
from bench.guard.loads import LOADS, Step
from bench.guard.rows import ROWS
from geminga import sim

#: Runs whose CPU time is the least of them, each of as many messages as are counted.
TIMED: Final = 3


class _Crossing:
    """Bytes that the simulated network delivered; none where a row has no network."""

    def __init__(self, network: Any) -> None:
        self.bytes = 0
        self._deliver = network.delivered
        network.delivered = self._delivered

    def _delivered(self, source: str, target: str, chunk: bytes) -> None:
        self.bytes += len(chunk)
        self._deliver(source, target, chunk)


def _settle() -> None:
    gc.collect()
    gc.freeze()


def measure_row(name: str, mode: str) -> dict[str, float]:
    """See the module."""
    row = ROWS[name]
    # Under callgrind one: it takes minutes.
    found = [_measure(name, mode, seed) for seed in range(1, 1 + (row.seeds if mode == "plain" else 1))]
    return {figure: statistics.median(one[figure] for one in found) for figure in found[0]} | {"messages": row.count}


def _measure(name: str, mode: str, seed: int) -> dict[str, float]:
    row = ROWS[name]
    found: dict[str, float] = {}
    crossing: _Crossing | None = None

    async def counted(step: Step) -> None:
        requests = Requests()
        await step(row.warm)
        _settle()
        requests.start()
        await step(row.count)
        requests.stop()

    async def plain(step: Step) -> None:
        assert crossing is not None
        await step(row.warm)
        _settle()
        times = []
        for _ in range(TIMED):
            started = time.process_time()
            await step(row.count)
            times.append(time.process_time() - started)
        found["cpu_us"] = min(times) / row.count * 1e6
        gc.collect()
        blocks, crossed = sys.getallocatedblocks(), crossing.bytes
        await step(row.count)
        gc.collect()
        found["kept_blocks"] = (sys.getallocatedblocks() - blocks) / row.count
        found["network_bytes"] = (crossing.bytes - crossed) / row.count
        calls = 0

        def note(frame: FrameType, event: str, _: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(note)
        await step(row.count)
        sys.setprofile(None)
        found["calls"] = calls / row.count

    steps = {"counted": (counted, 1), "plain": (plain, TIMED + 2)}
    measure, runs = steps[mode]

    async def main(world: sim.SimWorld) -> None:
        nonlocal crossing
        if mode == "plain":
            crossing = _Crossing(world.network)
        # One more: a consumer that catches up takes one before it is measured.
        await LOADS[name](world, measure, row.warm + runs * row.count + 1)

    sim.run(main, seed=seed)
    return found


if __name__ == "__main__":
    result: dict[str, Any] = measure_row(sys.argv[2], sys.argv[1])
    print(json.dumps(result | {"product": geminga.__file__}))
