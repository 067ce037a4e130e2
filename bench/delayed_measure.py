"""Memory of what a forked child fills."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
from collections.abc import Callable


def in_child(measure: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """What ``measure`` gives in a forked child."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(write_end, "wb") as pipe:
                pickle.dump(measure(), pipe)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise AssertionError("the measuring child failed")
    result: tuple[float, float] = pickle.loads(data)  # our own child wrote it
    return result


def rss_bytes() -> int:
    """The resident set of this process, after a collection of garbage and with what is free given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
