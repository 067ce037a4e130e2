"""Runs the Spark job to its end over kills at random moments: its driver, a Python worker, a task, the broker.

Everything random comes from one seed; what a kill meets still depends on how fast the machine is. A kill has a share of
the rows, drawn before, and when so many are read some part of a batch more is waited for. So it falls into any step of
a batch, and kills that come close together fall into the replay of the one before. Some are kept for the closing, when
all windows that are left are written at once.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tools.spark_driver import DriverError, SparkDriver
from tools.standalone_process import StandaloneProcess

#: All kinds, in turns.
KINDS = ("driver", "worker", "broker", "task")
#: The share of the kills that the closing gets, and the share of the rows in which the others fall.
CLOSING_SHARE = 0.2
ROWS_SHARE = 0.9
#: A kill waits for so many times as long as the last batch took, at most, and a batch takes at least so long, seconds.
BATCHES_WAITED_MAX = 1.5
BATCH_S_MIN, BATCH_S_MAX = 0.5, 10.0
#: A job that neither reports nor ends for so long is stuck.
SILENCE_MAX_S = 240.0
LOOK_S = 0.2
#: Starts of driver or query that a job may take beyond its kills.
STARTS_MAX = 12


@dataclass(slots=True)
class Run:
    """What happened."""

    seed: int
    rows: int
    kills: Counter[str] = field(default_factory=Counter)
    #: Rows read at each kill, and what was killed.
    moments: list[tuple[int, str]] = field(default_factory=list)
    batches: int = 0
    read: int = 0
    #: What the query failed with, of kills that it did not live through.
    failures: list[str] = field(default_factory=list)
    #: From exec to the first report, each start of the driver.
    start_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0


def plan_kills(rng: random.Random, kinds: Sequence[str], rows: int) -> tuple[list[tuple[float, str]], list[str]]:
    """(rows after which, kind) in order, and what is killed during the closing."""
    shuffled = list(kinds)
    rng.shuffle(shuffled)
    late = int(len(shuffled) * CLOSING_SHARE)
    early, closing = shuffled[late:], shuffled[:late]
    moments = sorted(rng.uniform(0.0, rows * ROWS_SHARE) for _ in early)
    return list(zip(moments, early, strict=True)), closing


def kinds_of(kills: int, kinds: Sequence[str] = KINDS) -> list[str]:
    """So many, of all these kinds in turns."""
    return [kinds[number % len(kinds)] for number in range(kills)]


class Killing:
    """One job, one broker, one seed."""

    def __init__(
        self,
        broker: StandaloneProcess,
        driver: SparkDriver,
        run: Run,
        *,
        close: Callable[[], None],
        say: Callable[[str], None],
        advance: Callable[[int], object],
    ) -> None:
        """``close`` publishes what closes all windows, ``advance`` is told how many rows are read."""
        self._broker = broker
        self._driver = driver
        self._rng = random.Random(run.seed)
        self._close = close
        self._say = say
        self._advance = advance
        self._plan: list[tuple[float, str]] = []
        self._closing: list[str] = []
        self._is_closing = False
        #: When the next kill falls, once that is known.
        self._due: float | None = None
        #: A task is being looked for.
        self._asked_for_task = False
        self._batch_s = BATCH_S_MIN
        self._last_at = 0.0
        self.run = run

    def to_the_end(self, kinds: Sequence[str]) -> Run:
        """Raises DriverError for a job that is stuck or fails too often."""
        self._plan, self._closing = plan_kills(self._rng, kinds, self.run.rows)
        started = self._last_at = time.monotonic()
        self._driver.start()
        while True:
            wait_s = LOOK_S if self._due is None else min(LOOK_S, max(0.0, self._due - time.monotonic()))
            report = self._driver.report_within(wait_s)
            if report is not None:
                self._last_at = time.monotonic()
                self._hear(report)
            elif not self._driver.is_running:
                code = self._driver.wait(0)
                if code == 0:
                    break
                self._start_again(f"the driver ended with exit code {code}")
            elif time.monotonic() - self._last_at > SILENCE_MAX_S:
                told = f"nothing was heard for {SILENCE_MAX_S:.0f} s after {self.run.moments}"
                raise DriverError(f"{told}\n{self._driver.log_tail(40)}")
            if self._due is not None and time.monotonic() >= self._due:
                self._kill_next()
        self.run.seconds = time.monotonic() - started
        return self.run

    def _hear(self, report: dict[str, object]) -> None:
        match report:
            case {"ready": _}:
                self.run.start_seconds.append(time.monotonic() - self._driver.started_at)
            case {"batch": int(), "rows": int(rows)}:
                self.run.batches += 1
                self.run.read += rows
                self._advance(min(self.run.read, self.run.rows))
            case {"task_killed": number}:
                self._asked_for_task = False
                if number is not None:
                    self._count("task", f"task {number}")
            case {"failed": str(why)}:
                self._note_failure(why)
                self._driver.tell("again")
            case {"error": str(why)}:
                self._note_failure(why)
            case {"idle": _}:
                self._go_on()
        if {"batch", "ready", "failed", "task_killed"} & report.keys():
            self._set_due(report)

    def _set_due(self, report: dict[str, object]) -> None:
        if self._due is not None or self._asked_for_task or not self._next_kind():
            return
        if "batch" in report:
            self._batch_s = min(BATCH_S_MAX, max(BATCH_S_MIN, float(str(report.get("seconds", BATCH_S_MIN)))))
        wait_s = self._rng.uniform(0.0, BATCHES_WAITED_MAX * self._batch_s)
        self._due = time.monotonic() + wait_s

    def _next_kind(self) -> str:
        """What is killed next, if it is time for it; else nothing."""
        if self._plan and self.run.read >= self._plan[0][0]:
            return self._plan[0][1]
        return self._closing[0] if self._is_closing and self._closing and not self._plan else ""

    def _go_on(self) -> None:
        """All there is has been read."""
        if not self._is_closing:
            self._is_closing = True
            self._closing = [kind for _, kind in self._plan] + self._closing
            self._plan = []
        elif not self._closing and not self._asked_for_task:
            self._driver.tell("end")
            return
        # Where kills are still to come, once more: the same events are duplicates, but a batch.
        self._close()
        self._driver.tell("again")
        self._set_due({})

    def _kill_next(self) -> None:
        self._due = None
        kind = self._next_kind()
        if kind == "task":
            self._asked_for_task = True
            self._driver.tell("kill task")
        elif kind == "worker":
            workers = self._driver.worker_pids()
            if workers:
                pid = self._rng.choice(workers)
                os.kill(pid, signal.SIGKILL)
                self._count(kind, f"Python worker {pid}")
        elif kind == "broker":
            self._broker.kill()
            self._count(kind, "the broker")
            self._broker.start()
        elif kind == "driver" and self._driver.is_running:
            self._driver.kill()
            self._count(kind, "the Spark driver, its JVM and its workers")
            self._driver.start()
        if kind in ("worker", "broker"):
            # One that is due already does not wait for a batch: it falls into what the query does about this one.
            self._set_due({})
        self._last_at = time.monotonic()

    def _count(self, kind: str, what: str) -> None:
        if self._plan:
            self._plan.pop(0)
        else:
            self._closing.pop(0)
        self.run.kills[kind] += 1
        self.run.moments.append((self.run.read, kind))
        self._say(f"[bold red]killed:[/] {what}, with {self.run.read:,} of {self.run.rows:,} rows read")

    def _note_failure(self, why: str) -> None:
        self.run.failures.append(why)
        if len(self.run.failures) > STARTS_MAX + self.run.kills.total():
            raise DriverError(f"failed too often, after {self.run.moments}: {why}\n{self._driver.log_tail(40)}")

    def _start_again(self, why: str) -> None:
        self._asked_for_task = False
        self._note_failure(why)
        self._driver.start()
