"""Lanes: named daemon threads, one queue each, completions brought back to the loop in batches.

A lane carries out its jobs in the order submitted. Completions of all lanes go to one deque; the loop is woken
once for whatever has gathered there (one ``call_soon_threadsafe``, that is one byte on the self-pipe). A completion
that raises is a bug: it goes to the fatal handler, and those behind it are delivered all the same. A thread that the
system does not give (too many processes) is an OSError of the job; the next job asks again.

Who can do a lane's work without its thread takes the lane (:meth:`Lanes.take`): jobs wait until it is given back.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from geminga.runtime.spawn import report_unexpected
from geminga.runtime.waiting import settle

#: (function, its argument tuple, completion(result, error)).
_Job = tuple[Callable[..., Any], tuple[Any, ...], Callable[[Any, BaseException | None], None]]


class Lanes:
    """Threads by name, started on first use, bound to the loop that submits first.

    Job and completion are called as ``function(*args)`` on the lane and ``done(result, error)`` on the loop.
    """

    __slots__ = ("_completions", "_loop", "_prefix", "_queues", "_taken", "_threads", "_under_way", "_wake_pending")

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[str, SimpleQueue[_Job | None]] = {}
        self._threads: dict[str, threading.Thread] = {}
        #: Jobs by lane that were submitted and whose completions were not delivered.
        self._under_way: dict[str, int] = {}
        #: Lanes that somebody has taken, and the jobs that wait until they are given back.
        self._taken: dict[str, list[_Job]] = {}
        self._completions: deque[tuple[str, Callable[[Any, BaseException | None], None], Any, BaseException | None]]
        self._completions = deque()
        self._wake_pending = False

    def submit(
        self,
        lane: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        done: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Queue a job on ``lane``; ``done`` is called once, on the loop's thread, never within this call."""
        if lane in self._taken:
            self._taken[lane].append((function, args, done))
            return
        queue = self._queues.get(lane)
        if queue is None:
            try:
                queue = self._start(lane)
            except RuntimeError as error:
                refused = OSError(errno.EAGAIN, f"no thread for {lane}: {error}")
                asyncio.get_running_loop().call_soon(done, None, refused)
                return
        self._under_way[lane] += 1
        queue.put((function, args, done))

    def take(self, lane: str) -> bool:
        """Have ``lane`` for oneself, on the loop's thread; False if it has jobs under way or is taken."""
        if self._under_way.get(lane) or lane in self._taken:
            return False
        self._taken[lane] = []
        return True

    def give_back(self, lane: str) -> None:
        """After :meth:`take`: jobs go on."""
        for job in self._taken.pop(lane):
            self.submit(lane, *job)

    def call(self, lane: str, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        """Like :meth:`submit`, with a future for the result. Cancelling it does not stop the job."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(lane, function, args, partial(settle, future))
        return future

    async def close(self) -> None:
        """Let every lane finish what was submitted, deliver those completions, end the threads."""
        for lane in list(self._taken):
            await self.call(lane, _nothing)
        queues, threads = self._queues, self._threads
        ends = [self.call(lane, _nothing) for lane in queues]
        self._queues, self._threads, self._loop = {}, {}, None
        for queue in queues.values():
            queue.put(None)  # now: also a lane that nobody waits for any more ends once its job comes back
        for end in ends:
            await end
        for thread in threads.values():
            thread.join()

    def _start(self, lane: str) -> SimpleQueue[_Job | None]:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        queue: SimpleQueue[_Job | None] = SimpleQueue()
        thread = threading.Thread(
            target=self._run, args=(lane, queue, self._loop), name=f"{self._prefix}-{lane}", daemon=True
        )
        thread.start()
        self._queues[lane], self._threads[lane] = queue, thread
        self._under_way.setdefault(lane, 0)
        return queue

    def _run(self, lane: str, queue: SimpleQueue[_Job | None], loop: asyncio.AbstractEventLoop) -> None:
        completions = self._completions
        while (job := queue.get()) is not None:
            function, args, done = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = function(*args)
            except BaseException as raised:  # carried to the loop's thread, where it is raised or reported
                error = raised
            completions.append((lane, done, result, error))
            # Order matters: append, then look at the flag; _drain clears the flag, then empties the deque.
            if not self._wake_pending:
                self._wake_pending = True
                try:
                    loop.call_soon_threadsafe(self._drain)
                except RuntimeError:  # the loop was closed under us: nobody is left to be told
                    return
            del job, args, done, result, error

    def _drain(self) -> None:
        self._wake_pending = False
        completions = self._completions
        while completions:
            lane, done, result, error = completions.popleft()
            self._under_way[lane] -= 1
            try:
                done(result, error)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as unexpected:  # who waits for the others must not wait for ever
                report_unexpected(f"{self._prefix} completion", unexpected)


def _nothing() -> None:
    return None
