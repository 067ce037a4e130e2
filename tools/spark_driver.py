"""A Spark driver as a process of its own, which tells its progress in JSON lines and can be killed like a machine.

Shared by the demo and the crash tests. The driver is a Python module run with ``-m``; the JVM and the Python workers
below it die with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from tools.process_tree import children_of, command_of, kill_tree, wait_gone

ROOT = Path(__file__).resolve().parents[1]


class DriverError(Exception):
    """The driver said nothing for too long, or left processes behind; the text ends with its last log lines."""


class SparkDriver:
    """One job, started as often as wanted."""

    def __init__(
        self, module: str, arguments: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """``environment`` goes over this process's own; standard error is appended to ``log``."""
        self.module = module
        self.arguments = list(arguments)
        self.log = log
        self.environment = dict(environment or {})
        self.process: subprocess.Popen[str] | None = None
        #: How often it was started.
        self.starts = 0
        self.started_at = 0.0
        self._lines: SimpleQueue[str | None] = SimpleQueue()

    def start(self, more: Sequence[str] = ()) -> None:
        """Start it; ``more`` are arguments of this start alone."""
        assert self.process is None or self.process.poll() is not None
        self._close_input()
        paths = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), **self.environment}
        self._lines = SimpleQueue()
        self.starts += 1
        self.started_at = time.monotonic()
        with self.log.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self.arguments, *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=environment,
            )
        threading.Thread(target=self._read, args=(self.process, self._lines), daemon=True).start()

    def _close_input(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: SimpleQueue[str | None]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    def tell(self, line: str) -> None:
        """A line on its standard input, which ends when this process does; one that is gone hears nothing."""
        assert self.process is not None
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def next_report(self, timeout_s: float) -> dict[str, Any] | None:
        """What the driver says next; None when it has ended. Raises DriverError after ``timeout_s`` of silence."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise DriverError(f"the Spark driver said nothing for {timeout_s:.0f} s\n{self.log_tail()}") from None
            if line is None:
                return None
            if line.startswith("{"):
                report: dict[str, Any] = json.loads(line)
                return report

    def report_within(self, timeout_s: float) -> dict[str, Any] | None:
        """As :meth:`next_report`, but None also for silence; :attr:`is_running` tells them apart."""
        try:
            return self.next_report(timeout_s)
        except DriverError:
            return None

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """Of the driver's Python process."""
        assert self.process is not None
        return self.process.pid

    def jvm_pid(self) -> int | None:
        """The JVM below it, once there is one."""
        return next((pid for pid in children_of([self.pid]) if "SparkSubmit" in command_of(pid)), None)

    def worker_pids(self) -> list[int]:
        """Python processes that Spark started: the source's, the sink's, those of tasks."""
        jvm = self.jvm_pid()
        if jvm is None:
            return []
        return sorted(pid for pid in children_of([jvm]) if "pyspark" in command_of(pid))

    def kill(self) -> None:
        """kill -9 for the driver, its JVM and its workers, and wait until they are gone."""
        if self.process is None or self.process.poll() is not None:
            return  # its number may be another process's by now
        killed = kill_tree(self.process.pid)
        self.process.wait()
        self._close_input()
        left = wait_gone(killed, 20.0)
        if left:
            raise DriverError(f"still there after kill -9: {[command_of(pid) for pid in left]}")

    def wait(self, timeout_s: float) -> int:
        """The exit code; raises DriverError if it does not end in time."""
        assert self.process is not None
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise DriverError(f"the Spark driver did not end within {timeout_s:.0f} s\n{self.log_tail()}") from None
        self._close_input()
        return code

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.kill()
        self._close_input()
