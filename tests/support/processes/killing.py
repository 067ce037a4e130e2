"""Processes that get a signal at the n-th hit of a crash point."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from geminga.runtime.points import PointHook, set_point_hook
from support.house.forks import forked


class Killer:
    """A point hook that sends a signal at the n-th hit of a label."""

    def __init__(self, label: str, hits: int, signal_number: int = signal.SIGKILL, pid: int = 0) -> None:
        """``pid`` 0: this process."""
        self.label = label
        self.hits = hits
        self.signal_number = signal_number
        self.pid = pid

    def crash_point(self, label: str) -> None:
        if label == self.label:
            self.hits -= 1
            if not self.hits:
                os.kill(self.pid or os.getpid(), self.signal_number)

    def sometimes(self, label: str, percent: float) -> bool:
        return False

    def is_halted(self) -> bool:
        return False


class Raiser(Killer):
    """The same with an exception: the process lives on."""

    def crash_point(self, label: str) -> None:
        if label == self.label:
            self.hits -= 1
            if not self.hits:
                raise ConnectionError(f"planted at {label}")


def child(work: Callable[[], object], hook: Killer | None = None) -> int:
    """A process of its own that does the work under a hook; its id."""

    def run() -> None:
        set_point_hook(hook)
        work()

    return forked(run)


def killed(work: Callable[[], object], label: str, hits: int = 1) -> None:
    """Do the work in a process that dies at that point; fails if it does not come there."""
    _, status = os.waitpid(child(work, Killer(label, hits)), 0)
    assert os.WIFSIGNALED(status), f"{label} was not hit {hits} times: {status}"


def serial_after_a_kill(verified: Mapping[str, object], before: int) -> int:
    """Of the ``verified`` backup: the one before the kill, or the next. Raises AssertionError for any other."""
    assert verified["faults"] == []
    assert verified["serial"] in (before, before + 1)
    return int(str(verified["serial"]))


def end_now(process: subprocess.Popen[str]) -> None:
    """Kill it if it still runs; what it had written is read."""
    if process.poll() is None:
        process.kill()
    process.communicate()


def kill_named(file: Path) -> None:
    """The process whose id a file holds, if both are there."""
    if file.exists():
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


@contextmanager
def hooked(hook: PointHook) -> Iterator[None]:
    """Crash points of this process tell ``hook`` meanwhile."""
    set_point_hook(hook)
    try:
        yield
    finally:
        set_point_hook(None)
