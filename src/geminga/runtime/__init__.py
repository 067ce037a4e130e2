"""The world as Geminga sees it: ports, their real implementations, tasks, logging, crash points.

Other packages import from here only; ``geminga.sim`` has the simulated twin of every port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.model.late_names import late_names
from geminga.runtime.attempt import Raised, again, attempt, attempt_await, tell, value_of
from geminga.runtime.clock import SystemClock
from geminga.runtime.containment import Contained, Part, contain, set_strict, unwound, unwound_storage, where
from geminga.runtime.log import SparseWarnings, get_logger
from geminga.runtime.network import (
    AsyncioNetwork,
    StreamProtocol,
    check_address,
    descriptor_limit,
    let_go,
    unclaimed_sockets,
)
from geminga.runtime.points import crash_point, is_halted, sometimes
from geminga.runtime.ports import (
    AppendDone,
    Buffer,
    Clock,
    Disk,
    DiskFile,
    FatalHandler,
    Listener,
    Network,
    ReadDone,
    ReadRequest,
    Rng,
    Runtime,
    Threads,
)
from geminga.runtime.rng import SystemRng
from geminga.runtime.spawn import report_unexpected, set_fatal_handler, spawn
from geminga.runtime.threads import LaneThreads
from geminga.runtime.turns import Turns
from geminga.runtime.waiting import (
    AskedTogether,
    Bell,
    KeyedLocks,
    all_ended,
    answer_of,
    carried_out,
    delay,
    ended_in_turns,
    next_turn,
    set_within,
    settle,
    wait_ms,
)

if TYPE_CHECKING:
    from geminga.runtime.disk_memory import MemoryDisk
    from geminga.runtime.disk_threads import ThreadedDisk
    from geminga.runtime.real import real_runtime

__all__ = [
    "AppendDone",
    "AskedTogether",
    "AsyncioNetwork",
    "Bell",
    "Buffer",
    "Clock",
    "Contained",
    "Disk",
    "DiskFile",
    "FatalHandler",
    "KeyedLocks",
    "LaneThreads",
    "Listener",
    "MemoryDisk",
    "Network",
    "Part",
    "Raised",
    "ReadDone",
    "ReadRequest",
    "Rng",
    "Runtime",
    "SparseWarnings",
    "StreamProtocol",
    "SystemClock",
    "SystemRng",
    "ThreadedDisk",
    "Threads",
    "Turns",
    "again",
    "all_ended",
    "answer_of",
    "attempt",
    "attempt_await",
    "carried_out",
    "check_address",
    "contain",
    "crash_point",
    "delay",
    "descriptor_limit",
    "ended_in_turns",
    "get_logger",
    "is_halted",
    "let_go",
    "next_turn",
    "real_runtime",
    "report_unexpected",
    "set_fatal_handler",
    "set_strict",
    "set_within",
    "settle",
    "sometimes",
    "spawn",
    "tell",
    "unclaimed_sockets",
    "unwound",
    "unwound_storage",
    "value_of",
    "wait_ms",
    "where",
]

# Loaded where they are used: a client has no disk on threads, and need not wait for ctypes.
__getattr__ = late_names(
    __name__,
    {
        "MemoryDisk": "geminga.runtime.disk_memory",
        "ThreadedDisk": "geminga.runtime.disk_threads",
        "real_runtime": "geminga.runtime.real",
    },
)
