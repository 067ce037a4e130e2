"""A cap on the CPU time of a test that would go on for minutes if what it tests were broken."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def cpu_seconds_at_most(seconds: float) -> Iterator[None]:
    """Fail, and stop what takes more: also within a pattern that backtracks. In the main thread only."""

    def stop(*_: object) -> None:
        pytest.fail(f"still at it after {seconds} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    # Again and again: what is stopped may be a task among others.
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
