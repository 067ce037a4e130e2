"""Children of the test process itself, as Spark forks its workers."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable


def forked(work: Callable[[], int | None]) -> int:
    """A child that does ``work`` and ends with the status it returns (None: 0; 1 if it raises); its process id.

    The child never collects garbage. Tests leave official clients in reference cycles, and freeing one, also a closed
    one, joins threads that only the parent has: the child would hang, whenever the collector happened to run there.
    """
    collects = gc.isenabled()
    gc.disable()  # before the fork: the child's own hooks may be what sets the collector off
    try:
        child = os.fork()
        if not child:
            status = 1
            try:
                status = work() or 0
            finally:
                os._exit(status)
        return child
    finally:
        if collects:
            gc.enable()
