"""Forked children, a few at a time, each with a limit: what a test run with a change in it may do to its process.

A child writes what it found into its pipe and is gone; whatever it started is killed with it.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

#: What a child may allocate: a loop without end that collects something ends soon.
MEMORY_BYTES_MAX: Final = 4 << 30
#: How often children that closed their pipe, or ran out of time, are looked for.
LOOK_S: Final = 0.05
READ_BYTES: Final = 1 << 16

Told: TypeAlias = dict[str, Any]
Tell: TypeAlias = Callable[[Told], None]
#: Runs in the child; what it tells last counts.
Job: TypeAlias = Callable[[Tell], None]


@dataclass
class Ended:
    """A child that is gone."""

    #: Which job it was.
    index: int
    #: What it told; nothing if it could not.
    told: Told | None
    #: The signal that killed it, or 0.
    signal: int
    timed_out: bool
    seconds: float


@dataclass
class _Child:
    index: int
    pid: int
    pipe: int
    started: float
    received: bytearray = field(default_factory=bytearray)
    timed_out: bool = False


def run_forked(jobs: Sequence[Job], *, workers: int, limit_s: float) -> Iterator[Ended]:
    """Run each job in a child of its own, ``workers`` at a time; yields them as they end."""
    waiting = list(enumerate(jobs))[::-1]
    running: dict[int, _Child] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                child = _fork(*waiting.pop())
                running[child.pipe] = child
            readable, _, _ = select.select(list(running), [], [], LOOK_S)
            for pipe in readable:
                running[pipe].received += os.read(pipe, READ_BYTES)
            for child in list(running.values()):
                if not child.timed_out and time.monotonic() - child.started > limit_s:
                    child.timed_out = True
                    os.kill(child.pid, signal.SIGKILL)
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    del running[child.pipe]
                    yield _ended(child, status)
    finally:
        for child in running.values():
            _kill_group(child.pid)
            os.waitpid(child.pid, 0)


def limit_processor_time(seconds: float) -> None:
    """This process may use so much more; then SIGXCPU ends it."""
    used = time.process_time()
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 1, hard))


def _fork(index: int, job: Job) -> _Child:
    receiving, sending = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(sending)
        os.set_blocking(receiving, False)
        return _Child(index, pid, receiving, time.monotonic())

    def work() -> None:
        os.close(receiving)
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        def tell(told: Told) -> None:
            written = json.dumps(told).encode() + b"\n"
            while written:
                written = written[os.write(sending, written) :]

        job(tell)

    exit_after(work)


def exit_after(work: Callable[[], None]) -> NoReturn:
    """End this process, which was forked, with ``work``; what that raises is written, and the exit code is 1 then."""
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(child: _Child, status: int) -> Ended:
    _kill_group(child.pid)
    while True:
        try:
            rest = os.read(child.pipe, READ_BYTES)
        except BlockingIOError:  # somebody else holds its other end
            break
        if not rest:
            break
        child.received += rest
    os.close(child.pipe)
    lines = child.received.splitlines()
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return Ended(
        child.index,
        json.loads(lines[-1]) if lines else None,
        killed_by,
        child.timed_out or killed_by == signal.SIGXCPU,
        time.monotonic() - child.started,
    )


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
