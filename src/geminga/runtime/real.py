"""The composition of the real world: system clock, randomness, disk threads, asyncio network."""

from __future__ import annotations

from geminga.runtime.clock import SystemClock
from geminga.runtime.disk_threads import ThreadedDisk
from geminga.runtime.network import AsyncioNetwork
from geminga.runtime.ports import FatalHandler, Runtime
from geminga.runtime.rng import SystemRng
from geminga.runtime.spawn import set_fatal_handler
from geminga.runtime.threads import LaneThreads


def real_runtime(on_fatal: FatalHandler) -> Runtime:
    """The ports over the operating system, for the running loop, whose fatal handler becomes ``on_fatal``.

    The caller closes ``disk`` and ``threads`` at the end.
    """
    set_fatal_handler(on_fatal)
    return Runtime(
        clock=SystemClock(),
        rng=SystemRng(),
        disk=ThreadedDisk(),
        network=AsyncioNetwork(),
        threads=LaneThreads(),
        on_fatal=on_fatal,
    )
