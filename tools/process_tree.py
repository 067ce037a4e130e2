"""A process and its children, read from /proc: for tests and the demo, which kill a Spark driver as a power cut would.

A Spark driver is a Python process, a JVM below it, and Python workers below that, some in process groups of their own.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path


def children_of(pids: Iterable[int]) -> set[int]:
    """All processes that descend from ``pids`` (those not included)."""
    below: dict[int, set[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            parent = _parent(directory)
            if parent is not None:
                below.setdefault(parent, set()).add(int(directory.name))
    found: set[int] = set()
    waiting = list(pids)
    while waiting:
        for child in below.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def command_of(pid: int) -> str:
    """The command line, or nothing for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether the process is there and not only waiting to be reaped."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def kill_tree(pid: int) -> set[int]:
    """kill -9 for the process and everything below it; who was killed.

    The top goes first and is stopped before the others are looked for, so that it starts no new ones meanwhile.
    """
    _signal(pid, signal.SIGSTOP)
    killed = {pid, *children_of([pid])}
    for one in killed:
        _signal(one, signal.SIGKILL)
    return killed


def wait_gone(pids: Iterable[int], timeout_s: float) -> set[int]:
    """Wait until none of the processes is alive; those still there after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    left: dict[int, int] = {}
    ends = select.poll()
    with ExitStack() as stack:
        for pid in set(pids):
            try:
                descriptor = os.pidfd_open(pid)  # readable once the process has ended, reaped or not
            except ProcessLookupError:
                continue
            stack.callback(os.close, descriptor)
            ends.register(descriptor, select.POLLIN)
            left[descriptor] = pid
        while left:
            ended = ends.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ended:
                break
            for descriptor, _ in ended:
                ends.unregister(descriptor)
                del left[descriptor]
    return set(left.values())


def _parent(directory: Path) -> int | None:
    try:
        return int((directory / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
