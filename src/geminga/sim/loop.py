"""The simulated event loop: asyncio's own, with virtual time, FIFO order and no way out.

Futures, tasks, locks, streams, timeouts and task groups are asyncio's. Time stands still while anything is
ready and jumps to the next timer when nothing is. Each handle belongs to the boot in its context (``boot``):
handles of a crashed node are dropped, those of a paused node are held.

Private parts of asyncio it relies on, one self-test each: ``BaseEventLoop._run_once``, ``_ready``,
``_scheduled``, ``_stopping``, ``_timer_cancelled_count``, ``_write_to_self``, ``_check_closed``, ``Handle._run``,
``_cancelled``, ``_scheduled``, ``_context``, ``_callback``, ``Task._log_destroy_pending``, ``_log_traceback``.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import weakref
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, NoReturn, TypeVar

from geminga.sim.boot import CURRENT_BOOT, Boot
from geminga.sim.errors import SimDeadlockError, SimEscapeError, SimLivelockError
from geminga.sim.rng import Stream

T = TypeVar("T")

#: Steps at one instant before the run is called a livelock.
STEPS_PER_INSTANT_MAX: Final = 1_000_000
#: Virtual seconds before the run is called endless.
VIRTUAL_SECONDS_MAX: Final = 7 * 24 * 3600.0
#: The collector runs at fixed steps, so that ``__del__`` and weak references fall at the same place in each run.
STEPS_PER_COLLECTION: Final = 20_000
#: Tasks listed in a deadlock error.
LISTED_TASKS_MAX: Final = 20


class Due(float):
    """When a timer is due, virtual seconds: what the heap of timers holds, as a float is compared without Python."""

    __slots__ = ("timer",)

    timer: asyncio.TimerHandle


class SimLoop(BaseEventLoop):
    """See the module's docstring. ``shuffle``: a random stream that permutes tasks that are ready together."""

    # What BaseEventLoop has and its type stubs do not tell.
    _ready: deque[asyncio.Handle]
    _check_closed: Callable[[], None]
    _scheduled: list[Due]  # asyncio's own holds the timers themselves
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, *, shuffle: Stream | None = None) -> None:
        self._now_s = 0.0
        super().__init__()
        self._shuffle = shuffle
        self._failure: BaseException | None = None
        self._tasks: list[tuple[weakref.ref[asyncio.Task[Any]], Boot | None]] = []
        self._tasks_compact_at = 1000
        #: Unfinished tasks of crashed nodes, kept so that their coroutines are neither closed nor collected.
        self.lost_tasks: list[asyncio.Task[Any]] = []
        #: Handles run so far.
        self.steps = 0
        self._steps_at_instant_start = 0
        self.steps_per_instant_max = STEPS_PER_INSTANT_MAX
        self.virtual_seconds_max = VIRTUAL_SECONDS_MAX
        self.set_exception_handler(_fail_on_exception)
        self.set_task_factory(self._make_task)

    # -- time and the main step

    def time(self) -> float:
        """Virtual seconds since the start of the run."""
        return self._now_s

    def fail(self, error: BaseException) -> None:
        """End the run with ``error`` after the present step; the first one wins."""
        if self._failure is None:
            self._failure = error

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's, without what looks for misuse: every second step of a simulation is scheduled here."""
        self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """``delay``: virtual seconds."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """``when``: virtual seconds since the start of the run."""
        self._check_closed()
        due = Due(when)
        due.timer = timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, due)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _run_once(self) -> None:
        self._move_due_timers()
        if not self._ready and not self._stopping:
            self._advance()
        if self._shuffle is not None:
            self._permute_ready_tasks(self._shuffle)
        for _ in range(len(self._ready)):
            if not self._ready:  # a crash dropped what was left of this round
                break
            handle: Any = self._ready.popleft()
            if handle._cancelled:
                continue
            boot = handle._context.get(CURRENT_BOOT)
            if boot is not None and (boot.paused or not boot.alive):
                if boot.alive:
                    boot.held.append(handle)
                continue
            handle._run()
            self.steps += 1
            if self.steps % STEPS_PER_COLLECTION == 0:
                gc.collect(1)
            if self._failure is not None:
                raise self._failure
        if self.steps - self._steps_at_instant_start > self.steps_per_instant_max:
            raise SimLivelockError(
                f"{self.steps_per_instant_max} steps at virtual time {self._now_s:.6f} s without time moving"
            )

    def _move_due_timers(self) -> None:
        scheduled = self._scheduled
        now_s = self._now_s
        while scheduled:
            due = scheduled[0]
            timer: Any = due.timer
            if not timer._cancelled:
                if due <= now_s:
                    self._ready.append(timer)
                elif _may_run(timer):
                    break
            else:
                self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)
            timer._scheduled = False

    def _advance(self) -> None:
        if not self._scheduled:
            raise SimDeadlockError(
                f"nothing is ready and no timer is set at virtual time {self._now_s:.6f} s; waiting: "
                + ("; ".join(self._waiting()) or "nobody")
            )
        self._now_s = self._scheduled[0].timer.when()
        self._steps_at_instant_start = self.steps
        if self._now_s > self.virtual_seconds_max:
            raise SimLivelockError(f"virtual time passed {self.virtual_seconds_max:.0f} s")
        self._move_due_timers()

    def _permute_ready_tasks(self, shuffle: Stream) -> None:
        # Only steps of tasks trade places: callbacks keep the order that call_soon promises.
        ready = self._ready
        places = [i for i, handle in enumerate(ready) if _is_task_step(handle)]
        if len(places) > 1:
            handles = [ready[i] for i in places]
            shuffle.shuffle(handles)
            for place, handle in zip(places, handles, strict=True):
                ready[place] = handle

    # -- tasks

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        context: Context | None = None,
        **options: Any,  # noqa: ANN401
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=loop, context=context, **options)
        if len(self._tasks) >= self._tasks_compact_at:
            self._tasks = [pair for pair in self._tasks if _is_of_interest(pair[0]())]
            self._tasks_compact_at = 2 * len(self._tasks) + 1000
        boot = CURRENT_BOOT.get() if context is None else context.get(CURRENT_BOOT)
        self._tasks.append((weakref.ref(task), boot))
        return task

    def pending_tasks(self) -> list[tuple[asyncio.Task[Any], Boot | None]]:
        """Tasks that are not done, oldest first, with the boot whose code they run (None: the scenario's)."""
        pairs = ((reference(), boot) for reference, boot in self._tasks)
        return [(task, boot) for task, boot in pairs if task is not None and not task.done()]

    def unheard_errors(self) -> list[BaseException]:
        """Exceptions of tasks that ended without anyone fetching them, those of crashed nodes left out.

        asyncio reports these when the task is collected, which may be after the run.
        """
        errors = []
        for reference, boot in self._tasks:
            task = reference()
            if task is not None and task.done() and _failed_unheard(task) and (boot is None or boot.alive):
                error = task.exception()
                if error is not None:
                    error.add_note(f"of task {task.get_name()}, which nobody awaited")
                    errors.append(error)
        return errors

    def _waiting(self) -> list[str]:
        names = []
        for task, boot in self.pending_tasks():
            if boot is not None and not boot.alive:
                continue
            where = f" on {boot.node.name}" if boot is not None else ""
            frames = task.get_stack(limit=1)
            at = f" at {frames[0].f_code.co_qualname}:{frames[0].f_lineno}" if frames else ""
            names.append(f"task {task.get_name()}{where}{at}")
        return names[:LISTED_TASKS_MAX]

    # -- the end of a boot

    def lose(self, boot: Boot) -> None:
        """Drop every handle and timer of ``boot``; keep its tasks as they are, for ever unfinished."""
        # Held first: some tasks are kept alive by nothing but the handles dropped below.
        self.lost_tasks.extend(task for task, owner in self.pending_tasks() if owner is boot)
        self._ready = deque(handle for handle in self._ready if _boot_of(handle) is not boot)
        kept = [due for due in self._scheduled if _boot_of(due.timer) is not boot]
        heapq.heapify(kept)
        self._scheduled = kept
        self._timer_cancelled_count = sum(due.timer.cancelled() for due in kept)
        boot.held.clear()

    def is_lost(self, task: object) -> bool:
        """Whether ``task`` belongs to a crashed node."""
        return any(reference() is task and boot is not None and not boot.alive for reference, boot in self._tasks)

    def release(self, boot: Boot) -> None:
        """Make ready what was held while ``boot`` was paused."""
        self._ready.extend(boot.held)
        boot.held.clear()

    # -- no way out

    def _write_to_self(self) -> None:
        """Nothing to wake: call_soon_threadsafe from this thread only appends."""

    def _process_events(self, event_list: object) -> None:
        """No selector, no events."""

    def run_in_executor(self, *args: Any, **options: Any) -> NoReturn:  # type: ignore[override]  # noqa: ANN401
        """Threads would break determinism."""
        raise SimEscapeError(f"run_in_executor{args} under simulation")

    def add_reader(self, *args: Any, **options: Any) -> NoReturn:  # type: ignore[override]  # noqa: ANN401
        """No real file descriptors."""
        raise SimEscapeError("add_reader under simulation")

    def add_writer(self, *args: Any, **options: Any) -> NoReturn:  # type: ignore[override]  # noqa: ANN401
        """No real file descriptors."""
        raise SimEscapeError("add_writer under simulation")

    def add_signal_handler(self, *args: Any, **options: Any) -> NoReturn:  # type: ignore[override]  # noqa: ANN401
        """No signals."""
        raise SimEscapeError("add_signal_handler under simulation")

    async def create_server(self, *args: Any, **options: Any) -> NoReturn:  # noqa: ANN401
        """Listening goes through the ``Network`` port."""
        raise SimEscapeError("create_server under simulation: use runtime.network.listen")

    async def create_connection(self, *args: Any, **options: Any) -> NoReturn:  # noqa: ANN401
        """Connecting goes through the ``Network`` port."""
        raise SimEscapeError("create_connection under simulation: use runtime.network.connect")

    async def getaddrinfo(self, *args: Any, **options: Any) -> NoReturn:  # noqa: ANN401
        """No name service."""
        raise SimEscapeError("getaddrinfo under simulation")

    async def sock_connect(self, *args: Any, **options: Any) -> NoReturn:  # noqa: ANN401
        """No real sockets."""
        raise SimEscapeError("sock_connect under simulation")


def _boot_of(handle: asyncio.Handle) -> Boot | None:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context.get(CURRENT_BOOT)


def _may_run(handle: asyncio.Handle) -> bool:
    boot = _boot_of(handle)
    return boot is None or boot.alive


def _is_task_step(handle: asyncio.Handle) -> bool:
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    return isinstance(owner, asyncio.Task) or type(callback).__name__.startswith("Task")


def _is_of_interest(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and (not task.done() or _failed_unheard(task))


def _failed_unheard(task: asyncio.Task[Any]) -> bool:
    return task._log_traceback


def _fail_on_exception(loop: asyncio.AbstractEventLoop, details: dict[str, Any]) -> None:
    # An exception in a callback, or one of a task that nobody awaited.
    assert isinstance(loop, SimLoop)
    handle, task = details.get("handle"), details.get("task") or details.get("future")
    if (handle is not None and not _may_run(handle)) or (task is not None and loop.is_lost(task)):
        return  # what a crashed node still did on its way to the next await
    error = details.get("exception")
    if not isinstance(error, BaseException):
        error = RuntimeError(str(details.get("message")))
    error.add_note(f"reported to the loop: {details.get('message')}")
    loop.fail(error)
