"""The composition of the real world: system clock, randomness, disk threads, asyncio network."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from geminga.runtime.clock import SystemClock
from geminga.runtime.disk_threads import ThreadedDisk
from geminga.runtime.network import AsyncioNetwork
from geminga.runtime.ports import FatalHandler, Runtime
from geminga.runtime.rng import SystemRng
from geminga.runtime.spawn import on_loop_error, set_fatal_handler
from geminga.runtime.threads import LaneThreads

#: How long a lane asks for the interpreter before a busy loop must give it up, seconds. With CPython's 5 ms a loop
#: that polls every 0.3 to 2 ms restarts the lane's wait each time: on a loaded 2-core machine group commits of up to
#: 0.9 s were measured, some 20 ms (p99) with this; the loop's own throughput stays the same.
SWITCH_INTERVAL_S: Final = 0.0005


def real_runtime(on_fatal: FatalHandler) -> Runtime:
    """The ports over the operating system, for the running loop, whose fatal handler becomes ``on_fatal``.

    The caller closes ``disk`` and ``threads`` at the end. Lowers the interpreter's switch interval.
    """
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
    set_fatal_handler(on_fatal)
    asyncio.get_running_loop().set_exception_handler(on_loop_error)
    return Runtime(
        clock=SystemClock(),
        rng=SystemRng(),
        disk=ThreadedDisk(),
        network=AsyncioNetwork(),
        threads=LaneThreads(),
        on_fatal=on_fatal,
    )
