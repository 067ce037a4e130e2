"""A loop on a thread of its own, so that blocking code can use asyncio code: one per process, renewed after fork.

The thread is a daemon and is stopped when the interpreter exits: what still runs then is cancelled, within
``EXIT_SECONDS_MAX``. A forked child has no such thread: the child's :func:`loop_thread` makes another one, and what
still holds the parent's is told so (:class:`ForkedError`) instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar, cast

from geminga.model.errors import LocalError
from geminga.runtime.fork import fork_generation
from geminga.runtime.log import get_logger
from geminga.runtime.spawn import spawn
from geminga.runtime.waiting import settle

R = TypeVar("R")
T = TypeVar("T")
_log = get_logger(__name__)

#: What the interpreter's exit waits for the loop to end what runs on it.
EXIT_SECONDS_MAX: Final = 1.0


class ForkedError(LocalError):
    """Used in a child of the process that made it."""


class OwnThreadError(LocalError):
    """A call that waits for the loop, made on the loop's own thread: it would wait for itself."""


class _Outcome(Generic[R]):
    """What a call on the loop came to, taken once by the thread that waits.

    A Future keeps its error, whose traceback has the frames that hold the Future: each failed call, and all that its
    frames hold, would wait for the collector of cycles.
    """

    __slots__ = ("_error", "_is_there", "_result", "was_taken")

    def __init__(self) -> None:
        #: Who waited has it.
        self.was_taken = False
        self._is_there = threading.Lock()
        self._is_there.acquire()
        self._result: R | None = None
        self._error: BaseException | None = None

    def set_result(self, result: R) -> None:
        """Once, or :meth:`set_error`."""
        self._result = result
        self._is_there.release()

    def set_error(self, error: BaseException) -> None:
        """Once, or :meth:`set_result`."""
        self._error = error
        self._is_there.release()

    def take(self) -> R:
        """Wait for it; raise the error, or give the result."""
        self._is_there.acquire()
        self.was_taken = True
        error, self._error = self._error, None
        if error is None:
            result, self._result = self._result, None
            return cast("R", result)
        try:
            raise error
        finally:
            del error


class LoopThread:
    """See the module's docstring. Get the process's one from :func:`loop_thread`."""

    def __init__(self) -> None:
        self._generation = fork_generation()
        self.loop = asyncio.new_event_loop()
        self._callbacks: CallbackThread | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run_loop, name="geminga-loop", daemon=True)
        self._thread.start()

    def run(self, make: Callable[[], Coroutine[object, object, R]]) -> R:
        """Carry out the coroutine that ``make`` gives (it is called on the loop), and return or raise as it does.

        Raises ForkedError in a forked child, OwnThreadError on the loop's own thread, where waiting would never end.
        """
        self.check()
        if threading.get_ident() == self._thread.ident:
            raise OwnThreadError("a blocking call on the loop's own thread would wait for itself")
        outcome: _Outcome[R] = _Outcome()
        task: list[asyncio.Task[None]] = []

        async def carry_out() -> None:
            try:
                outcome.set_result(await make())
            except asyncio.CancelledError:
                outcome.set_error(LocalError("the loop of the blocking client was stopped"))
                raise
            except BaseException as error:
                outcome.set_error(error)

        def begin() -> None:
            task.append(spawn(carry_out(), name="blocking call"))

        try:
            self._soon(begin)
            return outcome.take()
        except BaseException:
            if not outcome.was_taken:
                # A signal's handler raised in the thread that waits: what nobody waits for must take nothing from
                # those who do.
                self._soon(lambda: task[0].cancel() if task else None)
            raise

    def call(self, function: Callable[[], R]) -> R:
        """Call a plain function on the loop and wait for it; on the loop's own thread just call it."""
        self.check()
        if threading.get_ident() == self._thread.ident:
            return function()
        outcome: _Outcome[R] = _Outcome()

        def carry_out() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_error(error)

        self._soon(carry_out)
        return outcome.take()

    def call_back(self, function: Callable[[], None]) -> None:
        """Call ``function`` on a thread that may block; those of one loop are called one after the other."""
        if self._callbacks is None:
            self._callbacks = CallbackThread("geminga-callbacks")
        self._callbacks.put(function)

    def check(self) -> None:
        """Raise ForkedError in a child of the process that made it."""
        if self._generation != fork_generation():
            raise ForkedError("made before the process forked: its connections and its loop belong to the parent")

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, in this process."""
        return self._generation == fork_generation() and self._thread.is_alive()

    def stop(self) -> None:
        """Cancel what runs and end the thread, within ``EXIT_SECONDS_MAX``."""
        if self.is_alive:
            if not self._is_stopping:
                # Once: what ends on the loop meanwhile would be cut off by another.
                self._is_stopping = True
                self._soon(self.loop.stop)
            self._thread.join(EXIT_SECONDS_MAX)

    def _soon(self, function: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            raise LocalError("the loop of the blocking client was stopped") from None

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=EXIT_SECONDS_MAX / 2))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()


class CallbackThread:
    """One daemon thread that calls what it is given, in order; it ends when this object is forgotten."""

    __slots__ = ("_queue",)

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=_call_all, args=(self._queue,), name=name, daemon=True).start()

    def put(self, function: Callable[[], None]) -> None:
        """Call it soon; what it raises is logged."""
        self._queue.put(function)

    async def call(self, function: Callable[[], object]) -> None:
        """Call it and wait for it on the running loop; raises what it raises."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def carry_out() -> None:
            try:
                function()
            except BaseException as error:
                _tell(loop, done, error)
            else:
                _tell(loop, done, None)

        self._queue.put(carry_out)
        await done

    def __del__(self) -> None:
        self._queue.put(None)


def _tell(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None], error: BaseException | None) -> None:
    try:
        loop.call_soon_threadsafe(settle, done, None, error)
    except RuntimeError:
        pass  # the loop has ended, nobody waits


def _call_all(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    while (function := queue.get()) is not None:
        try:
            function()
        except Exception as error:
            _log.error("a callback raised %s: %s", type(error).__name__, error, exc_info=error)
        # Nothing of it waits for the next one: a listener's call knows its consumer, with which this thread is to end.
        del function


async def _take_nothing(items: deque[Any]) -> None:
    raise LocalError(f"{len(items)} items were put behind the end")


class HandOver(Generic[T]):
    """Items from any thread to a coroutine on the loop, in order; who puts waits while ``limit`` items wait.

    Who says how large its item is waits as well while those of ``bytes_max`` wait, unless nothing large does; who takes
    such an item says so (:meth:`took`). ``take`` is called with up to a whole queue of items at once; what it raises
    reaches the loop's error handling.
    """

    def __init__(
        self,
        thread: LoopThread,
        take: Callable[[deque[T]], Awaitable[None]],
        limit: int,
        bytes_max: int = 0,
    ) -> None:
        self._thread = thread
        self._take = take
        self._limit = limit
        self._bytes_max = bytes_max
        #: Of the items that said their size; changed under ``_room``.
        self._size_bytes = 0
        self._items: deque[T] = deque()
        #: A start is on its way or the taker runs; what threads go by.
        self._is_scheduled = False
        #: The same as the loop knows it: two threads may both have asked for a start.
        self._is_taking = False
        self._room = threading.Condition()
        self._is_over = False
        #: Items that who takes them counted, of all that were ever put.
        self._taken = 0
        #: As many are to be counted -> set on the loop then, or when nothing waits.
        self._empty_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def put(self, item: T, size_bytes: int = 0) -> None:
        """From a thread that may wait, never the loop's."""
        items = self._items
        if size_bytes or len(items) >= self._limit:
            self._thread.check()
            with self._room:
                # The time limit: a taker that ended by an error must not leave this thread behind.
                while not self._has_room(size_bytes) and self._thread.is_alive:
                    self._room.wait(1.0)
                self._size_bytes += size_bytes
        items.append(item)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._thread.check()
            self._thread.loop.call_soon_threadsafe(self._start)

    def _has_room(self, size_bytes: int) -> bool:
        if size_bytes and self._size_bytes and self._size_bytes + size_bytes > self._bytes_max:
            return False
        return len(self._items) < self._limit

    def took(self, size_bytes: int) -> None:
        """An item of that size was taken."""
        with self._room:
            self._size_bytes -= size_bytes

    def count_taken(self, count: int) -> None:
        """Who takes says, in the very turn of the loop, how many he took; who does not say it keeps :meth:`empty`
        waiting while others put more."""
        self._taken += count

    def close(self) -> None:
        """Nothing is put any more: who takes is forgotten once it took what waits, so that no collector has to."""
        self._is_over = True
        if not self._is_scheduled and not self._items:
            self._take = _take_nothing

    async def empty(self) -> None:
        """On the loop: wait until everything put before is taken."""
        last = self._taken + len(self._items)
        while (self._is_scheduled or self._items) and self._taken < last:
            waiter: asyncio.Future[None] = self._thread.loop.create_future()
            self._empty_waiters.append((last, waiter))
            await waiter

    def _wake(self, taken: float) -> None:
        waiters = self._empty_waiters
        while waiters and waiters[0][0] <= taken:
            _, waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _start(self) -> None:
        if not self._is_taking:
            self._is_taking = True
            spawn(self._take_all(), name="hand-over")

    async def _take_all(self) -> None:
        try:
            while self._items:
                # The taker makes room by taking from this very deque.
                await self._take(self._items)
                with self._room:
                    self._room.notify_all()
                self._wake(self._taken)
        finally:
            self._is_taking = self._is_scheduled = False
            if self._items:  # put after the last look, by a thread that saw the taker still at work
                self._is_scheduled = True
                self._thread.loop.call_soon(self._start)
            else:
                if self._is_over:
                    self._take = _take_nothing
                self._wake(math.inf)


_lock = threading.Lock()
_current: LoopThread | None = None
#: Loops of parent processes: freeing one would warn, and there is nothing in it to free for a child.
_inherited: list[LoopThread] = []


def loop_thread() -> LoopThread:
    """The process's loop thread, started on first use and again after a fork."""
    global _current
    with _lock:
        if _current is None or not _current.is_alive:
            _current = LoopThread()
        return _current


def _forked() -> None:
    global _lock, _current
    # Another thread of the parent may have held it, and does not exist here.
    _lock = threading.Lock()
    if _current is not None:
        for task in asyncio.all_tasks(_current.loop):
            # They go on in the parent: nothing to complain of when this process ends.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        _inherited.append(_current)
        _current = None


def _exit() -> None:
    if _current is not None:
        _current.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
atexit.register(_exit)
