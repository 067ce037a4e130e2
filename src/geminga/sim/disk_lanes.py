"""The lanes of one boot's disk: operations queue on them as on real threads, and are carried out step by step.

An operation is a generator: each ``yield`` names the step that comes next; virtual time passes, the test's hook is
called, faults strike (an error is thrown in at the ``yield``), and only then the step takes effect. Once the boot is
dead nothing takes effect and nothing completes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any, NamedTuple, TypeVar

from geminga.runtime.waiting import settle
from geminga.sim.boot import Boot
from geminga.sim.disk import SimDisk

T = TypeVar("T")

#: The step of reads: their faults are drawn by request, not by step.
READ_GROUP = "read_group"


class Step(NamedTuple):
    """What happens next: the operation as faults know it, its path, and whether it changes the medium."""

    op: str
    path: str
    mutates: bool = True
    #: Added to its time.
    extra_s: float = 0.0


Steps = Generator[Step, None, T]
Completion = Callable[[Any, OSError | None], None]


class _Operation(NamedTuple):
    #: For the label of its ``done`` step; empty if it changes nothing on the medium.
    name: str
    steps: Steps[Any]
    done: Completion
    context: Context


class DiskLanes:
    """See the module."""

    __slots__ = ("_boot", "_busy", "_device", "_waiting")

    def __init__(self, device: SimDisk, boot: Boot | None) -> None:
        self._device = device
        self._boot = boot
        self._waiting: dict[str, deque[_Operation]] = {}
        self._busy: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Every lane that was used."""
        return list(self._waiting)

    def submit(self, lane: str, name: str, steps: Steps[Any], done: Completion) -> None:
        """Carry out an operation behind those of its lane; ``name``: as for the label of its end, or empty."""
        if not self._alive():
            return
        self._waiting.setdefault(lane, deque()).append(_Operation(name, steps, done, copy_context()))
        if lane not in self._busy:
            self._busy.add(lane)
            self._start_next(lane)

    async def call(self, lane: str, name: str, steps: Steps[T]) -> T:
        """The same, for who waits for its result."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(lane, name, steps, partial(settle, future))
        return await future

    def _start_next(self, lane: str) -> None:
        operations = self._waiting[lane]
        if not operations:
            self._busy.discard(lane)
            return
        # Even the first move of an operation waits for a step of the loop: nothing completes within the call.
        operation = operations.popleft()
        loop = asyncio.get_running_loop()
        loop.call_soon(self._resume, lane, operation, None, context=operation.context)

    def _resume(self, lane: str, operation: _Operation, error: OSError | None) -> None:
        try:
            step = operation.steps.throw(error) if error is not None else next(operation.steps)
        except StopIteration as end:
            self._complete(lane, operation, end.value, None)
        except OSError as failure:
            self._complete(lane, operation, None, failure)
        else:
            error, latency_s = None, self._device.latency_s(step.op) + step.extra_s
            if step.op != READ_GROUP:
                struck = self._device.struck(step.op, step.path)
                error, latency_s = struck.error, latency_s + struck.latency_s
            loop = asyncio.get_running_loop()
            loop.call_later(latency_s, self._take, lane, operation, step, error, context=operation.context)

    def _take(self, lane: str, operation: _Operation, step: Step, error: OSError | None) -> None:
        if step.mutates:
            self._announce(f"{step.op} {step.path}")
        if self._alive():
            self._resume(lane, operation, error)

    def _complete(self, lane: str, operation: _Operation, result: object, error: OSError | None) -> None:
        if operation.name:
            self._announce(f"done {operation.name}")
        if self._alive():
            self._start_next(lane)
            operation.done(result, error)

    def _announce(self, label: str) -> None:
        device = self._device
        if not self._alive():
            return
        device.steps += 1
        if device.trace is not None:
            device.trace(label)
        if device.on_step is not None:
            device.on_step(label)

    def _alive(self) -> bool:
        return self._boot is None or self._boot.alive
