"""The processes that ask entry filters: started with the first batch, few, and ended when a filter takes too long.

One pool for a broker. Batches stand in one line; a process has one at a time, so that whoever is cut off takes nobody
with it. From when a process has loaded the filters of a batch it has ``gemingaEntryFilterBudgetMillis`` for it; before
that ``gemingaEntryFilterStartSeconds`` to start and to load them. Past either it is killed, with what it started, and
the next batch gets a new one. Filters that did that are asked again later each time (:mod:`..core.filter_troubles`).

Nothing waits here for a filter: answers come by callbacks, in a turn of the loop of their own.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from geminga.broker.core.filter_troubles import RETRY_FIRST_MS, FilterTroubles
from geminga.entry_filters.pipe import (
    ERROR,
    LOADED,
    READY,
    FilterAnswer,
    FilterBatch,
    Frames,
    PipeError,
    encode_batch,
    parse_answer,
)
from geminga.model.errors import EntryFilterError
from geminga.runtime import Contained, Part, get_logger, spawn
from geminga.runtime.child import Child, LaunchesChildren

#: Batches that wait for a process, and bytes of the entries of all batches; more are refused, and asked again later.
QUEUE_MAX: Final = 1000
QUEUE_BYTES_MAX: Final = 64 << 20
#: A process that nobody asked anything for so long is ended.
IDLE_S: Final = 60.0
#: What a process that was killed may take to be gone, when the broker closes.
END_S: Final = 5.0

_log = get_logger(__name__)

Answered = Callable[["bytes | EntryFilterError"], None]


class PoolSettings(Protocol):
    """What of the configuration counts here."""

    @property
    def entry_filters_directory(self) -> str:
        """Where files of filters are; empty: nowhere."""
        ...

    @property
    def entry_filter_budget_ms(self) -> int:
        """What a batch may take."""
        ...

    @property
    def entry_filter_processes(self) -> int:
        """How many there are at most."""
        ...

    @property
    def entry_filter_start_s(self) -> int:
        """What starting, and loading filters, may take."""
        ...

    @property
    def entry_filter_memory_mb(self) -> int:
        """What each process may take; 0: no limit."""
        ...


class _Job:
    """A batch, from when it is asked to its answer."""

    __slots__ = ("answered", "batch", "is_held")

    def __init__(self, batch: FilterBatch, answered: Answered) -> None:
        self.batch = batch
        #: None: nobody wants it any more.
        self.answered: Answered | None = answered
        #: Whether its entries count as held.
        self.is_held = False


class _Worker:
    """A process, from before it starts until it has ended."""

    __slots__ = ("child", "frames", "is_ready", "job", "timer")

    def __init__(self) -> None:
        #: None until it runs.
        self.child: Child | None = None
        self.frames = Frames()
        self.is_ready = False
        self.job: _Job | None = None
        #: Ends what takes too long.
        self.timer: asyncio.TimerHandle | None = None

    def arm(self, delay_s: float, due: Callable[[], None]) -> None:
        self.disarm()
        self.timer = asyncio.get_running_loop().call_later(delay_s, due)

    def disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class FilterPool:
    """See the module."""

    def __init__(
        self, settings: PoolSettings, launch: LaunchesChildren, monotonic: Callable[[], float], part: Part
    ) -> None:
        self._settings = settings
        self._launch = launch
        self._monotonic = monotonic
        self._part = part
        self._queue: deque[_Job] = deque()
        self._workers: list[_Worker] = []
        self._is_closed = False
        #: Processes that start, run, or were killed and are not gone; and who waits for their end.
        self._alive = 0
        self._all_gone: asyncio.Future[None] | None = None
        self.troubles = FilterTroubles()
        #: Bytes of entries that are judged, or wait for it.
        self.held_bytes = 0
        #: Since the start: batches answered, processes started, and those that were cut off.
        self.batches = self.starts = self.cut_off = 0

    @property
    def process_count(self) -> int:
        """Processes that run, or start."""
        return len(self._workers)

    @property
    def waiting_count(self) -> int:
        """Batches that have no process yet."""
        return sum(job.answered is not None for job in self._queue)

    def pids(self) -> list[int]:
        """Of the processes that run."""
        return [worker.child.pid for worker in self._workers if worker.child is not None]

    def ask(self, batch: FilterBatch, answered: Answered) -> Callable[[], None]:
        """Ask about ``batch``: ``answered`` is called later, once, with a verdict for each entry or what is wrong.
        What is returned calls it off: then it is not called."""
        job = _Job(batch, answered)
        trouble = self.troubles.of(batch.filters, self._now_ms())
        if self._is_closed:
            self._fail_soon(job, EntryFilterError("the broker is closing", RETRY_FIRST_MS))
        elif trouble is not None:
            self._fail_soon(job, EntryFilterError(trouble.reason, max(1, trouble.until_ms - self._now_ms())))
        elif len(self._queue) >= QUEUE_MAX:
            self._fail_soon(job, EntryFilterError(f"{QUEUE_MAX} batches wait for entry filters", RETRY_FIRST_MS))
        elif self.held_bytes and self.held_bytes + batch.size_bytes > QUEUE_BYTES_MAX:
            error = EntryFilterError(f"{self.held_bytes} bytes of entries wait for entry filters", RETRY_FIRST_MS)
            self._fail_soon(job, error)
        else:
            job.is_held = True
            self.held_bytes += batch.size_bytes
            self._queue.append(job)
            self._give()
        return partial(self._call_off, job)

    async def close(self) -> None:
        """End all processes, and see them gone; who waits is told."""
        self._is_closed = True
        jobs = [*(worker.job for worker in self._workers if worker.job is not None), *self._queue]
        self._queue.clear()
        for worker in list(self._workers):
            self._end(worker)
        for job in jobs:
            self._fail_soon(job, EntryFilterError("the broker is closing", RETRY_FIRST_MS))
        if not self._alive:
            return
        self._all_gone = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(END_S):
                await self._all_gone
        except TimeoutError:
            _log.error("%d processes of entry filters were killed and are not gone after %g s", self._alive, END_S)

    # ---- from the line to a process

    def _call_off(self, job: _Job) -> None:
        """Its answer is dropped. A process that works on it goes on: it may be as good as done."""
        self._taken(job)
        if job in self._queue:
            self._queue.remove(job)

    def _taken(self, job: _Job) -> Answered | None:
        """Who is to be answered, once; its entries are held no more."""
        if job.is_held:
            job.is_held = False
            self.held_bytes -= job.batch.size_bytes
        answered, job.answered = job.answered, None
        return answered

    def _give(self) -> None:
        while self._queue and not self._is_closed:
            free = next((worker for worker in self._workers if worker.is_ready and worker.job is None), None)
            if free is not None:
                self._begin(free, self._queue.popleft())
                continue
            starting = sum(not worker.is_ready for worker in self._workers)
            if len(self._workers) >= self._settings.entry_filter_processes or starting >= len(self._queue):
                return
            worker = _Worker()
            self._workers.append(worker)
            self.starts += 1
            self._alive += 1
            worker.arm(self._settings.entry_filter_start_s, partial(self._overdue, worker, "starting"))
            spawn(self._start(worker), name="start a process of entry filters", part=self._part)

    async def _start(self, worker: _Worker) -> None:
        settings = self._settings
        command = (
            sys.executable,
            "-m",
            "geminga.entry_filters.worker",
            settings.entry_filters_directory,
            str(settings.entry_filter_memory_mb),
        )
        try:
            child = await self._launch(command, partial(self._received, worker), partial(self._ended, worker))
        except OSError as error:
            self._ended(worker, f"can not be started ({error.strerror or error})")
            return
        worker.child = child
        if worker not in self._workers:
            child.kill()

    def _begin(self, worker: _Worker, job: _Job) -> None:
        worker.job = job
        assert worker.child is not None
        worker.arm(self._settings.entry_filter_start_s, partial(self._overdue, worker, "loading"))
        worker.child.write(encode_batch(job.batch))

    # ---- what a process says

    def _received(self, worker: _Worker, data: bytes) -> None:
        with Contained(self._part, "an answer of entry filters", is_last=True):
            if worker not in self._workers:
                return
            try:
                for body in worker.frames.feed(data):
                    self._answer(worker, body)
            except PipeError as error:
                self._break(worker, f"their process wrote {error}")

    def _answer(self, worker: _Worker, body: bytes) -> None:
        job = worker.job
        answer = parse_answer(body, 0 if job is None else len(job.batch.entries))
        if answer.kind == READY:
            if worker.is_ready:
                raise PipeError("that it is ready, twice")
            worker.is_ready = True
            worker.arm(IDLE_S, partial(self._idle, worker))
        elif job is None:
            raise PipeError("an answer that nobody asked for")
        elif answer.kind == LOADED:
            budget_ms = self._settings.entry_filter_budget_ms
            worker.arm(budget_ms / 1000, partial(self._overdue, worker, f"longer than {budget_ms} ms for a batch"))
            return
        else:
            worker.job = None
            worker.arm(IDLE_S, partial(self._idle, worker))
            self._done(job, answer)
        self._give()

    def _done(self, job: _Job, answer: FilterAnswer) -> None:
        answered = self._taken(job)
        self.batches += 1
        self.troubles.answered(job.batch.filters)
        if answered is not None:
            answered(EntryFilterError(answer.error, 0) if answer.kind == ERROR else answer.verdicts)

    def _ended(self, worker: _Worker, story: str) -> None:
        with Contained(self._part, "the end of a process of entry filters", is_last=True):
            self._alive -= 1
            if not self._alive and self._all_gone is not None and not self._all_gone.done():
                self._all_gone.set_result(None)
            if worker in self._workers:
                self._break(worker, f"their process {story}")

    # ---- cutting off

    def _overdue(self, worker: _Worker, what: str) -> None:
        with Contained(self._part, "a late process of entry filters", is_last=True):
            if what in ("starting", "loading"):
                what = f"longer than {self._settings.entry_filter_start_s} s for {what}"
            self._break(worker, f"they took {what}")

    def _idle(self, worker: _Worker) -> None:
        with Contained(self._part, "an idle process of entry filters", is_last=True):
            self._end(worker)

    def _break(self, worker: _Worker, reason: str) -> None:
        """End a process for what it did, and tell who waits for it, and all who wait for the same filters."""
        job = worker.job
        self.cut_off += 1
        self._end(worker)
        if job is None:
            # It never ran, or broke by itself: whoever is first in line would get the next one.
            job = self._queue.popleft() if self._queue else None
        if job is not None:
            names = job.batch.filters
            delay_ms = self.troubles.failed(names, reason, self._now_ms())
            _log.error(
                "entry filters %s: %s; the process is ended, and they are asked again in %d ms",
                ", ".join(names),
                reason,
                delay_ms,
            )
            same = [job, *(each for each in self._queue if each.batch.filters == names)]
            self._queue = deque(each for each in self._queue if each.batch.filters != names)
            for each in same:
                self._fail_soon(each, EntryFilterError(reason, delay_ms))
        self._give()

    def _end(self, worker: _Worker) -> None:
        worker.disarm()
        if worker in self._workers:
            self._workers.remove(worker)
        if worker.child is not None:
            worker.child.kill()

    def _fail_soon(self, job: _Job, error: EntryFilterError) -> None:
        asyncio.get_running_loop().call_soon(self._fail, job, error)

    def _fail(self, job: _Job, error: EntryFilterError) -> None:
        answered = self._taken(job)
        if answered is not None:
            with Contained(self._part, "failed entry filters", is_last=True):
                answered(error)

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)
